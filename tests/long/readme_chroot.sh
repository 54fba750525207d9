#!/bin/bash
# The README's two commands in a fresh Debian 12, from a clean clone.  Needs root, debootstrap and a Debian mirror
# (REINS_TEST_MIRROR, default: that of this machine).
set -euo pipefail
cd "$(dirname "$0")/../.."

if [ "$(id -u)" -ne 0 ]; then
	echo "needs root" >&2
	exit 1
fi
mirror=${REINS_TEST_MIRROR:-$(sed -nE 's/^(deb|URIs:).* ?(https?:[^ ]*debian\/?)( .*|$)/\2/p' \
	/etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null | head -n 1 || true)}
mirror=${mirror:-http://deb.debian.org/debian}
chroot=$(mktemp -d /var/tmp/reins-chroot.XXXXXX)
chmod 755 "$chroot" # it is the root directory of users that are not root

cleanup() {
	chroot "$chroot" sh -c 'cd /src/reins && deploy/quickstart --stop' >/dev/null 2>&1 || true
	umount "$chroot/dev/shm" "$chroot/proc" 2>/dev/null || true
	rm -rf --one-file-system "$chroot"
}
trap cleanup EXIT

debootstrap --variant=minbase --include=ca-certificates bookworm "$chroot" "$mirror" >/dev/null
cp /etc/resolv.conf "$chroot/etc/resolv.conf"
apt-config dump | grep -E '^Acquire::https?::Proxy' >"$chroot/etc/apt/apt.conf.d/proxy" || true
echo "deb $mirror-security bookworm-security main" >>"$chroot/etc/apt/sources.list"
# No service is to start inside.
printf '#!/bin/sh\nexit 101\n' >"$chroot/usr/sbin/policy-rc.d"
chmod 755 "$chroot/usr/sbin/policy-rc.d"
mount -t proc proc "$chroot/proc"
mkdir -p "$chroot/dev/shm"
mount -t tmpfs -o mode=1777 shm "$chroot/dev/shm"
mkdir -p "$chroot/src"
git -c safe.directory='*' clone -q . "$chroot/src/reins"

# The commands as README.md has them: lines of a sh block that begin with deploy/ or tests/ and take no flag.
# shellcheck disable=SC2016
mapfile -t commands < <(sed -n '/^```sh$/,/^```$/p' README.md | grep -E '^(deploy|tests)/[a-z]+$' | sort -u)
if [ ${#commands[@]} -ne 2 ]; then
	echo "README.md should show deploy/quickstart and tests/run, not: ${commands[*]}" >&2
	exit 1
fi
for command in "${commands[@]}"; do
	echo "-- $command"
	chroot "$chroot" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 \
		sh -c "cd /src/reins && $command" </dev/null
done
