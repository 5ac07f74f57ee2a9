"""What a row of the benchmarks is: a figure of ours, its peer's, their ratio and a bound. How it is said and written.

Runs nothing. Ratios are taken within a round and only then their median, so that a machine that slows down slows both.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

_NOISE = 0.05


@dataclass(frozen=True, slots=True)
class Rounds:
    """How long a comparison goes on."""

    count: int
    seconds: int
    """Length of each run."""


@dataclass(frozen=True, slots=True)
class Bound:
    """What a figure or a ratio has to keep to."""

    says: str
    holds: Callable[[float], bool]


def at_most(limit: float, unit: str = "") -> Bound:
    """Not above."""
    return Bound(f"at most {limit:g}{unit}", lambda value: value <= limit)


def at_least(limit: float) -> Bound:
    """Not below."""
    return Bound(f"at least {limit:g}", lambda value: value >= limit)


def below(limit: float) -> Bound:
    """Below."""
    return Bound(f"below {limit:g}", lambda value: value < limit)


def above(limit: float) -> Bound:
    """Above."""
    return Bound(f"above {limit:g}", lambda value: value > limit)


@dataclass(frozen=True, slots=True)
class Row:
    """One bound or comparison."""

    what: str
    ours: str
    theirs: str = ""
    ratio: float | None = None
    """Ours by theirs: the median of the rounds."""
    ratios: tuple[float, float] | None = None
    """The least and the greatest of the rounds."""
    bound: str = ""
    holds: bool | None = None
    """None if there is no bound, or if it cannot be decided here."""


def compared(
    what: str, unit: str, peer: str, pairs: Sequence[tuple[float, float]], *, bound: Bound | None = None, note: str = ""
) -> Row:
    """Ours against theirs in one unit: a pair per round."""
    ratios = [ours / theirs for ours, theirs in pairs]
    ratio = statistics.median(ratios)
    ours, theirs = (statistics.median(column) for column in zip(*pairs, strict=True))
    return Row(
        what,
        f"{ours:.4g} {unit}" + (f" ({note})" if note else ""),
        f"{peer}: {theirs:.4g} {unit}",
        ratio,
        (min(ratios), max(ratios)),
        "" if bound is None else bound.says,
        None if bound is None else bound.holds(ratio),
    )


def not_worse(what: str, unit: str, peer: str, pairs: Sequence[tuple[float, float]], *, is_cost: bool) -> Row:
    """Ours against an older version of ours. It is worse where the median is by more than 5 %, and every round is: less
    than that, or some rounds only, is noise.
    """
    row = compared(what, unit, peer, pairs)
    assert row.ratio is not None
    assert row.ratios is not None
    is_worse = row.ratio > 1 + _NOISE and row.ratios[0] > 1 if is_cost else row.ratio < 1 - _NOISE and row.ratios[1] < 1
    return replace(
        row,
        bound=f"{'at most' if is_cost else 'at least'} {1 + _NOISE if is_cost else 1 - _NOISE:g}, or noise",
        holds=not is_worse,
    )


def bounded(what: str, value: float, shown: str, bound: Bound | None = None) -> Row:
    """A figure that has no peer."""
    return Row(
        what, shown, bound="" if bound is None else bound.says, holds=None if bound is None else bound.holds(value)
    )


def failed(what: str, reason: object, bound: Bound | None = None) -> Row:
    """A row without a figure: why there is none. It misses its bound."""
    return Row(what, f"failed: {reason}", bound="" if bound is None else bound.says, holds=False)


def line(row: Row) -> str:
    """The row on a terminal."""
    parts = [f"{row.what}: {row.ours}", row.theirs]
    parts.append(f"ratio {_ratio(row)}" if row.ratio is not None else "")
    parts.append(f"({row.bound})" if row.bound else "")
    parts.append("" if row.holds is None else "holds" if row.holds else "MISSED")
    return "  ".join(part for part in parts if part)


def table(rows: Sequence[Row]) -> list[str]:
    """The rows as lines of Markdown."""
    cells = (
        (
            row.what,
            row.ours.replace("\n", " ").replace("|", "\\|"),
            row.theirs,
            _ratio(row),
            row.bound + ("" if row.holds is None else ", holds" if row.holds else ", **missed**"),
        )
        for row in rows
    )
    head = ["| What | Leadline | Peer | Ratio | Bound |", "|---|---|---|---|---|"]
    return head + [f"| {' | '.join(row)} |" for row in cells]


def _ratio(row: Row) -> str:
    """The ratio, and where the rounds differ, between which values."""
    if row.ratio is None:
        return ""
    if row.ratios is None or f"{row.ratios[0]:.2f}" == f"{row.ratios[1]:.2f}":
        return f"{row.ratio:.2f}"
    return f"{row.ratio:.2f} ({row.ratios[0]:.2f} to {row.ratios[1]:.2f})"
