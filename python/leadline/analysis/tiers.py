"""What the tiers of a stack used, how long requests were in them, and which one was at its end.

CPU time and memory are those of a tier's processes in the steady window. Times of requests are from the log of the
first HAProxy, which has some of the requests of the whole load, warm-up included. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from leadline import quantities
from leadline.analysis.full_cpus import FULL, busy_share
from leadline.analysis.host_metrics import ProcessesUse, busiest_thread_share, processes_use
from leadline.analysis.model import Limit, LimitedBy, Metric, Window
from leadline.analysis.test_data import TestData
from leadline.analysis.tier_model import TierStatistics, TracedRequest
from leadline.plan import tier_metrics as names
from leadline.plan.gateway_metrics import is_cost

MIN_LOGGED = 20
"""Logged requests from which a mean is taken."""
MIN_FOR_P99 = 100
MOST_OF_CPUS = 0.9
"""Of the CPUs' time that tiers share: below this others, as a load generator, may be what filled them."""
_SERVER_TIMING = {"node": "app", "redis": "redis"}
"""The names of a tier's durations in `Server-Timing`; that of another tier is its own name."""
_SINGLE_THREADED = frozenset({"node", "redis"})
"""The kinds of tier whose processes each work on one thread, beside a few that help."""
_NO_LOG = "no HAProxy tier logs its requests"
_NO_TIMING = "the logged answers have no Server-Timing of it"


@dataclass(frozen=True, slots=True)
class _Row:
    """A logged request."""

    whole_us: float
    parts_us: Mapping[str, float]
    status: int
    trace: str | None

    @classmethod
    def read(cls, row: Sequence[Any]) -> _Row:
        return cls(float(row[0]), {str(name): float(value) for name, value in row[1].items()}, int(row[2]), row[3])


@dataclass(frozen=True, slots=True)
class _Log:
    """The requests that one HAProxy logged during a load."""

    tier: str
    rows: tuple[_Row, ...]
    slowest: tuple[_Row, ...]
    count: int


def statistics_of(data: TestData, window: Window | None, rate_per_s: float | None) -> tuple[TierStatistics, ...]:
    """Each tier, in the order in which a request meets them; `rate_per_s` counts answered requests."""
    log, answered = _log_of(data), _answered(data)
    found: list[TierStatistics] = []
    for tier in data.tiers:
        use, why = _use(data, tier, window)
        percent = None if use is None else use.user_percent + use.system_percent
        grown = _grown(data, tier["name"])
        times, why_no_times = _times(tier, log)
        executed = grown.get("execution_us")
        found.append(
            TierStatistics(
                tier=tier["name"],
                kind=tier["kind"],
                host=tier["host"],
                processes=tuple(tier["processes"]),
                cpus=tuple(tier["cpus"]),
                cpu_percent=percent,
                cpu_unknown=why,
                # A percent of a CPU is 10 ms of CPU time in a second.
                cpu_us_per_request=1e4 * percent / rate_per_s if percent is not None and rate_per_s else None,
                memory_bytes=None if use is None else use.memory_bytes,
                time_mean_us=float(np.mean(times)) if len(times) else None,
                time_p99_us=float(np.percentile(times, 99)) if len(times) >= MIN_FOR_P99 else None,
                own_mean_us=_own_mean_us(data, tier, log),
                time_unknown=why_no_times,
                logged=len(times) or None,
                execution_us_per_request=executed / answered if executed is not None and answered else None,
                counters=grown,
            )
        )
    return tuple(found)


def with_gateways(of_gateways: Mapping[str, Metric], tiers: Sequence[TierStatistics]) -> Mapping[str, Metric]:
    """The metrics of gateways, and of a stack's tiers: a stack on a gateway forwards no packets, and has no costs of
    them."""
    if not tiers:
        return of_gateways
    return {**{name: metric for name, metric in of_gateways.items() if not is_cost(name)}, **figures(tiers)}


def figures(tiers: Sequence[TierStatistics]) -> dict[str, Metric]:
    """The metrics of all tiers; unknown ones have their reason."""
    found: dict[str, Metric] = {}
    for one in tiers:
        values = {
            names.CPU: (one.cpu_percent, one.cpu_unknown),
            names.PER_REQUEST: (one.cpu_us_per_request, one.cpu_unknown or "no request was answered in the window"),
            names.MEMORY: (one.memory_bytes, one.cpu_unknown or "it was not sampled in the window"),
            names.IN_TIER_MEAN: (one.time_mean_us, one.time_unknown),
            names.IN_TIER_P99: (one.time_p99_us, one.time_unknown or f"fewer than {MIN_FOR_P99} requests were logged"),
        }
        if one.kind == "redis":
            values[names.EXECUTION] = (one.execution_us_per_request, "Redis' counters could not be read")
        for figure, (value, why) in values.items():
            spec = names.tier_spec(figure)
            assert spec is not None
            metric = Metric(value, spec.unit, unknown=why if value is None else None)
            found[names.tier_metric(figure, one.tier)] = metric
    return found


