"""What limited a test: one word and its evidence. That is no fault of the measurement, but what a reader asks next.

The parts are asked in the order in which a load meets them: what was offered, the generator, the answering side, the
gateway, and for TCP what the sender's kernel waited for. A full socket, link or queue comes first: more than it took
was sent. A part counts as the limit if it is known to have been at its end; where none is, the word is `not known`, and
the evidence says what was looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from leadline import quantities
from leadline.analysis import answering_time, full_cpus, full_parts, queues, tcp_limits, tiers, waiting_threads
from leadline.analysis.advice import ADVICE
from leadline.analysis.disturbance import QUOTA_SHARE, held_back_by
from leadline.analysis.gateways import attribution_of
from leadline.analysis.host_metrics import busiest_thread_share, cpu_percent, machine_samples, neighbours
from leadline.analysis.host_usage import AGENT
from leadline.analysis.metrics import delivered_share
from leadline.analysis.model import Limit, LimitedBy, Reason, Verdict, Window
from leadline.analysis.outages import outage_in
from leadline.analysis.scope import EXPLAINED, LACKS, NOT_OFFERED, WHOLE
from leadline.analysis.test_data import HostSample, ProcessUse, TestData
from leadline.analysis.validity import QUOTA_USED_UP, THREAD_WAITED, Evidence
from leadline.plan.gateway_metrics import GATEWAYS
from leadline.plan.sut import CpuAttribution

PROCESS_FULL = 0.95
"""Of the CPUs that a process can use."""
QUOTA_FULL = 0.9
"""Of a control group's CPU quota: a process's time is read in ticks, and the window cuts its periods."""
INTERRUPTS_FULL = 0.9
"""Of one CPU, from where on its soft interrupts leave no room: the timer tick that counts them misses some."""
THROTTLED = 0.05
"""Of the time, from where on a control group's CPU limit counts as what limited its host."""
_BUSIEST, _QUOTA = "its busiest thread", "its quota"
_MORE_QUOTA = "raise the CPU limit of {}: its control group, its container"
_MORE_CPUS = "spread the packets over more CPUs of the gateway (RSS, RPS), or use larger packets and offloads"

_HELD_BACK = {
    LimitedBy.GENERATOR: "the load generator",
    LimitedBy.ANSWERING_SIDE: "the answering side",
    LimitedBy.GATEWAY: "the gateway",
    LimitedBy.SERVER: "the server",
}
_SPEAKS_OF = {Verdict.GENERATOR_LIMITED: LimitedBy.GENERATOR, Verdict.RECEIVER_LIMITED: LimitedBy.ANSWERING_SIDE}
_VERDICT_OF = {by: verdict for verdict, by in _SPEAKS_OF.items()}


def limit_of(evidence: Evidence, reasons: Sequence[Reason], primary: str) -> Limit:
    """What limited the test's leading figure."""
    if (outage := outage_in(reasons)) is not None:
        return Limit(LimitedBy.LINK, outage.text, "a link that was out is the limit")
    found = next(_limits(evidence, reasons, primary), None)
    if found is not None:
        return found
    saturated = next((reason for reason in reasons if reason.code == "machine-saturated"), None)
    parts = "tier" if evidence.data.tiers else "gateway"
    looked_at = f"neither generator, answering side, link nor {parts} is known to have been at its end"
    if (waited := waiting_threads.noticed(evidence.data)) is not None:
        looked_at = f"{looked_at}; {waited}"
    return Limit(LimitedBy.UNKNOWN, saturated.text if saturated is not None else looked_at)


