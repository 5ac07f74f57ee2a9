"""One line for a test (leading figure, figures beside it, verdict), and one for an interval.

Arranges the results of `analysis`; computes no figure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Protocol

from rich.text import Text

from leadline import quantities
from leadline.analysis.model import Interval, Metric, TestResult, Verdict
from leadline.errors import without_log
from leadline.registry import KINDS
from leadline.report import figures, verdicts
from leadline.report.text import TONES


class HeadlinedKind(Protocol):
    """The attributes of a kind of test that this module uses."""

    @property
    def headline(self) -> tuple[str, ...]:
        """The figures beside the leading one."""


def test_headline(result: TestResult) -> Text:
    """`tcp-up  941 Mbit/s  retransmits 12, mean RTT 1.33 ms  ✓ valid`."""
    if result.status != "done":
        why = without_log(verdicts.why_ended(result.status, result.error))
        return Text.assemble((result.test, "bold"), f"  {result.status}: {why}")
    verdict = result.validity.verdict
    wording = verdicts.WORDINGS[verdict]
    kind: HeadlinedKind = KINDS.find(result.kind)
    table = figures.table_of(result.kind, result.metrics)
    leading = figures.written(table.rate, result.metrics)
    known = {figure.metric: figure for figure in table.others}
    beside = [
        f"{known[name].title} {figures.written(known[name], result.metrics)}"
        for name in kind.headline
        if name in known and name in result.metrics
    ]
    dealt = "" if result.dealt is None else result.dealt.words
    parts = [leading, directions(result.metrics), ", ".join(beside), dealt]
    return Text.assemble(
        (result.test, "bold"),
        *(f"  {part}" for part in parts if part),
        "  ",
        (f"{wording.mark} {verdict.value}", TONES[wording.tone]),
    )


def trial_headline(results: Sequence[TestResult]) -> Text:
    """`  ✓ valid  tcp-up 941 Mbit/s, rr 12.1 k/s`: the verdicts of a trial's tests, then their leading figures, and how
    many clients they are of if hosts carried several each; empty without tests."""
    if not results:
        return Text("")
    found = Counter(result.validity.verdict for result in results if result.status == "done")
    marks = []
    for verdict in sorted(found, key=list(Verdict).index):
        wording = verdicts.WORDINGS[verdict]
        number = "" if len(found) == 1 else f"{found[verdict]} "
        marks.append((f"  {number}{wording.mark} {verdict.value}", TONES[wording.tone]))
    crowds = {one.dealt.clients_on_hosts for one in results if one.dealt is not None}
    of_clients = "".join(f"  of {words}" for words in sorted(crowds) if words)
    return Text.assemble(*marks, f"  {', '.join(map(_brief_headline, results))}{of_clients}")


def _brief_headline(result: TestResult) -> str:
    """`tcp-up 941 Mbit/s`, or why there is no figure."""
    if result.status != "done":
        # The answer has the log of a daemon that failed.
        return f"{result.test} {result.status}: {without_log(verdicts.why_ended(result.status, result.error))}"
    return f"{result.test} {figures.written(figures.table_of(result.kind, result.metrics).rate, result.metrics)}"


def interval_line(interval: Interval) -> str:
    """`  3.0-4.0 s  960 Mbit/s  retransmits 3, RTT 1.33 ms`."""
    values = interval.values
    times = ", ".join(
        f"{title} {'≥ ' if name in interval.censored else ''}{quantities.microseconds(values[name])}"
        for name, title in (("latency_p50_us", "p50"), ("latency_p99_us", "p99"))
        if name in values
    )
    rates = [quantities.per_second(values[name]) for name in _RATES if name in values]
    bits = [quantities.bit_rate(values["throughput_bps"])] if "throughput_bps" in values else []
    parts = [f"{interval.start_s:.1f}-{interval.end_s:.1f} s", *([*rates, *bits] if times else [*bits, *rates])]
    if "throughput_up_bps" in values:
        both = (quantities.bit_rate(values[f"throughput_{way}_bps"]) for way in ("up", "down"))
        parts.append("up {}, down {}".format(*both))
    if "lost" in values:
        parts.append(f"lost {quantities.count(values['lost'])} ({quantities.share(values['lost_ratio'])})")
    if "retransmits" in values:
        round_trip = quantities.microseconds(values["rtt_mean_us"])
        parts.append(f"retransmits {quantities.count(values['retransmits'])}, RTT {round_trip}")
    return "  ".join(["", *parts, *([times] if times else [])])


_RATES = ("transactions_per_s", "requests_per_s", "packets_per_s")


def directions(metrics: Mapping[str, Metric]) -> str:
    """`up 1.83 Gbit/s, down 1.75 Gbit/s` for a test in which both sides send; empty for others."""
    names = ("throughput_up_bps", "throughput_down_bps")
    if not all(name in metrics for name in names):
        return ""
    both = [figures.Figure(name, name.split("_")[1], quantities.bit_rate) for name in names]
    return ", ".join(f"{figure.title} {figures.written(figure, metrics)}" for figure in both)
