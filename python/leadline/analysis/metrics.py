"""The figures of each kind of test, with the names and units that results, targets and tables share.

Rates are taken in the steady window. Counts are of the whole test, warm-up included, so that they can be compared
with the other side's. If one flow does not report a count, the sum is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol, cast

from leadline.analysis.durations import Figure, Sample
from leadline.analysis.flows import Flow
from leadline.analysis.histograms import EMPTY, Histogram, merge, merge_readable
from leadline.analysis.model import Ceiling, ClientStatistics, Generator, Metric, Window
from leadline.analysis.scope import WHOLE
from leadline.analysis.test_data import OutcomeOf, TestData
from leadline.analysis.test_spec import TestSpec
from leadline.analysis.window import arrived_afterwards, byte_curves, rate_columns, rate_per_s
from leadline.contract import records
from leadline.plan.percentiles import histogram_of, percentile_of
from leadline.registry import KINDS

CENSORED = "_censored"
"""Suffix of histograms of ages: of operations that had not ended when they were given up, or at the end."""
LATENCY_PERCENTILES = ("p50", "p90", "p99", "p999")

_BIT_RATE, _MICROSECONDS = "bit/s", "us"


class CostKind(Protocol):
    """The attributes of a kind of test that this module uses."""

    def operations(self, spec: TestSpec, flows: Sequence[Flow], clients: int) -> float | None:
        """The divisor of the generator's CPU time: datagrams, transactions, bytes; None if unknown. `clients` is the
        number of configured clients of a fleet.
        """


@dataclass(frozen=True, slots=True)
class Histograms:
    """Histograms of the whole test, merged over its hosts. Of a name with `damaged` ones, which could not be read,
    nothing is known.

    With a `backlog`, operations waited for those before them, longer the later they were due; `unaged` is the number
    of those without an age. With a `stall_at_end`, those that have no answer wait for the same thing, which ends for
    all of them together.
    """

    by_name: Mapping[str, Histogram]
    damaged: Mapping[str, int] = field(default_factory=dict)
    backlog: bool = False
    unaged: int = 0
    stall_at_end: bool = False

    def named(self, name: str) -> Histogram:
        """The histogram, empty if nothing was recorded."""
        return self.by_name.get(name, EMPTY)

    def sample(self, name: str) -> Sample:
        """The durations of that name, and the ages of operations that had not ended."""
        if self.damaged and not self.damaged.keys().isdisjoint((name, f"{name}{CENSORED}")):
            return Sample(EMPTY, is_known=False)
        # An operation that was not sent is outstanding since it was due.
        is_latency = name == "latency"
        return Sample(
            self.named(name),
            self.named(f"{name}{CENSORED}"),
            unaged=self.unaged if is_latency else 0,
            independent=not (is_latency and self.backlog),
            end_together=self.stall_at_end,
        )


def merged_histograms(data: TestData) -> Histograms:
    """Each name's histograms of all tasks, merged; for a task that was interrupted, those of its intervals."""
    encoded: dict[str, list[records.HistogramReport]] = {}
    finished = set()
    for found in data.load_outcomes():
        finished.add(found.host)
        for report in found.outcome["histograms"]:
            name = _carried(report["metric"]) if _is_carrier(data, found) else report["metric"]
            if name is not None:
                encoded.setdefault(name, []).append(report)
    for part in data.interval_histograms:
        if part.host not in finished and (not data.hosts or part.host in data.hosts):
            encoded.setdefault(part.report["metric"], []).append(part.report)
    read = {name: merge_readable(reports) for name, reports in encoded.items()}
    merged = {name: histogram for name, (histogram, _) in read.items()}
    return Histograms(merged, {name: damaged for name, (_, damaged) in read.items() if damaged})