def slowest_requests(data: TestData) -> tuple[TracedRequest, ...]:
    """The slowest logged requests, each with its time in every tier that has one."""
    log = _log_of(data)
    if log is None:
        return ()
    return tuple(
        TracedRequest(
            row.trace,
            row.status,
            {tier["name"]: time for tier in data.tiers if (time := _time(tier, row, log.tier)) is not None},
        )
        for row in log.slowest
    )


def limits(data: TestData, window: Window) -> Iterator[Limit]:
    """The tiers that had no CPU time left: those whose own threads were full, then those whose CPUs were."""
    uses = {tier["name"]: use for tier in data.tiers if (use := _use(data, tier, window)[0]) is not None}
    for tier in data.tiers:
        use = uses.get(tier["name"])
        if use is not None and (found := _full_tier(data, tier, use, window)) is not None:
            yield found
    yield from _full_cpus(data, uses, window)


def _full_tier(data: TestData, tier: Mapping[str, Any], use: ProcessesUse, window: Window) -> Limit | None:
    """A tier whose own threads, or whose own CPUs, it used up alone."""
    name, used = tier["name"], (use.user_percent + use.system_percent) / 100
    cpus = len(tier["cpus"]) or _cpus_of(data, tier["host"])
    threads = tier["threads"] or use.threads
    usable = min((one for one in (threads, cpus) if one is not None), default=None)
    if usable is None:
        return None
    each = f"{quantities.rounded_share(used / usable)} of {'a CPU' if usable == 1 else 'a CPU each'}"
    if tier["kind"] in _SINGLE_THREADED and usable == threads:
        busiest = [_busiest_share(data, tier["host"], process, window) for process in tier["processes"]]
        # A process has helping threads, whose time is no evidence that its one working thread is full.
        if min(busiest) < FULL:
            return None
        what = "its only worker" if len(busiest) == 1 else f"its {len(busiest)} workers"
        share = quantities.rounded_share(float(np.mean(busiest)))
        each = f"{share} of {'a CPU' if len(busiest) == 1 else 'a CPU each'}"
    elif used >= FULL * usable:
        what = "its only CPU" if cpus == usable == 1 else f"its {usable} {'CPUs' if cpus == usable else 'threads'}"
        what = "its only thread" if usable == 1 and cpus != 1 else what
    else:
        return None
    text = f"the tier {name} on {tier['host']} used {each}: {what} had no time left"
    return Limit(LimitedBy.TIER, text, f"the tier {name} is the limit: {what} used {each}", _next_step(tier))


def _next_step(tier: Mapping[str, Any]) -> str:
    more = {"haproxy": "cpus and nbthread", "node": "workers and cpus"}.get(tier["kind"])
    if more is None:
        return f"give the tier {tier['name']} more CPU, or less work per request"
    return f"raise sut.tiers.{tier['name']}'s {more}, or give it less work per request (keep-alive, ciphers)"


def _full_cpus(data: TestData, uses: Mapping[str, ProcessesUse], window: Window) -> Iterator[Limit]:
    """CPUs that tiers share and filled together: which one of them held the load back is not known."""
    shared: dict[tuple[int, ...], list[Mapping[str, Any]]] = {}
    for tier in data.tiers:
        if tier["cpus"]:
            shared.setdefault(tuple(tier["cpus"]), []).append(tier)
    for cpus, tiers in shared.items():
        shares = {tier["name"]: uses[tier["name"]] for tier in tiers if tier["name"] in uses}
        used = {name: (use.user_percent + use.system_percent) / 100 for name, use in shares.items()}
        busy = busy_share(data, tiers[0]["host"], cpus, window)
        if busy is None or busy < FULL or sum(used.values()) < MOST_OF_CPUS * len(cpus) or len(used) < len(tiers):
            continue
        what = f"CPU {cpus[0]}" if len(cpus) == 1 else f"CPUs {', '.join(map(str, cpus))}"
        parts = " and ".join(f"{name} {quantities.rounded_share(share / len(cpus))}" for name, share in used.items())
        who = " and ".join(used)
        named = f"the tiers {who} share" if len(used) > 1 else f"the tier {who} has"
        text = f"{what}, which {named}, had no time left: {parts}"
        clause = f"{what} of {'the tiers' if len(used) > 1 else 'the tier'} {who} is the limit"
        yield Limit(LimitedBy.TIER, text, clause, f"give {who} more CPUs, or CPUs of their own")


