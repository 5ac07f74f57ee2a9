"""The tiers of a stack: CPU time a request, times by tier from the log, and the tier that was at its end."""

from __future__ import annotations

from typing import Any

import pytest
from made_gateways import with_gateway
from made_journals import facts, steady_test

from leadline.analysis import TestData, analyse_test, tiers
from leadline.analysis.model import LimitedBy, Window
from leadline.analysis.test_data import ProcessUse, ThreadUse
from leadline.plan.target_words import read_value
from leadline.plan.targets import has_metric

RATE_PER_S = 1000.0
PIDS = {"router": 1, "app-1": 2, "app-2": 3, "store": 4}
TRACE = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"


def tier(name: str, kind: str, host: str, *processes: str, **others: Any) -> dict[str, Any]:
    made = {"name": name, "kind": kind, "host": host, "processes": list(processes or (name,)), "cpus": [], "threads": 1}
    return {**made, **others}


BANK = (
    tier("router", "haproxy", "gateway"),
    tier("app", "node", "server", "app-1", "app-2", threads=2),
    tier("store", "redis", "server"),
)


def stack(
    busy: dict[str, float],
    *made: dict[str, Any],
    threads: dict[str, float] | None = None,
    cpus: int = 8,
    cpu_busy: dict[int, float] | None = None,
) -> TestData:
    """A test of a stack whose processes used these shares of a CPU, their busiest threads those of `threads`."""
    data = with_gateway(steady_test())
    data.tiers = made or BANK
    data.sut_processes = tuple(name for one in data.tiers for name in one["processes"])
    for host in ("client1", "gateway", "server"):
        data.facts[host] = {**facts(), "cpus": cpus}
    samples = data.samples["gateway"]
    start_ns = samples[0].t_ns
    hosts = {name: one["host"] for one in data.tiers for name in one["processes"]}
    for host in ("gateway", "server"):
        data.samples[host] = [
            sample._replace(
                processes=tuple(
                    ProcessUse(name, PIDS[name], share * seconds, 0.0, 2**20, 4)
                    for name, share in busy.items()
                    if hosts[name] == host
                ),
                busiest_threads=tuple(
                    ThreadUse(PIDS[name], PIDS[name], share * seconds)
                    for name, share in (threads or busy).items()
                    if hosts[name] == host
                ),
                cpu_s=(seconds,) * 7,
                unused_s={cpu: (1 - share) * seconds for cpu, share in (cpu_busy or {}).items()},
            )
            for sample in samples
            for seconds in [(sample.t_ns - start_ns) / 1e9]
        ]
    return data


def window_of(data: TestData) -> Window:
    found = analyse_test(data).window
    assert found is not None
    return found


def limit(data: TestData) -> tuple[LimitedBy, str]:
    found = next(tiers.limits(data, window_of(data)), None)
    return (LimitedBy.UNKNOWN, "") if found is None else (found.by, found.evidence)


