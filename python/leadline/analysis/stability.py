"""Decides whether rates are known well enough: inside a test, and between the repeats of a case.

The plan has one limit (`limits.stability.spread`), a share of the mean. Precision counts, not dispersion: the limit is
for half of the 95 % interval, which gets narrower the longer a test is and the more repeats a case has. In a test,
`statistics.mean_of_series` makes the interval from the window's intervals, with their autocorrelation. A test that is
too short for that is `undetermined`, unless its parts agree within the limit as they are. A rate that moves to another
level inside the window has no one mean, however narrow the interval: `statistics.change_points` looks for that.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from leadline.analysis import periodic_stalls
from leadline.analysis.flows import Flow
from leadline.analysis.model import Metric, Reason, Verdict, Window
from leadline.analysis.periodic_stalls import mean_of_rates
from leadline.analysis.test_data import TestData
from leadline.analysis.window import NS_PER_S, interval_rates, named_rates
from leadline.quantities import rounded_share
from leadline.statistics import ChangePoint, change_points, lengthening
from leadline.statistics.means import LEAST_NEIGHBOURS, batch_means

Rates = NDArray[np.float64]

SHORTEST_WINDOW_INTERVALS = 2
"""In fewer intervals no rate is read twice, and the gap after the last operation matters too much."""
MIN_PARTS = 5
"""Fewer parts that agree may do so by chance."""
PARTS = 10
"""Parts whose agreement is looked at where there is no interval."""
MOST_BATCHES = 60
"""Of a window, in which changes are looked for. More would find levels that last for less than a fiftieth of it."""
LEAST_LEVEL_SHARE = 0.1
"""Of the window. What is shorter is noise, which the interval contains."""
MOST_CORRELATION = 0.1
"""Of neighbouring batches, beyond which the search for changes raises false alarms."""
SIGNIFICANCE = 0.002
"""Of a change, in the search for it: small, since what correlation is left makes changes look more significant."""
_FEWEST_BATCHES = 10

# Reasons that concern one test.
INTERVALS_DISAGREE, CHANGE_POINT, PRECISION_UNKNOWN = "intervals-disagree", "change-point", "precision-unknown"
# Those that concern the repeats of a case.
REPEATS_DISAGREE, TOO_FEW_REPEATS = "repeats-disagree", "repeats-too-few"
FEW_REPEATS = 4
"""Up to this number the interval is wider than three standard deviations of the repeats' values in total."""


def within_test(data: TestData, flows: Sequence[Flow], window: Window | None) -> Iterator[tuple[Verdict, Reason]]:
    """What leaves the leading rate of a test uncertain, or else the other rates that targets name. Not for a rate in
    stages, which changes by plan."""
    if window is None or not data.spec.steady:
        return
    for number, (name, (_, _, curves)) in enumerate(named_rates(data.spec, flows).items()):
        if number and name not in data.asked:
            continue
        rates = interval_rates(curves, window, data.spec.interval_ns)
        found = None if rates is None else _doubt(rates, data, window)
        if found is None:
            continue
        verdict, code, text = found
        if not number:
            yield verdict, Reason(code, f"the rate {text}")
            return  # the reason concerns every rate
        yield verdict, Reason(code, f"{name} {text}", metrics=(name,))


def notes(data: TestData, flows: Sequence[Flow], window: Window | None) -> Iterator[Reason]:
    """The regular pattern of the leading rate, if it has one. Not for a rate in stages."""
    rates = named_rates(data.spec, flows)
    if window is None or not data.spec.steady or not rates:
        return
    found = interval_rates(next(iter(rates.values()))[2], window, data.spec.interval_ns)
    if found is not None:
        yield from periodic_stalls.note(found, window.length_s / len(found))


def _doubt(rates: Rates, data: TestData, window: Window) -> tuple[Verdict, str, str] | None:
    """Verdict, code and words of what leaves a rate uncertain; None if it is known well enough."""
    mean, limit = float(rates.mean()), data.stability_spread
    if mean <= 0 or window.end_ns - window.start_ns < SHORTEST_WINDOW_INTERVALS * data.spec.interval_ns:
        return None  # other rules say that nothing was delivered, or that there is no window
    regular = periodic_stalls.find_stalls(rates) is not None
    changes = [
        change
        for change in (() if regular else _changes(rates))
        if abs(change[1].after - change[1].before) > limit * mean
    ]
    if changes:
        text = f"{_changes_as_text(changes, window)}; the limit is {rounded_share(limit, 1)}"
        return Verdict.UNSTABLE, CHANGE_POINT, text
    estimate = mean_of_rates(rates)
    half = estimate.half_width_ratio
    if half is None:
        found = _unless_parts_agree(rates, mean, limit, estimate.reason or "")
        return found and (*found[:2], f"{found[2]}; {_length_needed(rates, limit, window)}")
    if half <= limit:
        return None
    operations = mean * window.length_s
    needed = _length_needed(rates, limit, window)
    uncertain, allowed = f"is uncertain by ±{rounded_share(half, 1)}", f"the limit is {rounded_share(limit, 1)}"
    if data.spec.counts_units and 2 / operations**0.5 > limit:
        text = f"{uncertain}: {operations:.0f} operations are too few for less; {allowed}"
        return Verdict.UNDETERMINED, PRECISION_UNKNOWN, f"{text}; {needed}"
    return Verdict.UNSTABLE, INTERVALS_DISAGREE, f"{uncertain}; {allowed}; {needed}"