def _use(data: TestData, tier: Mapping[str, Any], window: Window | None) -> tuple[ProcessesUse | None, str | None]:
    """What the processes of a tier used, or why it is not known."""
    parents = _parents(data, tier["name"])
    if parents:
        return None, f"{' and '.join(parents)} started further processes, whose CPU time no agent reads"
    if window is None:
        return None, "there is no steady window"
    use = processes_use(data, tier["host"], window, tier["processes"])
    return use, None if use is not None else "the samples of its host cover too little of the steady window"


def _parents(data: TestData, tier: str) -> list[str]:
    seen = [counted.get(tier, {}).get("has_children") or [] for counted in data.system_counters or ()]
    return list(dict.fromkeys(name for one in seen for name in one))


def _busiest_share(data: TestData, host: str, process: str, window: Window) -> float:
    """The CPU time of the busiest thread of a process, as a share of the time; 0 where no thread was read."""
    samples = [one for one in data.samples.get(host, []) if window.start_ns <= one.t_ns <= window.end_ns]
    pids = {one.pid for sample in samples for one in sample.processes if one.name == process}
    return max((busiest_thread_share(samples, pid) for pid in pids), default=0.0)


def _cpus_of(data: TestData, host: str) -> int | None:
    facts: Mapping[str, Any] = data.facts.get(host, {})
    own, cpus = facts.get("own_cpus"), facts.get("cpus")
    return len(own) if own else cpus if isinstance(cpus, int) else None


def _grown(data: TestData, tier: str) -> dict[str, int]:
    """What a tier counted during the load: only counters that were read before and after it, and did not decrease."""
    if data.system_counters is None:
        return {}
    before, after = (counted.get(tier, {}) for counted in data.system_counters)
    return {
        name: value - before[name]
        for name, value in after.items()
        if name != "log_bytes"
        and isinstance(value, int)
        and isinstance(before.get(name), int)
        and value >= before[name]
    }


def _answered(data: TestData) -> int | None:
    """The answers of the whole load, which Redis' counters are of."""
    counts = [found.outcome["counts"].get("responses") for found in data.load_outcomes()]
    known = [count for count in counts if isinstance(count, int)]
    return sum(known) if known and len(known) == len(counts) else None


def _log_of(data: TestData) -> _Log | None:
    """The log of the first HAProxy that has logged requests of this load."""
    if data.system_counters is None:
        return None
    _, after = data.system_counters
    for tier in data.tiers:
        counted = after.get(tier["name"], {})
        if counted.get("rows"):
            slowest = tuple(map(_Row.read, counted.get("slowest") or ()))
            return _Log(tier["name"], tuple(map(_Row.read, counted["rows"])), slowest, int(counted.get("logged") or 0))
    return None


def _times(tier: Mapping[str, Any], log: _Log | None) -> tuple[Sequence[float], str | None]:
    """The times of requests in a tier, us, and why there are none."""
    if log is None:
        return (), _NO_LOG
    times = [time for row in log.rows if (time := _time(tier, row, log.tier)) is not None]
    if not times:
        return (), _NO_TIMING
    if len(times) < MIN_LOGGED:
        return (), f"only {quantities.counted(len(times), 'logged request')} of it"
    return times, None


def _time(tier: Mapping[str, Any], row: _Row, logging_tier: str) -> float | None:
    """The time of a logged request in a tier and those behind it."""
    if tier["name"] == logging_tier:
        return row.whole_us
    own = row.parts_us.get(tier["name"])
    return own if own is not None else row.parts_us.get(_SERVER_TIMING.get(tier["kind"], ""))


def _own_mean_us(data: TestData, tier: Mapping[str, Any], log: _Log | None) -> float | None:
    """The mean time in a tier without the next one that has times; of the last one, all of its time."""
    if log is None:
        return None
    order = [one["name"] for one in data.tiers]
    behind = data.tiers[order.index(tier["name"]) + 1 :]
    own: list[float] = []
    for row in log.rows:
        whole = _time(tier, row, log.tier)
        if whole is None:
            continue
        rest = next((time for one in behind if (time := _time(one, row, log.tier)) is not None), 0.0)
        own.append(whole - rest)
    mean_us = float(np.mean(own)) if len(own) >= MIN_LOGGED else -1.0
    # Two clocks: a tier whose time is below their steps has none that is known.
    return mean_us if mean_us >= 0 else None
