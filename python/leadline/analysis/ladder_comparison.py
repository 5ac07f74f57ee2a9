"""Compares the shares of two ladders: what each layer carries of what the layer below allows, and of the plain route.

A share has an interval over its own run's repeats; the ratio of two shares has one from both. Shares that are of
different things, or bounds, have no ratio. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from leadline.analysis.ladder_model import Ladder, LadderLayer, Share
from leadline.statistics import Comparison, Estimate, compare, ratio_of_estimates

OF_BELOW, OF_ROUTE = "share_of_layer_below", "share_of_plain_route"
"""The figures' names, beside those of metrics."""


@dataclass(frozen=True, slots=True)
class ComparedShare:
    """One share of both sides, as `comparison.ComparedFigure` has a figure."""

    baseline: float | None
    candidate: float | None
    estimate: Estimate | None
    word: Comparison
    reason: str | None
    parameters: dict[str, str] = field(default_factory=dict)
    test: str = ""
    metric: str = ""
    baseline_bound: str | None = None
    candidate_bound: str | None = None


def compare_ladders(
    baseline: Iterable[Ladder], candidate: Iterable[Ladder], *, margin: float, metrics: Sequence[str], apart: str | None
) -> Iterator[ComparedShare]:
    """The shares of each layer that both sides have. `apart`: the parameter that tells the sides apart."""
    others = {_key(ladder, apart): ladder for ladder in candidate}
    for ladder in baseline:
        other = others.get(_key(ladder, apart))
        if other is not None:
            parameters = dict(_key(ladder, apart))
            for first, second in _shared(ladder.layers, other.layers):
                for name, shares in _shares(first, second):
                    if not metrics or name in metrics:
                        why_not = _why_not(first, second, name, shares)
                        yield replace(
                            _compared(shares, why_not, margin), parameters=parameters, test=first.test, metric=name
                        )


def _key(ladder: Ladder, apart: str | None) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, str(value)) for name, value in ladder.parameters.items() if name != apart))


def _shared(first: Sequence[LadderLayer], second: Sequence[LadderLayer]) -> Iterator[tuple[LadderLayer, LadderLayer]]:
    by_test = {layer.test: layer for layer in second}
    return ((layer, by_test[layer.test]) for layer in first if layer.test in by_test)


def _shares(first: LadderLayer, second: LadderLayer) -> Iterator[tuple[str, tuple[Share, Share]]]:
    """The shares of which both sides know at least the value of one; the lowest layer has nothing below it."""
    if first.share.value is not None or second.share.value is not None:
        yield OF_BELOW, (first.share, second.share)
    if first.share_of_baseline is not None and second.share_of_baseline is not None:
        yield OF_ROUTE, (first.share_of_baseline, second.share_of_baseline)


def _compared(shares: tuple[Share, Share], why_not: str | None, margin: float) -> ComparedShare:
    estimate, reason, word = None, why_not, Comparison.CANNOT_TELL
    if reason is None:
        estimate = ratio_of_estimates(*(_estimate(share) for share in shares))
        word = compare(estimate, margin=margin, higher_is_better=True)
        reason = estimate.reason or "the interval holds 1 and reaches beyond the margin: repeat both more often"
    why = None if word is not Comparison.CANNOT_TELL else reason
    first, second = shares
    return ComparedShare(
        first.value, second.value, estimate, word, why, baseline_bound=first.bound, candidate_bound=second.bound
    )


def _why_not(first: LadderLayer, second: LadderLayer, name: str, shares: tuple[Share, Share]) -> str | None:
    """Why two shares have no ratio; None if they have one."""
    if name == OF_BELOW and first.below != second.below:
        return f"shares of different layers: of {first.below or 'none'}, and of {second.below or 'none'}"
    unknown = next((share for share in shares if share.value is None), None)
    if unknown is not None:
        return unknown.reason or "a share is not known"
    if any(share.bound is not None for share in shares):
        return "a share is a bound alone: the layer, or the one below it, is not valid"
    return "the baseline's share is 0: there is no ratio to it" if not shares[0].value else None


def _estimate(share: Share) -> Estimate:
    assert share.value is not None, "unknown shares have no ratio"
    return Estimate(share.value, share.low, share.high, 1, share.reason)
