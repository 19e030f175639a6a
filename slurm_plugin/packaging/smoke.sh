#!/bin/sh
# What an installation has to do, whatever made it: smoke.sh BIN, the folder of its commands.
set -eu
bin=$1
trap 'echo "not done: see above" >&2' EXIT

# Nothing may come from the folder in which somebody happens to be.
cd "$(mktemp -d)"
"$bin/hetsched" --version
for command in hetsched hetschedd hetsched-run; do
    "$bin/$command" --help >/dev/null
done

where=$("$bin/python" -c 'import hetsched_core, slurm_plugin
print(*hetsched_core.__path__, *slurm_plugin.__path__)')
log=${where% *}/traces/bundled
"$bin/hetsched" replay "$log/sacct.txt" --cluster "$log/cluster.toml" --tz UTC --policy fifo

package=${where#* }
"$bin/hetsched" config check "$package/packaging/hetschedd.toml"
# Where no Slurm answers it says so, and that is wrong.
"$bin/hetsched" doctor "$package/packaging/hetschedd.toml" || [ $? -eq 1 ]
for file in submit/hetsched.lua submit/job_submit.lua submit/hetsched_spank.c packaging/grafana.json packaging/alerts.yaml \
    packaging/hetschedd.service packaging/hetsched-page.service packaging/hetsched.sysusers \
    packaging/man/hetsched.1 packaging/man/hetschedd.8 packaging/man/hetsched.toml.5; do
    test -s "$package/$file" || { echo "$package/$file is missing" >&2; exit 1; }
done
trap - EXIT
echo "it works: $bin"
