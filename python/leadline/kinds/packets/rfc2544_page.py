"""The page of `leadline packets --rfc2544 --html`: what section 26 of RFC 2544 asks to report, as plots and tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from leadline import quantities
from leadline.kinds.packets.rfc2544 import SizeResult
from leadline.plan.packet_rates import PREAMBLE_AND_GAP_BYTES
from leadline.report.plain_pages import render_page

_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM = 640.0, 240.0, 84.0, 12.0, 26.0
_LEVELS = 4


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a plot, in its units."""

    points: str
    title: str
    is_dashed: bool = False
    label: str = ""
    label_x: float = 0.0
    label_y: float = 0.0


@dataclass(frozen=True, slots=True)
class Mark:
    """A point of a plot; a hollow one is a bound."""

    x: float
    y: float
    title: str
    is_bound: bool


@dataclass(frozen=True, slots=True)
class Plot:
    """Lines and points over two axes."""

    caption: str
    levels: tuple[tuple[float, str], ...]
    places: tuple[tuple[float, str], ...]
    lines: tuple[Line, ...]
    marks: tuple[Mark, ...] = ()
    width: float = _WIDTH
    height: float = _HEIGHT
    left: float = _LEFT


@dataclass(frozen=True, slots=True)
class Section:
    """One test of the RFC."""

    id: str
    title: str
    text: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    plot: Plot | None = None


def render(found: Sequence[SizeResult], what: str, trial_s: float, line_bps: float | None) -> str:
    """The page; `what` names the interface and the path, `line_bps` is the line's rate if it is known."""
    lowest = any(one.is_lower_bound for one in found)
    sections = [
        _throughput(found, trial_s, line_bps),
        _latency(found, trial_s),
        _frame_loss(found),
        _back_to_back(found),
    ]
    return render_page(
        "rfc2544.html",
        title="RFC 2544: throughput, latency, frame loss, back-to-back frames",
        tone="bounded" if lowest else "good",
        what=what,
        sections=sections,
    )


def _throughput(found: Sequence[SizeResult], trial_s: float, line_bps: float | None) -> Section:
    def line_rate(size: int) -> float | None:
        return None if line_bps is None else line_bps / (8 * (size + PREAMBLE_AND_GAP_BYTES))

    def row(one: SizeResult) -> tuple[str, ...]:
        rate, of_line = one.throughput_per_s, line_rate(one.size)
        layer_2 = None if rate is None else 8.0 * rate * one.size
        share = None if rate is None or of_line is None else rate / of_line
        return (
            f"{one.size:,} B",
            f"{_bound(one)}{quantities.per_second(rate)}",
            quantities.bit_rate(layer_2),
            quantities.per_second(of_line),
            quantities.share(share),
        )

    text = (
        f"The highest rate without loss (26.1), found by MLRsearch in trials of {trial_s:g} s. ≥ and hollow: the "
        "generator, and not the device, was the limit."
    )
    rates = {one.size: one.throughput_per_s or 0.0 for one in found}
    lines = {size: rate for size in rates if (rate := line_rate(size)) is not None}
    plot = _rates_plot(found, rates, lines)
    columns = ("Frame", "Throughput", "Layer 2", "Line", "Share of it")
    return Section("throughput", "Throughput", text, columns, tuple(map(row, found)), plot)


def _latency(found: Sequence[SizeResult], trial_s: float) -> Section:
    rows = tuple(
        (
            f"{one.size:,} B",
            quantities.per_second(one.throughput_per_s),
            *(
                quantities.microseconds(value)
                for value in (one.delay_min_us, one.delay_p50_us, one.delay_p99_us, one.delay_variation_us)
            ),
        )
        for one in found
    )
    text = (
        f"At the throughput (26.2), for {trial_s:g} s, of about 1,000 frames a second that have their time in them, "
        "from their sending to their arrival (RFC 1242). Variation is the 99.9th percentile less the least."
    )
    return Section("latency", "Latency", text, ("Frame", "At", "Least", "p50", "p99", "Variation"), rows)


