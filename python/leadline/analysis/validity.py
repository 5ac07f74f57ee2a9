"""Whether a test's figures can be believed: evidence gathered from generators, receivers, clients and time.

Each finding is a verdict with a reason; the worst verdict wins and every reason is kept. What is only worth knowing
(hosts that share CPUs, counters that are missing) is a note, which changes no verdict. The thresholds are below.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from leadline.analysis import crossing, fleet_validity, host_metrics, stability
from leadline.analysis.flows import Flow
from leadline.analysis.metrics import PRIMARY, Histograms, busy_s, counter, error_counts, generators_late_p99_us
from leadline.analysis.model import Ceiling, Reason, Validity, Verdict, Window
from leadline.analysis.test_data import TestData
from leadline.analysis.test_spec import TestSpec
from leadline.analysis.window import rate_columns, rate_per_s

Finding = tuple[Verdict, Reason]
Load = Mapping[str, Any]
"""A `LoadReport` of the contract."""

# A thread that ran 95 % of the time has no more than 5 % left: a twentieth more load is the most that it could have
# given, and scheduling granularity hides the rest.
SATURATED_BUSY = 0.95

# A thread that was running or waiting for a CPU all but 2 % of the time wanted more CPU than it got. Waits are counted
# by the kernel to the nanosecond, so this can be tighter than the former.
STARVED_BUSY_AND_WAITING = 0.98

# Sends count as late from 1 ms on: wake-ups on an idle host are late by some tens of µs, timer ticks by up to 1 ms ...
LATE_FLOOR_US = 1000.0
# ... and from a tenth of the time between two sends on, where that is longer: less does not change the pace.
LATE_SHARE_OF_GAP = 0.1

# Sends refused by the own host's socket: below one in a hundred it is the queue's ordinary breathing.
PUSHBACK_SHARE = 0.01

# From here on a rate is near the generator's ceiling, which was measured in one second and varies by some percent.
NEAR_CEILING = 0.9
# A thread at its ceiling is busy. One that had a fifth of its time to spare was not, whatever a null responder let it
# do: over another path, or with larger batches, a request may cost less than it did there.
CEILING_BUSY = 0.8

# Requests that waited for a connection or for an answer are told of from one in a hundred on, and beyond these few,
# which the end of any test may leave.
WAITING_SHARE = 0.01
WAITING_FEW = 3

# A window shorter than half of what was planned says more about head and tail than about the path.
SHORTEST_WINDOW_SHARE = 0.5

# Below two intervals no rate was read twice, and the gap between the last operation and the end weighs as much as any.
SHORTEST_WINDOW_INTERVALS = 2

# Clocks of two machines that are known to 1 ms: a hundredth of the default interval.
CLOCK_BOUND_NS = 1_000_000

# The reasons for which a generator is held to be the limit.
GENERATOR_REASONS = frozenset(
    {"thread-saturated", "thread-starved", "pushback", "sends-late", "unsent", "near-ceiling"}
)

# The steady window is shorter than it should be, or too short for any; what was counted is whole.
SHORT_WINDOW, NO_WINDOW = "window-too-short", "no-steady-window"
SHORT_WINDOWS = frozenset({SHORT_WINDOW, NO_WINDOW})
# Flows that never moved a byte.
NOT_STARTED = "flows-not-started"
# Parts of a test that differ.
UNEVEN = frozenset({stability.INTERVALS_DISAGREE, stability.CHANGE_POINT})
# Lines of the journal could not be read.
JOURNAL_DAMAGED = "journal-damaged"
# Enough requests were outstanding that high percentiles of the latency are lower bounds.
LATENCY_BOUND = "latency-lower-bound"
# Many requests waited until a connection was free.
CONNECTIONS_BUSY = "connections-busy"

_ORDER = list(Verdict)


def assess(
    data: TestData,
    flows: Sequence[Flow],
    window: Window | None,
    histograms: Histograms,
) -> Validity:
    """The verdict on one test, with every reason for it and every note."""
    findings = [
        *_completeness(data, flows, window),
        *_broken_off(data, flows),
        *crossing.findings(data, flows),
        *fleet_validity.gaps(data),
        *_loads(data, flows, histograms),
        *_near_ceiling(data, flows, window),
        *stability.within_test(data, flows, window),
        *_evidence(data, flows),
        *_saturated_machine(data, window),
    ]
    return combine(findings, _notes(data, flows, window, histograms))


def combine(findings: Iterable[Finding], notes: Iterable[Reason] = ()) -> Validity:
    """The worst verdict, the reasons worst first, and the notes."""
    ranked = sorted(findings, key=lambda finding: _ORDER.index(finding[0]))
    verdict = ranked[0][0] if ranked else Verdict.VALID
    return Validity(verdict, tuple(reason for _, reason in ranked), tuple(notes))


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The first in the order of `Verdict`; valid where there is none."""
    return min(verdicts, key=_ORDER.index, default=Verdict.VALID)