def of_all_repeats(repeats: Sequence[Histograms]) -> Histograms:
    """The histograms of several repeats of a test as those of one."""
    names = dict.fromkeys(name for one in repeats for name in one.by_name)
    return Histograms(
        {name: merge([one.named(name) for one in repeats]) for name in names},
        {name: 1 for one in repeats for name in one.damaged},
        backlog=any(one.backlog for one in repeats),
        unaged=sum(one.unaged for one in repeats),
        stall_at_end=any(one.stall_at_end for one in repeats),
    )


def percentile_named(name: str, histograms: Histograms) -> Metric | None:
    """The percentile that a metric's name says (`latency_p25_us`); None for other metrics."""
    asked = histogram_of(name)
    if asked is None:
        return None
    metric = microseconds(histograms.sample(asked.histogram).percentile(asked.percentile))
    in_ms = None if metric.value is None else metric.value / 1e3
    return metric if asked.unit == "us" else replace(metric, value=in_ms, unit=asked.unit)


def _is_carrier(data: TestData, found: OutcomeOf) -> bool:
    """Whether a fleet carried a test of another kind in its tunnels."""
    return not data.spec.connects_clients and found.fleet is not None


def _carried(metric: str) -> str | None:
    """A fleet's histogram by the name that the load has without tunnels; None for those of connecting."""
    kind, found = metric.removesuffix(CENSORED), {"latency": "latency", "service": "service", "traffic_late": "late"}
    return f"{found[kind]}{metric.removeprefix(kind)}" if kind in found else None


def window_rates(spec: TestSpec, flows: Sequence[Flow], window: Window | None) -> dict[str, float | None]:
    """The rates of the kind of test, inside the window."""
    return {
        name: None if (rate := rate_per_s(curves, window)) is None else factor * rate
        for name, factor, curves in rate_columns(spec, flows)
    }


def times(prefix: str, sample: Sample, names: Iterable[str]) -> dict[str, Metric]:
    """`prefix_NAME_us` for each of `min`, `mean`, `stdev`, `max` and the requested percentiles."""
    return {f"{prefix}_{name}_us": microseconds(_figure(sample, name)) for name in names}


def _figure(sample: Sample, name: str) -> Figure:
    match name:
        case "min":
            return sample.min
        case "mean":
            return sample.mean
        case "stdev":
            return sample.stdev
        case "max":
            return sample.max
        case _:
            return sample.percentile(percentile_of(name))


def microseconds(figure: Figure) -> Metric:
    """A figure of a sample as a metric."""
    return Metric(figure.value_us, _MICROSECONDS, censored=figure.is_bound)


def asked_percentiles(names: Iterable[str], histograms: Histograms) -> dict[str, Metric]:
    """Percentiles by their metrics' names (`latency_p25_us`), in addition to those of the kind."""
    found = {name: percentile_named(name, histograms) for name in names}
    return {name: metric for name, metric in found.items() if metric is not None}


def client_statistics(data: TestData, flows: Sequence[Flow], window: Window | None) -> ClientStatistics | None:
    """The client table: total transfer, the sum of the clients' rates in the window, and the rate per client. In a
    fleet each flow is a client."""
    hosts = {flow.key.host for flow in flows if flow.start_ns is not None}
    if not hosts:
        return None
    clients = sum(data.host_specs.clients.get(host, 1) for host in hosts)
    if data.fleet_reports():
        # In a fleet's tunnels each flow belongs to one client.
        clients = len({(flow.key.host, flow.key.flow) for flow in flows if flow.start_ns is not None})
    moved = [flow.delivered_bytes for flow in flows if flow.delivered_bytes is not None]
    total_bps = None if (rate := rate_per_s(moved, window)) is None else 8.0 * rate
    return ClientStatistics(
        clients=clients,
        transfer_bytes=sum(curve.total for curve in moved) if moved else None,
        total_bps=total_bps,
        average_bps=total_bps / clients if total_bps is not None else None,
    )


