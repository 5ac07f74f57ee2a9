"""Formats quantities for people: bits per second, bytes, times, rates, shares.

The number of significant digits is fixed, so that a column keeps its width and shows no false precision. None and
non-finite values become an en dash: an unknown value is never shown as 0.
"""

from __future__ import annotations

import math
from typing import TypeGuard

UNKNOWN = "–"
NO_WIDTH = "±0.0 %"
"""Half of an interval that rounds to none."""

_SI_PREFIXES = {-9: "n", -6: "µ", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P"}
_FEW_REPEATS = 4
_BINARY_PREFIXES = ("", "Ki", "Mi", "Gi", "Ti", "Pi")


def bit_rate(bps: float | None) -> str:
    """Bits per second with a decimal prefix: `941 Mbit/s`."""
    return _engineering(bps, "bit/s", lowest=0)


def per_second(rate: float | None) -> str:
    """Events per second: `131 k/s`."""
    return _engineering(rate, "/s", lowest=0)


def rate_in_full(rate: float | None) -> str:
    """Events per second as near to the figure as bounds that are close together need: `70,804/s`, `12.35/s`."""
    if not _known(rate):
        return UNKNOWN
    return f"{rate:,.0f}/s" if abs(rate) >= 1000 else f"{rate:.4g}/s"


def transfer(octets: float | None) -> str:
    """Transferred bytes, in decimal units: `1.18 GB`."""
    return _engineering(octets, "B", lowest=0)


def memory(octets: float | None) -> str:
    """Memory in bytes, in binary units: `8.00 MiB`."""
    if not _known(octets):
        return UNKNOWN
    value, step = float(octets), 0
    while abs(value) >= 999.5 and step < len(_BINARY_PREFIXES) - 1:
        value, step = value / 1024, step + 1
    text = f"{value:.0f}" if step == 0 else significant(value)
    return f"{text} {_BINARY_PREFIXES[step]}B"


def microseconds(us: float | None) -> str:
    """A time in µs: `850 ns`, `21.3 µs`, `4.20 ms`, `1.30 s`."""
    return seconds(us / 1e6 if us is not None else None)


def nanoseconds(ns: float | None) -> str:
    """A time in ns: `0.308 ns`, `11.6 µs`."""
    return seconds(ns / 1e9 if ns is not None else None)


def seconds(s: float | None) -> str:
    """A time in s; from 100 s on in minutes and seconds, from an hour on in hours and minutes."""
    if not _known(s):
        return UNKNOWN
    if abs(s) < 99.95:
        return _engineering(s, "s", lowest=-9)
    whole = round(s)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def percent(value: float | None) -> str:
    """A figure in percent: `12.5 %`, `198 %`."""
    return f"{significant(value)} %" if _known(value) else UNKNOWN


def share(ratio: float | None) -> str:
    """A ratio of 0 to 1 as percent."""
    return percent(ratio * 100 if ratio is not None else None)


def rounded_share(ratio: float, decimals: int = 0, *, signed: bool = False) -> str:
    """A known ratio as percent with a fixed number of decimals, for sentences: `67 %`, `4.8 %`, `-15.8 %`."""
    return f"{ratio * 100:{'+' if signed else ''}.{decimals}f} %"


def count(number: float | None) -> str:
    """A count in full: `656,123`."""
    return f"{round(number):,}" if _known(number) else UNKNOWN


def counted(number: int, what: str) -> str:
    """`1 trial`, `1,200 trials`; the plural has an s."""
    return f"1 {what}" if number == 1 else f"{number:,} {what}s"


def at_least(text: str, is_bound: bool) -> str:
    """The text of a quantity, with `≥` before it if it is a lower bound."""
    return f"≥ {text}" if is_bound and text != UNKNOWN else text


def fixed(value: float | None, decimals: int) -> str:
    """A bare number with a fixed number of decimals."""
    return f"{value:,.{decimals}f}" if _known(value) else UNKNOWN


def significant(value: float, digits: int = 3) -> str:
    """`value` in positional notation with `digits` significant digits; whole digits are never dropped, 0 stays
    `0`."""
    if value == 0:
        return "0"
    exponent = _rounded_exponent(value, digits)
    return f"{value:.{max(0, digits - 1 - exponent)}f}"


def number(value: float | None) -> str:
    """A bare number with three significant digits."""
    return significant(value) if _known(value) else UNKNOWN


def plus_minus(value: float | None, low: float | None, high: float | None, repeats: int | None = None) -> str:
    """Half the width of an interval around `value`, as percent of it: `±1.2 %`; empty without an interval.

    Few repeats that differ much make an interval that is wider than the figure: `3 repeats` then says why it is of no
    use, and for other figures `> ±100 %`.
    """
    if not (_known(value) and _known(low) and _known(high)) or value == 0:
        return ""
    half = max(high - value, value - low) / abs(value) * 100
    if half >= 100:
        return counted(repeats, "repeat") if repeats is not None and 2 <= repeats <= _FEW_REPEATS else "> ±100 %"
    return f"±{significant(half, 2)} %" if half >= 0.05 else NO_WIDTH


def metric(value: float | None, unit: str) -> str:
    """`value` in the notation of its unit; an unknown unit follows the number."""
    writers = {
        "bit/s": bit_rate,
        "bps": bit_rate,
        "1/s": per_second,
        "/s": per_second,
        "B": transfer,
        "bytes": transfer,
        "us": microseconds,
        "µs": microseconds,
        "ns": nanoseconds,
        "ms": lambda ms: seconds(ms / 1e3 if ms is not None else None),
        "s": seconds,
        "%": percent,
        "percent": percent,
        "ratio": share,
        "count": count,
        "1": count,
        "": count,
    }
    writer = writers.get(unit)
    if writer is not None:
        return writer(value)
    return f"{significant(value)} {unit}" if _known(value) else UNKNOWN


def _engineering(value: float | None, unit: str, *, lowest: int, digits: int = 3) -> str:
    """`digits` significant digits with an SI prefix; the prefix is chosen after rounding, so 999.9 k becomes 1.00
    M."""
    if not _known(value):
        return UNKNOWN
    if value == 0:
        return f"0 {unit}"
    exponent = _rounded_exponent(value, digits)
    prefix = min(max(3 * math.floor(exponent / 3), lowest), max(_SI_PREFIXES))
    scaled = value / 10.0**prefix
    return f"{scaled:.{max(0, digits - 1 - (exponent - prefix))}f} {_SI_PREFIXES[prefix]}{unit}"


def _rounded_exponent(value: float, digits: int) -> int:
    """The decimal exponent of `value` after rounding to `digits` significant digits."""
    return int(f"{value:.{digits - 1}e}".partition("e")[2])


def _known(value: float | None) -> TypeGuard[float]:
    return value is not None and math.isfinite(value)


def milliseconds(value: float | None) -> str:
    """A time of a metric in ms."""
    return metric(value, "ms")