def _completeness(data: TestData, flows: Sequence[Flow], window: Window | None) -> Iterator[Finding]:
    """Clients that are missing, flows that never began, windows that are too short."""

    def incomplete(code: str, text: str) -> Finding:
        return Verdict.INCOMPLETE, Reason(code, text)

    bring_up = data.bring_up
    if bring_up is not None and (bring_up.partial or bring_up.failed):
        whole = bring_up.connected + bring_up.partial + bring_up.failed
        missing = f"{bring_up.partial} only partly configured, {bring_up.failed} failed"
        yield incomplete("clients-missing", f"{bring_up.connected} of {whole} clients connected; {missing}")
    if data.status != "done":
        how = "was interrupted" if data.status == "interrupted" else data.status
        yield incomplete("ended-early", f"the test {how}{f': {data.error}' if data.error else ''}")
    silent = sorted(set(data.hosts) - {found.host for found in data.outcomes})
    if silent and data.status == "done":
        yield incomplete("hosts-without-figures", f"no figures from {_some(silent)}")
    never = [flow for flow in flows if flow.start_ns is None]
    idle = data.spec.kind == "tunnel" and not data.spec.carries
    if (never or not flows) and not idle:
        named = _some(sorted({flow.key.host for flow in never})) if never else "any host"
        yield incomplete(NOT_STARTED, f"{len(never)} of {len(flows)} flows never moved a byte, on {named}")
    if window is None or idle:
        return
    length_ns = window.end_ns - window.start_ns
    if length_ns <= 0:
        yield incomplete(NO_WINDOW, "the flows never ran all at once after the warm-up")
    elif length_ns < SHORTEST_WINDOW_INTERVALS * data.spec.interval_ns:
        text = (
            f"the steady window is {length_ns / 1e9:.3g} s, under two intervals of {data.spec.interval_ns / 1e9:.3g} s"
        )
        yield incomplete(SHORT_WINDOW, text)
    elif data.spec.number is None and data.spec.duration_ns is not None:
        planned_ns = data.spec.duration_ns - data.spec.warmup_ns
        if length_ns < SHORTEST_WINDOW_SHARE * planned_ns:
            text = f"the steady window is {length_ns / 1e9:.3g} s of {planned_ns / 1e9:.3g} s that were planned"
            yield incomplete(SHORT_WINDOW, text)


def _broken_off(data: TestData, flows: Sequence[Flow]) -> Iterator[Finding]:
    """Flows that an error ended for good before their time, and connections that could not be had again."""
    lost = counter(data, "connections_down")
    if lost:
        text = f"{lost} connections were down at the end and could not be opened again ({_errors(data)})"
        yield Verdict.INCOMPLETE, Reason("connections-lost", text)
    if data.status != "done" or data.spec.kind in ("http", "tunnel"):
        return  # what was stopped ends early by right, HTTP connections are opened again, and tunnels have their states
    erring = {(found.host, found.task) for found in data.load_outcomes() if found.outcome["errors"]}
    early = [flow for flow in flows if (flow.key.host, flow.key.task) in erring and _ended_early(data, flow)]
    if data.spec.kind == "rr" and data.spec.number is not None:
        # The number is shared by a host's flows: what one leaves undone, no other takes up.
        early = [flow for flow in early if _operations_ended(data, flow) < data.spec.number]
    if early:
        named = _some(sorted({flow.key.host for flow in early}))
        text = f"{len(early)} of {len(flows)} flows broke off before their end, on {named} ({_errors(data)})"
        yield Verdict.INCOMPLETE, Reason("flows-broken-off", text)