def generator_cost(
    data: TestData, flows: Sequence[Flow], histograms: Histograms, ceiling: Ceiling | None
) -> Generator | None:
    """The cost of generating on the generators' own hosts, summed, and their ceiling.

    The unit of `cpu_ns_per_unit` is a datagram, a transaction, a request, a client of a fleet without traffic, or a
    byte of TCP payload.
    """
    reports = [found.outcome["generator"] for found in data.load_outcomes()]
    if not reports:
        return None
    threads = [thread for report in reports for thread in report["threads"]]
    cpu_s = sum(thread["user_s"] + thread["system_s"] for thread in threads) if threads else None
    shares = [busy_s(thread) / thread["wall_s"] for thread in threads if thread["wall_s"] > 0]
    spun_s = sum(thread.get("spun_s") or 0.0 for thread in threads)
    clients = sum(row["state"] == "configured" for fleet in data.fleet_reports() for row in fleet["clients"])
    kind: CostKind = KINDS.find(data.spec.kind)
    units = kind.operations(data.spec, flows, clients)
    return Generator(
        cpu_s=cpu_s,
        wall_s=max(report["wall_s"] for report in reports),
        busiest_thread=max(shares, default=None),
        late_p99_us=generators_late_p99_us(data, histograms),
        cpu_ns_per_unit=cpu_s * 1e9 / units if cpu_s is not None and units else None,
        engine=_said_by_all(reports, "engine"),
        engine_reason=_said_by_all(reports, "engine_reason"),
        ceiling_per_s=ceiling.per_s if ceiling is not None else None,
        spun_s=spun_s or None,
        ceiling_basis=ceiling.basis if ceiling is not None else None,
        ceiling_extrapolated=ceiling.extrapolated if ceiling is not None else None,
        ceiling_iterations_per_s=ceiling.iterations_per_s if ceiling is not None else None,
        ceiling_users=ceiling.users if ceiling is not None else None,
    )


def busy_s(thread: records.ThreadReport) -> float:
    """CPU time that a thread worked, without busy waiting."""
    return max(0.0, float(thread["user_s"] + thread["system_s"] - (thread.get("spun_s") or 0.0)))


def _said_by_all(reports: Sequence[records.LoadReport], name: Literal["engine", "engine_reason"]) -> str | None:
    """The distinct values that the hosts reported."""
    said = dict.fromkeys(str(report[name]) for report in reports if report.get(name))
    return ", ".join(said) or None


def generators_late_p99_us(data: TestData, histograms: Histograms) -> float | None:
    """Lateness of paced sends of the generators' own hosts: of all sends, or the worst host's figure."""
    own = [found.outcome["generator"].get("late_p99_us") for found in data.load_outcomes()]
    merged = histograms.named("late").percentile_us(99.0)
    return merged if merged is not None else max((late for late in own if late is not None), default=None)


def error_counts(data: TestData) -> dict[str, int]:
    """Failed operations by name, summed over all hosts; zero counts are omitted."""
    counts: dict[str, int] = {}
    for account in data.accounts():
        for name, count in account["errors"].items():
            if count:
                counts[name] = counts.get(name, 0) + count
    return dict(sorted(counts.items()))


def error_examples(data: TestData) -> dict[str, str]:
    """The message of the first failure of each name, from the first host that reported one."""
    examples: dict[str, str] = {}
    for found in data.load_outcomes():
        for name, text in (found.outcome.get("error_examples") or {}).items():
            examples.setdefault(name, text)
    return dict(sorted(examples.items()))


def counter(data: TestData, name: records.CountName) -> int | None:
    """One of the kind's own counters (`unsent` ...), summed over all hosts; None if no host has it."""
    # Each kind has some of the counters, and an agent omits rare ones that are 0.
    counts = (cast(Mapping[records.CountName, int | None], account["counts"]) for account in data.accounts())
    known = [count for one in counts if (count := one.get(name)) is not None]
    return sum(known) if known else None


