"""The command line, which begins here and imports nothing before an interrupt is provided for.

Exit codes: 0 done, 1 the command failed and said why in one line, 2 the command line was wrong,
130 interrupted, 141 who read its output has gone (as for other programs that SIGPIPE ends).
"""

import sys
from collections.abc import Sequence


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        args: The arguments after the program's name; those of the process by default.

    Returns:
        The exit code, as the module's docstring lists them.
    """
    try:
        # Importing takes long enough to be interrupted.
        from hetsched_core.cli.group import run

        return run(args)
    except KeyboardInterrupt:
        sys.stderr.write("hetsched: interrupted\n")
        return 130
