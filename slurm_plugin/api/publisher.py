"""What was published last, and the answers from it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from hetsched_core.errors import InputError
from hetsched_core.policy import make_policy
from hetsched_core.types import JobView, Plan, Snapshot
from hetsched_core.values.records import to_json
from slurm_plugin.api.answer_order import Turns
from slurm_plugin.api.answers import SCHEMA, CycleView, Peer, answer, job_asked
from slurm_plugin.api.forecasts import Forecasts
from slurm_plugin.api.page import live_state
from slurm_plugin.api.past import StoreAnswers
from slurm_plugin.api.readings import Readings
from slurm_plugin.backend import SlurmJob
from slurm_plugin.daemon.process.configuration import DaemonConfiguration

_NONE: Mapping[str, JobView] = MappingProxyType({})
_NOTHING: Mapping[str, str] = MappingProxyType({})
_NO_RECORDS: Mapping[str, SlurmJob] = MappingProxyType({})

_PATIENCE_S = 20.0
"""How long a question waits for its turn."""

_OLD_S = 5.0
"""From which age on it is said how old what was seen last is, where a job is refused."""


class Publisher:
    """Takes what the loop knows after each cycle, and answers from it in other threads.

    It asks a policy object of its own what a change would bring, one `why` at a time: the
    loop's is in use. What is published is replaced as a whole, so nothing is seen half-changed.

    Attributes:
        nothing_yet: what is answered while nothing is published.
    """

    def __init__(
        self,
        configuration: DaemonConfiguration,
        now: float,
        past: StoreAnswers | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Begin with nothing published at `now`, seconds UTC.

        Args:
            configuration: of the daemon.
            now: seconds UTC.
            past: what answers questions about the past and the future; None where there is no
                database.
            clock: seconds UTC.
        """
        self._clock = clock
        self._up_since_s = now
        self._published: CycleView | None = None
        self.nothing_yet = "the daemon has not read Slurm yet; ask again in a moment"
        self._readings = Readings()
        self.turns = Turns()
        self._page_lock = threading.Lock()
        self._page_of: tuple[CycleView, dict[str, Any]] | None = None
        self._past = past or StoreAnswers(lambda: None, Forecasts(time.perf_counter))
        self.adopt(configuration)

    def adopt(self, configuration: DaemonConfiguration) -> None:
        """Go on with another configuration."""
        self._configuration = configuration
        self._policy = make_policy(configuration.policy, configuration.parameters)

    def publish(
        self,
        snapshot: Snapshot | None,
        plan: Plan,
        decisions: int,
        away: str = "",
        plan_took_s: float | None = None,
        *,
        private_jobs: bool = False,
        later: Mapping[str, JobView] = _NONE,
        aside: Mapping[str, str] = _NOTHING,
        records: Mapping[str, SlurmJob] = _NO_RECORDS,
        suspended: frozenset[str] = frozenset(),
    ) -> None:
        """Replace what was published; without a snapshot, Slurm was never read yet.

        `plan_took_s` is how long the policy took, None if it was not asked in this cycle;
        `private_jobs` is what Slurm says of who may see whose jobs; `later` are the jobs that no
        policy is told of yet, since their users let them start later; `aside` are those that are in
        no plan, each with why, and `records` all of Slurm's; `suspended` are the ids of those that
        are suspended in Slurm.
        """
        before = self._published
        if away and before is not None:
            self._published = replace(before, away=away)
        elif snapshot is not None:
            self._readings.note(snapshot, plan_took_s)
            made_s = snapshot.now
            if before is not None and before.decisions == decisions:
                made_s = before.plan_s or made_s
            self._published = CycleView(
                at_s=snapshot.now,
                up_since_s=self._up_since_s,
                policy=self._policy,
                mode=self._configuration.mode.value,
                snapshot=snapshot,
                plan=plan,
                plan_s=made_s if decisions else None,
                decisions=decisions,
                private_jobs=self.private_jobs(private_jobs),
                later=later,
                aside=aside,
                records=records,
                suspended=suspended,
            )

    def private_jobs(self, in_slurm: bool) -> bool:
        """Whether whose jobs there are is nobody else's business, by Slurm or by the site."""
        return in_slurm or self._configuration.private_jobs

    def answer(self, request: Mapping[str, object], peer: Peer) -> dict[str, Any]:
        """Answer a request.

        Raises:
            InputError: there is no such question, or nothing to answer it from yet.
        """
        published = self._published
        if published is None:
            raise InputError(self.nothing_yet)
        try:
            return self._answer(published, request, peer)
        except InputError as error:
            age_s = self._clock() - published.at_s
            if age_s < max(_OLD_S, 2 * self._configuration.cycle_s):
                raise
            # While a policy thinks jobs come and go unseen.
            raise InputError(f"{error} (at the last look, {age_s:.0f} s ago; ask again)") from None

    def _answer(
        self, published: CycleView, request: Mapping[str, object], peer: Peer
    ) -> dict[str, Any]:
        match request.get("ask"):
            case "page":
                return self._page(published)
            case "when":
                return self._past.when(published, job_asked(published, request, peer), peer)
            case "history":
                return self._past.history(published, job_asked(published, request, peer), peer)
            case "db":
                return self._past.db(published, peer)
        if request.get("ask") not in ("why", "explain"):
            return answer(published, request, peer)
        # Who waits for longer has gone (the client's patience is 30 s); nobody would hear it.
        with self.turns.turn(peer.user, _PATIENCE_S):
            return answer(published, request, peer)

    def _page(self, published: CycleView) -> dict[str, Any]:
        # It takes a part of a cycle, and the same for everybody: once is enough.
        with self._page_lock:
            if self._page_of is None or self._page_of[0] is not published:
                state = live_state(published, self._readings.past(published.snapshot.cluster))
                self._page_of = (
                    published,
                    {
                        "schema": SCHEMA,
                        "at_s": published.at_s,
                        "away": published.away,
                        "page": to_json(state),
                    },
                )
            return self._page_of[1]
