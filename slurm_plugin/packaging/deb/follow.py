"""Follow the admin guide on a machine that has booted: from the package to placed jobs, and off.

    follow.py GUIDE

runs the commands of that page as root, in a folder that has the package in `build/deb`. `try.sh`
boots a bare Debian for it. What a site has of its own is made up: a testbed stands in for its
Slurm, and `ann` for its users.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

SLURM = "24.11"
"""What Debian's stable release has."""

TESTBED = f"hetsched testbed up --nodes 3 --slurm {SLURM} --directory /srv/slurm"

JOBS = ("#HETSCHED --gpu-set=1,2,4", "#SBATCH --gpus=2", "#SBATCH --cpus-per-task=1")
"""One with a requirement set, one as anybody submits it, and one without GPUs."""

PATIENCE_S = 120.0


def main() -> int:
    """Follow the page named; return 0 once everything was seen."""
    guide = Guide(Path(sys.argv[1]).read_text())

    install = guide.line("2. Install", "apt-get install")
    shell(install.partition("make deb && ")[2])
    be_a_site()
    shell(guide.line("2. Install", "sacctmgr add user hetsched"))
    for line in guide.lines("2. Install", "hetsched doctor"):
        shell(line)

    for line in guide.lines("3. Shadow", "systemctl enable"):
        # It would go on for ever.
        shell(line.replace(" -f ", " ").removesuffix(" -f"))
    check("hetsched status", "shadow")

    for line in guide.lines("4. Enforce", "systemctl reload"):
        if line.startswith("scontrol show"):
            # With the first cycle after it.
            check(line, "State=ACTIVE")
        else:
            shell(line)
    jobs = [submit(line) for line in JOBS]
    for job in jobs:
        check(f"squeue --noheader --jobs={job} --format='%T %v'", "RUNNING hetsched")
        check("journalctl -u hetschedd", f"place job={job} ")
    shell("runuser -u ann -- hetsched queue")

    for line in guide.lines("5. Off again", "systemctl reload"):
        shell(line)
    check("scontrol show reservation", "No reservations in the system")
    slurms_own = submit(JOBS[0])
    check(f"squeue --noheader --jobs={slurms_own} --format='%T %v'", "RUNNING (null)")
    for job in jobs:
        check(f"squeue --noheader --jobs={job} --format=%T", "RUNNING")
    shell("systemctl disable --now hetschedd")
    return 0


class Guide:
    """The commands of a page, by section."""

    def __init__(self, text: str) -> None:
        """Take the page's text."""
        self._sections = dict(
            part.split("\n", 1) for part in re.split(r"^## ", text, flags=re.MULTILINE)[1:]
        )

    def lines(self, section: str, having: str) -> list[str]:
        """Return the commands of a block that has these words, without what is said of them."""
        text = self._sections[section]
        blocks = re.findall(r"^```console\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        (block,) = (each for each in blocks if having in each)
        return [re.sub(r"\s{3,}#.*", "", line) for line in block.splitlines()]

    def line(self, section: str, having: str) -> str:
        """Return the command that has these words."""
        (line,) = (each for each in self.lines(section, having) if having in each)
        return line


def be_a_site() -> None:
    """Have a Slurm, of which the unit is told, and a user."""
    shell("useradd --create-home ann")
    os.environ["XDG_CACHE_HOME"] = "/srv/cache"
    told = shell(TESTBED)
    names = dict(re.findall(r"^export (\w+)='?(.*?)'?$", told, re.MULTILINE))
    os.environ.update(names)
    unit = Path("/etc/systemd/system/hetschedd.service.d/site.conf")
    unit.parent.mkdir(parents=True)
    lines = (f'Environment="{name}={value}"' for name, value in names.items())
    unit.write_text("\n".join(("[Service]", *lines, "")))
    shell("systemctl daemon-reload")


def submit(line: str) -> str:
    """Let ann submit a job, and return its id."""
    script = Path("/srv/job.sh")
    script.write_text(f"#!/bin/bash\n{line}\n#SBATCH --output=/dev/null\nsleep 600\n")
    return shell(f"runuser -u ann -- sbatch --parsable {script}").strip()


def check(question: str, words: str) -> None:
    """Ask until the answer has these words."""
    until_s = time.monotonic() + PATIENCE_S
    while words not in (said := run(question).stdout):
        if time.monotonic() > until_s:
            raise SystemExit(f"{question}: {words!r} was never there, but: {said}")
        time.sleep(0.5)
    say(f"# {question}\n... {words}\n")


def shell(command: str) -> str:
    """Run a command line that has to succeed, show it, and return what it prints."""
    say(f"# {command}\n")
    done = run(command)
    say(done.stdout)
    if done.returncode:
        raise SystemExit(f"{command}: it ended with {done.returncode}")
    return done.stdout


def run(command: str) -> subprocess.CompletedProcess[str]:
    """Run a command line; what asks whether to go on is told yes."""
    words = ["bash", "-c", command]
    return subprocess.run(words, input="y\n", stdout=subprocess.PIPE, text=True, check=False)


def say(text: str) -> None:
    """Show text at once, since commands write on the same terminal."""
    sys.stdout.write(text)
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
