"""The kind `tunnel`: a fleet of VPN clients, how they connect, and the load that they carry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from leadline.errors import LeadlineError
from leadline.kinds.kind import Kind
from leadline.kinds.tunnel.model import TunnelTest
from leadline.kinds.tunnel.options import COMMAND
from leadline.plan.metric_specs import higher, lower, neither, times

if TYPE_CHECKING:
    from rich.console import RenderableType

    from leadline.analysis.flows import Flow
    from leadline.analysis.metrics import Histograms
    from leadline.analysis.model import Distribution, Generator, Metric, Series, TestResult, Window
    from leadline.analysis.running_intervals import IntervalGrowth
    from leadline.analysis.test_data import TestData
    from leadline.analysis.test_spec import TestSpec
    from leadline.analysis.validity import Rules
    from leadline.analysis.window import RateColumn
    from leadline.contract.models import TunnelWorkload
    from leadline.report.figures import FigureTable
    from leadline.sut.model import FleetAccess
    from leadline.trial.live_metrics import KindFigures
    from leadline.trial.workloads import Server

_STEPS = (
    *("connect", "answer", "tls", "keys", "push", "ike_up", "ip_assigned", "child_up", "first_data"),
    *("reconnect", "recovered", "renegotiate"),
)
_WHEN = ("before", "during", "after")
_PINGS = ("ping_before", "ping_during", "ping_after")
_TIMES = ("min", "mean", "p50", "p90", "p99", "max")
_METRICS = (
    neither("clients", "clients of the fleet"),
    higher("configured", "clients that received everything expected and the answer to a packet"),
    lower("partial", "clients that are connected but did not receive everything"),
    lower("failed", "clients that are not connected"),
    lower("failed_ratio", "share of the clients that are not connected"),
    lower("unconfigured_ratio", "share of the clients that are not configured"),
    higher("handshakes_per_s", "clients connected per second, from the first due time to the last connect"),
    *times("connect", _TIMES, "ms", "the time from due to configured"),
    *times("answer", _TIMES, "ms", "the time to the server's first answer"),
    *times("tls", _TIMES, "ms", "the time from the first answer to the end of TLS"),
    *times("keys", _TIMES, "ms", "the time from the end of TLS until both sides' keys are known"),
    *times("push", _TIMES, "ms", "the time from the keys to all pushed options"),
    *times("ike_up", _TIMES, "ms", "the time from the first answer until the IKE SA was up"),
    *times("ip_assigned", _TIMES, "ms", "the time from the IKE SA until an address was assigned"),
    *times("child_up", _TIMES, "ms", "the time from the step before until the data channel had keys"),
    *times("first_data", _TIMES, "ms", "the time from the complete configuration to the first returned packet"),
    neither("ike_up", "clients whose IKE SA was up at the end"),
    neither("ip_assigned", "clients that had an address from IKE at the end"),
    neither("child_up", "clients whose data channel had keys at the end"),
    neither("traffic_both_ways", "clients through whose tunnel a packet had come back, of those with a child"),
    lower("cookies_received", "cookies by which the gateway asked clients to prove their addresses"),
    *times("reconnect", _TIMES, "ms", "the connect time of clients that reconnect as planned"),
    *times("recovered", _TIMES, "ms", "the time from a client's first failure until it was configured"),
    *times("renegotiate", _TIMES, "ms", "the time from when new keys were due until they were in use"),
    lower("attempts", "attempts to connect"),
    lower("retransmits", "control packets that were retransmitted"),
    neither("recovered", "clients that are configured after a failure"),
    lower("recovered_partial", "clients that are partial after a failure"),
    neither("reconnects_begun", "reconnects that clients began as planned"),
    higher("returned", "clients that were configured again at the first attempt"),
    lower("tunnels_lost", "tunnels that ended unexpectedly"),
    neither("renegotiations_asked", "renegotiations that were planned"),
    higher("renegotiated", "renegotiations that succeeded"),
    lower("renegotiations_unfinished", "renegotiations that were not complete at the end"),
    lower("renegotiations_failed", "renegotiations that failed"),
    lower("actions_skipped", "planned actions that were skipped because the client was not connected"),
    *times("late", ("p50", "p99", "max"), "us", "the time from when an attempt was due to its first packet"),
    *times("ping_before", _TIMES, "ms", "round trips before the arrivals"),
    *times("ping_during", _TIMES, "ms", "round trips during the arrivals"),
    *times("ping_after", _TIMES, "ms", "round trips after the arrivals"),
    neither("pings_sent", "pings that were sent"),
    lower("pings_lost", "pings without an answer"),
    lower("pings_unsent", "pings that were due and were not sent"),
    *(lower(f"pings_lost_{when}", f"pings without an answer {when} the arrivals") for when in _WHEN),
    lower("memory_bytes", "the agent's peak memory minus its memory before the fleet"),
    lower("memory_per_client_bytes", "the same per client"),
    lower("server_cpu_s", "CPU time of the server's processes during the test"),
    lower("server_cpu_per_client_ms", "the same per client"),
    lower("server_memory_bytes", "largest growth of the server's memory"),
    lower("server_memory_per_client_bytes", "the same per client"),
    higher("throughput_bps", "payload received in the tunnels per second in the steady window"),
    higher("packets_per_s", "packets received in the tunnels per second in the steady window"),
    neither("sent", "packets sent in the tunnels"),
    higher("received", "packets in the tunnels that arrived"),
    lower("lost", "packets in the tunnels that did not arrive"),
    lower("lost_ratio", "share of the packets in the tunnels that did not arrive"),
    *times(
        "latency", ("min", "mean", "p50", "p90", "p99", "p999", "max"), "us", "the time from due to done in the tunnels"
    ),
    lower("sends_late_p99_us", "percentile 99 of how late packets were sent in the tunnels"),
    lower("sends_late_ratio", "share of the packets in the tunnels that were sent over 1 ms late"),
)
_PER_IDENTITY_S = 0.01
"""Time to make one identity. A key, a signature and a TLS configuration take under a millisecond, on a busy host
several."""


class Tunnel(Kind[TunnelTest]):
    """The kind `tunnel`: VPN clients arrive, are checked, and may carry load."""

    name = "tunnel"
    model = TunnelTest
    metrics = _METRICS
    primary = "handshakes_per_s"
    decisive = ("configured", "connect_p99_ms", "throughput_bps", "transactions_per_s", "lost_ratio", "latency_p99_us")
    verb, counted = "connects", "clients"
    shortfall = ("unconfigured_ratio", "of the clients not configured")
    delay = ("connect_p99_ms", "p99 of the time to connect")
    scaling = (
        ("connect_p50_ms", "ms"),
        ("connect_p99_ms", "ms"),
        ("connect_max_ms", "ms"),
        ("server_cpu_s", "s"),
        ("server_memory_bytes", "bytes"),
        ("memory_bytes", "bytes"),
    )
    headline = ("configured", "failed", "connect_p99_ms")
    operation = "client"
    command = COMMAND
    curves = ("latency", *_STEPS, *_PINGS, "service", "late")

    def run_command(self, values: Mapping[str, Any]) -> int:
        """Run the command `leadline tunnel`."""
        from leadline.kinds.tunnel.command import run

        return run(values)

    def workload(self, test: TunnelTest, server: Server) -> TunnelWorkload:
        """Raises: a client host without a fleet has no profile to connect with."""
        raise LeadlineError(f"{test.name}: a tunnel test needs a fleet", hint="give the plan clients: {fleet: true}")

    def fleet_workload(self, test: TunnelTest, access: FleetAccess, clients: int, server: str) -> TunnelWorkload:
        """The workload with the test's own number of clients, or with all of the fleet's."""
        from leadline.kinds.tunnel.gateway_fleet import measured

        return measured(test, access, clients, server)

    def preparation_s(self, workload: TunnelWorkload) -> float:
        """The time that a fleet needs to make its certificates."""
        return workload.clients * _PER_IDENTITY_S

    def longest_ms(self, workload: TunnelWorkload) -> int:
        """The maximum length: the stay begins once the settled clients are connected."""
        return workload.duration_ms + workload.settling_ms

    def live_figures(self) -> KindFigures:
        """Clients by state, and those that the fleet waits for."""
        from leadline.kinds.tunnel.live import LiveClients

        return LiveClients()

    def read_spec(self, test: Mapping[str, Any], common: TestSpec) -> TestSpec:
        """The traffic's rate: a plan has one key, a workload has packets or requests."""
        from leadline.analysis import test_spec as t

        stages = t.stages(test, "rate_per_s", "arrivals")
        traffic = test.get("traffic") or None
        rate = next((rate for key in ("rate_per_s", "rate_pps") if (rate := (traffic or {}).get(key))), None)
        inside = str(traffic.get("kind") or "udp") if traffic is not None else None
        return replace(
            common,
            direction=str((traffic or test).get("direction") or "up"),
            # A fleet has no fixed duration.
            duration_ns=t.nanoseconds((traffic or {}).get("duration_ms")),
            send_gap_s=t.shortest_gap_s(stages),
            # A fleet carries its load at one rate; the arrivals' rate does not matter.
            steady=traffic is not None or t.is_steady(stages),
            counts_units=inside in ("echo", "http"),
            connects_clients=True,
            unanswered_is_lost=inside == "echo",
            settled=int(test.get("settled") or 0),
            inside=inside,
            over_udp=inside in ("udp", "echo"),
            inside_gap_s=1.0 / float(rate) if rate else None,
        )

    def window(self, data: TestData, flows: Sequence[Flow]) -> tuple[Window | None, tuple[Series, ...]]:
        """The window of the traffic; for a fleet without traffic, the time in which it connected."""
        from leadline.analysis import tunnels

        if data.spec.carries:
            return super().window(data, flows)
        return tunnels.storm_window(data), tunnels.arrivals(data)

    def rate_columns(self, spec: TestSpec, flows: Sequence[Flow]) -> list[RateColumn]:
        """Bits and packets in the tunnels; the unit that is counted comes first."""
        from leadline.analysis.window import throughput_column, units_column

        columns = [throughput_column(flows), units_column("packets_per_s", flows)]
        return columns[::-1] if spec.counts_units else columns

    def interval_values(self, spec: TestSpec, growth: IntervalGrowth) -> dict[str, float | None]:
        """The figures of the load in the tunnels."""
        from leadline.analysis.running_intervals import answers, datagrams, throughput

        if spec.counts_units:
            return answers("requests_per_s", growth)
        return {**throughput(spec, growth), **datagrams(growth)}

    def figures(
        self, data: TestData, flows: Sequence[Flow], steady: Window | None, histograms: Histograms
    ) -> dict[str, Metric]:
        """Clients by outcome, the time of each step, and the traffic's figures."""
        from leadline.analysis.tunnels import tunnel_figures

        return tunnel_figures(data, flows, steady, histograms)

    def distributions(self, data: TestData, steady: Window | None, histograms: Histograms) -> tuple[Distribution, ...]:
        """The distributions of every histogram with values."""
        from leadline.analysis.tunnels import distributions

        return distributions(histograms)

    def operations(self, spec: TestSpec, flows: Sequence[Flow], clients: int) -> float | None:
        """Packets or requests in the tunnels; for a fleet without traffic, clients."""
        return super().operations(spec, flows, clients) if spec.carries else clients

    def generator(self, data: TestData, cost: Generator) -> Generator:
        """The generator's cost. A connect storm is short, so the threads' busiest second counts, not their mean."""
        from leadline.analysis.fleet_validity import busiest_stretch

        return replace(cost, busiest_thread=busiest_stretch(data) or cost.busiest_thread)

    def rules(self) -> Rules:
        """A fleet is judged by its busiest second, and by its traffic."""
        from leadline.analysis import rules
        from leadline.kinds.tunnel import rules as own

        return rules.rules_of(
            limits=(own.fleet_limits, own.late_arrivals, own.behind_the_gateway),
            required=(own.receiver_known,),
            notes=(own.fleet_notes,),
        )

    def table(self, metrics: Mapping[str, Metric]) -> FigureTable:
        """Handshakes first, then clients by outcome and times."""
        from leadline import quantities
        from leadline.report.figures import Figure, FigureTable

        return FigureTable(
            "VPN clients connected",
            Figure("handshakes_per_s", "handshakes", quantities.per_second),
            (
                Figure("configured", "configured", quantities.count),
                Figure("partial", "partial", quantities.count),
                Figure("failed", "failed", quantities.count),
                Figure("connect_p50_ms", "p50", quantities.milliseconds),
                Figure("connect_p99_ms", "p99", quantities.milliseconds),
                Figure("throughput_bps", "throughput", quantities.bit_rate),
            ),
        )

    def figure_rows(self, result: TestResult) -> list[tuple[str, str]]:
        """The outcome of the clients, and their traffic."""
        from leadline.kinds.tunnel.summary import tunnel_rows

        return tunnel_rows(result)

    def failure_rows(self, result: TestResult) -> list[tuple[str, str]]:
        """Errors that did not end a client's attempts."""
        from leadline.kinds.tunnel.summary import other_errors

        return other_errors(result)

    def time_tables(self, result: TestResult) -> list[RenderableType]:
        """The times of each step."""
        from leadline.kinds.tunnel.summary import tunnel_times

        return tunnel_times(result)

    def phase_rows(self, result: TestResult) -> list[tuple[str, tuple[str, ...]]]:
        """The steps without their p90."""
        from leadline.kinds.tunnel.summary import step_rows

        return [(title, (*cells[:3], *cells[4:])) for title, cells in step_rows(result)]

    def client_rows(self, result: TestResult) -> list[tuple[str, str]]:
        """The rows that the terminal shows."""
        return [*self.figure_rows(result), *(self.failure_rows(result) if result.errors else [])]


KIND = Tunnel()