def counted(rows: int, **store: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """What was counted before and after a load whose logged requests were 10 ms in the router, 4 in the app, 3 in
    Redis; the slowest one 50."""
    slow = [50_000.0, {"app": 9000.0, "redis": 8000.0}, 200, TRACE]
    after = {
        "router": {
            "requests": 1010, "opened": 52, "log_bytes": 9, "logged": rows, "slowest": [slow],
            "rows": [[10_000.0, {"app": 4000.0, "redis": 3000.0}, 200, None]] * rows,
        },
        "store": {"commands": 2000, **store},
    }  # fmt: skip
    return {"router": {"requests": 10, "opened": 2, "log_bytes": 3}, "store": {"commands": 0}}, after


def test_cpu_time_of_a_tier_is_that_of_all_its_processes() -> None:
    data = stack({"router": 0.1, "app-1": 0.2, "app-2": 0.3, "store": 0.05})
    found = {one.tier: one for one in tiers.statistics_of(data, window_of(data), RATE_PER_S)}
    assert {name: one.cpu_percent for name, one in found.items()} == pytest.approx(
        {"router": 10, "app": 50, "store": 5}
    )
    # 10 % of a CPU are 100 ms a second.
    assert {name: one.cpu_us_per_request for name, one in found.items()} == pytest.approx(
        {"router": 100, "app": 500, "store": 50}
    )
    assert found["app"].memory_bytes == 2**21


def test_unknown_figures_are_none_with_their_reason() -> None:
    data = stack({"router": 0.1, "app-1": 0.2, "app-2": 0.3, "store": 0.05})
    data.system_counters = {}, {"app": {"has_children": ["app-2"]}}
    found = {one.tier: one for one in tiers.statistics_of(data, window_of(data), RATE_PER_S)}
    assert found["app"].cpu_percent is None and found["app"].memory_bytes is None
    assert found["app"].cpu_unknown == "app-2 started further processes, whose CPU time no agent reads"
    assert found["router"].time_mean_us is None and found["router"].time_unknown == "no HAProxy tier logs its requests"
    assert found["store"].execution_us_per_request is None
    metrics = tiers.figures(tuple(found.values()))
    assert metrics["tier_cpu_percent{tier:app}"].value is None
    assert metrics["tier_cpu_percent{tier:app}"].unknown == found["app"].cpu_unknown
    assert metrics["tier_cpu_us_per_request{tier:router}"].unit == "us"


def test_times_are_by_tier_and_without_those_behind() -> None:
    data = stack({"router": 0.1, "app-1": 0.2, "app-2": 0.3, "store": 0.05})
    data.system_counters = counted(rows=200)
    found = {one.tier: one for one in tiers.statistics_of(data, window_of(data), RATE_PER_S)}
    assert [found[name].time_mean_us for name in ("router", "app", "store")] == [10_000, 4000, 3000]
    assert [found[name].own_mean_us for name in ("router", "app", "store")] == [6000, 1000, 3000]
    assert found["router"].time_p99_us == 10_000 and found["router"].logged == 200
    assert found["router"].counters == {"requests": 1000, "opened": 50}
    [slowest] = tiers.slowest_requests(data)
    assert (slowest.trace, slowest.times_us) == (TRACE, {"router": 50_000, "app": 9000, "store": 8000})


def test_few_logged_requests_tell_no_times() -> None:
    data = stack({"router": 0.1, "app-1": 0.2, "app-2": 0.3, "store": 0.05})
    data.system_counters = counted(rows=19)
    [router, *_] = tiers.statistics_of(data, window_of(data), RATE_PER_S)
    assert (router.time_mean_us, router.own_mean_us) == (None, None)
    assert router.time_unknown == "only 19 logged requests of it"
    data.system_counters = counted(rows=50)
    [router, *_] = tiers.statistics_of(data, window_of(data), RATE_PER_S)
    assert (router.time_mean_us, router.time_p99_us) == (10_000, None)


@pytest.mark.parametrize(
    ("busy", "evidence"),
    [
        ({"router": 0.99}, "the tier router on gateway used 99 % of a CPU: its only thread had no time left"),
        (
            {"app-1": 0.99, "app-2": 0.97},
            "the tier app on server used 98 % of a CPU each: its 2 workers had no time left",
        ),
        ({"store": 0.98}, "the tier store on server used 98 % of a CPU: its only worker had no time left"),
        # One worker alone: requests are dealt out evenly, so another part holds the others back.
        ({"app-1": 0.99, "app-2": 0.5}, ""),
        ({"router": 0.9, "app-1": 0.9, "app-2": 0.9, "store": 0.9}, ""),
    ],
)
def test_tier_whose_threads_are_full_is_the_limit(busy: dict[str, float], evidence: str) -> None:
    found = limit(stack(dict.fromkeys(PIDS, 0.1) | busy))
    assert found == (LimitedBy.TIER if evidence else LimitedBy.UNKNOWN, evidence)


def test_helping_threads_do_not_make_a_worker_full() -> None:
    busy = dict.fromkeys(PIDS, 0.1) | {"store": 1.2}
    assert limit(stack(busy, threads=dict.fromkeys(PIDS, 0.1) | {"store": 0.7}))[0] is LimitedBy.UNKNOWN


def test_tier_that_fills_its_own_cpus_is_the_limit() -> None:
    router = tier("router", "haproxy", "gateway", cpus=[2, 3], threads=4)
    assert limit(stack({"router": 1.95}, router)) == (
        LimitedBy.TIER,
        "the tier router on gateway used 98 % of a CPU each: its 2 CPUs had no time left",
    )


def test_tiers_that_share_full_cpus_are_named_together() -> None:
    made = (tier("app", "node", "server", "app-1", cpus=[1]), tier("store", "redis", "server", cpus=[1]))
    data = stack({"app-1": 0.7, "store": 0.28}, *made, cpu_busy={0: 0.5, 1: 0.99})
    assert limit(data) == (
        LimitedBy.TIER,
        "CPU 1, which the tiers app and store share, had no time left: app 70 % and store 28 %",
    )


def test_cpus_that_something_else_filled_are_no_tiers_limit() -> None:
    made = (tier("app", "node", "server", "app-1", cpus=[1]), tier("store", "redis", "server", cpus=[1]))
    assert limit(stack({"app-1": 0.4, "store": 0.2}, *made, cpu_busy={0: 0.5, 1: 0.99}))[0] is LimitedBy.UNKNOWN


def test_whole_analysis_names_the_tier_and_has_its_figures() -> None:
    result = analyse_test(stack(dict.fromkeys(PIDS, 0.1) | {"router": 0.99}))
    assert result.limit is not None and result.limit.by is LimitedBy.TIER
    assert result.limit.clause == "the tier router is the limit: its only thread used 99 % of a CPU"
    assert "sut.tiers.router" in result.limit.next_step
    assert [one.tier for one in result.tiers] == ["router", "app", "store"]
    assert result.metrics["tier_cpu_percent{tier:router}"].value == pytest.approx(99)
    assert result.metrics["gateway_cpu_percent"].value == pytest.approx(99)
    assert "gateway_cpu_ns_per_packet" not in result.metrics, "the router forwards no packets"


def test_targets_may_be_on_the_figures_of_a_tier() -> None:
    assert has_metric("scenario", "tier_cpu_us_per_request{tier:router}")
    assert read_value("2ms", "tier_cpu_us_per_request", ()) == 2000
    assert not has_metric("scenario", "tier_cpu_us_per_request")
    assert not has_metric("scenario", "tier_cpu_us_per_request{name:router}")
