"""Draws ladders on a terminal: each layer with a bar, where the capacity goes, and what each layer costs each host."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from leadline import quantities
from leadline.analysis.ladder_model import (
    BarKind,
    HostCost,
    Ladder,
    LadderFigure,
    LadderLayer,
    Share,
    Waterfall,
    WaterfallBar,
)
from leadline.analysis.model import Bound, LimitedBy, Verdict
from leadline.report import verdicts
from leadline.report.brief import first_statements
from leadline.report.names import shortened

_SIGNS = {Bound.LEAST.value: "≥", Bound.MOST.value: "≤", Bound.NONE.value: "?"}
_BAR, _WATERFALL = 6, 24
_BLOCKS = " ▏▎▍▌▋▊▉█"
_TONES = {BarKind.LEVEL: "cyan", BarKind.HEADERS: "dim", BarKind.LOST: "red", BarKind.GAINED: "green"}
_MORE = 1.05
"""From this share on a bar shows that there is more than 100 %."""
_FEW = 2
_SHORT, _NAME = 14, 12
_SAID_BY_LIMIT = frozenset({Verdict.VALID.value, Verdict.GENERATOR_LIMITED.value, Verdict.RECEIVER_LIMITED.value})
"""Verdicts that the mark and the limit say together."""
_COSTS = (("per byte", "ns_per_byte"), ("per packet", "ns_per_packet"))


def ladder_blocks(ladders: Sequence[Ladder], *, verbose: bool = False) -> list[RenderableType]:
    """The ladders of a run."""
    shown = drawn_ladders(ladders)
    return [ladder_block(ladder, is_alone=len(shown) == 1, verbose=verbose) for ladder in shown]


def drawn_ladders(ladders: Sequence[Ladder]) -> list[Ladder]:
    """The ladders that are drawn by themselves: a plain route that is a baseline stands beside its tunnel."""
    beside = {ladder.baseline for ladder in ladders}
    return [ladder for ladder in ladders if ladder.case not in beside] or list(ladders)


def ladder_block(ladder: Ladder, *, is_alone: bool = True, verbose: bool = False) -> RenderableType:
    """One ladder: its layers, and the sentence; `verbose` adds the waterfalls and the costs."""
    parts: list[RenderableType] = [_heading(ladder, is_alone)]
    if verbose:
        for one in ladder.waterfalls:
            parts += [Text(WATERFALL_TITLES[one.chain], style="bold"), _indented(_waterfall(one))]
        costs = _costs(ladder)
        if costs is not None:
            parts += [Text("CPU time of each layer on each host", style="bold"), _indented(costs)]
    parts.append(_indented(_layers(ladder, is_short=ladder.baseline is not None or not verbose)))
    parts += [_indented(Text(f"{layer.title}: {layer.error}", style="red")) for layer in ladder.layers if layer.error]
    parts += [_indented(Text(note, style="dim")) for note in _notes(ladder, verbose=verbose)]
    return Group(*parts, Text(ladder.look_first, style="bold"))


WATERFALL_TITLES = {"payload": "Where the payload goes", "requests": "Where the requests go"}


def _heading(ladder: Ladder, is_alone: bool) -> Text:
    case = "" if is_alone else f" of {ladder.case}"
    parameters = " ".join(f"{name}={value}" for name, value in ladder.parameters.items()) or ladder.sut
    return Text.assemble((f"Ladder{case}", "bold underline"), (f"  {parameters}" if parameters else "", "dim"))


def _notes(ladder: Ladder, *, verbose: bool) -> Iterable[str]:
    """What a reader has to know; in short without what is missing and why."""
    return notes_of(ladder) if verbose else map(first_statements, ladder.notes)


def notes_of(ladder: Ladder) -> Iterator[str]:
    """What a reader has to know: why there is no plain route, which figures are bounds, why intervals are missing."""
    if ladder.baseline is None and ladder.why_alone is not None:
        yield f"without a plain route beside it: {ladder.why_alone}"
    yield from ladder.notes
    reasons: dict[str, list[str]] = {}
    for layer in ladder.layers:
        if layer.share.value is not None and layer.share.low is None and layer.share.reason is not None:
            reasons.setdefault(layer.share.reason, []).append(layer.title)
    for reason, titles in reasons.items():
        where = "no share has an interval" if len(titles) > _FEW else f"no interval for {', '.join(titles)}"
        yield f"{where}: {reason}"


def _layers(ladder: Ladder, *, is_short: bool) -> Table:
    has_baseline = ladder.baseline is not None
    table = _table()
    table.add_column("layer", no_wrap=True)
    titles = ["plain route", shortened(ladder.sut, _NAME), "of route"] if has_baseline else ["carries", "±95 %"]
    for title in (*titles, "of below"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    # Where there is little room, its words are broken into lines: no figure is cut for them.
    last = "limit" if is_short else "verdict, limit"
    table.add_column(last, overflow="fold", max_width=_SHORT if has_baseline else None)
    for layer in ladder.layers:
        cells = _against_route(layer) if has_baseline else _alone(layer)
        table.add_row(
            Text(layer.title),
            *cells,
            Text(share_text(layer.share)),
            _share_bar(layer.share),
            _verdict(layer, is_short=is_short),
        )
        if layer is not ladder.layers[-1] and ladder.layers[ladder.layers.index(layer) + 1].chain != layer.chain:
            table.add_row("")
    return table


def _against_route(layer: LadderLayer) -> tuple[str, ...]:
    baseline = quantities.UNKNOWN if layer.baseline is None else figure_text(layer.baseline)
    share = quantities.UNKNOWN if layer.share_of_baseline is None else share_text(layer.share_of_baseline)
    return baseline, figure_text(layer.figure), share


def _alone(layer: LadderLayer) -> tuple[str, ...]:
    one = layer.figure
    return figure_text(one), quantities.plus_minus(one.value, one.low, one.high, one.repeats)


def figure_text(figure: LadderFigure) -> str:
    """A layer's figure, with its sign where it is a bound."""
    return _signed(quantities.metric(figure.value, figure.unit), figure.bound)


