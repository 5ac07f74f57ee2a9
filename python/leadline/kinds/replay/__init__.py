"""The kind `replay`: recorded requests, each session by one user, at the times at which they were recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from leadline.kinds.http import KIND as HTTP
from leadline.kinds.replay.model import ReplayTest
from leadline.kinds.replay.options import COMMAND
from leadline.kinds.scenario.users_kind import UsersKind
from leadline.plan.metric_specs import lower, neither, times

if TYPE_CHECKING:
    from rich.console import RenderableType

    from leadline.analysis.flows import Flow
    from leadline.analysis.metrics import Histograms
    from leadline.analysis.model import Metric, Series, TestResult, Window
    from leadline.analysis.scenario_model import ScenarioFindings
    from leadline.analysis.test_data import TestData
    from leadline.analysis.validity import Rules
    from leadline.contract.models import ScenarioWorkload
    from leadline.report.figures import FigureTable
    from leadline.report.page_tables import PageTable
    from leadline.trial.workloads import Server

_GRACE_MS = 10_000
"""The agent awaits answers for 5 s after the end."""


class ReplayKind(UsersKind[ReplayTest]):
    """The kind `replay`: recorded requests that are sent again."""

    name = "replay"
    model = ReplayTest
    metrics = (
        *(metric for metric in HTTP.metrics if metric.name != "found_rate_per_s"),
        neither("repeated", "requests that were sent again after the server closed a kept connection"),
        lower("requests_late", "requests that began more than 1 ms after they could be sent"),
        neither("requests_waited", "requests that waited for the answer before them"),
        neither("left_out", "requests and records of the source that were not replayed"),
        neither("sessions", "sessions of the source, with copies"),
        neither("sessions_most", "the largest number of sessions at once"),
        neither("answers_compared", "answers that were compared"),
        lower("answers_differing", "answers that differ, without noise"),
        lower("differing_ratio", "share of the compared answers that differ"),
        *times("start_late", ("p50", "p99", "max"), "us", "the time from when a request could be sent until it was"),
        *times("behind", ("p50", "p99", "max"), "us", "the time from when a request was due until it was sent"),
    )
    headline = ("latency_p50_us", "latency_p99_us", "behind_p99_us")
    curves = ("latency", "service", "connect", "first_byte", "behind")
    command = COMMAND

    def run_command(self, values: Mapping[str, Any]) -> int:
        """Run the command `leadline replay`."""
        from leadline.kinds.replay.command import run

        return run(values)

    def workload(self, test: ReplayTest, server: Server) -> ScenarioWorkload:
        """The replay; without a URL its target is the run's server."""
        from leadline.kinds.replay.workload import replay_workload

        host = f"[{server.host}]" if ":" in server.host else server.host
        url = f"http://{host}:{server.http_port_of(tls=False)}/"
        bind = () if server.bind is None else (server.bind,)
        return replay_workload(test, url, server.target(test.ip).ip_version, bind)

    def longest_ms(self, workload: ScenarioWorkload) -> int:
        """Answers are awaited for some time after the end."""
        return workload.duration_ms + _GRACE_MS

    def window(self, data: TestData, flows: Sequence[Flow]) -> tuple[Window | None, tuple[Series, ...]]:
        """The time of the whole recording after its warm-up: threads have their sessions at different times."""
        whole, series = super().window(data, flows)
        if whole is None:
            return None, series
        origin_ns = whole.first_start_ns if data.start_at_ns is None else data.start_at_ns
        start_ns = max(whole.first_start_ns, origin_ns + data.spec.warmup_ns)
        return replace(whole, start_ns=min(start_ns, whole.last_end_ns), end_ns=whole.last_end_ns), series

    def figures(
        self, data: TestData, flows: Sequence[Flow], steady: Window | None, histograms: Histograms
    ) -> dict[str, Metric]:
        """Requests as in `http`, and what became of the source."""
        from leadline.kinds.replay.figures import replay_figures

        found = super().figures(data, flows, steady, histograms)
        kept = {name: metric for name, metric in found.items() if name in {spec.name for spec in self.metrics}}
        return {**kept, **replay_figures(data, histograms)}

    def scenario_findings(self, data: TestData) -> ScenarioFindings | None:
        """The sessions and requests, and what became of the source."""
        from leadline.kinds.replay.findings import replay_findings

        found = super().scenario_findings(data)
        return None if found is None else replace(found, replay=replay_findings(data))

    def rules(self) -> Rules:
        """The rules of HTTP load, and those of a source."""
        from leadline.analysis.rules import whole
        from leadline.kinds.replay import notes
        from leadline.kinds.scenario.notes import run_too_short

        rules = HTTP.rules()
        return replace(
            rules,
            findings=(
                notes.nothing_replayed,
                notes.requests_lost,
                *(notes.whole if rule is whole else rule for rule in rules.findings),
                notes.reading_was_late,
                notes.source_broken_off,
            ),
            notes=(notes.source_notes, run_too_short, *rules.notes),
        )

    def table(self, metrics: Mapping[str, Metric]) -> FigureTable:
        """Requests first, then latencies."""
        return replace(super().table(metrics), title="replay")

    def figure_rows(self, result: TestResult) -> list[tuple[str, str]]:
        """The source, its times and its answers, then requests."""
        from leadline.kinds.replay.summary import source_rows

        return [*source_rows(result), *HTTP.figure_rows(result)]

    def time_tables(self, result: TestResult) -> list[RenderableType]:
        """Requests by name, failures, differences, and the slowest requests."""
        from leadline.kinds.replay.summary import difference_tables

        return [*super().time_tables(result), *difference_tables(result)]

    def page_tables(self, result: TestResult) -> list[PageTable]:
        """Requests by name, failures, differences, and what was left out."""
        from leadline.kinds.replay.summary import page_tables

        return [*super().page_tables(result), *page_tables(result)]


KIND = ReplayKind()
