"""Runs with a ladder whose shares are known: figures of each layer as given, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from leadline.analysis.ladder import of_run
from leadline.analysis.ladder_model import HostCost, Ladder
from leadline.analysis.model import (
    Bound,
    JournalDamage,
    Limit,
    LimitedBy,
    Metric,
    RunAnalysis,
    TestResult,
    TrialResult,
    Validity,
    Verdict,
)
from leadline.analysis.repeats import summarise
from leadline.plan.ladder import all_rungs

MBIT = 1e6
SPREAD = (0.99, 1.0, 1.01, 1.005, 0.995)
"""The repeats of each figure, as a factor; its mean is 1."""
PLAIN: Mapping[str, float] = {"udp": 970 * MBIT, "tcp": 956 * MBIT, "http": 950 * MBIT, "https": 760 * MBIT}
TUNNEL: Mapping[str, float] = {"udp": 194 * MBIT, "tcp": 190 * MBIT, "http": 188 * MBIT, "https": 186 * MBIT}


def ladders(
    figures: Mapping[str, Mapping[str, float]],
    *,
    repeats: Sequence[float] = SPREAD,
    doubts: Mapping[Any, tuple[Verdict, Bound]] | None = None,
    link_bps: float | None = 1e9,
    baseline: str | None = "c02",
    limits: Mapping[tuple[str, str], Limit] | None = None,
    missing: Mapping[tuple[str, str], str] | None = None,
    more: Mapping[tuple[str, str], Mapping[str, Metric]] | None = None,
    named: str = "openvpn",
) -> dict[str, Ladder]:
    """The ladder of each case: `figures` has those of its rungs, by case and rung; `more` has more. `doubts` are those
    of a case's rung in all repeats, or, with a number as the key's third part, in one. c02 is the plain route; `named`
    is what the bring-up called the system of the others."""
    doubts, limits, missing, more = doubts or {}, limits or {}, missing or {}, more or {}
    results: list[TestResult] = []
    for case, values in figures.items():
        for rung, figure in values.items():
            for number, factor in enumerate(repeats, 1):
                why = missing.get((case, rung))
                made = None if why else figure * factor
                doubt = doubts.get((case, rung)) or doubts.get((case, rung, number))
                limit = limits.get((case, rung))
                result = _result(case, number, rung, made, error=why, doubt=doubt, limit=limit)
                results.append(replace(result, metrics={**result.metrics, **more.get((case, rung), {})}))
    trials = tuple(
        TrialResult(
            trial=f"{case}/{number}",
            case=case,
            repeat=number,
            status="done",
            error=None,
            sut="route" if case == "c02" else named,
            sut_version=None,
            bring_up=None,
            tests=tuple(one for one in results if (one.case, one.repeat) == (case, number)),
        )
        for case in figures
        for number in range(1, len(repeats) + 1)
    )
    summaries = tuple(
        summarise(
            [one for one in results if (one.case, one.test) == (case, f"ladder-{rung}")],
            planned=len(repeats),
            limit=0.1,
            case=case,
            test=f"ladder-{rung}",
            kind=KINDS_OF[rung],
            parameters={},
        )
        for case, values in figures.items()
        for rung in values
    )
    run = _run(trials, summaries)
    cases = {case: _case(case, values, link_bps, baseline) for case, values in figures.items()}
    return {ladder.case: ladder for ladder in of_run(run, cases)}


RUNGS = {rung.name: (kind, rung) for kind, rung in all_rungs()}
KINDS_OF = {name: kind for name, (kind, _) in RUNGS.items()}


def _case(case: str, values: Mapping[str, float], link_bps: float | None, baseline: str | None) -> dict[str, Any]:
    is_route = case == "c02"
    tests = []
    for name in values:
        kind, rung = RUNGS[name]
        packet = {"packet_bytes": rung.parameters.get("packet")}
        size = {"size_bytes": 2**20 if rung.chain == "payload" else 12, "scheme": rung.layer}
        tests.append({"name": rung.test, "kind": kind, "ip": 4, **(packet if kind == "udp" else size)})
    return {
        "id": case,
        "parameters": {"sut": "route" if is_route else "openvpn"},
        "sut": {"kind": "route" if is_route else "openvpn"},
        "link": {"rate_bps": link_bps},
        "tests": tests,
        "ladder": {
            "tests": [test["name"] for test in tests],
            "baseline": None if is_route else baseline,
            "why_alone": "it is a plain route itself" if is_route else None,
            "largest_bytes": 1500 if is_route else 1440,
            "overhead_bytes": 0 if is_route else 52,
        },
    }


def _result(
    case: str,
    number: int,
    rung: str,
    value: float | None,
    *,
    error: str | None,
    doubt: tuple[Verdict, Bound] | None,
    limit: Limit | None,
) -> TestResult:
    kind, found = RUNGS[rung]
    metric = Metric(value, "bit/s" if found.chain == "payload" else "1/s")
    if doubt is not None:
        metric = metric.doubted(doubt[0], "made", doubt[1])
    ns = 20.0 if case == "c01" else 1.0
    return TestResult(
        case=case,
        repeat=number,
        test=found.test,
        kind=kind,
        parameters={},
        status="failed" if error else "done",
        error=error,
        metrics={found.metric: metric},
        validity=Validity(Verdict.VALID if doubt is None else doubt[0]),
        window=None,
        generator=None,
        errors={},
        limit=limit or Limit(LimitedBy.UNKNOWN, "nothing is known to have been at its end"),
        host_costs=(
            HostCost("client1", "control group", 10.0, ns / 4, ns * 300, None),
            HostCost("gateway", "control group", 100.0, ns, ns * 1200, None),
        ),
    )


def _run(trials: tuple[TrialResult, ...], summaries: tuple[Any, ...]) -> RunAnalysis:
    return RunAnalysis(
        run_id="r",
        name="made",
        status="done",
        started_at="",
        plan_text="",
        command="",
        version="",
        hosts={},
        trials=trials,
        summaries=summaries,
        targets=(),
        validity=Validity(Verdict.VALID),
        notes=(),
        observer_cpu_share={},
        journal=JournalDamage(),
    )
