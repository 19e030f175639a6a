"""An executor as a command: runs a plan and prints a line of JSON for each task.

    python -m job_wrappers.executor PLAN --folder DIR --device cuda:0 --memory-mib 30000

The plan is JSON: `{"jobs": [{"name": ..., "make": ..., "rounds": ..., "scale": ...}], "order":
[[name, round, task], ...]}`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from job_wrappers.executor.executor import Executor
from job_wrappers.executor.job import Task, TaskJob
from job_wrappers.executor.process import DeviceFailedError
from job_wrappers.offspring import Strays, adopt


def main(words: Sequence[str] | None = None) -> int:
    """Run the plan; 0 when all is done, 1 when a job failed, 2 when plan or device is no good."""
    parser = argparse.ArgumentParser(
        prog="python -m job_wrappers.executor", description="Tasks of several jobs on one GPU."
    )
    parser.add_argument("plan", type=Path, help="jobs and the order of their tasks")
    parser.add_argument("--folder", type=Path, required=True, help="where the jobs' rounds are")
    parser.add_argument("--device", default="cpu", help="as torch names it (default cpu)")
    parser.add_argument(
        "--memory-mib", type=int, metavar="MIB", help="of the device, for models (default all)"
    )
    given = parser.parse_args(words)
    try:
        plan = json.loads(given.plan.read_text())
        jobs = [TaskJob(**job) for job in plan["jobs"]]
        order = [Task(*task) for task in plan["order"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        sys.stderr.write(f"executor: {given.plan}: {error}\n")
        return 2
    limit = given.memory_mib << 20 if given.memory_mib else None
    failed = False
    strays = Strays()
    with Executor(given.folder, jobs, device=given.device, limit=limit, strays=strays) as executor:
        try:
            # Before any job's code has run, so that it is the device's fault.
            executor.await_standby()
            for outcome in executor.run(order):
                failed = failed or bool(outcome.failed)
                sys.stdout.write(json.dumps(asdict(outcome)) + "\n")
                sys.stdout.flush()
        except ValueError as error:
            sys.stderr.write(f"executor: {given.plan}: {error}\n")
            return 2
        except DeviceFailedError as error:
            sys.stderr.write(f"executor: {error}\n")
            return 2
    return int(failed)


if __name__ == "__main__":
    adopt()
    sys.exit(main())
