"""`leadline packets --rfc2544`: throughput, latency and the frame loss curve for each frame size, as RFC 2544 (26.1 to
26.3) asks, with MLRsearch (RFC 9971) in place of its bisection, and the longest burst without loss (26.4, RFC 9004).

A device under test whose limit is the generator's own has a lower bound as its throughput, and no longest burst.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from leadline.analysis.capacity import Conditions
from leadline.analysis.model import TestResult
from leadline.kinds.datagram_search import DatagramSearchTarget
from leadline.kinds.packets.model import PacketsTest
from leadline.plan.packet_rates import PREAMBLE_AND_GAP_BYTES
from leadline.trial.find_rate import Search
from leadline.trial.interrupt import Interrupt
from leadline.trial.single import Single, measure

SIZES = (64, 128, 256, 512, 1024, 1280, 1518)
"""RFC 2544, 9.1: frame sizes of Ethernet."""
NO_LOSS = "lost_ratio <= 0"
_LOSS_STEP = 0.1
"""RFC 2544, 26.3: the rate falls by 10 % until two trials in turn have no loss."""
_CLEAN_TRIALS = 2
_BURST_STEPS = 12
_STAMPED_PER_S = 1000


@dataclass(frozen=True, slots=True)
class SizeResult:
    """What was found for one frame size. Rates are packets per second; unknown figures are None."""

    size: int
    throughput_per_s: float | None
    """The highest rate without loss."""
    is_lower_bound: bool
    """Whether the generator, and not the device, was the limit."""
    delay_min_us: float | None
    """At that rate."""
    delay_p50_us: float | None
    delay_p99_us: float | None
    delay_variation_us: float | None
    loss_curve: tuple[tuple[float, float | None], ...]
    """Offered rates, and the share of the frames that was lost or never sent at each."""
    buffer_us: float | None
    """Time of that burst, less what the device forwards meanwhile (RFC 9004, 6.4); None where there is no burst."""
    burst_packets: int | None
    """Frames that passed at the generator's full rate without loss; None where none was lost in a whole trial."""


@dataclass(slots=True)
class Benchmark:
    """The tests of all sizes, one after another."""

    kind: Any
    test: PacketsTest
    measurement: Callable[[PacketsTest], Single]
    """The measurement of a test at one rate."""
    argv: Sequence[str]
    interrupt: Interrupt
    say: Callable[[str], None] = lambda _: None
    """Says what is measured now."""
    _number: int = 0

    async def run(self, sizes: Sequence[int]) -> list[SizeResult]:
        """Measure each size; an interrupt ends it with those that are done.

        Raises:
            LeadlineError: a measurement failed.
        """
        found = []
        for size in sizes:
            if self.interrupt.asked.is_set():
                break
            found.append(await self._size(size))
        return found

    async def _size(self, size: int) -> SizeResult:
        test = self.test.model_copy(update={"size": {size: 1}, "stamp_every": 0})
        self.say(f"{size} bytes: throughput")
        conditions = Conditions.read(NO_LOSS, test.name, test.kind)
        target = DatagramSearchTarget(self.kind, test, self.measurement, conditions, self.argv)
        answer = await Search(target, self.interrupt, None).run()
        rate, top = answer.found.low_per_s, answer.reference.value
        self.say(f"{size} bytes: latency")
        delays = await self._delays(test, rate)
        self.say(f"{size} bytes: frame loss")
        curve = await self._loss_curve(test, top)
        self.say(f"{size} bytes: bursts")
        burst = await self._longest_burst(test, top)
        return SizeResult(
            size=size,
            throughput_per_s=rate,
            is_lower_bound=answer.found.high_per_s is None,
            **delays,
            loss_curve=tuple(curve),
            burst_packets=burst,
            buffer_us=buffer_us(burst, top, rate),
        )

    async def _delays(self, test: PacketsTest, rate_per_s: float | None) -> dict[str, float | None]:
        names = ("min", "p50", "p99")
        result = None
        if rate_per_s:
            every = max(1, round(rate_per_s / _STAMPED_PER_S))
            timed = test.model_copy(update={"stamp_every": every})
            result = await self._measure(self.kind.at_rate(timed, rate_per_s, test.duration_ms))
        delays = {f"delay_{name}_us": _value(result, f"one_way_delay_{name}_us") for name in names}
        return {**delays, "delay_variation_us": _value(result, "delay_variation_us")}

    async def _loss_curve(self, test: PacketsTest, top_per_s: float | None) -> list[tuple[float, float | None]]:
        curve: list[tuple[float, float | None]] = []
        share, clean = 1.0, 0
        while top_per_s and share > 0 and clean < _CLEAN_TRIALS and not self.interrupt.asked.is_set():
            rate = top_per_s * share
            result = await self._measure(self.kind.at_rate(test, rate, test.duration_ms))
            lost = missing_ratio(result)
            curve.append((rate, lost))
            clean = clean + 1 if lost == 0 else 0
            share = round(share - _LOSS_STEP, 6)
        return curve

    async def _longest_burst(self, test: PacketsTest, top_per_s: float | None) -> int | None:
        """The longest burst without loss, by halving: None if one as long as a trial has none."""
        if not top_per_s:
            return None
        longest = max(1, int(top_per_s * test.duration_ms / 1000))
        passes, fails = 0, longest + 1
        burst = longest
        for _ in range(_BURST_STEPS):
            if fails - passes <= 1 or self.interrupt.asked.is_set():
                break
            result = await self._measure(test.model_copy(update={"number": burst, "rate": None}))
            if missing_ratio(result) == 0:
                passes = burst
            else:
                fails = burst
            if passes == longest:
                return None
            burst = (passes + fails) // 2
        return passes

    async def _measure(self, test: PacketsTest) -> TestResult:
        self._number += 1
        single = replace(self.measurement(test), case=f"c{self._number:02}", alone=False)
        return await measure(single, [], None, self.interrupt, ())