def _ended_early(data: TestData, flow: Flow) -> bool:
    """Whether a flow stopped trying before its time was over and, where it has a number to itself, before that."""
    if flow.start_ns is None or flow.end_ns is None or flow.due_ns is None or data.spec.duration_ns is None:
        return False
    slack_ns = SHORTEST_WINDOW_INTERVALS * data.spec.interval_ns
    own_number = data.spec.number if data.spec.kind == "udp" else None
    if own_number is not None and (flow.sent_units or 0) >= own_number:
        return False
    return flow.end_ns < flow.due_ns + data.spec.duration_ns - slack_ns


def _operations_ended(data: TestData, flow: Flow) -> int:
    """How many operations of the flow's task were answered or failed."""
    found = next(found for found in data.load_outcomes() if (found.host, found.task) == (flow.key.host, flow.key.task))
    answered = sum(row.get("received_units") or 0 for row in found.outcome["flows"])
    return int(answered + sum(found.outcome["errors"].values()))


def _errors(data: TestData) -> str:
    """Errors by name, the most frequent first."""
    counts = sorted(error_counts(data).items(), key=lambda item: -item[1])
    return ", ".join(f"{count} x {name}" for name, count in counts) or "no error was counted"


def _loads(data: TestData, flows: Sequence[Flow], histograms: Histograms) -> Iterator[Finding]:
    """Limits of the hosts that generate and of those that answer."""
    if data.spec.kind == "tunnel":
        yield from fleet_validity.limits(data, histograms, SATURATED_BUSY, STARVED_BUSY_AND_WAITING)
        yield from _late_sends(data, histograms)
        yield from _behind_the_gateway(data)
        return
    for found in data.load_outcomes():
        own, far = found.outcome["generator"], found.outcome.get("receiver")
        for verdict, load, where in _roles(data, found.host, own, far):
            yield from ((verdict, reason) for reason in _thread_limits(load, where))
            if verdict is Verdict.RECEIVER_LIMITED and load.get("socket_drops"):
                text = f"{load['socket_drops']} datagrams arrived and were dropped by the socket on {where}"
                yield verdict, Reason("receiver-socket-drops", text)
    yield from _pace_limits(data, flows, histograms)


def _behind_the_gateway(data: TestData) -> Iterator[Finding]:
    """Limits of the server that a fleet's load goes to or comes from, and of the fleet's own sockets."""
    for found in data.load_outcomes():
        far, where = found.outcome.get("receiver"), f"the server that {found.host} used"
        if far is not None and data.spec.direction != "up":
            yield from ((Verdict.GENERATOR_LIMITED, reason) for reason in _thread_limits(far, where))
            late_us = far.get("late_p99_us")
            if late_us is not None and late_us > fleet_validity.late_allowed_inside_us(data):
                text = f"sends of {where} were late by {late_us / 1e3:.3g} ms at p99"
                yield Verdict.GENERATOR_LIMITED, Reason("sends-late", text)
        elif far is not None:
            yield from ((Verdict.RECEIVER_LIMITED, reason) for reason in _thread_limits(far, where))
        for load, host in ((found.outcome["generator"], found.host), (far, where)):
            drops = (load or {}).get("socket_drops")
            if drops and data.spec.carries:
                text = f"{drops} datagrams arrived and were dropped by the sockets on {host}"
                yield Verdict.RECEIVER_LIMITED, Reason("receiver-socket-drops", text)


def _roles(data: TestData, host: str, own: Load, far: Load | None) -> Iterator[tuple[Verdict, Load, str]]:
    """Who sent and who answered. Where the payload comes down, it is the far side that generates."""
    server = f"the server that {host} used"
    if data.spec.kind in ("tcp", "udp") and data.spec.direction == "down":
        if far is not None:
            yield Verdict.GENERATOR_LIMITED, far, server
        yield Verdict.RECEIVER_LIMITED, own, host
        return
    yield Verdict.GENERATOR_LIMITED, own, host
    if far is not None:
        yield Verdict.RECEIVER_LIMITED, far, server


