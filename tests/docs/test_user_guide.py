"""The page for users: one page, whose script and options are real."""

import re
import subprocess
from pathlib import Path

LIVE = Path(__file__).parents[2] / "docs/live"
GUIDE = (LIVE / "user-guide.md").read_text()


def test_it_is_one_page() -> None:
    assert len(GUIDE.split()) < 700


def test_its_scripts_are_shell_that_bash_can_read() -> None:
    scripts = re.findall(r"```bash\n(.*?)```", GUIDE, re.DOTALL)
    assert scripts
    for script in scripts:
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)


def test_every_option_of_ours_is_one_that_submitting_explains() -> None:
    table = (LIVE / "submitting.md").read_text()
    explained = set(re.findall(r"^\| `(--[\w-]+)", table, re.MULTILINE))
    (line,) = re.findall(r"^#HETSCHED (.*)$", GUIDE, re.MULTILINE)
    used = set(re.findall(r"--[\w-]+", line))
    used |= {"--gpu-types", "--no-move", "--learning-rate", "--lr-scaling", "--profile-key"}
    assert all(option in GUIDE for option in used)
    assert used <= explained
