"""Prints which packages an installation brings with it, under which licences, by their metadata.

Run it with the Python of that installation; it needs nothing but the standard library.
"""

from __future__ import annotations

import re
import sys
from importlib.metadata import Distribution, distribution
from typing import TextIO

HEAD = """\
# Third-party notices

hetsched itself is under the MIT licence. What it needs to run comes from others, under their own
licences, whose texts lie in each package's folder `*.dist-info`:

| package | licence |
| --- | --- |
"""

FOOT = """
pyslurm is not among them. It is GPL-2.0-only, and nothing of ours installs it: hetsched uses it
where it is, and runs without it. No package or container that is made here holds it. Whoever passes
both on together has the terms of the GPL to keep, which the Free Software Foundation holds not to
go with those of Apache-2.0, under which some of the above are.
"""


def brought_by(name: str, extra: str = "") -> dict[str, Distribution]:
    """Return the packages that a package, with an extra, needs here, by name; without itself."""
    found: dict[str, Distribution] = {}
    waiting = [(name, extra)]
    while waiting:
        needed, wanted = waiting.pop()
        for line in distribution(needed).requires or ():
            requirement, _, marker = line.partition(";")
            named = re.match(r"[\w.-]+", requirement)
            extras = re.findall(r"""extra == ["']([\w-]+)["']""", marker)
            if named is None or (extras and wanted not in extras):
                continue
            key = named[0].lower().replace("_", "-")
            if key not in found and key != name and (there := _installed(named[0])):
                found[key] = there
                waiting.append((named[0], ""))
    return found


def _installed(name: str) -> Distribution | None:
    """Return a package, None where it is not here: what another system or Python would need."""
    try:
        return distribution(name)
    except ModuleNotFoundError:
        return None


def licence(package: Distribution) -> str:
    """Return what the metadata of a package says: an expression, classifiers, or a line of text."""
    told = package.metadata
    if "License-Expression" in told:
        return told["License-Expression"]
    classified = [
        line.rpartition(" :: ")[2]
        for line in told.get_all("Classifier") or ()
        if line.startswith("License :: ") and not line.endswith("OSI Approved")
    ]
    if classified or "License" not in told:
        return ", ".join(classified) or "see its files"
    return told["License"].strip().partition("\n")[0]


def write(out: TextIO) -> None:
    """Write the notices of hetsched and its extra `report`."""
    packages = brought_by("hetsched", "report")
    rows = [f"| {name} | {licence(each)} |\n" for name, each in packages.items()]
    out.write(HEAD + "".join(sorted(rows)) + FOOT)


if __name__ == "__main__":
    write(sys.stdout)
