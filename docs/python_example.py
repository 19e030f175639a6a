"""Replay a log under two policies and compare what becomes of its jobs."""

from hetsched_core.policy import make_policy
from hetsched_core.replay.replay import replay
from hetsched_core.simulate import SimulationSettings
from hetsched_core.traces.bundled import cluster_path, log_path
from hetsched_core.traces.cluster_file import read_cluster
from hetsched_core.traces.load import LoadOptions, load_workload
from hetsched_core.traces.sacct import SacctOptions, parse_zone

options = LoadOptions(sacct=SacctOptions(zone=parse_zone("UTC")))
loaded = load_workload([log_path()], read_cluster(cluster_path()), options)
policies = {name: make_policy(name) for name in ("slurm", "las")}

ends = {}
for one in replay(loaded, policies, SimulationSettings()):
    print(f"{one.name}: average JCT {one.measures.avg_jct_s / 3600:.2f} h")
    ends[one.name] = {record.job.id: record.end_s for record in one.log.jobs}

sooner = sum(end_s < ends["slurm"][job] for job, end_s in ends["las"].items())
print(f"{sooner} of {len(ends['las'])} jobs end sooner under las")
