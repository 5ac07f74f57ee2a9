"""A scenario's result as k6's summary: thresholds, and metrics of their own for those with tags."""

from __future__ import annotations

from dataclasses import replace

from leadline.analysis.model import Metric, Series, TargetResult, TestResult, Validity, Verdict
from leadline.analysis.scenario_model import CheckFindings, LabelFindings, ScenarioFindings
from leadline.kinds.scenario.k6_summary import k6_summary
from leadline.kinds.scenario.targets import target_of
from leadline.scenario.thresholds import read_threshold

TIMES = {"min": 1e3, "mean": 2e3, "p50": 2e3, "p90": 4e3, "p95": 5e3, "p99": 6e3, "max": 7e3}


def label(name: str, ended: int, failed: int, *checks: CheckFindings) -> LabelFindings:
    times = (None,) * 7
    return LabelFindings(name, False, "users", ended, failed, 0, 1.0, *times, 10, 20, checks=checks)


def result(metrics: dict[str, float], *labels: LabelFindings) -> TestResult:
    return TestResult(
        case="c01", repeat=1, test="s", kind="scenario", parameters={}, status="done", error=None,
        metrics={name: Metric(value, "us") for name, value in metrics.items()},
        validity=Validity(Verdict.VALID, ()), window=None, generator=None, errors={},
        scenario=ScenarioFindings((), labels, (), None),
    )  # fmt: skip


def test_thresholds_with_tags_are_metrics_of_their_own() -> None:
    written = {
        "http_req_duration": "p(95)<500",
        "http_req_duration{name:login}": "p(95)<3",
        "http_req_failed{name:login}": "rate<0.5",
        "checks{check:is ok}": "rate>0.9",
        "http_reqs{name:login}": "count>3",
    }
    thresholds = [read_threshold(metric, rule) for metric, rule in written.items()]
    metrics = {f"service_{name}_us": time for name, time in TIMES.items()}
    metrics |= {f"service_{name}_us{{name:login}}": time + 1e3 for name, time in TIMES.items()}
    metrics |= {"error_ratio": 0.1, "error_ratio{name:login}": 0.25, "requests{name:login}": 4.0}
    checks = (CheckFindings("is ok", 3, 1), CheckFindings("other", 5, 5))
    found = result(metrics, label("login", 4, 1, *checks), label("cart", 6, 0))
    judged = [
        TargetResult(target_of(one), "c01", "missed" if "p(95)<3" in one.text else "met", None, "")
        for one in thresholds
    ]
    summary = k6_summary(found, judged, thresholds)["metrics"]
    assert summary["http_req_duration"]["p(95)"] == 5.0
    assert summary["http_req_duration"]["thresholds"] == {"p(95)<500": False}
    login = summary["http_req_duration{name:login}"]
    assert (login["avg"], login["min"], login["med"], login["max"], login["p(90)"]) == (3.0, 2.0, 3.0, 8.0, 5.0)
    assert login["thresholds"] == {"p(95)<3": True}
    assert summary["http_req_failed"] == {"passes": 1, "fails": 9, "value": 0.1}
    assert summary["http_req_failed{name:login}"] == {
        "passes": 1, "fails": 3, "value": 0.25, "thresholds": {"rate<0.5": False}
    }  # fmt: skip
    assert summary["checks"]["passes"] == 8
    assert summary["checks{check:is ok}"] == {
        "passes": 3, "fails": 1, "value": 0.75, "thresholds": {"rate>0.9": False}
    }  # fmt: skip
    assert summary["http_reqs{name:login}"] == {"count": 4.0, "thresholds": {"count>3": False}}


def test_times_of_connections_are_0_for_requests_on_an_open_one() -> None:
    metrics: dict[str, float] = {"requests": 20, "connections_opened": 2, "connect_mean_us": 3e3, "connect_max_us": 4e3}
    summary = k6_summary(result(metrics))["metrics"]
    assert summary["http_req_connecting"] == {"avg": 0.3, "max": 4.0, "min": 0, "med": 0}
    assert "http_req_tls_handshaking" not in summary
    tls = {"handshakes_full": 1, "tls_full_mean_us": 5e3, "tls_full_max_us": 5e3}
    tls |= {"handshakes_resumed": 19, "tls_resumed_mean_us": 1e3, "tls_resumed_max_us": 2e3}
    summary = k6_summary(result(metrics | tls))["metrics"]
    assert summary["http_req_tls_handshaking"] == {"avg": 1.2, "max": 5.0}


def test_phases_that_are_not_measured_are_left_out() -> None:
    metrics = k6_summary(result({"requests": 20}))["metrics"]
    phases = ("blocked", "connecting", "tls_handshaking", "sending", "receiving", "waiting")
    assert not {f"http_req_{phase}" for phase in phases} & metrics.keys()
    assert "vus" not in metrics


def test_users_are_those_over_time() -> None:
    line = Series("users", "", "users", (1.0, 2.0, 3.0), (1.0, 5.0, 2.0))
    found = replace(result({"users_most": 6.0}), series=(line,))
    metrics = k6_summary(found)["metrics"]
    assert (metrics["vus"], metrics["vus_max"]) == (
        {"value": 2.0, "min": 1.0, "max": 5.0}, {"value": 6.0, "min": 6.0, "max": 6.0}
    )  # fmt: skip


def test_transactions_are_groups() -> None:
    shop = replace(label("shop", 4, 0), is_transaction=True)
    inner = replace(label("log in", 4, 0), is_transaction=True, tags={"group": "::shop::log in"})
    groups = k6_summary(result({}, shop, inner, label("a", 1, 0)))["root_group"]["groups"]
    assert list(groups) == ["shop"]
    assert groups["shop"]["groups"]["log in"]["path"] == "::shop::log in"


def test_several_rules_of_a_metric_are_kept_beside_each_other() -> None:
    thresholds = [read_threshold("http_req_duration{name:login}", rule) for rule in ("p(95)<3", "max<9")]
    judged = [TargetResult(target_of(one), "c01", "met", None, "") for one in thresholds]
    summary = k6_summary(result({"service_max_us{name:login}": 5e3}), judged, thresholds)["metrics"]
    assert summary["http_req_duration{name:login}"] == {"max": 5.0, "thresholds": {"p(95)<3": False, "max<9": False}}
