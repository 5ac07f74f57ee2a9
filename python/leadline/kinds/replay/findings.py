"""What became of a replay, from its agents' reports: counts of several hosts are added. Pure."""

from __future__ import annotations

from collections import Counter

from leadline.analysis.replay_model import ReplayDifference, ReplayFindings
from leadline.analysis.test_data import TestData
from leadline.contract import records


def replay_findings(data: TestData) -> ReplayFindings | None:
    """What became of the source; None for other tests, and while it is not known."""
    reports = [found for report in data.scenario_reports() if (found := report.get("replay")) is not None]
    if not reports:
        return None
    left_out: Counter[str] = Counter()
    for report in reports:
        left_out.update(report["left_out"])
    late = [report.get("read_late") for report in reports]
    firsts = [first for report in reports if (first := report.get("first_epoch_ms")) is not None]
    lengths = [length for report in reports if (length := report.get("length_ms")) is not None]
    return ReplayFindings(
        format=reports[0]["format"],
        sessions_by=reports[0]["sessions_by"],
        read=sum(report["read"] for report in reports),
        passed_on=sum(report["passed_on"] for report in reports),
        left_out=dict(left_out.most_common()),
        reordered=sum(report["reordered"] for report in reports),
        sessions=sum(report["sessions"] for report in reports),
        first_epoch_ms=min(firsts, default=None),
        length_ms=max(lengths, default=None),
        precision_ms=max(report["precision_ms"] for report in reports),
        waited=sum(report["waited"] for report in reports),
        read_late=None if any(one is None for one in late) else sum(one or 0 for one in late),
        compared=sum(report["compared"] for report in reports),
        differing=sum(report["differing"] for report in reports),
        not_compared=sum(report["not_compared"] for report in reports),
        replaced=sum(report["replaced"] for report in reports),
        differences=_differences(reports),
        more_differences=sum(report["more_differences"] for report in reports),
        broken_off=next((why for report in reports if (why := report.get("broken_off")) is not None), None),
    )


def _differences(reports: list[records.ReplayReport]) -> tuple[ReplayDifference, ...]:
    """The differences of all hosts; what is noise on one host is noise."""
    found: dict[tuple[str, str], ReplayDifference] = {}
    for report in reports:
        for row in report["differences"]:
            key = row["label"], row["part"]
            own = found.get(key)
            found[key] = ReplayDifference(
                *key,
                count=row["count"] + (own.count if own else 0),
                is_noise=row["is_noise"] or (own is not None and own.is_noise),
                before=own.before if own else row.get("before"),
                after=own.after if own else row.get("after"),
            )
    return tuple(sorted(found.values(), key=lambda one: -one.count))
