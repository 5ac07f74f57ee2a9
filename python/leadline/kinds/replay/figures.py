"""The figures of a replay beside those of its requests. Pure."""

from __future__ import annotations

from leadline.analysis.intervals import share_metric
from leadline.analysis.metrics import Histograms, times
from leadline.analysis.model import Metric
from leadline.analysis.test_data import TestData
from leadline.kinds.replay.findings import replay_findings
from leadline.kinds.scenario.findings import findings


def replay_figures(data: TestData, histograms: Histograms) -> dict[str, Metric]:
    """What became of the source's requests; unknown while it runs."""
    found, users = replay_findings(data), findings(data)
    groups = () if users is None else users.groups

    def total(name: str) -> int | None:
        return sum(getattr(group, name) for group in groups) if groups else None

    def known(name: str) -> int | None:
        return None if found is None else getattr(found, name)

    return {
        "requests_due": Metric(total("due"), "count"),
        "requests_late": Metric(total("late"), "count"),
        "requests_waited": Metric(known("waited"), "count"),
        "left_out": Metric(None if found is None else sum(found.left_out.values()), "count"),
        "sessions": Metric(known("sessions"), "count"),
        "sessions_most": Metric(total("users_most"), "count"),
        "answers_compared": Metric(known("compared"), "count"),
        "answers_differing": Metric(known("differing") if found is not None and found.compared else None, "count"),
        "differing_ratio": share_metric(known("differing") or 0, known("compared") or 0),
        **times("start_late", histograms.sample("start_late"), ("p50", "p99", "max")),
        **times("behind", histograms.sample("behind"), ("p50", "p99", "max")),
    }
