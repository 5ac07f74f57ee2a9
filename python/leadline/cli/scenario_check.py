"""Lets this host's agent compile a scenario without running it: patterns, paths and selectors that only the agent
can refuse are known before anything is measured."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from leadline.errors import PlanError

if TYPE_CHECKING:
    from leadline.scenario.lowering import LoweredScenario

_PLACED = re.compile(r"(.+?):(\d+): (.+)", re.S)


def check_scenario(lowered: LoweredScenario, file: str) -> None:
    """Raise PlanError, with file and line, for a part that the agent refuses.

    Raises:
        MissingBinary: there is no agent here.
        AgentLost: it did not answer.
    """
    from leadline.agents.refusal import refusal
    from leadline.contract.models import HttpRoute, HttpTimeouts, ScenarioPlan, ScenarioWorkload, SocketOptions

    workload = ScenarioWorkload(
        plan=ScenarioPlan.model_validate(lowered.plan),
        seed=1,
        threads=1,
        cpus=[],
        duration_ms=1,
        warmup_ms=0,
        connections_per_user=1,
        connections=1,
        timeouts=HttpTimeouts(connect_ms=1, response_ms=1),
        route=HttpRoute(bind=[], resolve=[], dns="run"),
        socket=SocketOptions(delay=False, fast_open=False),
        interval_ms=1000,
    )
    error = refusal(workload)
    if error is None or error.code != "bad_scenario":
        return
    placed = _PLACED.fullmatch(error.message)
    if placed is None:
        raise PlanError(file, None, error.message)
    raise PlanError(placed[1], int(placed[2]), placed[3])
