"""Ends the processes of one that was killed, which could no longer do so itself."""

from __future__ import annotations

import subprocess
from contextlib import suppress

# Whoever signals all processes of a job does not mean this one. It reads until the other end of its
# input is closed, which the kernel does however the launcher ends.
_SCRIPT = """
trap '' HUP INT TERM USR1 USR2
groups=
while read -r said; do
    case $said in
    -*)
        left=
        for group in $groups; do [ "$group" = "$said" ] || left="$left $group"; done
        groups=$left
        ;;
    *) groups="$groups -$said" ;;
    esac
done
[ -n "$groups" ] || exit 0
kill -s TERM -- $groups
sleep "$1"
# Those that lead their sessions, as all of them did at first, and what descends from them.
leaders=
for group in $groups; do leaders="$leaders ${group#-}"; done
all=
grown=yes
while [ "$grown" ]; do
    grown=
    for stat in /proc/[0-9]*/stat; do
        { read -r line <"$stat"; } 2>/dev/null || continue
        pid=${stat#/proc/}
        pid=${pid%/stat}
        set -- ${line##*)}
        case " $all " in
        *" $pid "*) ;;
        *" $2 "*) all="$all $pid"; grown=yes ;;
        *)
            case "$leaders " in
            *" $pid "*) [ "$4" != "$pid" ] || { all="$all $pid"; grown=yes; } ;;
            esac
            ;;
        esac
    done
done
kill -s KILL -- $groups $all
"""


class Guardian:
    """A process beside a launcher or an executor, which outlives it only to end its workers.

    They get SIGTERM first, for which a session saves and torchrun ends its own workers. Process
    groups are ended, and what descends from those that lead them: a daemon has left the group.

    Attributes:
        pid: of the guardian.
    """

    def __init__(self, kill_after_s: float) -> None:
        """Start it; workers that are still there so long after SIGTERM get SIGKILL.

        Raises:
            OSError: there is no /bin/sh.
        """
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", _SCRIPT, "hetsched-guardian", f"{max(0.0, kill_after_s):.3f}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            bufsize=0,
        )
        self.pid = self._process.pid

    def guard(self, group: int) -> None:
        """Have it end this process group, should this process be killed."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{group}\n".encode())

    def release(self, group: int) -> None:
        """Have it no longer: the one that led it was waited for, and another may get its number."""
        assert self._process.stdin is not None
        # Without a guardian nothing is ended either.
        with suppress(OSError):
            self._process.stdin.write(f"-{group}\n".encode())

    def close(self) -> None:
        """Send it away: this process has seen to its workers."""
        self._process.kill()
        self._process.communicate()
