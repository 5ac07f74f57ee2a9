"""Converts ladders to the rows of the page's template: text, and bars by their place in percent, never markup."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from leadline import quantities
from leadline.analysis.ladder_model import BarKind, Ladder, LadderLayer, Share, Waterfall
from leadline.analysis.model import LimitedBy, Verdict
from leadline.report import verdicts
from leadline.report.ladders import (
    WATERFALL_TITLES,
    amount_text,
    cost_text,
    drawn_ladders,
    figure_text,
    notes_of,
    share_text,
)


@dataclass(frozen=True, slots=True)
class LayerRow:
    """One layer of a ladder."""

    title: str
    carries: str
    interval: str
    baseline: str
    of_route: str
    of_below: str
    below: str
    bar: float | None
    """Its share of the layer below, in percent, at most 100."""
    wording: verdicts.Wording
    verdict: str
    limit: str
    evidence: str
    error: str | None


@dataclass(frozen=True, slots=True)
class BarRow:
    """One bar of a waterfall, from `left` to `left` + `width` percent."""

    label: str
    kind: str
    left: float
    width: float
    amount: str


@dataclass(frozen=True, slots=True)
class CostRow:
    """What a layer costs the hosts in one unit."""

    title: str
    unit: str
    cells: tuple[str, ...]
    baseline_cells: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LadderSection:
    """One ladder of the page."""

    case: str
    label: str
    sut: str
    has_baseline: bool
    rows: tuple[LayerRow, ...]
    waterfalls: tuple[tuple[str, tuple[BarRow, ...]], ...]
    hosts: tuple[str, ...]
    costs: tuple[CostRow, ...]
    notes: tuple[str, ...]
    look_first: str


def ladder_sections(ladders: Sequence[Ladder]) -> list[LadderSection]:
    """One section for each ladder that is drawn by itself."""
    return [_section(ladder) for ladder in drawn_ladders(ladders)]


def _section(ladder: Ladder) -> LadderSection:
    hosts = tuple(dict.fromkeys(cost.host for layer in ladder.layers for cost in layer.costs))
    return LadderSection(
        case=ladder.case,
        label=" ".join(f"{name}={value}" for name, value in ladder.parameters.items()) or ladder.sut,
        sut=ladder.sut or "carries",
        has_baseline=ladder.baseline is not None,
        rows=tuple(_layer(layer) for layer in ladder.layers),
        waterfalls=tuple((WATERFALL_TITLES[one.chain], tuple(_bars(one))) for one in ladder.waterfalls),
        hosts=hosts,
        costs=tuple(row for layer in ladder.layers for row in _costs(layer, hosts)),
        notes=tuple(notes_of(ladder)),
        look_first=ladder.look_first,
    )


def _layer(layer: LadderLayer) -> LayerRow:
    figure = layer.figure
    return LayerRow(
        title=layer.title,
        carries=figure_text(figure),
        interval=quantities.plus_minus(figure.value, figure.low, figure.high, figure.repeats),
        baseline=quantities.UNKNOWN if layer.baseline is None else figure_text(layer.baseline),
        of_route=_with_interval(layer.share_of_baseline, figure.repeats),
        of_below=_with_interval(layer.share, figure.repeats),
        below=layer.below or "",
        bar=None if layer.share.value is None else 100 * max(0.0, min(layer.share.value, 1.0)),
        wording=verdicts.WORDINGS[Verdict(figure.verdict)],
        verdict=figure.verdict if figure.value is not None else "not measured",
        limit="" if layer.limited_by in (None, LimitedBy.UNKNOWN.value) else str(layer.limited_by),
        evidence=layer.evidence or "",
        error=layer.error,
    )


def _with_interval(share: Share | None, repeats: int) -> str:
    if share is None:
        return quantities.UNKNOWN
    interval = quantities.plus_minus(share.value, share.low, share.high, repeats)
    return f"{share_text(share)} {interval}".strip()


def _bars(waterfall: Waterfall) -> Iterator[BarRow]:
    longest = max((max(bar.start, bar.end) for bar in waterfall.bars), default=0.0) or 1.0
    for bar in waterfall.bars:
        low, high = sorted((bar.start / longest * 100, bar.end / longest * 100))
        kind = "lost" if bar.kind is BarKind.LOST else bar.kind.value
        yield BarRow(bar.label, kind, low, max(high - low, _LEAST_PERCENT), amount_text(bar, waterfall.unit))


def _costs(layer: LadderLayer, hosts: Sequence[str]) -> Iterator[CostRow]:
    here = {cost.host: cost for cost in layer.costs}
    plain = {cost.host: cost for cost in layer.baseline_costs}
    first = ("per byte", "ns_per_byte") if layer.chain == "payload" else ("per request", "ns_per_operation")
    for unit, name in (first, ("per packet", "ns_per_packet")):
        cells = tuple(cost_text(here.get(host), name) for host in hosts)
        yield CostRow(layer.title, unit, cells, tuple(cost_text(plain.get(host), name) for host in hosts))


_LEAST_PERCENT = 0.25
