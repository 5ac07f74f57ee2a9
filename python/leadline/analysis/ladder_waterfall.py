"""Where the capacity goes: the bars of a waterfall from the lowest layer to the highest, and where to look first.

Each step down is split into what headers take and what is lost beside them. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Protocol

from leadline import quantities
from leadline.analysis.ladder_model import (
    BarKind,
    HostCost,
    Ladder,
    LadderLayer,
    Share,
    Waterfall,
    WaterfallBar,
)
from leadline.analysis.model import Bound, LimitedBy
from leadline.plan.ladder import Chain

SMALL = 0.05
"""A loss below this share of the lowest layer's capacity is no place to look at first."""
_OF_REQUEST = 0.10
"""A layer that adds less than this share to the time of a request is not either."""


_WORTH_SAYING = 0.005
"""Of what is allowed: headers that take less are not spoken of."""
ROUTE = "route"
"""What a level of the plain route was measured through, beside those of a tunnel."""
_DRAWN = 0.0005
"""Of the level below: a step that is smaller has no bar."""


class Carried(Protocol):
    """What the plain route carries at one layer."""

    @property
    def value(self) -> float:
        """Its figure, or what a layer above it showed."""


@dataclass(frozen=True, slots=True)
class _Level:
    """One level of a waterfall, above the previous one."""

    label: str
    value: float
    headers: float | None
    layer: LadderLayer | None
    through: str | None
    is_tunnel: bool = False


def waterfalls(
    ladder: Ladder, link_bps: float | None, route: Sequence[LadderLayer], route_carries: Mapping[str, Carried]
) -> tuple[Waterfall, ...]:
    """A waterfall for each chain with a figure."""
    found = []
    for chain in Chain:
        levels = list(_levels(ladder, chain, link_bps, route, route_carries))
        if sum(level.layer is not None for level in levels):
            unit = "bit/s" if chain is Chain.PAYLOAD else "1/s"
            found.append(Waterfall(chain.value, unit, _scaled(_bars(levels))))
    return tuple(found)


def _levels(
    ladder: Ladder,
    chain: Chain,
    link_bps: float | None,
    route: Sequence[LadderLayer],
    route_carries: Mapping[str, Carried],
) -> Iterator[_Level]:
    """The link, the lowest layer through the plain route, then every layer of the ladder itself."""
    layers = [layer for layer in ladder.layers if layer.chain == chain.value and layer.figure.value is not None]
    if chain is Chain.PAYLOAD and link_bps:
        yield _Level("link", float(link_bps), None, None, None)
    below = next((one for one in route if layers and one.test == layers[0].test), None)
    if below is not None and below.figure.value is not None:
        yield _Level(f"{below.title}, plain route", route_carries[below.test].value, below.headers, below, ROUTE)
    for number, layer in enumerate(layers):
        above = next((one for one in layers[number + 1 :]), None)
        value = above.allowed if above is not None and above.allowed is not None else layer.figure.value
        through = below is not None and number == 0
        label = f"{layer.title}, {ladder.sut}" if through else layer.title
        yield _Level(label, value or 0.0, layer.headers, layer, ladder.sut or None, through)


def _bars(levels: Sequence[_Level]) -> Iterator[WaterfallBar]:
    before: _Level | None = None
    for level in levels:
        if before is not None:
            left = before.value * (1 - (level.headers or 0.0))
            least = _DRAWN * max(before.value, level.value)
            if before.value - left > least:
                yield WaterfallBar("headers", BarKind.HEADERS, before.value, left, 0.0)
            if abs(level.value - left) > least:
                kind = BarKind.LOST if level.value < left else BarKind.GAINED
                yield WaterfallBar("lost" if kind is BarKind.LOST else "more", kind, left, level.value, 0.0)
        layer = level.layer
        yield WaterfallBar(
            level.label,
            BarKind.LEVEL,
            0.0,
            level.value,
            0.0,
            None if layer is None else layer.test,
            level.through,
            None if layer is None else layer.figure.bound,
        )
        before = level


def _scaled(bars: Iterator[WaterfallBar]) -> tuple[WaterfallBar, ...]:
    listed = list(bars)
    longest = max((max(bar.start, bar.end) for bar in listed), default=0.0)
    return tuple(replace(bar, share=abs(bar.end - bar.start) / longest if longest else 0.0) for bar in listed)


def look_first(ladder: Ladder) -> str:
    """Where to look first, in a sentence: the step at which most of the capacity is lost beside headers, the part that
    limited it, and what it costs in CPU time."""
    measured = [layer for layer in ladder.layers if layer.figure.value is not None]
    if not measured:
        return "No layer was measured."
    payload = _worst_payload(ladder)
    if payload is not None:
        return _payload_words(ladder, *payload)
    request = _worst_request(ladder)
    if request is not None:
        return f"{_request_words(ladder, request)}{_doubt(request)}"
    top = [layer for layer in measured if layer.chain == Chain.PAYLOAD.value] or measured
    known = [layer for layer in top if layer.limited_by not in (None, LimitedBy.UNKNOWN.value)]
    where = f": look at the {known[-1].limited_by}, which limits {known[-1].title}" if known else ""
    small = quantities.rounded_share(SMALL)
    return f"No layer loses more than {small} of what the one below allows{where}.{_doubt(top[-1])}"


