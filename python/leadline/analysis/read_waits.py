"""Which latencies contain the generator's own delay: received bytes that waited until it read them.

The kernel stamps what it receives; the time from there to the read is the generator's, and no server or path has it.
Where it is a fifth of a percentile, the true percentile is at most what was measured. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from leadline.analysis.metrics import Histograms
from leadline.analysis.model import Metric, Reason, Verdict
from leadline.plan.percentiles import histogram_of
from leadline.plan.tags import split_figure
from leadline.quantities import microseconds, rounded_share

READ_LATE = "read-late"
KERNEL_WAIT = "kernel_wait"
SHARE = 0.2
"""Of a percentile, from where on the wait makes it an upper bound."""
FLOOR_US = 100.0
"""Shorter waits are those of any program that sleeps until something arrives; the note on idle CPUs has them."""
_READ = frozenset({"latency", "service", "first_byte"})
"""Histograms whose times end with a read."""


def judge_reads(figures: Mapping[str, Metric], histograms: Histograms) -> Iterator[tuple[Verdict, Reason]]:
    """The percentiles of which the same percentile of the wait is a fifth, in one reason."""
    waits, worst = histograms.sample(KERNEL_WAIT), (0.0, "")
    names = []
    for name, metric in figures.items():
        asked = histogram_of(split_figure(name)[0])
        if asked is None or asked.histogram not in _READ or not metric.value:
            continue
        if waits.count * (100.0 - asked.percentile) < 100.0:
            continue  # fewer samples of the wait do not show this percentile
        wait_us = waits.percentile(asked.percentile).value_us or 0.0
        value_us = metric.value * (1.0 if asked.unit == "us" else 1e3)
        if wait_us < FLOOR_US or wait_us < SHARE * value_us:
            continue
        names.append(name)
        share = min(1.0, wait_us / value_us)
        text = f"{microseconds(wait_us)} at p{asked.percentile:g}, {rounded_share(share)} of {name}"
        worst = worst if worst[0] >= share else (share, text)
    if names:
        text = f"received bytes waited for the generator to read them, {worst[1]}: the true times are shorter"
        yield Verdict.GENERATOR_LIMITED, Reason(READ_LATE, text, metrics=tuple(names))
