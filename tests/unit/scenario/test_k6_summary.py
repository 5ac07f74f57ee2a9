"""A scenario's result as k6's summary: thresholds, and metrics of their own for those with tags."""

from __future__ import annotations

from leadline.analysis.model import Metric, TargetResult, TestResult, Validity, Verdict
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


def test_several_rules_of_a_metric_are_kept_beside_each_other() -> None:
    thresholds = [read_threshold("http_req_duration{name:login}", rule) for rule in ("p(95)<3", "max<9")]
    judged = [TargetResult(target_of(one), "c01", "met", None, "") for one in thresholds]
    summary = k6_summary(result({"service_max_us{name:login}": 5e3}), judged, thresholds)["metrics"]
    assert summary["http_req_duration{name:login}"] == {"max": 5.0, "thresholds": {"p(95)<3": False, "max<9": False}}
