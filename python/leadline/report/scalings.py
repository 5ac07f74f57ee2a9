"""Draws how figures grow with a number: exponent, interval, and result. `analysis` has fitted them."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from leadline import quantities
from leadline.analysis.scaling_model import ScalabilityLaw, Scaling


def scaling_table(scalings: Sequence[Scaling], what: str, test: str = "") -> RenderableType:
    """A row for each figure, and the notes below the table."""
    numbers = ends_of(scalings)
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("")
    for title in (*(f"at {number:g}" for number in numbers), "exponent", "95 %"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("")
    for one in scalings:
        table.add_row(*scaling_row(one, numbers))
    notes = [
        Text(f"{', '.join(names)}: {note}" if names else note, style="dim")
        for note, names in notes_of(scalings).items()
    ]
    title = f"Scaling of {test}" if test else "Scaling"
    heading = Text.assemble((title, "bold underline"), (f"  figure = a × {what} ** exponent", "dim"))
    notes += [Text(line) for line in law_lines(scalings)]
    parts: list[RenderableType] = [heading, Padding(table, (0, 0, 0, 2), expand=False)]
    return Group(*parts, *(Padding(note, (0, 0, 0, 2), expand=False) for note in notes))


def notes_of(scalings: Sequence[Scaling]) -> dict[str, list[str]]:
    """Each note once, with the figures that it is about; without figures if it is about all."""
    found: dict[str, list[str]] = {}
    for one in scalings:
        for note in one.notes:
            found.setdefault(note, []).append(spoken(one.metric))
    return {note: [] if len(names) == len(scalings) > 1 else names for note, names in found.items()}


def law_lines(scalings: Sequence[Scaling]) -> list[str]:
    """What the Universal Scalability Law says of each rate."""
    lines = []
    for one in scalings:
        if (law := one.law) is None:
            continue
        last = max(number for number, _ in one.points)
        contention = _share(law.contention, law.contention_low, law.contention_high)
        coherency = _share(law.coherency, law.coherency_low, law.coherency_high)
        shape = f"contention {contention}, coherency {coherency}"
        lines.append(f"{spoken(one.metric)}, Universal Scalability Law: {shape}; {_peak(law, last)}{_knee(law, last)}")
    return lines


def _share(value: float, low: float | None, high: float | None) -> str:
    within = "" if low is None or high is None else f" ({quantities.share(low)} to {quantities.share(high)})"
    return f"{quantities.share(value)}{within}"


def _peak(law: ScalabilityLaw, last: float) -> str:
    if law.peak is None:
        return "no peak"
    within = "" if law.peak_low is None or law.peak_high is None else f" ({law.peak_low:.3g} to {law.peak_high:.3g})"
    return f"peak at {law.peak:.3g}{within}{_beyond(law.peak, last)}"


def _knee(law: ScalabilityLaw, last: float) -> str:
    if law.knee is None:
        return ""
    within = "" if law.knee_low is None or law.knee_high is None else f" ({law.knee_low:.3g} to {law.knee_high:.3g})"
    return f"; knee at {law.knee:.3g}{within}{_beyond(law.knee, last)}"


def _beyond(number: float, last: float) -> str:
    return f", beyond the {last:g} that were measured" if number > last else ""


def ends_of(scalings: Sequence[Scaling]) -> tuple[float, ...]:
    """The smallest and the largest number of all figures."""
    numbers = sorted({number for one in scalings for number, _ in one.points})
    return (numbers[0], numbers[-1]) if len(numbers) > 1 else tuple(numbers)


def scaling_row(one: Scaling, numbers: Sequence[float]) -> tuple[str, ...]:
    """The figure, its values at these numbers (means of repeats), exponent, interval, and result."""
    at = []
    for number in numbers:
        values = [value for where, value in one.points if where == number]
        mean = sum(values) / len(values) if values else None
        # Fitted figures in bytes are always memory.
        at.append(quantities.memory(mean) if one.unit == "bytes" else quantities.metric(mean, one.unit))
    exponent = quantities.UNKNOWN if one.exponent is None else f"{one.exponent:.2f}"
    interval = "" if one.low is None or one.high is None else f"{one.low:.2f} to {one.high:.2f}"
    return spoken(one.metric), *at, exponent, interval, one.growth.value


def spoken(metric: str) -> str:
    """`connect_p99_ms` as `connect p99`."""
    if metric == "memory_bytes":
        return "fleet memory"
    for unit in ("_percent", "_per_s", "_bps", "_us", "_ms", "_bytes", "_s"):
        metric = metric.removesuffix(unit)
    return metric.replace("_", " ")
