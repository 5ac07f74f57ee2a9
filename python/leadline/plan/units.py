"""Converts text with units to whole numbers, once, on input; everywhere else names contain the unit.

Pure. An invalid text raises UnitError, whose message shows the right form. Decimal prefixes (k, M, G, T) are powers
of 1000, binary ones (Ki, Mi, Gi) of 1024, as in IEC 80000-13.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction

Number = str | int | float
"""A quantity in YAML: `1gbit` is text, `1000` and `1e9` are numbers."""


class UnitError(ValueError):
    """A quantity that cannot be read; the message is for the user."""


def rate_bps(value: Number) -> int:
    """Bits per second from `20mbit`, `20Mbit/s`, `9600bps`, `20M` or a bare number; bytes (`MB/s`) are refused."""
    if not isinstance(value, str):
        return _whole(_finite(value, "a rate"), "a rate", "bit/s")
    match = _RATE.fullmatch(value.strip())
    if match is None:
        raise UnitError(f"{value!r} is not a rate; write 20mbit, 1gbit or a number of bit/s")
    sign, digits, prefix = match.groups()
    return _whole(_signed(sign, digits, "a rate") * _DECIMAL[(prefix or "").lower()], "a rate", "bit/s")


def duration_us(value: Number) -> int:
    """Microseconds from `10s`, `500ms`, `250us`, `1m`, `1m30s`, `2h`; a number without a unit is in seconds."""
    if not isinstance(value, str):
        seconds = Fraction(repr(_finite(value, "a duration")))
        if seconds < 0:
            raise UnitError(f"{value} is negative; a duration is not")
        return _whole(seconds * _MICROSECONDS["s"], "a duration", "µs")
    text = value.strip()
    if text.startswith("-"):
        raise UnitError(f"{value!r} is negative; a duration is not")
    if _SECONDS.fullmatch(text):
        return _whole(Fraction(text) * _MICROSECONDS["s"], "a duration", "µs")
    if _DURATION.fullmatch(text) is None:
        raise UnitError(f"{value!r} is not a duration; write 10s, 500ms or 1m")
    parts = re.findall(r"([\d.]+)\s*([a-zµ]+)", text)
    return _whole(sum((Fraction(n) * _MICROSECONDS[unit] for n, unit in parts), Fraction(0)), "a duration", "µs")


def duration_ms(value: Number) -> int:
    """Milliseconds, from the same texts as `duration_us`; fractions are refused, not rounded."""
    whole_us = duration_us(value)
    if whole_us % 1000:
        raise UnitError(f"{value!r} is not a whole number of milliseconds")
    return whole_us // 1000


def size_bytes(value: Number) -> int:
    """Bytes from `1400`, `1400B`, `128KiB`, `1MB`. A bare `K` is refused, since programs disagree about it."""
    if not isinstance(value, str):
        return _whole(_finite(value, "a size"), "a size", "bytes")
    match = _SIZE.fullmatch(value.strip())
    if match is None:
        raise UnitError(f"{value!r} is not a size; write 1400, 128KiB (131072 bytes) or 128kB (128000 bytes)")
    sign, digits, prefix, binary = match.groups()
    prefix = (prefix or "").lower()
    factor = _BINARY[prefix] if binary else _DECIMAL[prefix]
    return _whole(_signed(sign, digits, "a size") * factor, "a size", "bytes")


def duration_text(ms: int) -> str:
    """A duration as a user writes it: `10s`, `500ms`."""
    return f"{ms}ms" if ms % 1000 else f"{ms // 1000}s"


def size_text(size_bytes: int) -> str:
    """A size as a user writes it: `128KiB`, `1400`."""
    for prefix in ("G", "M", "K"):
        whole, rest = divmod(size_bytes, int(_BINARY[prefix.lower()]))
        if whole and not rest:
            return f"{whole}{prefix}iB"
    return str(size_bytes)


def share_text(share: float) -> str:
    """A share as a user writes it: `1%`."""
    return f"{100 * share:g}%"


def looks_like_a_time(text: str) -> bool:
    """Whether a text is a duration with a unit, such as `10s`."""
    return _DURATION.fullmatch(text.strip()) is not None


def fraction(value: Number) -> float:
    """A share of one from `1%` or `0.01`."""
    if not isinstance(value, str):
        return _finite(value, "a share")
    match = _PERCENT.fullmatch(value.strip())
    if match is None:
        raise UnitError(f"{value!r} is not a share; write 1% or 0.01")
    return float(match.group(1)) / 100


def percent(value: Number) -> float:
    """A number in percent from `80%` or `80`."""
    return 100 * fraction(value) if isinstance(value, str) else _finite(value, "a percentage")


def frequency_hz(value: Number) -> float:
    """Cycles per second from `3GHz`, `2600MHz` or a number of Hz."""
    match = _FREQUENCY.fullmatch(str(value).strip())
    found = 0.0 if match is None else float(match.group(1)) * float(_DECIMAL[(match.group(2) or "").lower()])
    if not _LOWEST_FREQUENCY_HZ <= found <= _HIGHEST_FREQUENCY_HZ:
        raise UnitError(f"{value!r} is not a clock frequency; write 3GHz or 2600MHz")
    return found


def per_second(value: Number) -> float:
    """Events per second from `1000` or `1000/s`."""
    if not isinstance(value, str):
        return _finite(value, "a rate")
    match = _PER_SECOND.fullmatch(value.strip())
    if match is None:
        raise UnitError(f"{value!r} is not a rate per second; write 1000 or 1000/s")
    return float(match.group(1)) * float(_DECIMAL[(match.group(2) or "").lower()])


def cpu_list(value: object) -> tuple[int, ...]:
    """CPU numbers from `0,2-3` (the kernel's syntax), from one number or from a list of numbers."""
    if isinstance(value, list | tuple):
        return tuple(cpu for part in value for cpu in cpu_list(part))
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    found: list[int] = []
    for part in value.split(",") if isinstance(value, str) else [""]:
        match = _CPUS.fullmatch(part.strip())
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if first > last or last > _HIGHEST_CPU:
            raise UnitError(f"{_plainly(value)!r} is not a list of CPUs; write 0,2-3 (at most {_HIGHEST_CPU})")
        found.extend(range(first, last + 1))
    return tuple(found)


def _finite(value: int | float, what: str) -> float | int:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise UnitError(f"{_plainly(value)} is not {what}")
    return value


def _signed(sign: str | None, digits: str, what: str) -> Fraction:
    if sign == "-":
        raise UnitError(f"-{digits} is negative; {what} is not")
    return Fraction(digits)


def _whole(value: Fraction | float | int, what: str, unit: str) -> int:
    if value < 0:
        raise UnitError(f"{value} is negative; {what} is not")
    if value != int(value):
        raise UnitError(f"{what} must be a whole number of {unit}")
    return int(value)


def _plainly(value: object) -> str:
    """A value as YAML writes it."""
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


_DECIMAL = {"": Fraction(1), "k": Fraction(10**3), "m": Fraction(10**6), "g": Fraction(10**9), "t": Fraction(10**12)}
_BINARY = {"k": Fraction(2**10), "m": Fraction(2**20), "g": Fraction(2**30), "t": Fraction(2**40)}
_MICROSECONDS = {
    "us": Fraction(1),
    "µs": Fraction(1),
    "ms": Fraction(10**3),
    "s": Fraction(10**6),
    "m": Fraction(60 * 10**6),
    "min": Fraction(60 * 10**6),
    "h": Fraction(3600 * 10**6),
}
_DIGITS = r"(\d+(?:\.\d+)?)"
_RATE = re.compile(rf"([+-])?{_DIGITS}\s*([kKmMgGtT]?)(?:[bB]it(?:/s|ps)?|b/s|bps)?", re.ASCII)
_SIZE = re.compile(rf"([+-])?{_DIGITS}\s*(?:(?:([kKmMgGtT])(i)?)?B)?", re.ASCII)
_SECONDS = re.compile(r"\d+(?:\.\d+)?", re.ASCII)
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?\s*(?:us|µs|ms|min|s|m|h)\s*)+", re.ASCII)
_PERCENT = re.compile(r"(\d+(?:\.\d+)?)\s*%", re.ASCII)
_HIGHEST_CPU = 8191
_CPUS = re.compile(r"(\d{1,4})(?:-(\d{1,4}))?", re.ASCII)
_FREQUENCY = re.compile(r"(\d+(?:\.\d+)?(?:[eE]\d+)?)\s*([kmgKMG]?)(?:[hH][zZ])?", re.ASCII)
_LOWEST_FREQUENCY_HZ, _HIGHEST_FREQUENCY_HZ = 1e6, 1e12
"""No CPU is slower or faster; such a number has lost its unit, or has a wrong one."""
_PER_SECOND = re.compile(rf"{_DIGITS}\s*([km]?)(?:/s)?", re.IGNORECASE | re.ASCII)
