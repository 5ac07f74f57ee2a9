"""What limited a test: one word and its evidence. That is no fault of the measurement, but what a reader asks next.

The parts are asked in the order in which a load meets them: what was offered, the generator, the answering side, the
link, the gateway. A part counts as the limit if it is known to have been at its end; where none is, the word is
`not known`, and the evidence says what was looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from leadline import quantities
from leadline.analysis.interfaces import wire_bytes
from leadline.analysis.metrics import delivered_share
from leadline.analysis.model import Limit, LimitedBy, Reason, Verdict, Window
from leadline.analysis.scope import NOT_OFFERED, WHOLE
from leadline.analysis.test_data import HostSample, InterfaceUse, TestData
from leadline.analysis.validity import Evidence
from leadline.plan.gateway_metrics import GATEWAYS

LINK_FULL = 0.97
"""Of a link's rate, from where on the link counts as the limit: a shaper gives a few percent less or more."""
PROCESS_FULL = 0.95
"""Of the CPUs that a process can use."""
THROTTLED = 0.05
"""Of the time, from where on a control group's CPU limit counts as what limited its host."""

_SPEAKS_OF = {Verdict.GENERATOR_LIMITED: LimitedBy.GENERATOR, Verdict.RECEIVER_LIMITED: LimitedBy.ANSWERING_SIDE}


def limit_of(evidence: Evidence, reasons: Sequence[Reason], primary: str) -> Limit:
    """What limited the test's leading figure."""
    found = next(_limits(evidence, reasons, primary), None)
    if found is not None:
        return found
    saturated = next((reason for reason in reasons if reason.code == "machine-saturated"), None)
    looked_at = "neither generator, answering side, link nor gateway is known to have been at its end"
    return Limit(LimitedBy.UNKNOWN, saturated.text if saturated is not None else looked_at)


def _limits(evidence: Evidence, reasons: Sequence[Reason], primary: str) -> Iterator[Limit]:
    data, window = evidence.data, evidence.window
    against = [reason for reason in reasons if not reason.metrics or primary in reason.metrics]
    share = delivered_share(data, evidence.flows)
    if share is not None and share >= WHOLE and not any(reason.code in NOT_OFFERED for reason in against):
        text = f"{min(share, 1.0):.4g} of what was due was delivered: more was not asked for"
        yield Limit(LimitedBy.OFFERED_RATE, text)
    for reason in against:
        if reason.verdict in _SPEAKS_OF:
            yield Limit(_SPEAKS_OF[reason.verdict], reason.text)
    if window is None or window.end_ns <= window.start_ns:
        return
    yield from _full_links(data, window)
    for gateway in (host for host in GATEWAYS if host in data.samples):
        yield from _busy_gateway(data, gateway, window)
    if "server" in data.samples:
        yield from _throttled(data.samples["server"], window, LimitedBy.SERVER, "server")


def _full_links(data: TestData, window: Window) -> Iterator[Limit]:
    """The fullest of the lab's links, if its rate left no more."""
    if not data.link_bps:
        return
    fullest = max(_used(data, window), default=None)
    if fullest is not None and fullest[0] >= LINK_FULL * data.link_bps:
        bps, where = fullest
        text = f"{where} carried {bps / 1e6:.4g} of {data.link_bps / 1e6:.4g} Mbit/s, headers included"
        clause = f"the link is the limit at {quantities.share(bps / data.link_bps)} of its rate"
        yield Limit(LimitedBy.LINK, text, clause)


def _used(data: TestData, window: Window) -> Iterator[tuple[float, str]]:
    """Bits per second on the wire, of each host's interfaces and both directions."""
    for host, samples in data.samples.items():
        inside = [sample for sample in samples if window.start_ns <= sample.t_ns <= window.end_ns]
        if len(inside) < 2:
            continue
        first, last = inside[0], inside[-1]
        seconds = (last.t_ns - first.t_ns) / 1e9
        before = {use.name: use for use in first.interfaces}
        for use in last.interfaces:
            if use.name not in before or use.name == "lo":
                continue
            for number, way in enumerate(("received", "sent")):
                grown = _grown(before[use.name], use, number)
                yield 8.0 * wire_bytes(*grown, data.link_mtu_bytes) / seconds, f"{use.name} of {host} ({way})"


def _grown(first: InterfaceUse, last: InterfaceUse, way: int) -> tuple[int, int]:
    """Bytes and packets in one direction."""
    return last.counted[way][0] - first.counted[way][0], last.counted[way][1] - first.counted[way][1]


def _busy_gateway(data: TestData, gateway: str, window: Window) -> Iterator[Limit]:
    """A process of the system under test without CPU to spare, or a control group that held it back."""
    samples = [sample for sample in data.samples[gateway] if window.start_ns <= sample.t_ns <= window.end_ns]
    if len(samples) < 2:
        return
    seconds = (samples[-1].t_ns - samples[0].t_ns) / 1e9
    before = {process.pid: process for process in samples[0].processes}
    for process in samples[-1].processes:
        if process.name not in data.sut_processes or process.pid not in before:
            continue
        first = before[process.pid]
        busy = (process.user_s + process.system_s - first.user_s - first.system_s) / seconds
        usable = min(process.threads, _cpus(data, gateway) or process.threads)
        if usable and busy >= PROCESS_FULL * usable:
            what = "its single thread" if usable == 1 else f"its {usable} CPUs"
            text = f"{process.name} on {gateway} used {busy:.0%} of a CPU: {what} had no more"
            ends, cores = ("is", "a core") if usable == 1 else ("are", "one")
            clause = f"{what} {ends} the limit at {quantities.share(busy)} of {cores}"
            yield Limit(LimitedBy.GATEWAY, text, clause)
    yield from _throttled(samples, window, LimitedBy.GATEWAY, gateway)


def _throttled(samples: Sequence[HostSample], window: Window, by: LimitedBy, host: str) -> Iterator[Limit]:
    known = [(sample.t_ns, sample.throttled_s) for sample in samples if sample.throttled_s is not None]
    inside = [one for one in known if window.start_ns <= one[0] <= window.end_ns]
    if len(inside) < 2:
        return
    share = (inside[-1][1] - inside[0][1]) / ((inside[-1][0] - inside[0][0]) / 1e9)
    if share >= THROTTLED:
        yield Limit(by, f"the CPU limit of {host}'s control group held it back {share:.0%} of the time")


def _cpus(data: TestData, host: str) -> int | None:
    facts: Mapping[str, object] = data.facts.get(host, {})
    cpus = facts.get("cpus")
    return cpus if isinstance(cpus, int) else None
