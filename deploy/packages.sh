# shellcheck shell=bash
# Sourced by deploy/quickstart and tests/run.

# need_packages LIST...: installs what is missing of these lists when root; else says how and exits with code 2.
need_packages() {
	local wanted package missing=()
	mapfile -t wanted < <(sed -e 's/#.*//' -e 's/[[:space:]]//g' -e '/^$/d' "$@")
	if ! command -v dpkg-query >/dev/null; then
		echo "this is not Debian; take care of the packages in $* yourself" >&2
		return 0
	fi
	for package in "${wanted[@]}"; do
		dpkg-query -W -f '${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
	done
	if [ ${#missing[@]} -eq 0 ]; then
		return 0
	fi
	if [ "$(id -u)" -ne 0 ]; then
		echo "These packages are missing. Install them and try again:" >&2
		echo "  sudo apt-get install -y ${missing[*]}" >&2
		exit 2
	fi
	echo "installing ${missing[*]}"
	apt-get update -q >/dev/null
	DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}" >/dev/null
}
