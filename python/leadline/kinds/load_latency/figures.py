"""The figures of `load-latency`: by phase, from the tasks of that phase. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from operator import itemgetter

from leadline import quantities
from leadline.analysis.durations import Sample
from leadline.analysis.flows import Flow
from leadline.analysis.histograms import merge_readable
from leadline.analysis.intervals import with_range
from leadline.analysis.metrics import CENSORED, Histograms, microseconds
from leadline.analysis.model import Bound, Metric, Series, TestResult, Window
from leadline.analysis.test_data import TestData
from leadline.analysis.window import byte_curves, rate_per_s, steady_window
from leadline.contract import records
from leadline.plan.percentiles import percentile_of

PROBE, BULK = "probe", "bulk"
"""What a phase's tasks are called after its name. The probe of a class has the name of the class; its load has that
name after `bulk`."""
_BLOAT_US = 5_000.0
"""An increase below this is no bufferbloat: no application notices it."""
_STEP_NS = 100_000_000
_LATENCIES = ("latency", f"latency{CENSORED}")


def bulk_name(phase: str, one: str | None) -> str:
    """The name of a phase's load of a class; of best effort if None."""
    return ".".join((phase, BULK, *([] if one is None else [one])))


def is_bulk(task: str) -> bool:
    """Whether a task is a load, of any class."""
    return BULK in task.split(".")[1:2]


def whole_window(flows: Sequence[Flow]) -> Window | None:
    """The time from the first flow's start to the last one's end; None if none began."""
    begun = [(flow.start_ns, flow.end_ns) for flow in flows if flow.start_ns is not None and flow.end_ns is not None]
    if not begun:
        return None
    start_ns, end_ns = min(start for start, _ in begun), max(end for _, end in begun)
    return Window(start_ns, start_ns, end_ns, end_ns)


def with_phases(data: TestData, histograms: Histograms) -> Histograms:
    """Adds the latencies of each phase, by its name, from the reports of its probes."""
    found: dict[str, list[records.HistogramReport]] = {}
    for outcome in data.load_outcomes():
        phase, _, part = outcome.task.partition(".")
        if is_bulk(outcome.task):
            continue
        of_probe = phase if part == PROBE else f"{phase} {part}"
        for report in outcome.outcome["histograms"]:
            if report["metric"] in _LATENCIES:
                name = report["metric"].replace("latency", of_probe)
                found.setdefault(name, []).append(report)
    read = {name: merge_readable(reports) for name, reports in found.items()}
    merged = {name: histogram for name, (histogram, _) in read.items()}
    damaged = {name: count for name, (_, count) in read.items() if count}
    by_name, damaged = {**histograms.by_name, **merged}, {**histograms.damaged, **damaged}
    return replace(histograms, by_name=by_name, damaged=damaged)


def latencies(histograms: Histograms, phases: Sequence[str], names: Sequence[str]) -> dict[str, Metric]:
    """Each phase's percentiles, what each load adds to those of the first phase, and the largest of that."""
    by_phase = {phase: _percentiles(histograms.sample(phase), names) for phase in phases}
    idle, *loaded = phases
    found = {f"latency_{phase}_{name}_us": by_phase[phase][name] for phase in phases for name in names}
    increases = {
        (phase, name): _increase(by_phase[phase][name], by_phase[idle][name]) for phase in loaded for name in names
    }
    return {
        "latency_increase_us": _largest({phase: increases[phase, "p50"] for phase in loaded}),
        **found,
        **{f"increase_{phase}_{name}_us": metric for (phase, name), metric in increases.items()},
    }


def class_latencies(
    histograms: Histograms, phases: Sequence[str], classes: Sequence[str], names: Sequence[str]
) -> dict[str, Metric]:
    """Each phase's percentiles of the classes that had a probe."""
    samples = {(phase, one): histograms.sample(f"{phase} {one}") for phase in phases for one in classes}
    return {
        f"latency_{phase}_{one}_{name}_us": metric
        for (phase, one), sample in samples.items()
        if sample.count
        for name, metric in _percentiles(sample, names).items()
    }


def _percentiles(sample: Sample, names: Iterable[str]) -> dict[str, Metric]:
    return {
        name: with_range(microseconds(sample.percentile(percentile)), sample, percentile / 100)
        for name in names
        for percentile in [percentile_of(name)]
    }


def _increase(loaded: Metric, idle: Metric) -> Metric:
    if loaded.value is None or idle.value is None:
        return Metric(None, "us")
    bounds: tuple[float | None, float | None] = None, None
    if loaded.low is not None and loaded.high is not None and idle.low is not None and idle.high is not None:
        bounds = loaded.low - idle.high, loaded.high - idle.low
    unbounded = None if bounds[0] is not None else loaded.unbounded or idle.unbounded
    found = Metric(loaded.value - idle.value, "us", *bounds, censored=loaded.censored, unbounded=unbounded)
    if not idle.censored:
        return found
    # The idle latency is at least so much, and the increase over it at most.
    return replace(found, bound=Bound.NONE if loaded.censored else Bound.MOST)


def _largest(increases: Mapping[str, Metric]) -> Metric:
    """The largest increase of all loads; unknown where that of one load is: it may be the largest."""
    unknown = [phase for phase, metric in increases.items() if metric.value is None]
    if unknown or not increases:
        return Metric(None, "us", unknown=f"the latency of a phase is not known ({', '.join(unknown)})")
    largest = max(increases.values(), key=lambda metric: metric.value or 0.0)
    return replace(largest, censored=any(metric.censored for metric in increases.values()))