def delivered_share(data: TestData, flows: Sequence[Flow]) -> float | None:
    """The share of the operations that were due that arrived or was answered, and of a stream with a rate, of its
    bytes; None where they had no times of their own, or where it is not known."""
    if not data.spec.paced or data.spec.connects_clients:
        return None
    if asked_bps := data.asked_bps:
        return _share_of_bytes(data, flows, asked_bps)
    arrived, due = sum_of_flows(flows, received_units), operations_due(data, flows)
    return arrived / due if arrived is not None and due else None


def _share_of_bytes(data: TestData, flows: Sequence[Flow], asked_bps: float) -> float | None:
    """The delivered share of a byte stream, given the rate of all clients. None where less arrived than was asked for
    until its sender had sent all: what arrives later had waited in buffers for a path that takes less."""
    spec, arrived = data.spec, sum_of_flows(flows, _received_by_its_end)
    if arrived is None or spec.duration_ns is None:
        return None
    directions = 2 if spec.direction == "both" else 1
    share = 8.0 * arrived / (asked_bps * directions * spec.duration_ns / 1e9)
    return share if share >= WHOLE else None


def operations_due(data: TestData, flows: Sequence[Flow]) -> int | None:
    """Requests, transactions or datagrams that fell due; None if that is not known."""
    due = counter(data, "requests_due")
    if due is None and (sent := sum_of_flows(flows, lambda flow: flow.sent_units)) is not None:
        return int(sent) + (counter(data, "unsent") or 0)
    return due


def throughput(
    spec: TestSpec, flows: Sequence[Flow], window: Window | None, rates: Mapping[str, float | None]
) -> dict[str, Metric]:
    """Bits per second: the sum, and the rate of each direction if both sides send; unknown if all that arrived came
    after the window.
    """
    is_late = arrived_afterwards(byte_curves(flows), window)
    found = {"throughput_bps": Metric(None if is_late else rates["throughput_bps"], _BIT_RATE)}
    if spec.direction == "both":
        for direction in ("up", "down"):
            curves = [flow.delivered_bytes for flow in flows if flow.direction == direction and flow.delivered_bytes]
            rate = None if arrived_afterwards(curves, window) else rate_per_s(curves, window)
            found[f"throughput_{direction}_bps"] = Metric(None if rate is None else 8.0 * rate, _BIT_RATE)
    return found


def received_bytes(flow: Flow) -> float | None:
    """Bytes that the receiving side of a flow counted."""
    return flow.delivered_bytes.total if flow.delivered_bytes is not None and flow.evidence != "sender" else None


def _received_by_its_end(flow: Flow) -> float | None:
    """The same as far as it had arrived when the flow ended at its sender."""
    if flow.delivered_bytes is None or flow.end_ns is None or flow.evidence == "sender":
        return None
    return float(flow.delivered_bytes.at(flow.end_ns))


def received_units(flow: Flow) -> float | None:
    """Datagrams or answers that the receiving side of a flow counted."""
    return flow.delivered_units.total if flow.delivered_units is not None and flow.evidence != "sender" else None


def reported(flows: Sequence[Flow], name: Literal["retransmits", "lost", "duplicates", "reordered"]) -> Metric:
    """A count in the flows' reports, summed."""
    return Metric(sum_of_flows(flows, lambda flow: flow.report.get(name) if flow.report else None), "count")


def mean_reported_us(flows: Sequence[Flow], name: Literal["jitter_us", "rtt_mean_us"]) -> Metric:
    """The mean of a time in the flows' reports."""
    times_us = [us for flow in flows if flow.report and (us := flow.report.get(name)) is not None]
    return Metric(sum(times_us) / len(times_us) if times_us else None, _MICROSECONDS)


def sum_of_flows(flows: Sequence[Flow], read: Callable[[Flow], float | None]) -> float | None:
    """The sum over all flows that began; None if one of them does not report it."""
    values = [read(flow) for flow in flows if flow.start_ns is not None]
    known = [value for value in values if value is not None]
    return float(sum(known)) if values and len(known) == len(values) else None
