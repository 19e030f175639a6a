#!/bin/sh
# Builds the package on a bare Debian of a suite (bookworm, trixie), boots another one, and goes there
# from the package to placed jobs: try.sh SUITE SDIST OUT. It needs root, mmdebstrap, systemd-nspawn,
# and the mirror of this machine's apt.
set -eu
suite=$1
sdist=$(realpath "$2")
mkdir -p "$3"
out=$(realpath "$3")
here=$(dirname "$(realpath "$0")")

# The index of this machine's pip is that of the environment, which goes with us; so does what it
# is trusted by.
certificates=${PIP_CERT:-/etc/ssl/certs/ca-certificates.crt}
source=$(basename "$sdist" .tar.gz)
mmdebstrap --variant=apt --format=null --include=python3-venv,make \
    --customize-hook="mkdir -p \"\$1\$(dirname '$certificates')\" && cp '$certificates' \"\$1$certificates\"" \
    --customize-hook="tar -C \"\$1/tmp\" -xf '$sdist'" \
    --chrooted-customize-hook="make -C '/tmp/$source' deb" \
    --customize-hook="cp \"\$1/tmp/$source/build/deb/\"*.deb '$out/'" \
    "$suite" /dev/null
package=$(ls -t "$out"/hetsched_*.deb | head -n 1)

# The other one is booted: units, users and rights are those of a site.
machine=$(mktemp -d)
trap 'rm -rf "$machine"' EXIT
trap 'exit 1' INT TERM
mmdebstrap --variant=apt --include=systemd-sysv,dbus,passwd,python3 "$suite" "$machine"
mkdir -p "$machine/root/build/deb"
cp "$package" "$machine/root/build/deb/"
cp "$here/follow.py" "$here/../smoke.sh" "$here/../../../docs/live/admin-guide.md" "$machine/root/"
# The kernel's old hierarchy of cgroups may be mounted here.
UNIFIED_CGROUP_HIERARCHY=1 systemd-nspawn --register=no --keep-unit --directory="$machine" \
    --boot --console=pipe SYSTEMD_CGROUP_ENABLE_LEGACY_FORCE=1 </dev/null &
nspawn=$!
trap 'kill "$nspawn" || true; wait; rm -rf "$machine"' EXIT
enter() {
    nsenter --target "$(pgrep -P "$nspawn")" --all --wdns=/root \
        env --ignore-environment PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
        DEBIAN_FRONTEND=noninteractive "$@"
}
until enter systemctl is-system-running 2>/dev/null | grep -qE 'running|degraded'; do
    kill -0 "$nspawn"
    sleep 0.5
done
enter python3 follow.py admin-guide.md
enter sh smoke.sh /opt/hetsched/bin
enter apt-get purge -qq -y hetsched
enter test ! -e /opt/hetsched -a ! -e /usr/bin/hetsched
echo "$package: built, installed, tried, followed to placed jobs, and purged on a bare $suite"