def _worst_payload(ladder: Ladder) -> tuple[WaterfallBar, float] | None:
    """The level above the largest loss, and that loss as a share of the lowest level; None if none is large."""
    bars = next((one.bars for one in ladder.waterfalls if one.chain == Chain.PAYLOAD.value), ())
    whole = max((bar.end for bar in bars if bar.kind is BarKind.LEVEL), default=0.0)
    lost = [((bar.start - bar.end) / whole, above) for bar, above in pairwise(bars) if bar.kind is BarKind.LOST]
    share, level = max(lost, key=lambda one: one[0], default=(0.0, None))
    return (level, share) if level is not None and share >= SMALL else None


def _worst_request(ladder: Ladder) -> LadderLayer | None:
    """The layer that adds most to the time of a request; None if none adds much."""
    layers = [layer for layer in ladder.layers if layer.chain == Chain.REQUESTS.value and layer.allowed]
    layers = [layer for layer in layers if layer.figure.value]
    if not layers:
        return None
    worst = max(layers, key=_added_s)
    whole_s = max(1 / (layer.figure.value or 1.0) for layer in layers)
    return worst if _added_s(worst) >= _OF_REQUEST * whole_s else None


def _added_s(layer: LadderLayer) -> float:
    """The time that a layer adds to a request: one is outstanding, so a rate is the inverse of a time."""
    return 1 / (layer.figure.value or 1.0) - 1 / (layer.allowed or 1.0)


def _payload_words(ladder: Ladder, level: WaterfallBar, lost: float) -> str:
    layer = next(one for one in ladder.layers if one.test == level.test)
    if ladder.baseline is not None and level.through == ROUTE:
        return (
            f"Look first below {ladder.sut}: the plain route already loses {quantities.share(lost)} of the link's rate."
        )
    if _is_tunnel_step(ladder, layer):
        layer = _clearest(ladder, layer)
        share = layer.share_of_baseline or layer.share
        where = f"Look first at {ladder.sut}: {_share(share)} of what the plain route carries ({layer.title})"
    elif layer.below == "the link":
        where = f"Look first below {layer.title}: {_share(layer.share)} of the link's rate"
    else:
        where = f"Look first at {layer.title}: {_share(layer.share)} of what {_one(layer.below)} carries"
    if layer.headers is not None and layer.headers >= _WORTH_SAYING:
        where += f"; headers explain {quantities.share(layer.headers)}"
    return f"{where}{_limit_words(layer)}{_cost_words(ladder, layer)}.{_doubt(layer)}"


def _clearest(ladder: Ladder, lowest: LadderLayer) -> LadderLayer:
    """The layer that shows best what the tunnel carries: the lowest one whose share is no bound, else the lowest."""
    layers = [layer for layer in ladder.layers if layer.chain == Chain.PAYLOAD.value and layer.share_of_baseline]
    clear = [one for one in layers if one.share_of_baseline and one.share_of_baseline.bound is None]
    return next((one for one in clear if one.share_of_baseline and one.share_of_baseline.value is not None), lowest)


def _one(below: str | None) -> str:
    """A layer's title as the subject of a singular verb."""
    return f"the layer of {below}" if below is not None and below.endswith("s") else below or ""


def _share(share: Share) -> str:
    words = {Bound.LEAST.value: "at least ", Bound.MOST.value: "at most ", Bound.NONE.value: "about "}
    return f"{words.get(share.bound or '', '')}{quantities.share(share.value)}"


def _request_words(ladder: Ladder, layer: LadderLayer) -> str:
    added, whole = quantities.seconds(_added_s(layer)), quantities.seconds(1 / (layer.figure.value or 1.0))
    what = ladder.sut if _is_tunnel_step(ladder, layer) else layer.title
    payload = any(one.chain == Chain.PAYLOAD.value for one in ladder.layers)
    kept = f"Payload loses less than {quantities.rounded_share(SMALL)} at each layer. " if payload else ""
    return f"{kept}Look first at the time of a request: {added} of {whole} are of {what}{_limit_words(layer)}."


def _is_tunnel_step(ladder: Ladder, layer: LadderLayer) -> bool:
    return ladder.baseline is not None and layer.below == "the plain route"


def _limit_words(layer: LadderLayer) -> str:
    if layer.limited_by in (None, LimitedBy.UNKNOWN.value, LimitedBy.OFFERED_RATE.value):
        return ""
    return f"; the {layer.limited_by} is the limit ({layer.evidence})"


def _cost_words(ladder: Ladder, layer: LadderLayer) -> str:
    """The host that spends most CPU time on a byte, beside what it spends without the tunnel."""
    costs = [cost for cost in layer.costs if cost.ns_per_byte is not None and not cost.host.startswith("machine")]
    if not costs:
        return ""
    most = max(costs, key=lambda cost: cost.ns_per_byte or 0.0)
    words = f"; {most.host} spends {_ns(most)} of CPU time on each byte"
    before: Mapping[str, HostCost] = {cost.host: cost for cost in layer.baseline_costs}
    plain = before.get(most.host)
    if plain is not None and plain.ns_per_byte is not None:
        words += f", {_ns(plain)} through the plain route"
    return words


def _ns(cost: HostCost) -> str:
    return quantities.seconds(None if cost.ns_per_byte is None else cost.ns_per_byte / 1e9)


def _doubt(layer: LadderLayer) -> str:
    verdict = layer.figure.verdict
    return "" if verdict == "valid" else f" The figure of {layer.title} is {verdict}: measure it again to be sure."