def _limits(evidence: Evidence, reasons: Sequence[Reason], primary: str) -> Iterator[Limit]:
    data, window = evidence.data, evidence.window
    against = [reason for reason in reasons if not reason.metrics or primary in reason.metrics]
    share = delivered_share(data, evidence.flows)
    if share is not None and share >= WHOLE and not any(reason.code in NOT_OFFERED for reason in against):
        text = f"{quantities.share(min(share, 1.0))} of what was due was delivered: more was not asked for"
        yield Limit(LimitedBy.OFFERED_RATE, text)
    yield from full_parts.of_sockets(evidence)
    # Of a part that took all it could, a generator that might have sent more is no limit.
    yield from full_path(evidence, is_least=any(reason.code in LACKS for reason in against))
    for reason in against:
        if reason.verdict in _SPEAKS_OF:
            yield Limit(_SPEAKS_OF[reason.verdict], reason.text, next_step=ADVICE.get(reason.code, ""))
    if window is None or window.end_ns <= window.start_ns:
        return
    for host in data.hosts:
        yield from _held_back_end(data, window, host)
    yield from _full_queues(data, window, queues.DROPPED)
    if data.tiers:
        yield from tiers.limits(data, window)
    else:
        for gateway in (host for host in GATEWAYS if host in data.samples):
            yield from _busy_gateway(data, gateway, window)
        yield from _busy_server(data, window)
    ends = sorted((host for host in data.samples if host != "server"), key=lambda one: one not in GATEWAYS)
    full = list(full_cpus.limits(data, window, next(_tunnel_sockets(data, window, ends, queues.NOTICED), None)))
    # Other work may have filled the CPUs, and so have kept the tunnel from reading its sockets.
    if not any(reason.verdict is Verdict.DISTURBED for reason in reasons):
        yield from full
    if not full and not any(reason.code == "machine-saturated" for reason in reasons):
        yield from _tunnel_sockets(data, window, ends)
    if data.tiers:
        # The time of an answer is that of all tiers, of which the rules below do not know.
        yield from waiting_threads.limits(data)
        return
    yield from answering_time.limits(evidence)
    yield from answering_time.limits_of_turns(evidence)
    yield from tcp_limits.limits(evidence)
    yield from waiting_threads.limits(data)
    yield from tcp_limits.limits_of_program(evidence)


def doubt_by(limit: Limit, evidence: Evidence) -> tuple[Verdict, Reason] | None:
    """What a limit says against the figures: an end of the load that had no CPU when it needed one has not shown what
    the system between them does. Other limits are part of what is measured, or have their reason already."""
    data, window = evidence.data, evidence.window
    if limit.by not in _VERDICT_OF or window is None or window.end_ns <= window.start_ns:
        return None
    held_back = [found for host in data.hosts for found in _held_back_end(data, window, host)]
    for code, limits in ((THREAD_WAITED, waiting_threads.limits(data)), (QUOTA_USED_UP, held_back)):
        if limit in limits:
            return _VERDICT_OF[limit.by], Reason(code, limit.evidence)
    return None


def full_path(evidence: Evidence, *, is_least: bool) -> Iterator[Limit]:
    """Links and queues of the path that took no more, whatever was sent. Of a rate that may be a lower bound
    (`is_least`), a link is the limit only if it explains the rate."""
    data, window = evidence.data, evidence.window
    if window is not None and window.end_ns > window.start_ns:
        yield from full_parts.of_links(data, window, 1 - EXPLAINED if is_least else full_parts.LINK_FULL)
        yield from queues.of_shapers(data, window)
        yield from _full_queues(data, window, queues.OVERFLOWING)


def _full_queues(data: TestData, window: Window, least: float) -> Iterator[Limit]:
    """Full queues. A gateway without CPU to spare, which fills the queue before it, comes before that queue."""
    yield from queues.of_links(data, window, least)
    for gateway in (host for host in GATEWAYS if host in data.samples):
        full = list(queues.of_gateway(data, gateway, window, least))
        # TCP finds its rate by such drops: that alone does not tell which part is slow.
        full += _tunnel_sockets(data, window, (gateway,), least) if data.spec.over_udp else ()
        if full:
            yield from _busy_gateway(data, gateway, window)
            yield from full


def _tunnel_sockets(
    data: TestData, window: Window, hosts: Iterable[str], least: float = queues.DROPPED
) -> Iterator[Limit]:
    if data.sut_processes:
        for host in hosts:
            yield from queues.of_tunnel_sockets(data, host, window, least)