def _thread_limits(load: Load, where: str) -> Iterator[Reason]:
    """The one thread that had least to spare, if it had next to nothing."""
    busiest, starved = 0.0, (0.0, 0.0)
    for thread in load["threads"]:
        if thread["wall_s"] <= 0:
            continue
        busy = busy_s(thread) / thread["wall_s"]
        waiting = (thread.get("runnable_wait_s") or 0.0) / thread["wall_s"]
        busiest = max(busiest, busy)
        starved = max(starved, (busy + waiting, waiting))
    if busiest >= SATURATED_BUSY:
        yield Reason("thread-saturated", f"the busiest thread on {where} was on a CPU {busiest:.0%} of the time")
    elif starved[0] >= STARVED_BUSY_AND_WAITING:
        text = f"a thread on {where} wanted a CPU {starved[0]:.0%} of the time and waited for one {starved[1]:.0%}"
        yield Reason("thread-starved", text)


def late_allowed_us(spec: TestSpec) -> float:
    """How late paced sends may be at p99, µs, before the generator counts as the limit."""
    return max(LATE_FLOOR_US, LATE_SHARE_OF_GAP * (spec.send_gap_s or 0.0) * 1e6)


def _pace_limits(data: TestData, flows: Sequence[Flow], histograms: Histograms) -> Iterator[Finding]:
    """Sends that were late, left undone, or refused by the own host."""
    limited = Verdict.GENERATOR_LIMITED
    if data.spec.kind == "udp" and data.spec.direction != "down":
        for found in data.load_outcomes():
            sends = sum(flow.get("sent_units") or 0 for flow in found.outcome["flows"])
            refused = found.outcome["generator"]["pushback"]
            if refused and refused >= PUSHBACK_SHARE * (sends + refused):
                share = refused / (sends + refused)
                text = f"the socket on {found.host} refused {share:.1%} of the sends: its own host could take no more"
                yield limited, Reason("pushback", text)
    yield from _late_sends(data, histograms)
    gap_us = (data.spec.send_gap_s or 0.0) * 1e6
    allowed_us = late_allowed_us(data.spec)
    # What no connection was free for waited for the peer.
    unsent = (counter(data, "unsent") or 0) - (counter(data, "unsent_while_busy") or 0)
    # What fell due in the last moment may still have been on its way out, once per pacer, without any being late.
    pacers = len(data.load_outcomes()) if data.spec.kind == "http" else len(flows)
    if data.spec.paced and unsent > pacers * (1 + allowed_us / gap_us):
        yield limited, Reason("unsent", f"{unsent} operations that were due were never sent")


def _late_sends(data: TestData, histograms: Histograms) -> Iterator[Finding]:
    allowed_us, late_us = late_allowed_us(data.spec), _late_p99_us(data, histograms)
    if data.spec.paced and late_us is not None and late_us > allowed_us:
        text = f"sends were late by {late_us / 1e3:.3g} ms at p99; {allowed_us / 1e3:.3g} ms are allowed"
        yield Verdict.GENERATOR_LIMITED, Reason("sends-late", text)


def _near_ceiling(data: TestData, flows: Sequence[Flow], window: Window | None) -> Iterator[Finding]:
    """A rate that this generator could hardly have exceeded, by the ceiling that was measured before."""
    rate, ceiling = _rate_per_s(data, flows, window), data.ceiling
    if rate is None or ceiling is None or rate < NEAR_CEILING * ceiling.per_s or _spare_time(data):
        return
    text = f"{rate:.4g} requests/s are {rate / ceiling.per_s:.0%} of what this generator can do ({_written(ceiling)})"
    yield Verdict.GENERATOR_LIMITED, Reason("near-ceiling", text)


def _ceiling_notes(data: TestData, flows: Sequence[Flow], window: Window | None) -> Iterator[Reason]:
    if data.spec.kind != "http":
        return
    rate, ceiling = _rate_per_s(data, flows, window), data.ceiling
    if ceiling is None:
        if not _spare_time(data):
            yield Reason("ceiling-unknown", "what the generator could do at most with such requests was not measured")
    elif rate is not None and rate >= NEAR_CEILING * ceiling.per_s and _spare_time(data):
        text = f"the generator's ceiling ({_written(ceiling)}) was measured too low: its threads had time to spare"
        yield Reason("ceiling-doubtful", text)