def _frame_loss(found: Sequence[SizeResult]) -> Section:
    rows = tuple(
        (f"{one.size:,} B", quantities.per_second(rate), quantities.share(missing))
        for one in found
        for rate, missing in one.loss_curve
    )
    text = (
        "From the generator's full rate downwards by tenths, until two trials in turn have no loss (26.3). Missing are "
        "frames that were lost, or due and never sent."
    )
    plot = _loss_plot(found) if any(one.loss_curve for one in found) else None
    return Section("frame-loss", "Frame loss", text, ("Frame", "Offered", "Missing"), rows, plot)


def _back_to_back(found: Sequence[SizeResult]) -> Section:
    rows = tuple(
        (
            f"{one.size:,} B",
            "no loss in a whole trial" if one.burst_packets is None else quantities.count(one.burst_packets),
            quantities.microseconds(one.buffer_us),
        )
        for one in found
    )
    text = (
        "The longest burst at the generator's full rate without loss (26.4), and the time that it fills of the "
        "device's buffer, less what the device forwards meanwhile (RFC 9004)."
    )
    return Section("back-to-back", "Back-to-back frames", text, ("Frame", "Longest burst", "Buffer"), rows)


def _bound(one: SizeResult) -> str:
    return "≥ " if one.is_lower_bound and one.throughput_per_s is not None else ""


def _rates_plot(found: Sequence[SizeResult], rates: dict[int, float], lines: dict[int, float]) -> Plot:
    highest = max([*rates.values(), *lines.values()], default=0.0) or 1.0
    xs = {one.size: _x((number + 0.5) / len(found)) for number, one in enumerate(found)}
    marks = tuple(
        Mark(
            xs[one.size],
            _y(rates[one.size] / highest),
            f"{one.size} B: {_bound(one)}{quantities.per_second(one.throughput_per_s)}",
            one.is_lower_bound,
        )
        for one in found
    )
    drawn = [Line(_points((mark.x, mark.y) for mark in marks), "throughput")]
    if lines:
        of_line = ((xs[size], _y(rate / highest)) for size, rate in lines.items())
        drawn.append(Line(_points(of_line), "the line's rate", is_dashed=True))
    places = tuple((x, f"{size:,} B") for size, x in xs.items())
    caption = "Frames per second by frame size; dashed: the line's rate" if lines else "Frames per second by frame size"
    return Plot(caption, _levels(highest, quantities.per_second), places, tuple(drawn), marks)


def _loss_plot(found: Sequence[SizeResult]) -> Plot:
    top = max((rate for one in found for rate, _ in one.loss_curve), default=0.0) or 1.0
    highest = max((missing or 0.0 for one in found for _, missing in one.loss_curve), default=0.0) or 0.01
    lines = []
    for one in found:
        points = [(_x(rate / top), _y(missing / highest)) for rate, missing in one.loss_curve if missing is not None]
        if points:
            x, y = points[0]
            name = f"{one.size} B"
            lines.append(Line(_points(points), name, label=name, label_x=x - 4, label_y=max(y - 4, 11)))
    places = tuple((_x(part / _LEVELS), quantities.per_second(top * part / _LEVELS)) for part in range(1, _LEVELS))
    return Plot("Missing frames by offered rate", _levels(highest, quantities.share), places, tuple(lines))


def _levels(highest: float, say: Callable[[float | None], str]) -> tuple[tuple[float, str], ...]:
    return tuple((_y(part / _LEVELS), say(highest * part / _LEVELS)) for part in range(_LEVELS + 1))


def _x(share: float) -> float:
    return round(_LEFT + (_WIDTH - _LEFT) * share, 1)


def _y(share: float) -> float:
    return round(_HEIGHT - _BOTTOM - (_HEIGHT - _BOTTOM - _TOP) * share, 1)


def _points(points: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{x},{y}" for x, y in points)