def _busy_gateway(data: TestData, gateway: str, window: Window) -> Iterator[Limit]:
    """A process of the system under test without CPU to spare, or a control group that held it back."""
    samples = [sample for sample in data.samples[gateway] if window.start_ns <= sample.t_ns <= window.end_ns]
    if len(samples) < 2:
        return
    for process, busy, text, what in _full_processes(data, gateway, window):
        if process.name in data.sut_processes:
            step = _MORE_QUOTA.format("the gateway") if what == _QUOTA else ""
            yield Limit(LimitedBy.GATEWAY, text, _clause(what, busy), step)
    yield from _throttled(samples, window, LimitedBy.GATEWAY, gateway)
    yield from _held_from_above(data, gateway, window, LimitedBy.GATEWAY)
    if attribution_of(data) is CpuAttribution.KERNEL:
        yield from _busy_kernel(data, gateway, window)


def _busy_server(data: TestData, window: Window) -> Iterator[Limit]:
    """A process that is observed on the server's host without CPU to spare, or a control group that held it back."""
    if "server" not in data.samples:
        return
    for process, busy, text, what in _full_processes(data, "server", window):
        if process.name not in data.sut_processes:
            clause = f"the server is the limit: {process.name} uses {quantities.share(busy)} of a core" if what else ""
            yield Limit(LimitedBy.SERVER, text, clause)
    yield from _throttled(data.samples["server"], window, LimitedBy.SERVER, "server")
    yield from _held_from_above(data, "server", window, LimitedBy.SERVER)


def _full_processes(data: TestData, host: str, window: Window) -> Iterator[tuple[ProcessUse, float, str, str]]:
    """Processes that used all that their threads, or their CPUs, allow: with its CPUs, the evidence, and what was full;
    empty where a hypervisor took the rest."""
    samples = [sample for sample in data.samples[host] if window.start_ns <= sample.t_ns <= window.end_ns]
    if len(samples) < 2:
        return
    seconds = (samples[-1].t_ns - samples[0].t_ns) / 1e9
    stolen = _stolen_share(data, host, window)
    before = {process.pid: process for process in samples[0].processes}
    for process in samples[-1].processes:
        if process.pid not in before:
            continue
        first = before[process.pid]
        busy = (process.user_s + process.system_s - first.user_s - first.system_s) / seconds
        usable = min(process.threads, _cpus(data, host) or process.threads)
        quota = data.cpu_quotas.get(host, {}).get(process.name)
        used = f"{process.name} on {host} used {quantities.rounded_share(busy)} of a CPU"
        if quota is not None and quota < usable and busy >= QUOTA_FULL * quota:
            yield process, busy, f"{used}: the quota of its control group allows {quota:g} CPUs", _QUOTA
            continue
        if usable and busy >= PROCESS_FULL * usable:
            what = (
                "its single thread" if process.threads == 1 else "its only CPU" if usable == 1 else f"its {usable} CPUs"
            )
            yield process, busy, f"{used}: {what} had no time left", what
        elif usable and busy >= PROCESS_FULL * usable * (1 - stolen):
            taken = quantities.rounded_share(stolen)
            yield process, busy, f"{used}, and a hypervisor took {taken} of each: it had no time left", ""
        # An agent's threads are judged by what they report of their load.
        elif process.name != AGENT and (thread := busiest_thread_share(samples, process.pid)) >= PROCESS_FULL:
            text = f"the busiest of {process.threads} threads of {process.name} on {host} used "
            yield process, thread, f"{text}{quantities.rounded_share(thread)} of a CPU: it had no time left", _BUSIEST


def _clause(what: str, busy: float) -> str:
    """`its single thread is the limit at 100 % of a core`; empty where nothing was full."""
    if not what:
        return ""
    if what == _QUOTA:
        return f"the CPU quota of its control group is the limit at {quantities.share(busy)} of a core"
    ends, cores = ("is", "a core") if what in ("its single thread", "its only CPU", _BUSIEST) else ("are", "one")
    return f"{what} {ends} the limit at {quantities.share(busy)} of {cores}"


