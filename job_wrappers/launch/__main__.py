"""Runs `hetsched-run` by the folder's path, as `python -m job_wrappers.launch` too."""

import sys
from pathlib import Path

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from job_wrappers.launch.command import main

if __name__ == "__main__":
    sys.exit(main())
