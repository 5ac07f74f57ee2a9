"""What moves a figure from repeat to repeat: the circumstance that goes up and down with it.

Each repeat has the same circumstances: for how long threads waited for a CPU, what other work, a hypervisor and soft
interrupts took, how long idle CPUs took to wake up, the clock speed. One is named if its correlation with the figure
is the strongest, has the sign that a cause has, and is so strong that the best of all circumstances reaches it in at
most `CHANCE` of the orders in which the repeats could have come: figures that have nothing to do with any of them get
no name in 95 % of cases, however many are looked at. Pure.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from leadline.analysis import disturbance, rate_causes, wake_ups
from leadline.analysis.host_metrics import machine_samples
from leadline.analysis.model import Window
from leadline.analysis.test_data import TestData
from leadline.quantities import microseconds, rounded_share

CHANCE = 0.05
"""The share of orders in which the best circumstance may move as much with the figure."""
LEAST_REPEATS = 4
"""Of fewer repeats even the best order is not rare enough."""
NOTABLE = 0.02
"""Of the time, or of its own mean: a circumstance that differs by less between repeats moves nothing."""
_EVERY_ORDER = 7
"""Up to this number of repeats each order is looked at; of more, `_ORDERS` by chance."""
_ORDERS = 2000


@dataclass(frozen=True, slots=True)
class Circumstance:
    """One of them: its words, whether more of it makes a rate higher, and its unit."""

    words: str
    helps: bool = False
    unit: str = "share"


CIRCUMSTANCES: Mapping[str, Circumstance] = {
    "waiting": Circumstance("waiting for a CPU"),
    "other_work": Circumstance("other work"),
    "stolen": Circumstance("stolen time"),
    "soft_interrupts": Circumstance("soft interrupts"),
    "wake_up_us": Circumstance("waking idle CPUs up", unit="us"),
    "clock_hz": Circumstance("clock speed", helps=True, unit="Hz"),
}


def circumstances(data: TestData, window: Window | None) -> dict[str, float]:
    """The circumstances of one test by name, as far as they are known: shares of the time or of the machine's CPUs."""
    return dict(_circumstances(data, window))


def _circumstances(data: TestData, window: Window | None) -> Iterator[tuple[str, float]]:
    if (waited := rate_causes.longest_wait(data)) is not None:
        yield "waiting", waited[0]
    times_us = [found.thread_p50_us for found in wake_ups.wake_ups(data).values()]
    if times_us:
        yield "wake_up_us", sum(times_us) / len(times_us)
    if window is None or window.end_ns <= window.start_ns:
        return
    uses = [use for hosts in disturbance.machines(data) if (use := disturbance.use_of(data, hosts, window))]
    if uses:
        foreign = [use.foreign / use.cpus / 100 for use in uses if use.foreign is not None]
        if foreign:
            yield "other_work", max(foreign)
        yield "stolen", max(use.stolen / use.cpus / 100 for use in uses)
        yield "soft_interrupts", max(use.softirq / use.cpus / 100 for use in uses)
    for hosts in disturbance.machines(data):
        samples = machine_samples(data, hosts[0])
        speeds = [one.clock_hz for one in samples if one.clock_hz and window.start_ns <= one.t_ns <= window.end_ns]
        if speeds:
            yield "clock_hz", sum(speeds) / len(speeds)
            return


def clause(values: Sequence[float], repeats: Sequence[Mapping[str, float]], *, is_rate: bool) -> str:
    """What moves a figure whose repeats differ, with its values at both ends; or what was looked at and does not."""
    known = [name for name in CIRCUMSTANCES if repeats and all(name in one for one in repeats)]
    if not known:
        return "nothing that may move it was observed in every repeat"
    words = [CIRCUMSTANCES[name].words for name in known]
    if len(values) < LEAST_REPEATS:
        return f"{len(values)} repeats are too few to tell whether {_listed(words, 'or')} moves it"
    named = _strongest(np.array(values), known, repeats, is_rate)
    if named is None:
        return f"none of {_listed(words, 'and')} goes up and down with it"
    ordered = sorted(range(len(values)), key=values.__getitem__, reverse=is_rate)
    best, worst = (_written(named, repeats[index][named]) for index in (ordered[0], ordered[-1]))
    words_of_it = CIRCUMSTANCES[named].words
    return f"what goes up and down with it is {words_of_it}: {best} in the best repeat, {worst} in the worst"


def _strongest(
    values: NDArray[np.float64], known: Sequence[str], repeats: Sequence[Mapping[str, float]], is_rate: bool
) -> str | None:
    """The circumstance that a chance would hardly make move so much with the figure; None if there is none."""
    table = np.array([[one[name] for name in known] for one in repeats], dtype=np.float64)
    varies = np.array([_differs(name, table[:, column]) for column, name in enumerate(known)])
    signs = np.array([1.0 if CIRCUMSTANCES[name].helps == is_rate else -1.0 for name in known])
    if not varies.any() or np.ptp(values) == 0:
        return None
    names = [name for name, does in zip(known, varies, strict=True) if does]
    columns = _standardised(table[:, varies]) * signs[varies]
    figure = _standardised(values[:, None])[:, 0]
    of_each = figure @ columns
    by_chance = (figure[_orders(len(values))] @ columns).max(axis=1)
    reached = float(np.mean(by_chance >= of_each.max() - 1e-9))
    return names[int(of_each.argmax())] if of_each.max() > 0 and reached <= CHANCE else None


def _differs(name: str, column: NDArray[np.float64]) -> bool:
    """Whether a circumstance differs between repeats by enough to move anything."""
    scale = 1.0 if CIRCUMSTANCES[name].unit == "share" else float(abs(column.mean()))
    return float(np.ptp(column)) > NOTABLE * scale


def _standardised(columns: NDArray[np.float64]) -> NDArray[np.float64]:
    """Each column with mean 0 and a sum of squares of 1, so that products are correlations."""
    centred = columns - columns.mean(axis=0)
    return np.asarray(centred / np.sqrt((centred**2).sum(axis=0)), dtype=np.float64)


def _orders(repeats: int) -> NDArray[np.int64]:
    """Orders of the repeats, the one that they came in among them."""
    if repeats <= _EVERY_ORDER:
        return np.array(list(itertools.permutations(range(repeats))))
    generator = np.random.default_rng(repeats)
    others = generator.permuted(np.tile(np.arange(repeats), (_ORDERS - 1, 1)), axis=1)
    return np.concatenate([np.arange(repeats)[None, :], others])


def _listed(words: Sequence[str], joint: str) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {joint} {words[-1]}"


def _written(name: str, value: float) -> str:
    unit = CIRCUMSTANCES[name].unit
    if unit == "us":
        return microseconds(value)
    return f"{value / 1e9:.3g} GHz" if unit == "Hz" else rounded_share(value)