def _busy_kernel(data: TestData, gateway: str, window: Window) -> Iterator[Limit]:
    """A CPU whose interrupts leave no room, on a machine of the gateway's own."""
    if len(neighbours(data, gateway)) > 1:
        return  # They are those of all hosts, of which each may be the one at its end.
    samples = [sample for sample in machine_samples(data, gateway) if window.start_ns <= sample.t_ns <= window.end_ns]
    if len(samples) < 2 or len(samples[0].interrupted_s) != len(samples[-1].interrupted_s):
        return
    seconds = (samples[-1].t_ns - samples[0].t_ns) / 1e9
    ends = zip(samples[0].interrupted_s, samples[-1].interrupted_s, strict=True)
    busiest = max(((last - first) / seconds for first, last in ends), default=0.0)
    if busiest >= INTERRUPTS_FULL:
        held = quantities.rounded_share(busiest)
        text = f"one CPU of {gateway} was {held} of the time in soft interrupts, where the kernel forwards"
        clause = f"the kernel is the limit at {quantities.share(busiest)} of a core"
        yield Limit(LimitedBy.GATEWAY, text, clause, _MORE_CPUS)


def _stolen_share(data: TestData, host: str, window: Window) -> float:
    """The share of each CPU that a hypervisor gave to others."""
    machine = machine_samples(data, host)
    stolen = cpu_percent(machine, window).get("steal", 0.0)
    return min(0.9, stolen / 100 / machine[-1].cpus) if machine and machine[-1].cpus else 0.0


def _throttled(samples: Sequence[HostSample], window: Window, by: LimitedBy, host: str) -> Iterator[Limit]:
    known = [(sample.t_ns, sample.throttled_s) for sample in samples if sample.throttled_s is not None]
    inside = [one for one in known if window.start_ns <= one[0] <= window.end_ns]
    if len(inside) < 2:
        return
    share = (inside[-1][1] - inside[0][1]) / ((inside[-1][0] - inside[0][0]) / 1e9)
    if share >= THROTTLED:
        held = quantities.rounded_share(share)
        text = f"the CPU limit of {host}'s control group held it back {held} of the time"
        clause = f"the CPU limit of {host}'s control group is the limit"
        yield Limit(by, text, clause, _MORE_QUOTA.format(host))


def _held_back_end(data: TestData, window: Window, host: str) -> Iterator[Limit]:
    """A limit of CPU time that held back a host of the load: of its own control group, or from above."""
    by = LimitedBy.ANSWERING_SIDE if data.spec.server_generates else LimitedBy.GENERATOR
    yield from _throttled(data.samples.get(host, ()), window, by, host)
    yield from _held_from_above(data, host, window, by)


def _held_from_above(data: TestData, host: str, window: Window, by: LimitedBy) -> Iterator[Limit]:
    """A CPU quota from above that held back this part alone, as a container's does: one that parts share does not show
    which of them waited for the others."""
    found = held_back_by(data.samples.get(host, ()), window)
    if found is None or found[1] <= QUOTA_SHARE:
        return
    quota, share = found
    same_part = data.hosts if host in data.hosts else (host,)
    for other in neighbours(data, host) & data.samples.keys() - set(same_part):
        if any(sample.quota is not None and sample.quota.group == quota.group for sample in data.samples[other]):
            return
    held = quantities.rounded_share(share)
    text = f"the quota of {quota.cpus:g} CPUs of {quota.group} held threads of {host} back {held} of the time"
    clause = f"{_HELD_BACK[by]} is the limit: a quota allows it {quota.cpus:g} CPUs"
    yield Limit(by, text, clause, _MORE_QUOTA.format(host))


def _cpus(data: TestData, host: str) -> int | None:
    """The number of a host's CPUs: those of its own where a lab gave it some, or else its machine's."""
    facts: Mapping[str, Any] = data.facts.get(host, {})
    own, cpus = facts.get("own_cpus"), facts.get("cpus")
    if own:
        return len(own)
    return cpus if isinstance(cpus, int) else None
