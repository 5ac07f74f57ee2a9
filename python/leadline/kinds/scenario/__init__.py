"""The kind `scenario`: virtual users that send requests, by a scenario of our own format, JMeter's or a HAR file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from leadline.kinds.http import KIND as HTTP
from leadline.kinds.scenario.model import ScenarioTest
from leadline.kinds.scenario.options import COMMAND
from leadline.kinds.scenario.users_kind import UsersKind
from leadline.plan.ladder import Chain, Rung
from leadline.plan.metric_specs import higher, lower, neither, times

if TYPE_CHECKING:
    from leadline.analysis.validity import Rules
    from leadline.contract.models import ScenarioWorkload
    from leadline.trial.workloads import Server

_ITERATION = ("min", "mean", "p50", "p90", "p95", "p99", "max")
_METRICS = (
    *(metric for metric in HTTP.metrics if metric.name != "found_rate_per_s"),
    neither("repeated", "requests that were sent again after the server closed a kept connection"),
    higher("iterations", "iterations that came to their end"),
    higher("iterations_per_s", "iterations per second that came to their end"),
    neither("iterations_due", "iterations that were due"),
    lower("iterations_late", "iterations that began more than 1 ms after they were due"),
    lower("iterations_dropped", "iterations that were due and had no free user"),
    lower("iterations_failed", "iterations with a failed request"),
    neither("users_most", "the largest number of users at once"),
    higher("checks_ratio", "share of the checks that passed"),
    *times("iteration", _ITERATION, "us", "the time of an iteration"),
    *times("transaction", _ITERATION, "us", "the time of a transaction"),
    *times("start_late", ("p50", "p99", "max"), "us", "the time from when an iteration was due until it began"),
)

_TAGGED = (
    *("error_ratio", "requests", "requests_per_s", "checks_ratio", "bytes_received", "bytes_sent"),
    *("iterations", "iterations_dropped"),
    *(
        f"{time}_{statistic}_us"
        for time in ("latency", "service", "first_byte", "transaction", "iteration")
        for statistic in _ITERATION
    ),
)
"""The figures that can be of a part of the requests, by tags."""


class ScenarioKind(UsersKind[ScenarioTest]):
    """The kind `scenario`: users with a flow of requests."""

    name = "scenario"
    model = ScenarioTest
    metrics = _METRICS
    tagged = _TAGGED
    headline = ("iterations_per_s", "latency_p50_us", "latency_p99_us")
    command = COMMAND
    rungs = (Rung("scenario", "scenario", "Scenario", Chain.REQUESTS, 50, "requests_per_s", is_given=True),)

    def run_command(self, values: Mapping[str, Any]) -> int:
        """Run the command `leadline scenario`."""
        from leadline.kinds.scenario.command import run

        return run(values)

    def workload(self, test: ScenarioTest, server: Server) -> ScenarioWorkload:
        """The scenario; its parameters `server` and `port` are the run's server."""
        from leadline.kinds.scenario.workload import scenario_workload

        host = f"[{server.host}]" if ":" in server.host else server.host
        known = {"server": host, "port": str(server.http_port_of(tls=False)), "scheme": server.scheme or "http"}
        bind = () if server.bind is None else (server.bind,)
        return scenario_workload(test, known, server.target(test.ip).ip_version, bind)

    def describe_load(self, workload: ScenarioWorkload) -> dict[str, Any]:
        """Whether its users wait between requests."""
        from leadline.kinds.scenario.workload import has_waits

        return {"has_waits": has_waits(workload)}

    def longest_ms(self, workload: ScenarioWorkload) -> int:
        """Each phase's iterations may go on for their grace."""
        graces_ms: dict[str, int] = {}
        for population in workload.plan.populations:
            graces_ms[population.phase] = max(population.end.grace_ms, graces_ms.get(population.phase, 0))
        return workload.duration_ms + sum(graces_ms.values())

    def check(self, test: ScenarioTest) -> None:
        """Compile the scenario."""
        from leadline.cli.scenario_check import check_scenario

        check_scenario(test.checked(), test.file.name)

    def rules(self) -> Rules:
        """The rules of HTTP load, those of its users, and a note on why its own ceiling is unknown."""
        from leadline.kinds.scenario.notes import run_too_short, something_sent, users_wait

        rules = HTTP.rules()
        return replace(
            rules, findings=(something_sent, *rules.findings, users_wait), notes=(run_too_short, *rules.notes)
        )


KIND = ScenarioKind()