def _rate_per_s(data: TestData, flows: Sequence[Flow], window: Window | None) -> float | None:
    """Operations per second."""
    wanted = PRIMARY[data.spec.kind]
    return next(
        (rate_per_s(curves, window) for name, _, curves in rate_columns(data.spec, flows) if name == wanted), None
    )


def _spare_time(data: TestData) -> bool:
    """Whether even the busiest generating thread is known to have had time to spare, waiting for a CPU counted in."""
    threads = [thread for found in data.load_outcomes() for thread in found.outcome["generator"]["threads"]]
    wanted = [
        (busy_s(thread) + (thread.get("runnable_wait_s") or 0.0)) / thread["wall_s"]
        for thread in threads
        if thread["wall_s"] > 0
    ]
    return bool(wanted) and max(wanted) < CEILING_BUSY


def _written(ceiling: Ceiling) -> str:
    return f"{'about ' if ceiling.extrapolated else ''}{ceiling.per_s:.4g}/s against a null responder"


def _late_p99_us(data: TestData, histograms: Histograms) -> float | None:
    """The worst lateness of those that sent: the near side, the far side, or both, by the direction. A fleet's arrivals
    are always its own."""
    if data.spec.kind == "tunnel":
        return generators_late_p99_us(data, histograms)
    near = generators_late_p99_us(data, histograms) if data.spec.direction != "down" else None
    loads = (
        [found.outcome.get("receiver") or {} for found in data.load_outcomes()] if data.spec.direction != "up" else []
    )
    far = [load.get("late_p99_us") for load in loads]
    return max((late for late in (near, *far) if late is not None), default=None)


def _evidence(data: TestData, flows: Sequence[Flow]) -> Iterator[Finding]:
    """What would have to be known, and is not."""
    if data.unreadable_lines:
        text = f"{data.unreadable_lines:,} lines of the journal could not be read in this trial"
        yield Verdict.UNDETERMINED, Reason(JOURNAL_DAMAGED, f"{text}: its figures may be too low")
    if data.status != "done":
        return
    outcomes = data.load_outcomes()
    without_threads = sorted({found.host for found in outcomes if not found.outcome["generator"]["threads"]})
    if without_threads:
        text = f"no thread figures from {_some(without_threads)}: whether the generator was the limit is not known"
        yield Verdict.UNDETERMINED, Reason("no-generator-figures", text)
    if data.spec.kind == "http" or (data.spec.kind == "tunnel" and data.spec.inside not in ("tcp", "udp")):
        # An HTTP or VPN server is what is measured; it keeps no account for its clients.
        return
    silent = sorted({found.host for found in outcomes if not _answering_figures(found.outcome)})
    if silent:
        text = f"no figures of the answering side for {_some(silent)}: whether it was the limit is not known"
        yield Verdict.UNDETERMINED, Reason("no-receiver-figures", text)
    unheard = sum(1 for flow in flows if flow.evidence == "sender" and flow.start_ns is not None)
    if unheard:
        text = f"the receiver did not tell what arrived for {unheard} of {len(flows)} flows: what was sent is shown"
        yield Verdict.UNDETERMINED, Reason("sender-side-figure", text)


def _answering_figures(outcome: Mapping[str, Any]) -> bool:
    far = outcome.get("receiver")
    return far is not None and bool(far["threads"])


def _notes(data: TestData, flows: Sequence[Flow], window: Window | None, histograms: Histograms) -> Iterator[Reason]:
    """What a reader should know and what changes no verdict."""
    host = host_metrics.gateway_of(data) or next(iter(data.hosts), None)
    together = host_metrics.neighbours(data, host)
    if len(together) > 1:
        yield _shared_cpus(data, host, together, window)
    yield from _undone(data)
    yield from _ceiling_notes(data, flows, window)
    if data.spec.kind == "tunnel":
        yield from fleet_validity.notes(data)
    if data.spec.kind == "http" and any(found.outcome.get("receiver") is None for found in data.load_outcomes()):
        text = "an HTTP server keeps no account of its threads for its clients: whether it was the limit is not known"
        yield Reason("answering-side-unknown", text)
    loose = {name: bound for name, bound in data.clock_bounds_ns.items() if bound > CLOCK_BOUND_NS}
    if loose and len({facts.get("boot_id") for facts in data.facts.values()}) > 1:
        text = f"clocks are compared to within {max(loose.values()) / 1e6:.3g} ms only ({_some(sorted(loose))})"
        yield Reason("unsynchronised-clock", text)
    whole_only = sum(1 for flow in flows if flow.evidence == "receiver-total" and data.spec.kind in ("tcp", "udp"))
    if whole_only:
        text = f"{whole_only} flows have the receiver's count at their end only: an even rate is taken for the window"
        yield Reason("counters-missing", text)
    if histograms.damaged:
        yield Reason("counters-missing", f"{histograms.damaged} histograms could not be read and are left out")
    yield from _open_latencies(histograms)


