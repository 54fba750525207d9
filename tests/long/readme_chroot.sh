#!/bin/bash
# The README's two commands in a fresh Debian 12, from a clean clone, and both kinds of quickstart, as root and as an
# ordinary user.  Needs root, debootstrap and a Debian mirror (REINS_TEST_MIRROR, default: that of this machine).
# REINS_TEST_QUICKSTART=only leaves out tests/run, which takes most of the time.
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

# in_chroot USER COMMAND: in that user's clone, with nothing of our environment.
in_chroot() {
	local home=/root
	[ "$1" = root ] || home=/home/$1
	chroot --userspec="$1:" "$chroot" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME="$home" USER="$1" LANG=C.UTF-8 \
		sh -c "cd /src/$1/reins && $2" </dev/null
}

timed() { # USER COMMAND: each line with the seconds since the beginning
	local began=$SECONDS line
	printf '\n-- as %s: %s\n' "$1" "$2"
	in_chroot "$1" "$2" 2>&1 | while IFS= read -r line; do printf '%4d  %s\n' $((SECONDS - began)) "$line"; done
	echo "-- $((SECONDS - began)) s: $2"
}

cleanup() {
	in_chroot root 'deploy/quickstart --stop' >/dev/null 2>&1 || true
	in_chroot tired 'deploy/quickstart --stop' >/dev/null 2>&1 || true
	umount "$chroot/dev/pts" "$chroot/dev/shm" "$chroot/proc" 2>/dev/null || true
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
mkdir -p "$chroot/dev/shm" "$chroot/dev/pts"
mount -t tmpfs -o mode=1777 shm "$chroot/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666,mode=0620 devpts "$chroot/dev/pts"
ln -sf pts/ptmx "$chroot/dev/ptmx"
chroot "$chroot" useradd -m tired
for user in root tired; do
	mkdir -p "$chroot/src/$user"
	git -c safe.directory='*' clone -q . "$chroot/src/$user/reins"
done
chroot "$chroot" chown -R tired: /src/tired

# The commands as README.md has them: lines of a sh block that begin with deploy/ or tests/ and take no flag.
# shellcheck disable=SC2016
mapfile -t commands < <(sed -n '/^```sh$/,/^```$/p' README.md | grep -E '^(deploy|tests)/[a-z]+$' | sort -u)
if [ "${commands[*]}" != "deploy/quickstart tests/run" ]; then
	echo "README.md should show deploy/quickstart and tests/run, not: ${commands[*]}" >&2
	exit 1
fi

# An ordinary user of a bare machine is told what is missing.
code=0
in_chroot tired deploy/quickstart >"$chroot/said" 2>&1 || code=$?
if [ $code -ne 2 ] || ! grep -q 'sudo apt-get install -y .*gcc' "$chroot/said"; then
	cat "$chroot/said" >&2
	echo "as an ordinary user without packages: exit code $code, not 2 and the apt line" >&2
	exit 1
fi

# Downloads apart, so that the time of the next command is ours.
# shellcheck disable=SC2016
download='. deploy/packages.sh; apt-get() { case $1 in install) command apt-get -d "$@" ;; *) command apt-get "$@" ;; esac; }; need_packages'
timed root "bash -c '$download deploy/packages.txt'"
timed root deploy/quickstart
timed root 'deploy/quickstart --cluster'
timed tired deploy/quickstart # beside root's: other ports
timed tired 'deploy/quickstart --cluster'
for user in root tired; do
	for environment in env env-cluster; do
		said=$(in_chroot $user ". run/quickstart/$environment && reins submit --wait -- echo it goes on" 2>/dev/null)
		[ "$said" = "it goes on" ]
	done
	timed $user 'deploy/quickstart --stop'
	timed $user deploy/quickstart
	in_chroot $user '. run/quickstart/env && reins list' | grep quickstart >/dev/null # of before the stop
	timed $user 'deploy/quickstart --stop'
done
if pgrep -af '^(/src/(root|tired)/|/usr/lib/postgresql/.*-D /src/)'; then
	echo "this is left after --stop" >&2
	exit 1
fi
if [ "${REINS_TEST_QUICKSTART-}" != only ]; then
	timed root tests/run
fi
echo "all of it worked"