def throughput(data: TestData, flows: Sequence[Flow], phase: str, direction: str) -> Metric:
    """The payload of one direction per second, of all classes, inside the steady window of the phase's own flows."""
    bulk = _bulk_flows(flows, phase, direction)
    return _rate(bulk, steady_window(bulk, data.spec.warmup_ns, None))


def class_throughput(data: TestData, flows: Sequence[Flow], phase: str, direction: str, one: str) -> Metric | None:
    """The part of one class, inside the window of all; None if the class had no load."""
    bulk = _bulk_flows(flows, phase, direction)
    of_class = [flow for flow in bulk if flow.key.task == bulk_name(phase, one)]
    return _rate(of_class, steady_window(bulk, data.spec.warmup_ns, None)) if of_class else None


def _bulk_flows(flows: Sequence[Flow], phase: str, direction: str) -> list[Flow]:
    return [
        flow
        for flow in flows
        if is_bulk(flow.key.task) and flow.key.task.startswith(f"{phase}.") and flow.direction == direction
    ]


def _rate(flows: Sequence[Flow], window: Window | None) -> Metric:
    rate = rate_per_s(byte_curves(flows), window)
    return Metric(None if rate is None else 8.0 * rate, "bit/s")


def series(data: TestData, flows: Sequence[Flow], window: Window | None) -> tuple[Series, ...]:
    """Latency (median of each interval) and throughput of each direction over the time of all phases."""
    if window is None:
        return ()
    zero_ns = window.first_start_ns
    return (*_latency_lines(data, zero_ns), *_throughput_lines(flows, zero_ns, window.last_end_ns))


def _latency_lines(data: TestData, zero_ns: float) -> Iterator[Series]:
    """Best effort has a line per phase, each class one of all phases, which is broken between them."""
    points: dict[str, dict[int, list[records.HistogramReport]]] = {}
    phases: dict[int, str] = {}
    for part in data.interval_histograms:
        phase, _, probe = part.task.partition(".")
        if part.report["metric"] == "latency" and not is_bulk(part.task):
            by_end = points.setdefault(phase if probe == PROBE else probe, {})
            by_end.setdefault(part.end_ns, []).append(part.report)
            phases[part.end_ns] = phase
    for name, by_end in points.items():
        ends_ns = sorted(by_end)
        medians: dict[float, float | None] = {
            end_ns: Sample(merge_readable(by_end[end_ns])[0]).percentile(50.0).value_us for end_ns in ends_ns
        }
        # Nothing was sent between two phases: a line through the time between them would show what was not measured.
        pauses = {(a + b) / 2: None for a, b in pairwise(ends_ns) if phases[a] != phases[b]}
        drawn = sorted({**medians, **pauses}.items(), key=itemgetter(0))
        yield Series(
            name, "", "us", tuple((at_ns - zero_ns) / 1e9 for at_ns, _ in drawn), tuple(value for _, value in drawn)
        )


def _throughput_lines(flows: Sequence[Flow], zero_ns: float, last_ns: float) -> Iterator[Series]:
    ends_ns = range(int(zero_ns), int(last_ns) + 1, _STEP_NS)
    for direction in ("up", "down"):
        curves = byte_curves(flow for flow in flows if is_bulk(flow.key.task) and flow.direction == direction)
        steps = [(end, sum(curve.growth(begin, end) for curve in curves)) for begin, end in pairwise(ends_ns)]
        if curves and steps:
            times_s = tuple((end - zero_ns) / 1e9 for end, _ in steps)
            values = tuple(8e9 * grown / _STEP_NS for _, grown in steps)
            yield Series(f"throughput {direction}", "", "bit/s", times_s, values)


def summary_rows(result: TestResult, phases: Sequence[str], classes: Sequence[str]) -> list[tuple[str, str]]:
    """A line per phase and class, and bufferbloat in one sentence."""
    rows = [("bufferbloat", sentence(result))]
    for phase in phases:
        times = ", ".join(f"{name} {_time(result, f'latency_{phase}_{name}_us')}" for name in ("p50", "p99"))
        rows.append((phase, "; ".join([times, *_rates(result, phase, "")])))
    for one in classes:
        medians = [(phase, f"latency_{phase}_{one}_p50_us") for phase in phases]
        if any(name in result.metrics for _, name in medians):
            known = [f"{phase} {_time(result, name)}" for phase, name in medians if name in result.metrics]
            rates = [
                f"{rate} in {phase}" if phase == "both" else rate
                for phase in phases
                for rate in _rates(result, phase, f"_{one}")
            ]
            rows.append((one, "; ".join([f"p50 {', '.join(known)}", *rates])))
    return rows


def _rates(result: TestResult, phase: str, of_class: str) -> list[str]:
    return [
        f"{direction} {quantities.bit_rate(result.metrics[name].value)}"
        for direction in ("up", "down")
        for name in (f"bulk_{phase if phase == direction else f'{phase}_{direction}'}{of_class}_bps",)
        if name in result.metrics
    ]


def sentence(result: TestResult) -> str:
    """What the load does to latency."""
    grown, idle = result.metrics["latency_increase_us"].value, result.metrics["latency_idle_p50_us"].value
    if grown is None or idle is None:
        return "unknown: a phase has no latency"
    if grown < 0:
        shorter = quantities.microseconds(-grown)
        return (
            f"none: under load latency is {shorter} shorter than the {quantities.microseconds(idle)} of the idle path"
        )
    text = f"load adds {quantities.microseconds(grown)} to the {quantities.microseconds(idle)} of the idle path"
    if grown <= max(_BLOAT_US, idle):
        return f"none: {text}"
    return f"yes: {text}, {grown / idle + 1:.3g} times as much" if idle else f"yes: {text}"


def _time(result: TestResult, name: str) -> str:
    return quantities.microseconds(result.metrics[name].value)