def _open_latencies(histograms: Histograms) -> Iterator[Reason]:
    """That not even a p99 is known: what the lower bounds come from. A single slow request opens a maximum only."""
    latency = histograms.sample("latency")
    if latency.percentile(99.0).is_bound:
        text = f"{latency.censored:,} of {latency.censored + latency.count:,} requests or transactions had no answer"
        yield Reason(LATENCY_BOUND, f"{text}: latencies with ≥ are at least that")


def _undone(data: TestData) -> Iterator[Reason]:
    """Operations that failed, had no answer, or waited for a connection."""
    if error_counts(data):
        yield Reason("errors", f"{sum(error_counts(data).values())} operations failed: {_errors(data)}")
    unanswered, long = counter(data, "unanswered") or 0, counter(data, "unanswered_over_1s") or 0
    if data.spec.inside == "echo":
        # They are the lost ones, each of which the figures have.
        unanswered = 0
    if long or _is_many(unanswered, counter(data, "requests_sent")):
        text = f"{unanswered} requests had no answer when the time was over, {long} of them for more than a second"
        yield Reason("unanswered", f"{text}; their latency is at least their age then")
    late, unsent = counter(data, "due_while_busy") or 0, counter(data, "unsent_while_busy") or 0
    due = counter(data, "requests_due")
    if _is_many(late + unsent, due) or unsent > WAITING_FEW:
        text = f"no connection was free when {late + unsent} of {due} requests fell due, and {unsent} were never sent"
        yield Reason(CONNECTIONS_BUSY, f"{text}: they waited for the server, which their latency shows")


def leftover(connections: int) -> int:
    """How many requests any end may leave that were due and not sent: one for each connection, or a few."""
    return max(WAITING_FEW, connections)


def _is_many(count: int, whole: int | None) -> bool:
    return count > max(WAITING_FEW, WAITING_SHARE * (whole or 0))


def _saturated_machine(data: TestData, window: Window | None) -> Iterator[Finding]:
    """Hosts of one machine that have used it up: whichever of them was the limit, none had its CPUs to itself."""
    host = host_metrics.gateway_of(data) or next(iter(data.hosts), None)
    if data.spec.paced or window is None or len(host_metrics.neighbours(data, host)) < 2:
        return
    samples = host_metrics.machine_samples(data, host)
    busy = host_metrics.busy_percent(host_metrics.cpu_percent(samples, window), samples)
    cpus = samples[-1].cpus if samples else None
    if busy is not None and cpus and busy >= 100 * cpus * SATURATED_BUSY:
        text = (
            f"the machine that the hosts share was {busy / cpus:.0f} % busy: what its gateway can do alone is not known"
        )
        yield Verdict.UNDETERMINED, Reason("machine-saturated", text)


def _shared_cpus(data: TestData, host: str | None, together: set[str], window: Window | None) -> Reason:
    samples = host_metrics.machine_samples(data, host)
    used = host_metrics.cpu_percent(samples, window) if window is not None else {}
    cpus = samples[-1].cpus if samples else data.facts.get(host or "", {}).get("cpus")
    text = f"{len(together)} hosts are on one machine and share its {cpus or 'unknown number of'} CPUs"
    busy = host_metrics.busy_percent(used, samples)
    if busy is not None and cpus:
        text += f", which were {busy / cpus:.0f} % busy"
    return Reason("shared-cpus", text)


def _some(names: Sequence[str]) -> str:
    """At most three names in full."""
    shown = ", ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"
