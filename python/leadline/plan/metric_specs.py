"""The specification of a figure: its name, its unit, the better direction, and its meaning. Records only."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Better(StrEnum):
    """The direction in which a figure is better."""

    HIGHER = "higher"
    LOWER = "lower"
    NEITHER = "neither"


@dataclass(frozen=True, slots=True)
class MetricSpec:
    """One figure of a kind of test. Its name ends with its unit, unless it is a count."""

    name: str
    better: Better
    explanation: str

    @property
    def unit(self) -> str:
        """The unit in results."""
        if "bytes" in self.name.split("_"):
            return "bytes"
        return next((unit for ending, unit in _UNITS.items() if self.name.endswith(ending)), "count")


def higher(name: str, explanation: str) -> MetricSpec:
    """A figure for which higher is better."""
    return MetricSpec(name, Better.HIGHER, explanation)


def lower(name: str, explanation: str) -> MetricSpec:
    """A figure for which lower is better."""
    return MetricSpec(name, Better.LOWER, explanation)


def neither(name: str, explanation: str) -> MetricSpec:
    """A figure that describes the load and is neither better nor worse."""
    return MetricSpec(name, Better.NEITHER, explanation)


def times(prefix: str, names: Iterable[str], unit: str, explanation: str) -> tuple[MetricSpec, ...]:
    """`PREFIX_NAME_UNIT` for `min`, `mean`, `stdev`, `max` and percentiles of a time, for which lower is better."""
    return tuple(lower(f"{prefix}_{name}_{unit}", f"{_words(name)} of {explanation}") for name in names)


def _words(name: str) -> str:
    """`p999` as `percentile 99.9`."""
    digits = name.removeprefix("p")
    if not (name.startswith("p") and digits.isdecimal()):
        return {"min": "shortest", "max": "longest", "stdev": "standard deviation"}.get(name, name)
    return f"percentile {digits[:2]}{f'.{digits[2:]}' if digits[2:] else ''}"


_UNITS = {
    "_percent_per_gbps": "percent",
    "_percent_per_client": "percent",
    "_percent": "percent",
    "_us_per_request": "us",
    "_ns_per_byte": "ns",
    "_ns_per_packet": "ns",
    "_ns_per_transaction": "ns",
    "_per_s": "1/s",
    "_bps": "bit/s",
    "_us": "us",
    "_ms": "ms",
    "_s": "s",
    "_ratio": "ratio",
}
"""The suffixes of names and their units; the first match counts."""