def buffer_us(burst: int | None, sent_per_s: float | None, forwarded_per_s: float | None) -> float | None:
    """The time of the device's buffer, us, by a burst at one rate of which it forwards packets at another meanwhile."""
    if burst is None or not sent_per_s or forwarded_per_s is None:
        return None
    return 1e6 * burst / sent_per_s * (1 - min(1.0, forwarded_per_s / sent_per_s))


def missing_ratio(result: TestResult) -> float | None:
    """The share of the frames that were due and did not arrive: lost, or never sent."""
    sent, lost, unsent = (_value(result, name) for name in ("sent", "lost", "unsent"))
    if sent is None or lost is None:
        return None
    due = sent + (unsent or 0.0)
    return (lost + (unsent or 0.0)) / due if due else None


def _value(result: TestResult | None, name: str) -> float | None:
    metric = None if result is None else result.metrics.get(name)
    return None if metric is None else metric.value


def rows(found: Sequence[SizeResult], line_bps: float | None) -> Iterator[tuple[str, ...]]:
    """The table of all sizes, its head first. The last rates are those at which the frame loss curve begins."""
    from leadline import quantities

    line = ("line",) if line_bps else ()
    yield ("size", "throughput", "layer 2", *line, "delay p50", "p99", "at full rate", "burst")
    for one in found:
        rate = one.throughput_per_s
        wire = None if rate is None else rate * 8 * (one.size + PREAMBLE_AND_GAP_BYTES)
        bound = "≥ " if one.is_lower_bound and rate is not None else ""
        missing = one.loss_curve[0][1] if one.loss_curve else None
        yield (
            f"{one.size} B",
            f"{bound}{quantities.per_second(rate)}",
            quantities.bit_rate(None if rate is None else 8.0 * rate * one.size),
            *((quantities.share(None if wire is None else wire / line_bps),) if line_bps else ()),
            quantities.microseconds(one.delay_p50_us),
            quantities.microseconds(one.delay_p99_us),
            "unknown" if missing is None else f"{quantities.share(missing)} missing",
            "no loss" if one.burst_packets is None else quantities.count(one.burst_packets),
        )


def document(found: Sequence[SizeResult], target: str, duration_ms: int) -> dict[str, Any]:
    """The result as a document."""
    return {
        "schema": "leadline.rfc2544/1",
        "target": target,
        "trial_s": duration_ms / 1000,
        "sizes": [asdict(one) for one in found],
    }