def share_text(share: Share) -> str:
    """A share in percent, with its sign where it is a bound."""
    return _signed(quantities.share(share.value), share.bound)


def _signed(text: str, bound: str | None) -> str:
    return text if bound is None or text == quantities.UNKNOWN else f"{_SIGNS.get(bound, '')}{text}"


def _share_bar(share: Share) -> Text:
    """The share as a bar; one beyond 100 % ends with an arrow."""
    if share.value is None:
        return Text("")
    bar = bar_text(min(share.value, 1.0), _BAR)
    return Text(f"{bar[:-1]}▶" if share.value > _MORE else bar, style="cyan")


def bar_text(share: float, width: int) -> str:
    """A bar of block characters, padded to its width."""
    eighths = round(max(0.0, min(share, 1.0)) * width * 8)
    whole, rest = divmod(eighths, 8)
    return f"{'█' * whole}{_BLOCKS[rest] if rest else ''}".ljust(width)


def _verdict(layer: LadderLayer, *, is_short: bool) -> Text:
    """The verdict and the part that was the limit. Where there is no room for both, the limit says more than that a
    figure is valid, or limited."""
    if layer.figure.value is None:
        return Text("not measured", style="red")
    wording = verdicts.WORDINGS[Verdict(layer.figure.verdict)]
    tone = verdicts.TONES[wording.tone]
    limit = None if layer.limited_by == LimitedBy.UNKNOWN.value else layer.limited_by
    if limit is None or (is_short and layer.figure.verdict not in _SAID_BY_LIMIT):
        return Text(f"{wording.mark} {layer.figure.verdict}", style=tone)
    if not is_short and layer.figure.verdict in _SAID_BY_LIMIT - {Verdict.VALID.value}:
        return Text(f"{wording.mark} {layer.figure.verdict}", style=tone)
    said = "" if is_short else f" {layer.figure.verdict},"
    return Text.assemble((f"{wording.mark}{said}", tone), (f" {limit}", "dim"))


def _waterfall(waterfall: Waterfall) -> Table:
    table = _table(show_header=False)
    for _ in range(2):
        table.add_column("", no_wrap=True, justify="left")
    table.add_column("", no_wrap=True, justify="right")
    longest = max((max(bar.start, bar.end) for bar in waterfall.bars), default=0.0)
    for bar in waterfall.bars:
        table.add_row(_label(bar), _placed(bar, longest), amount_text(bar, waterfall.unit))
    return table


def _label(bar: WaterfallBar) -> Text:
    is_level = bar.kind is BarKind.LEVEL
    label, system = bar.label, bar.through
    if system and len(system) > _NAME:
        label = label.replace(system, shortened(system, _NAME))
    return Text(label if is_level else f"  {bar.label}", style="" if is_level else "dim")


def _placed(bar: WaterfallBar, longest: float) -> Text:
    """A bar at its place: a loss hangs where the level above it ends."""
    low, high = sorted((bar.start, bar.end))
    if longest <= 0:
        return Text("")
    before = round(low / longest * _WATERFALL)
    if bar.kind is BarKind.LEVEL:
        return Text(bar_text(high / longest, _WATERFALL), style=_TONES[bar.kind])
    width = max(1, round(high / longest * _WATERFALL) - before) if high > low else 0
    return Text(" " * min(before, _WATERFALL - width) + "▒" * width, style=_TONES[bar.kind])


def amount_text(bar: WaterfallBar, unit: str) -> str:
    """A level as it is, a step with its sign."""
    if bar.kind is BarKind.LEVEL:
        return _signed(quantities.metric(bar.end, unit), bar.bound)
    sign = "-" if bar.end < bar.start else "+"
    return f"{sign}{quantities.metric(abs(bar.end - bar.start), unit)}"


def _costs(ladder: Ladder) -> Table | None:
    """CPU time per byte and per packet: a row for each layer and unit, a column for each host."""
    hosts = list(dict.fromkeys(cost.host for layer in ladder.layers for cost in layer.costs))
    if not hosts:
        return None
    table = _table()
    table.add_column("layer", no_wrap=True)
    table.add_column("", no_wrap=True)
    for host in hosts:
        table.add_column(host, justify="right")
    for layer in ladder.layers:
        units = _COSTS if layer.chain == "payload" else (("per request", "ns_per_operation"), _COSTS[1])
        for number, (title, name) in enumerate(units):
            costs = {cost.host: cost for cost in layer.costs}
            cells = [cost_text(costs.get(host), name) for host in hosts]
            table.add_row(layer.title if not number else "", Text(title, style="dim"), *cells)
    return table


def cost_text(cost: HostCost | None, name: str) -> str:
    """One cost with half of its interval as a share: `20.0 ns ±1.2 %`."""
    value = None if cost is None else getattr(cost, name)
    if cost is None or value is None:
        return quantities.UNKNOWN
    return (
        f"{quantities.nanoseconds(value)} {quantities.plus_minus(value, *cost.bounds.get(name, (None, None)))}".rstrip()
    )


def _table(*, show_header: bool = True) -> Table:
    return Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim", show_header=show_header)


def _indented(part: RenderableType) -> RenderableType:
    return Padding(part, (0, 0, 0, 2), expand=False)
