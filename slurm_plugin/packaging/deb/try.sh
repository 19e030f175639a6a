#!/bin/sh
# Builds the package on a bare Debian of a suite (bookworm, trixie), and installs and tries it on
# another one: try.sh SUITE SDIST OUT. It needs root, mmdebstrap, and the mirror of this machine's apt.
set -eu
suite=$1
sdist=$(realpath "$2")
mkdir -p "$3"
out=$(realpath "$3")
here=$(dirname "$(realpath "$0")")

# The index of this machine's pip is that of the environment, which goes with us; so does what it
# is trusted by.
certificates=${PIP_CERT:-/etc/ssl/certs/ca-certificates.crt}
bare() {
    mmdebstrap --variant=apt --format=null "$@" "$suite" /dev/null
}

source=$(basename "$sdist" .tar.gz)
bare --include=python3-venv,make \
    --customize-hook="mkdir -p \"\$1\$(dirname '$certificates')\" && cp '$certificates' \"\$1$certificates\"" \
    --customize-hook="tar -C \"\$1/tmp\" -xf '$sdist'" \
    --chrooted-customize-hook="make -C '/tmp/$source' deb" \
    --customize-hook="cp \"\$1/tmp/$source/build/deb/\"*.deb '$out/'"
package=$(ls -t "$out"/hetsched_*.deb | head -n 1)

bare --customize-hook="cp '$package' '$here/../smoke.sh' \"\$1/tmp/\"" \
    --chrooted-customize-hook="apt-get install -qq -y --no-install-recommends /tmp/$(basename "$package")" \
    --chrooted-customize-hook="sh /tmp/smoke.sh /opt/hetsched/bin && hetsched config check /etc/hetsched/hetschedd.toml && getent passwd hetsched" \
    --chrooted-customize-hook="apt-get purge -qq -y hetsched && test ! -e /opt/hetsched -a ! -e /usr/bin/hetsched"
echo "$package: built, installed, tried and purged on a bare $suite"
