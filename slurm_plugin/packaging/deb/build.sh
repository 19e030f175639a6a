#!/bin/sh
# Makes a Debian package of a virtual environment in /opt/hetsched, for the release that this runs
# on: build.sh PYTHON OUT. It needs python3-venv, and an index that pip finds.
set -eu
python=$1
out=$2
here=$(dirname "$0")
packaging=$here/..

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
chmod 755 "$root"
umask 022

venv=$root/opt/hetsched
"$python" -m venv "$venv"
"$venv/bin/pip" install --quiet --no-compile --constraint requirements.lock '.[report]'
"$venv/bin/pip" check
# Scripts name their Python by its path, which is another one once this is installed.
grep -rlI "$root" "$venv/bin" "$venv/pyvenv.cfg" | xargs sed -i "s|$root||g"
find "$venv" -name __pycache__ -prune -exec rm -rf {} +
# Times of files change on the way.
"$venv/bin/python" -m compileall -q --invalidation-mode unchecked-hash -s "$root" -p / "$venv/lib"

for unit in hetschedd hetsched-page; do
    install -D -m 644 "$packaging/$unit.service" "$root/usr/lib/systemd/system/$unit.service"
done
install -D -m 644 "$packaging/hetsched.sysusers" "$root/usr/lib/sysusers.d/hetsched.conf"
for page in "$packaging"/man/*; do
    folder=$root/usr/share/man/man${page##*.}
    install -d "$folder"
    gzip -9nc "$page" >"$folder/${page##*/}.gz"
done
install -D -m 644 "$packaging/hetschedd.toml" "$root/etc/hetsched/hetschedd.toml"
doc=$root/usr/share/doc/hetsched
install -D -m 644 LICENSE "$doc/copyright"
mv "$venv/share/doc/hetsched"/* "$doc/"
rm -rf "$venv/share/doc" "$venv/share/man"
"$venv/bin/python" "$packaging/notices.py" >"$doc/THIRD-PARTY.md"
install -d "$root/usr/bin" "$root/usr/sbin"
ln -s /opt/hetsched/bin/hetsched /opt/hetsched/bin/hetsched-run "$root/usr/bin/"
ln -s /opt/hetsched/bin/hetschedd "$root/usr/sbin/"

release=$("$venv/bin/python" -c 'from importlib.metadata import version; print(version("hetsched"))')
version=$release+deb$(. /etc/os-release && echo "$VERSION_ID")
architecture=$(dpkg --print-architecture)
range=$("$venv/bin/python" -c 'import sys
a, b = sys.version_info[:2]
print(f"python3 (>= {a}.{b}), python3 (<< {a}.{b + 1})")')
install -d "$root/DEBIAN"
cat >"$root/DEBIAN/control" <<END
Package: hetsched
Version: $version
Architecture: $architecture
Maintainer: hetsched authors <root@localhost>
Installed-Size: $(du -sk --exclude=DEBIAN "$root" | cut -f1)
Section: admin
Priority: optional
Depends: $range, libc6, libstdc++6, systemd | systemd-standalone-sysusers
Recommends: slurm-client, munge
Description: scheduler of deep-learning jobs on Slurm clusters with GPUs of several types
 A daemon beside slurmctld that decides which job runs on which GPUs, and
 replays of accounting logs that compare policies. All that it needs of Python
 is in /opt/hetsched.
END
echo /etc/hetsched/hetschedd.toml >"$root/DEBIAN/conffiles"
install -m 755 "$here/postinst" "$here/prerm" "$here/postrm" "$root/DEBIAN/"

mkdir -p "$out"
dpkg-deb --root-owner-group -Zzstd --build "$root" "$out/hetsched_${version}_$architecture.deb"
