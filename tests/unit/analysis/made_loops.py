"""Closed and open loops of known truth, made in virtual time: a server whose speed wanders, switches, drifts or stalls.

A server works at a speed that is given for each millisecond: 1 is usual, 0 a stall. A request takes the work that is
drawn for it, at the speed that there is meanwhile. In a closed loop the next request of a connection follows its
answer, so that fast seconds hold more requests; in an open loop requests are due at regular times.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from made_journals import EPOCH_NS, MS, S, bucket_lows, bucket_sizes, test_data
from numpy.typing import NDArray

from leadline.analysis.flows import Curve, Flow
from leadline.analysis.histograms import Histogram
from leadline.analysis.intervals import Parts, with_intervals
from leadline.analysis.metrics import Histograms
from leadline.analysis.model import Metric, Window
from leadline.analysis.test_data import FlowKey
from synthetic import ar1

Times = NDArray[np.float64]
Speed = Callable[[np.random.Generator, int, int], Times]
"""A row of speeds for each set, one for each millisecond, of a test of a length in seconds."""
Work = Callable[[np.random.Generator, int], Times]
WORK_S = 5e-3
STEPS_PER_S = 1000
PERCENTILES = (50.0, 90.0, 99.0)
NAMES = ("latency_p50_us", "latency_p90_us", "latency_p99_us")
MEAN = "latency_mean_us"


def even(generator: np.random.Generator, sets: int, length_s: int) -> Times:
    """A server of one speed."""
    return np.ones((sets, length_s * STEPS_PER_S))


def wander(correlation: float, deviation: float, steps_per_s: int = 1) -> Speed:
    """Levels that differ by `deviation` (of the logarithm), each like the one before by `correlation`."""

    def speeds(generator: np.random.Generator, sets: int, length_s: int) -> Times:
        levels = deviation * ar1(correlation, sets, length_s * steps_per_s, generator)
        return np.exp(-np.repeat(levels, STEPS_PER_S // steps_per_s, axis=1))

    return speeds


def switch(slower: float, usual_s: float, slow_s: float) -> Speed:
    """Two levels, each for an exponential time of these means."""

    def speeds(generator: np.random.Generator, sets: int, length_s: int) -> Times:
        found = np.empty((sets, length_s * STEPS_PER_S))
        is_slow = generator.random(sets) < slow_s / (usual_s + slow_s)
        for step in range(found.shape[1]):
            found[:, step] = np.where(is_slow, 1 / slower, 1.0)
            leaves = 1 / STEPS_PER_S / np.where(is_slow, slow_s, usual_s)
            is_slow ^= generator.random(sets) < leaves
        return found

    return speeds


def drift(factor: float) -> Speed:
    """A level that rises to `factor` times itself through the test."""

    def speeds(generator: np.random.Generator, sets: int, length_s: int) -> Times:
        return np.tile(factor ** -np.linspace(0, 1, length_s * STEPS_PER_S), (sets, 1))

    return speeds


def stalls(stall_s: float, per_s: float, is_regular: bool = False) -> Speed:
    """Stalls at random times, or at regular ones from a random time on."""

    def speeds(generator: np.random.Generator, sets: int, length_s: int) -> Times:
        steps, width = length_s * STEPS_PER_S, round(stall_s * STEPS_PER_S)
        if is_regular:
            period = STEPS_PER_S / per_s
            begins = (np.arange(steps + width) + period * generator.random((sets, 1))) % period < 1
        else:
            begins = generator.random((sets, steps + width)) < per_s / STEPS_PER_S
        begun = np.cumsum(begins, axis=1)
        return np.asarray(begun[:, width:] == begun[:, :-width], dtype=np.float64)

    return speeds


def lognormal(deviation: float) -> Work:
    """Work with a lognormal deviation."""
    return lambda generator, count: WORK_S * np.exp(deviation * generator.standard_normal(count))


def exponential_tail(generator: np.random.Generator, count: int) -> Times:
    """An exponential work of 2 ms on top of 5 ms."""
    return WORK_S + generator.exponential(2e-3, count)


def slow_share(generator: np.random.Generator, count: int) -> Times:
    """3 % are four times as much, as of a cache that misses."""
    return np.where(generator.random(count) < 0.03, 4, 1) * lognormal(0.2)(generator, count)


@dataclass(frozen=True, slots=True)
class Load:
    """A made load: of some connections, or of `rate_per_s` requests, answered at once or `is_queued` one by one."""

    speed: Speed
    work: Work
    connections: int = 4
    rate_per_s: float | None = None
    is_queued: bool = False


def make_figures(load: Load, length_s: int, sets: int, generator: np.random.Generator) -> Iterator[dict[str, Metric]]:
    """The figures of tests of a load."""
    for begun, ended in zip(*run_loads(load, length_s, sets, generator), strict=True):
        yield find_figures(begun, ended, length_s, None if load.rate_per_s else load.connections)


def find_figures(begun: Times, ended: Times, length_s: int, connections: int | None) -> dict[str, Metric]:
    """The percentiles and the mean of a test with their intervals, by when its requests began and ended, s; of a closed
    loop if the number of its connections is given."""
    is_done = ended < length_s
    durations, at = (ended - begun)[is_done], ended[is_done]
    ages = length_s - begun[~is_done & (begun < length_s)]
    seconds = [histogram_of(durations[at.astype(int) == one]) for one in range(length_s)]
    counted = np.searchsorted(np.sort(at), np.arange(10 * length_s + 1) / 10)
    edges_ns = EPOCH_NS + np.arange(10 * length_s + 1) * 100.0 * MS
    end_ns = EPOCH_NS + length_s * S
    curve = Curve(*(np.asarray(one, dtype=np.float64) for one in (edges_ns, counted)))
    key = FlowKey("client1", "load", 0)
    flow = Flow(key, "up", EPOCH_NS, EPOCH_NS, end_ns, None, curve, None, None, "receiver", None)
    whole = Histograms({"latency": histogram_of(durations), "latency_censored": histogram_of(ages)})
    sample = whole.sample("latency")
    values = {name: sample.percentile(one).value_us for name, one in zip(NAMES, PERCENTILES, strict=True)}
    return with_intervals(
        {name: Metric(value, "us") for name, value in (values | {MEAN: sample.mean.value_us}).items()},
        test_data("http", duration_ms=1000 * length_s, connections=connections or 0),
        [flow],
        Window(EPOCH_NS, EPOCH_NS, end_ns, end_ns),
        histograms=whole,
        parts=Parts({"latency": tuple(seconds)}),
    )


def find_truths(load: Load, length_s: int, generator: np.random.Generator, sets: int = 200) -> list[float]:
    """The percentiles of all requests of many tests, µs."""
    starts, ends = run_loads(load, length_s, sets, generator)
    return [float(one) for one in 1e6 * np.percentile((ends - starts)[ends < length_s], PERCENTILES)]


def run_loads(load: Load, length_s: int, sets: int, generator: np.random.Generator) -> tuple[Times, Times]:
    """When each request of each set begins, or is due, and ends, in seconds."""
    speeds = load.speed(generator, sets, length_s)
    # After the end the server works at its usual speed.
    done = np.concatenate([np.zeros((sets, 1)), np.cumsum(speeds, axis=1)], axis=1) / STEPS_PER_S
    if load.rate_per_s is None:
        begun, ended = _run_closed(load, done, length_s, generator)
    else:
        due = (np.arange(round(length_s * load.rate_per_s)) + generator.random((sets, 1))) / load.rate_per_s
        begun = due[:, :, np.newaxis]
        ended = _run_open(load, done, due, generator)[:, :, np.newaxis]
    return begun.reshape(sets, -1), ended.reshape(sets, -1)


def _run_closed(load: Load, done: Times, length_s: int, generator: np.random.Generator) -> tuple[Times, Times]:
    sets = len(done)
    clock = _Clock(done)
    now = np.zeros((sets, load.connections))
    begun, ended = [], []
    while (now < length_s).any():
        work = load.work(generator, now.size).reshape(now.shape)
        after = clock.finish(now, work)
        begun.append(now)
        ended.append(after)
        now = after
    return np.stack(begun, axis=1), np.stack(ended, axis=1)


def _run_open(load: Load, done: Times, due: Times, generator: np.random.Generator) -> Times:
    clock, ended = _Clock(done), np.empty_like(due)
    work = load.work(generator, due.size).reshape(due.shape)
    if not load.is_queued:
        return clock.finish(due, work)
    free = np.zeros((len(due), 1))
    for at in range(due.shape[1]):
        free = clock.finish(np.maximum(free, due[:, at : at + 1]), work[:, at : at + 1])
        ended[:, at : at + 1] = free
    return ended


class _Clock:
    """How long work takes of a server whose work `done` is known for each millisecond, in rows."""

    def __init__(self, done: Times) -> None:
        self._done = done
        self._rows = np.arange(len(done))[:, np.newaxis]
        # Rising, so that a stall has one instant of work at its end.
        self._strict = done + 1e-12 * np.arange(done.shape[1])
        number = math.ceil(float(done.max()) * STEPS_PER_S) + 1
        edges = np.arange(number) / STEPS_PER_S
        steps = np.arange(done.shape[1]) / STEPS_PER_S
        self._times = np.stack([np.interp(edges, row, steps) for row in self._strict])

    def finish(self, now: Times, work: Times) -> Times:
        """When work that begins `now` is done."""
        place = now * STEPS_PER_S
        last = self._done.shape[1] - 1
        at = np.minimum(place.astype(np.int64), last - 1)
        low, high = self._strict[self._rows, at], self._strict[self._rows, at + 1]
        target = low + np.minimum(place - at, 1.0) * (high - low) + work
        total = self._strict[:, -1:]
        found = _read(self._strict, self._rows, target, self._times)
        beyond = last / STEPS_PER_S + np.maximum(0.0, target - total) + np.maximum(0.0, now - last / STEPS_PER_S)
        return np.where(target >= total, beyond, np.maximum(found, now))


def _read(strict: Times, rows: NDArray[np.int64], target: Times, times: Times) -> Times:
    """The instants at which so much work is done, exact inside of each millisecond."""
    guess = times[rows, np.minimum((target * STEPS_PER_S).astype(np.int64), times.shape[1] - 1)]
    at = np.clip((guess * STEPS_PER_S).astype(np.int64), 0, strict.shape[1] - 2)
    while True:
        is_later = (strict[rows, at + 1] < target) & (at < strict.shape[1] - 2)
        if not is_later.any():
            break
        at = at + is_later
    low, high = strict[rows, at], strict[rows, at + 1]
    return np.asarray((at + np.clip((target - low) / (high - low), 0.0, 1.0)) / STEPS_PER_S)


def histogram_of(times_s: Times) -> Histogram:
    """Times in buckets of about a thousandth, as HdrHistogram's of three digits."""
    lows, counts = np.unique(bucket_lows((1e9 * times_s).astype(np.int64)), return_counts=True)
    return Histogram(lows, lows + bucket_sizes(lows) - 1, counts)
