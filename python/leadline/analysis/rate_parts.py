"""The rates of a test in equal parts of its window, and means over repeats that know of them.

A few repeats that happen to lie close together have an interval that is too narrow. How much the parts inside of them
differ is a second witness, of ten times as many values: the interval over the repeats is never narrower than what the
parts of all of them allow. It can only be wider: what differs from one start to the next is in the repeats alone.
See docs/decisions/0014-parts-of-repeats.md. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from leadline.analysis.flows import Flow
from leadline.analysis.model import TestResult, Window
from leadline.analysis.test_spec import TestSpec
from leadline.analysis.window import interval_rates, named_rates
from leadline.statistics import Estimate, mean_of_repeats, no_narrower_than_parts

PARTS = 10
"""Of a window. More resemble their neighbours, and say too little of what changes slowly."""


def rate_parts(spec: TestSpec, flows: Sequence[Flow], window: Window | None) -> dict[str, tuple[float, ...]]:
    """Each rate in `PARTS` parts of the window, where it was read at least so often; none of a rate in stages, whose
    parts differ by plan."""
    if window is None or not spec.steady:
        return {}
    found = {}
    for name, (_, factor, curves) in named_rates(spec, flows).items():
        rates = interval_rates(curves, window, (window.end_ns - window.start_ns) // PARTS)
        if rates is not None and len(rates) == PARTS:
            found[name] = tuple((factor * rates).tolist())
    return found


def mean_of_results(results: Sequence[TestResult], name: str, confidence: float) -> Estimate | None:
    """The mean of a figure over the repeats that know it, with the interval of both witnesses; None if none does."""
    known = [one for one in results if one.value(name) is not None]
    if not known:
        return None
    mean = mean_of_repeats([one.metrics[name].value or 0.0 for one in known], confidence)
    parts = [one.rate_parts[name] for one in known if name in one.rate_parts]
    return no_narrower_than_parts(mean, parts, confidence) if len(parts) == len(known) else mean
