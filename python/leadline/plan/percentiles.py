"""Names of percentiles in metrics: `p50`, `p1`, and `p999` for 99.9 % (decimals follow two digits). Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

_NAME = re.compile(r"p([1-9]\d?|\d\d\d{0,6}[1-9])", re.ASCII)
_METRIC = re.compile(r"([a-z][a-z0-9_]*)_(p\d+)_(us|ms)", re.ASCII)
_NUMBER = re.compile(r"(\d{1,2})(?:\.(\d{1,9}))?", re.ASCII)
# Metrics whose histogram has another name.
_HISTOGRAMS = {"sends_late": "traffic_late"}


@dataclass(frozen=True, slots=True)
class PercentileMetric:
    """The percentile that a metric such as `latency_p25_us` names."""

    histogram: str
    percentile: float
    unit: str
    sibling: str
    """The p99 metric of the same histogram, which every kind of test with percentiles has."""


def percentile_of(name: str) -> float:
    """The percentile, 0 to 100.

    Raises:
        ValueError: it is not a percentile's name.
    """
    match = _NAME.fullmatch(name)
    if match is None:
        raise ValueError(f"{name!r} is not a percentile; write p1 to p99, or with decimals as in p999 for 99.9 %")
    digits = match[1]
    return float(f"{digits[:2]}.{digits[2:] or 0}")


def percentile_name(value: object) -> str:
    """The name of a percentile that was written as a name or as a number: `p99`, 99, 99.95.

    Raises:
        ValueError: it is neither, or not between 0 and 100.
    """
    text = str(value).strip()
    if _NAME.fullmatch(text):
        return text
    number = _NUMBER.fullmatch(text)
    if number is None or isinstance(value, bool):
        raise ValueError(f"{text!r} is not a percentile; write it as in 99.9 or p999")
    whole, decimals = number[1].lstrip("0"), (number[2] or "").rstrip("0")
    name = f"p{whole.zfill(2)}{decimals}" if decimals else f"p{whole}"
    if _NAME.fullmatch(name) is None:
        raise ValueError(
            f"{text!r} is not a percentile between 0 and 100 with at most 7 decimals; use min and max for the ends"
        )
    return name


def histogram_of(metric: str) -> PercentileMetric | None:
    """The percentile that a metric names; None if it names none."""
    match = _METRIC.fullmatch(metric)
    if match is None or _NAME.fullmatch(match[2]) is None:
        return None
    family, name, unit = match.groups()
    return PercentileMetric(_HISTOGRAMS.get(family, family), percentile_of(name), unit, f"{family}_p99_{unit}")