def _length_needed(rates: Rates, limit: float, window: Window) -> str:
    """How long the window would have to be for a rate that goes on as unevenly, or why that is not known."""
    if len(rates) < LEAST_NEIGHBOURS:
        seconds = LEAST_NEIGHBOURS * window.length_s / len(rates)
        return f"a window of {seconds:.2g} s shows how uneven it is"
    times = lengthening(rates, limit)
    if times is None:
        return "it is so uneven, or changes so slowly, that what moves it has to be found first"
    seconds = times * window.length_s
    step = 10.0 ** max(0, len(f"{seconds:.0f}") - 2)
    return f"as uneven as it is, that takes a window of about {math.ceil(seconds / step) * step:.0f} s"


def _unless_parts_agree(rates: Rates, mean: float, limit: float, why: str) -> tuple[Verdict, str, str] | None:
    """The doubt about a mean without an interval; None where all parts lie within the limit, whatever is between
    them."""
    parts = batch_means(rates, max(1, len(rates) // PARTS))
    low, high = float(parts.min()) / mean - 1, float(parts.max()) / mean - 1
    if len(parts) >= MIN_PARTS and max(-low, high) <= limit:
        return None
    ends = " to ".join(rounded_share(end, 1, signed=True) for end in (low, high))
    text = f"is not known well enough: {why}; parts of the window lie {ends} from its mean"
    return Verdict.UNDETERMINED, PRECISION_UNKNOWN, text


def _changes(rates: Rates) -> list[tuple[float, ChangePoint]]:
    """The places where the rate moves to another level, as a share of the window, and how; none where neighbouring
    batches resemble each other however long they are, because the search assumes that they do not."""
    size = -(-len(rates) // MOST_BATCHES)
    while len(batches := batch_means(rates, size)) >= _FEWEST_BATCHES:
        found = _levels(batches)
        if not found or _correlation_within_levels(batches, found) <= MOST_CORRELATION:
            spare = len(rates) - len(batches) * size
            return [((spare + change.index * size) / len(rates), change) for change in found]
        size *= 2
    return []


def _levels(batches: Rates) -> Sequence[ChangePoint]:
    """The places where levels change. A stretch in the middle that differs from both sides hardly shows in a search
    that cuts the whole in two, so the halves are searched too."""
    least = max(2, round(LEAST_LEVEL_SHARE * len(batches)))
    found = change_points(batches, least_runs=least, significance=SIGNIFICANCE)
    if found:
        return found
    middle = len(batches) // 2
    first, second = (
        change_points(half, least_runs=least, significance=SIGNIFICANCE) for half in np.split(batches, [middle])
    )
    return [*first, *(replace(change, index=change.index + middle) for change in second)]


def _correlation_within_levels(batches: Rates, changes: Sequence[ChangePoint]) -> float:
    """The lag-1 autocorrelation of what is left of the batches without the levels."""
    edges = [change.index for change in changes]
    left = np.concatenate([level - level.mean() for level in np.split(batches, edges)])
    squares = float(left @ left)
    return float(left[1:] @ left[:-1]) / squares if squares > 0 else 0.0


def _changes_as_text(changes: Sequence[tuple[float, ChangePoint]], window: Window) -> str:
    """The first change, and how many follow. Times count from the first flow's start, as in charts."""
    share, first = changes[0]
    at_s = (window.start_ns - window.first_start_ns) / NS_PER_S + share * window.length_s
    way = "rises" if first.after > first.before else "falls"
    by = f" by {rounded_share(abs(first.after / first.before - 1), 1)}" if first.before > 0 else " from 0"
    more = f", and changes {len(changes) - 1} times more" if len(changes) > 2 else ""
    more = ", and changes once more" if len(changes) == 2 else more
    return f"{way}{by} near {at_s:.3g} s{more}"


def between_repeats(figure: Metric, values: Sequence[float], limit: float, name: str) -> tuple[Verdict, Reason] | None:
    """Repeats that leave a figure's mean less certain than the plan allows: half of its 95 % interval by the mean.

    The interval of two repeats has 12.7 standard errors on each side, which says little: their distance is taken. Up to
    `FEW_REPEATS` whose values all lie within the limit do not disagree: they are too few to tell.
    """
    mean = figure.value or 0.0
    if len(values) < 2 or mean <= 0 or figure.low is None or figure.high is None:
        return None
    half = max(figure.high - mean, mean - figure.low) / mean  # one of the sides may end at 0
    if len(values) == 2:
        spread, what = abs(values[1] - values[0]) / mean, f"the two repeats' {name} differ by "
    else:
        spread, what = half, f"{len(values)} repeats leave {name} uncertain by ±"
    if spread <= limit:
        return None
    allowed = f"the limit is {rounded_share(limit, 1)}"
    low, high = min(values) / mean - 1, max(values) / mean - 1
    if 2 < len(values) <= FEW_REPEATS and max(-low, high) <= limit:
        ends = " to ".join(rounded_share(end, 1, signed=True) for end in (low, high))
        text = (
            f"{len(values)} repeats are too few to tell how certain {name} is: they lie {ends} from their mean, which "
            f"leaves it uncertain by ±{rounded_share(half, 1)}; {allowed}"
        )
        return Verdict.UNDETERMINED, Reason(TOO_FEW_REPEATS, text)
    return Verdict.UNSTABLE, Reason(REPEATS_DISAGREE, f"{what}{rounded_share(spread, 1)} of the mean; {allowed}")
