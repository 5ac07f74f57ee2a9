"""Parses the value of a target by the unit of its metric, and suggests a metric for an unknown name.

Pure. `leadline.plan.targets` has the names of the metrics.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Sequence

from leadline.plan import units
from leadline.plan.percentiles import histogram_of
from leadline.plan.units import UnitError

_MOST_SHOWN = 14


def read_value(written: str, metric: str, known: Sequence[str]) -> float:
    """A number in the metric's own unit, or with any unit of its dimension: `2ms`, `150mbit`, `1%`, `64MiB`, `10k/s`.

    Raises:
        UnitError: it is not such a value; the message is for the user.
    """
    if _NUMBER.fullmatch(written) and math.isfinite(float(written)):
        return float(written)
    for belongs, read in _UNITS:
        if belongs(metric):
            return read(written)
    if written.endswith("%") and f"{metric}_ratio" in known:
        raise UnitError(f"{metric} is a count; for a share write {metric}_ratio, as in '{metric}_ratio < {written}'")
    raise UnitError(f"{written!r} is not a number, and {metric} has no unit")


def suggestion(word: str, known: Sequence[str]) -> str:
    """A hint: the metric that was probably meant, or the existing ones with the likely ones first."""
    options = list(dict.fromkeys(known))
    meant = _meant(word, options)
    if meant is not None:
        return f"did you mean '{meant}'?"
    parts = set(_parts(word))
    ranked = sorted(options, key=lambda name: (-len(parts & set(_parts(name))), -_likeness(word, name)))
    return f"there is {', '.join(ranked[:_MOST_SHOWN])}{', ...' if len(ranked) > _MOST_SHOWN else ''}"


def _meant(word: str, options: Sequence[str]) -> str | None:
    usual = _USUAL.get(word, word)
    near = difflib.get_close_matches(usual, options, n=1, cutoff=0.75)
    if usual in options or near:
        return usual if usual in options else near[0]
    # `p99`, or `latency_p97`: any percentile of a metric with p99; by default the latency's.
    for name in (f"{usual}_us", f"latency_{usual}_us", f"{usual}_ms", f"connect_{usual}_ms"):
        asked = histogram_of(name)
        if name in options or (asked is not None and asked.sibling in options):
            return name
    whole = [name for name in options if set(_parts(usual)) <= set(_parts(name))]
    if whole:
        return min(whole, key=lambda name: (len(_parts(name)), options.index(name)))
    return next(iter(difflib.get_close_matches(usual, options, n=1, cutoff=0.6)), None)


def _parts(name: str) -> list[str]:
    return name.split("_")


def _likeness(word: str, name: str) -> float:
    return difflib.SequenceMatcher(None, word, name).ratio()


def _ends_in(*endings: str) -> Callable[[str], bool]:
    return lambda metric: metric.endswith(endings)


def _milliseconds(text: str) -> float:
    return units.duration_us(text) / 1000


def _seconds(text: str) -> float:
    return units.duration_us(text) / 1_000_000


_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?", re.ASCII)
_UNITS: tuple[tuple[Callable[[str], bool], Callable[[str], float]], ...] = (
    (_ends_in("_bps"), units.rate_bps),
    (_ends_in("_per_s"), units.per_second),
    (_ends_in("_us", "_us_per_request"), units.duration_us),
    (_ends_in("_ms"), _milliseconds),
    (_ends_in("_s"), _seconds),
    (_ends_in("_ratio"), units.fraction),
    (_ends_in("_percent", "_percent_per_client"), units.percent),
    (lambda metric: "bytes" in _parts(metric), units.size_bytes),
)
"""The metrics with a unit, and the parsers of their values; the first match counts."""
_USUAL = {
    "throughput": "throughput_bps",
    "bandwidth": "throughput_bps",
    "rate": "throughput_bps",
    "loss": "lost_ratio",
    "loss_ratio": "lost_ratio",
    "packet_loss": "lost_ratio",
    "errors": "error_ratio",
    "error_rate": "error_ratio",
    "latency": "latency_p99_us",
    "avg": "latency_mean_us",
    "mean": "latency_mean_us",
    "median": "latency_p50_us",
    "max": "latency_max_us",
    "rps": "requests_per_s",
    "qps": "requests_per_s",
    "tps": "transactions_per_s",
    "pps": "packets_per_s",
    "rtt": "rtt_mean_us",
    "jitter": "jitter_us",
    "cpu": "gateway_cpu_percent",
    "gateway_cpu": "gateway_cpu_percent",
    "memory": "gateway_memory_bytes",
}
"""The names that other tools use."""
