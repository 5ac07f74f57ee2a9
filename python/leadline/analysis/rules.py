"""The rules by which kinds of test are judged. Each yields findings or notes from a test's evidence.

`rules_of` combines the rules that all kinds share with a kind's own, in the order in which a reader sees them.
`validity` has the thresholds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Protocol

from leadline.analysis import (
    crossing,
    dealt_loads,
    disturbance,
    fleet_validity,
    host_metrics,
    rate_causes,
    stability,
    validity,
    wake_ups,
)
from leadline.analysis.datagram_figures import MAX_IN_BUNDLE, coalesced
from leadline.analysis.flows import Flow
from leadline.analysis.host_clocks import start_skew, stepped_clocks
from leadline.analysis.metrics import (
    busy_s,
    counter,
    delivered_share,
    error_counts,
    generators_late_p99_us,
    operations_due,
    received_units,
    reported,
    sum_of_flows,
)
from leadline.analysis.model import Ceiling, CeilingBasis, Reason, Verdict, Window
from leadline.analysis.scope import WHOLE
from leadline.analysis.test_data import LostHost, TestData
from leadline.analysis.validity import Evidence, Finding, Rules, late_allowed_us
from leadline.analysis.window import rate_columns, rate_per_s
from leadline.contract import records
from leadline.quantities import counted, rounded_share
from leadline.registry import KINDS

Rule = Callable[[Evidence], Iterable[Finding]]
Note = Callable[[Evidence], Iterable[Reason]]


def idle_wake_ups(*woken: str, percentile: float = 50.0) -> Note:
    """A note if waking idle CPUs up is a notable share of the latency. `woken` are the sides that wake up once per
    operation."""

    def note(evidence: Evidence) -> Iterator[Reason]:
        latency_us = evidence.histograms.sample("latency").percentile(percentile).value_us
        yield from wake_ups.notes(evidence.data, woken, f"p{percentile:g}", latency_us)

    return note


def rules_of(
    *, limits: Sequence[Rule], breaks: Sequence[Rule] = (), required: Sequence[Rule] = (), notes: Sequence[Note] = ()
) -> Rules:
    """The rules of a kind. Its own are `breaks` (flows that ended too early), `limits` (of the hosts that send and
    answer), `required` (facts that must be known) and `notes`; all kinds share the others.
    """
    return Rules(
        findings=(
            *(whole, something_answered, connections_lost, *breaks, gateway_crossed, fleet_whole),
            *(*limits, near_ceiling, even_rate, journal_readable, generator_known),
            *(*required, machine_not_saturated, undisturbed),
        ),
        notes=(
            shared_cpus,
            undone,
            refused,
            *(dealt_loads.load_in_all, dealt_loads.clients_left_out),
            *notes,
            even_clock,
            clocks_compared,
            start_skew,
            stepped_clocks,
            receiver_totals,
            open_latencies,
        ),
    )


def whole(evidence: Evidence) -> Iterator[Finding]:
    """Clients that are missing, flows that never began, windows that are too short."""
    data, flows, window = evidence.data, evidence.flows, evidence.window

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
    lost = {host: one for host, one in data.lost_hosts.items() if _was_lost_by_the_end(data, host, one)}
    if lost:
        _, first = min(lost.items(), key=lambda item: item[1].at_ns)
        others = f", and {len(lost) - 1} more" if len(lost) > 1 else ""
        present = len(set(data.hosts) - set(lost))
        text = f"{counted(present, 'client host')}, {len(lost)} fewer than planned: {first.reason}{others}"
        yield incomplete("hosts-lost", text)
    silent = sorted(set(data.hosts) - {found.host for found in data.outcomes} - set(lost))
    if silent and data.status == "done":
        yield incomplete("hosts-without-figures", f"no figures from {_some(silent)}")
    never = [flow for flow in flows if flow.start_ns is None]
    if (never or not flows) and not data.spec.idle:
        named = _some(sorted({flow.key.host for flow in never})) if never else "any host"
        yield incomplete(validity.NOT_STARTED, f"{len(never)} of {len(flows)} flows transferred no byte, on {named}")
    if window is None or data.spec.idle:
        return
    length_ns = window.end_ns - window.start_ns
    if length_ns <= 0:
        yield incomplete(validity.NO_WINDOW, "the flows never ran at the same time after the warm-up")
    elif length_ns < validity.SHORTEST_WINDOW_INTERVALS * data.spec.interval_ns:
        text = (
            f"the steady window is {length_ns / 1e9:.3g} s, under two intervals of {data.spec.interval_ns / 1e9:.3g} s"
        )
        yield incomplete(validity.SHORT_WINDOW, text)
    elif data.spec.number is None and data.spec.duration_ns is not None:
        planned_ns = data.spec.duration_ns - data.spec.warmup_ns - data.spec.start_spread_ns
        length_ns += window.warm_up_ns
        if length_ns < validity.SHORTEST_WINDOW_SHARE * planned_ns:
            text = f"the steady window is {length_ns / 1e9:.3g} s of {planned_ns / 1e9:.3g} s planned"
            yield incomplete(validity.SHORT_WINDOW, text)


def _was_lost_by_the_end(data: TestData, host: str, lost: LostHost) -> bool:
    """Whether a test is without a host that it should have: it was lost before the test, or gave no figures."""
    has_all = data.left_out or (data.clients_wanted is not None and len(data.hosts) >= data.clients_wanted)
    if host not in data.hosts and has_all:
        return False
    return host not in {found.host for found in data.outcomes} and (
        host in data.hosts or data.start_at_ns is None or lost.at_ns <= data.start_at_ns
    )


def something_answered(evidence: Evidence) -> Iterator[Finding]:
    """Requests or transactions of which none was answered: there is no rate and no latency to tell."""
    data = evidence.data
    if data.status != "done" or not data.spec.counts_units or data.spec.connects_clients:
        return
    sent = counter(data, "requests_sent") or sum_of_flows(evidence.flows, lambda flow: flow.sent_units)
    answered = sum_of_flows(evidence.flows, received_units)
    if not sent and error_counts(data):
        # No connection came up, so no flow began.
        sent, answered = counter(data, "requests_due"), counter(data, "responses")
    if sent and answered == 0:
        text = f"none of {sent:,.0f} requests or transactions was answered ({errors_by_name(data)})"
        yield Verdict.INCOMPLETE, Reason(validity.NOTHING_ANSWERED, text)


def undisturbed(evidence: Evidence) -> Iterator[Finding]:
    """Other work on a machine of the test."""
    yield from disturbance.findings(evidence.data, evidence.window)


def even_clock(evidence: Evidence) -> Iterator[Reason]:
    """A machine of the test whose CPUs changed their speed."""
    yield from disturbance.notes(evidence.data, evidence.window)


def connections_lost(evidence: Evidence) -> Iterator[Finding]:
    """Connections that could not be opened again."""
    lost = counter(evidence.data, "connections_down")
    if lost:
        errors = errors_by_name(evidence.data)
        text = f"{counted(lost, 'connection')} could not be opened again before the end ({errors})"
        yield Verdict.INCOMPLETE, Reason("connections-lost", text)


def broken_off(is_done: Callable[[TestData, Flow], bool] = lambda data, flow: False) -> Rule:
    """Flows that an error ended early for good. `is_done` says whether a flow had completed its work."""

    def find(evidence: Evidence) -> Iterator[Finding]:
        data, flows = evidence.data, evidence.flows
        if data.status != "done":
            return  # a stopped test ends early by design
        failed = {(found.host, found.task) for found in data.load_outcomes() if found.outcome["errors"]}
        early = [
            flow
            for flow in flows
            if (flow.key.host, flow.key.task) in failed and _ended_early(data, flow) and not is_done(data, flow)
        ]
        if early:
            named = _some(sorted({flow.key.host for flow in early}))
            text = f"{len(early)} of {len(flows)} flows failed before their end, on {named}"
            yield Verdict.INCOMPLETE, Reason("flows-broken-off", f"{text} ({errors_by_name(data)})")

    return find


def _ended_early(data: TestData, flow: Flow) -> bool:
    """Whether a flow stopped before the end of the test."""
    if flow.start_ns is None or flow.end_ns is None or flow.due_ns is None or data.spec.duration_ns is None:
        return False
    slack_ns = validity.SHORTEST_WINDOW_INTERVALS * data.spec.interval_ns
    # Clients that start one after another end together.
    begin_ns = data.start_at_ns if data.spec.start_spread_ns and data.start_at_ns is not None else flow.due_ns
    return flow.end_ns < begin_ns + data.spec.duration_ns - slack_ns


def operations_ended(data: TestData, flow: Flow) -> int:
    """The number of operations of the flow's task that were answered or failed."""
    found = next(found for found in data.load_outcomes() if (found.host, found.task) == (flow.key.host, flow.key.task))
    answered = sum(row.get("received_units") or 0 for row in found.outcome["flows"])
    return int(answered + sum(found.outcome["errors"].values()))


def errors_by_name(data: TestData) -> str:
    """Errors by name, the most frequent first."""
    counts = sorted(error_counts(data).items(), key=lambda item: -item[1])
    return ", ".join(f"{count} x {name}" for name, count in counts) or "no errors were counted"


def gateway_crossed(evidence: Evidence) -> Iterator[Finding]:
    """Payload that a given gateway did not forward."""
    yield from crossing.findings(evidence.data, evidence.flows)


def fleet_whole(evidence: Evidence) -> Iterator[Finding]:
    """Clients of a fleet that are missing."""
    yield from fleet_validity.gaps(evidence.data)


def busy_threads(evidence: Evidence) -> Iterator[Finding]:
    """Limits of the clients, which generate load, and of the server, which answers."""
    yield from _limits_of_hosts(evidence, server_generates=False)


def busy_threads_by_direction(evidence: Evidence) -> Iterator[Finding]:
    """The same, if the server generates the downstream payload."""
    yield from _limits_of_hosts(evidence, server_generates=evidence.data.spec.server_generates)


def _limits_of_hosts(evidence: Evidence, *, server_generates: bool) -> Iterator[Finding]:
    for found in evidence.data.load_outcomes():
        own, far = found.outcome["generator"], found.outcome.get("receiver")
        roles = [(Verdict.GENERATOR_LIMITED, own, found.host)]
        if far is not None:
            roles.append((Verdict.RECEIVER_LIMITED, far, f"the server that {found.host} used"))
        if server_generates:
            swapped = {
                Verdict.GENERATOR_LIMITED: Verdict.RECEIVER_LIMITED,
                Verdict.RECEIVER_LIMITED: Verdict.GENERATOR_LIMITED,
            }
            roles = [(swapped[verdict], load, where) for verdict, load, where in reversed(roles)]
        for verdict, load, where in roles:
            yield from ((verdict, reason) for reason in thread_limits(load, where))
            if load is far:
                yield from ((verdict, reason) for reason in _used_up_quota(far, own, where))
    yield from _dropped_by_sockets(evidence)


def _dropped_by_sockets(evidence: Evidence) -> Iterator[Finding]:
    """Datagrams that the path delivered, and the receiver's own socket had no room for: no loss of the path."""
    lost = reported(evidence.flows, "lost").value or 0
    bundled = coalesced(evidence.flows)
    for dropped, where in receivers_drops(evidence.data):
        what = "bundles of datagrams" if bundled else "datagrams"
        text = f"{dropped:,} {what} arrived and were dropped by the socket on {where}"
        if bundled:
            text += f", of up to {MAX_IN_BUNDLE} each; {lost:,.0f} datagrams count as lost"
        elif lost and dropped <= lost:
            text += f": {rounded_share(dropped / lost)} of the {lost:,.0f} that count as lost"
        yield Verdict.RECEIVER_LIMITED, Reason("receiver-socket-drops", text)


def receivers_drops(data: TestData) -> list[tuple[int, str]]:
    """What the sockets of the receiving sides dropped, and where; sides that dropped nothing are left out."""
    found: list[tuple[int, str]] = []
    for outcome in data.load_outcomes():
        own, far = outcome.outcome["generator"], outcome.outcome.get("receiver")
        sides = [(far, f"the server that {outcome.host} used")] if data.spec.direction != "down" else []
        sides += [(own, outcome.host)] if data.spec.direction != "up" else []
        for load, where in sides:
            dropped = load.get("socket_drops") if load is not None else None
            found += [(dropped, where)] if dropped else []
    return found


def thread_limits(load: records.LoadReport, where: str) -> Iterator[Reason]:
    """The thread with the least idle time, if it had almost none."""
    busiest, starved = 0.0, (0.0, 0.0)
    for thread in load["threads"]:
        if thread["wall_s"] <= 0:
            continue
        busy = busy_s(thread) / thread["wall_s"]
        waiting = (thread.get("runnable_wait_s") or 0.0) / thread["wall_s"]
        busiest = max(busiest, busy)
        starved = max(starved, (busy + waiting, waiting))
    if busiest >= validity.SATURATED_BUSY:
        text = f"the busiest thread on {where} was on a CPU {rounded_share(busiest)} of the time"
        yield Reason("thread-saturated", text)
    elif starved[0] >= validity.STARVED_BUSY_AND_WAITING:
        needed, waited = (rounded_share(part) for part in starved)
        text = f"a thread on {where} needed a CPU {needed} of the time and waited for one {waited}"
        yield Reason("thread-starved", text)


def _used_up_quota(far: records.LoadReport, own: records.LoadReport, where: str) -> Iterator[Reason]:
    """A CPU quota that held back the side that answers. One that held back this side, too, may be the same one; those
    of this side are disturbances."""
    quota, same = far.get("quota"), own.get("quota")
    share = _held_back(quota)
    is_shared = quota and same and same["group"] == quota["group"] and 2 * _held_back(same) >= share
    if quota and share > disturbance.QUOTA_SHARE and not is_shared:
        text = f"a quota of {quota['cpus']:g} CPUs, of {quota['group']}, held threads on {where} back"
        yield Reason(validity.QUOTA_USED_UP, f"{text} {rounded_share(share)} of the time of one CPU")


def _held_back(quota: records.QuotaUse | None) -> float:
    return quota["throttled_s"] / quota["wall_s"] if quota and quota["wall_s"] > 0 else 0.0


def late_sends(evidence: Evidence) -> Iterator[Finding]:
    """Late paced sends, of the side that sent, by the direction."""
    yield from too_late(evidence, *_worst_lateness(evidence))


def ran_over(evidence: Evidence) -> Iterator[Finding]:
    """Late paced sends that made the window longer than planned: all was sent and arrived, but at a lower rate than was
    offered. Of what was lost on the way the path had too much at any rate.
    """
    spec, window = evidence.data.spec, evidence.window
    late_us, where = _worst_lateness(evidence)
    if not spec.paced or spec.number is not None or spec.duration_ns is None or window is None or late_us is None:
        return
    planned_s = (spec.duration_ns - spec.warmup_ns) / 1e9
    delivered = delivered_share(evidence.data, evidence.flows) or 0.0
    if delivered >= WHOLE and min(window.length_s - planned_s, late_us / 1e6) > validity.RAN_OVER_SHARE * planned_s:
        text = f"sends of {where} were {late_us / 1e3:.3g} ms late at p99: the load took {window.length_s:.3g} s"
        yield Verdict.GENERATOR_LIMITED, Reason("ran-over", f"{text} instead of {planned_s:.3g} s, at a lower rate")


def _worst_lateness(evidence: Evidence) -> tuple[float | None, str]:
    """The largest lateness at p99 of the sides that sent, us, and which side that is."""
    data, late_us = evidence.data, list[tuple[float, str]]()
    if data.spec.direction != "down" and (own := generators_late_p99_us(data, evidence.histograms)) is not None:
        late_us.append((own, _some(sorted(data.hosts))))
    if data.spec.direction != "up":
        receivers = (load for found in data.load_outcomes() if (load := found.outcome.get("receiver")))
        late_us += [(late, "the server") for load in receivers if (late := load.get("late_p99_us")) is not None]
    return max(late_us, default=(None, ""))


def too_late(evidence: Evidence, late_us: float | None, where: str = "") -> Iterator[Finding]:
    """A lateness at p99 above the pace's limit, of the sending host."""
    spec = evidence.data.spec
    allowed_us = late_allowed_us(spec)
    if spec.paced and late_us is not None and late_us > allowed_us:
        of_host = f" of {where}" if where else ""
        text = f"sends{of_host} were {late_us / 1e3:.3g} ms late at p99; the limit is {allowed_us / 1e3:.3g} ms"
        yield Verdict.GENERATOR_LIMITED, Reason("sends-late", text)


def unsent_by_flows(evidence: Evidence) -> Iterator[Finding]:
    """Operations that were not sent, for flows that each have a pace."""
    yield from _unsent(evidence, len(evidence.flows))


def unsent_by_hosts(evidence: Evidence) -> Iterator[Finding]:
    """Operations that were not sent, for hosts that each have a pace."""
    yield from _unsent(evidence, len(evidence.data.load_outcomes()))


def _unsent(evidence: Evidence, pacers: int) -> Iterator[Finding]:
    data = evidence.data
    gap_us = (data.spec.send_gap_s or 0.0) * 1e6
    # Operations without a free connection waited for the peer.
    unsent = (counter(data, "unsent") or 0) - (counter(data, "unsent_while_busy") or 0)
    waited, sent = counter(data, "due_while_busy") or 0, counter(data, "requests_sent") or 0
    if sent and waited >= sent / 2 and had_spare_time(data):
        return  # A connection that became free in the last instant does not make the others' backlog the generator's.
    # At the end, one operation per pacer may have been due and not yet sent, without being late.
    if data.spec.paced and unsent > pacers * (1 + late_allowed_us(data.spec) / gap_us):
        yield Verdict.GENERATOR_LIMITED, Reason("unsent", f"{unsent} operations that were due were not sent")


def near_ceiling(evidence: Evidence) -> Iterator[Finding]:
    """A rate close to this generator's ceiling."""
    ceiling = evidence.ceiling
    rate = primary_rate_per_s(evidence) if ceiling is None or ceiling.reached_per_s is None else ceiling.reached_per_s
    if rate is None or ceiling is None or rate < validity.NEAR_CEILING * ceiling.per_s:
        return
    if ceiling.basis is CeilingBasis.THIS_RUN:
        # It follows from the time that the threads worked: what the rules of threads found is not found twice.
        if any(next(thread_limits(found.outcome["generator"], ""), None) for found in evidence.data.load_outcomes()):
            return
    elif had_spare_time(evidence.data):
        return
    share = f"{rounded_share(rate / ceiling.per_s)} of this generator's ceiling ({written(ceiling)})"
    yield Verdict.GENERATOR_LIMITED, Reason("near-ceiling", f"{rate:.4g} requests/s are {share}")


def primary_rate_per_s(evidence: Evidence) -> float | None:
    """Operations per second."""
    spec = evidence.data.spec
    kind: PrimaryKind = KINDS.find(spec.kind)
    columns = rate_columns(spec, evidence.flows)
    return next((rate_per_s(curves, evidence.window) for name, _, curves in columns if name == kind.primary), None)


class PrimaryKind(Protocol):
    """The attributes of a kind of test that this module uses, in addition to its rules."""

    @property
    def primary(self) -> str:
        """The test's leading figure."""


def had_spare_time(data: TestData) -> bool:
    """Whether even the busiest generating thread had idle time; waiting for a CPU does not count as idle."""
    return threads_had_spare_time(found.outcome for found in data.load_outcomes())


def threads_had_spare_time(outcomes: Iterable[records.Outcome]) -> bool:
    """Whether even the busiest thread of these outcomes had idle time, as `had_spare_time`."""
    threads = [thread for outcome in outcomes for thread in outcome["generator"]["threads"]]
    wanted = [
        (busy_s(thread) + (thread.get("runnable_wait_s") or 0.0)) / thread["wall_s"]
        for thread in threads
        if thread["wall_s"] > 0
    ]
    return bool(wanted) and max(wanted) < validity.CEILING_BUSY


def written(ceiling: Ceiling) -> str:
    """A ceiling as text."""
    if ceiling.basis is CeilingBasis.THIS_RUN:
        return f"{'about ' if ceiling.extrapolated else ''}{ceiling.per_s:.4g}/s by its CPU time in this run"
    return f"{'about ' if ceiling.extrapolated else ''}{ceiling.per_s:.4g}/s against a null responder"


def even_rate(evidence: Evidence) -> Iterator[Finding]:
    """Rates that the test leaves uncertain. One that was offered and delivered whole is not."""
    share = delivered_share(evidence.data, evidence.flows)
    if share is None or share < WHOLE:
        for verdict, reason in stability.within_test(evidence.data, evidence.flows, evidence.window):
            known = rate_causes.causes(evidence)
            yield verdict, replace(reason, text=f"{reason.text}; {known}") if known else reason


def journal_readable(evidence: Evidence) -> Iterator[Finding]:
    """Lines of the journal that could not be read."""
    if evidence.data.unreadable_lines:
        text = f"{counted(evidence.data.unreadable_lines, 'line')} of the journal could not be read in this trial"
        yield Verdict.UNDETERMINED, Reason(validity.JOURNAL_DAMAGED, f"{text}: its figures may be too low")


def generator_known(evidence: Evidence) -> Iterator[Finding]:
    """Generators that did not report their threads."""
    if evidence.data.status != "done":
        return
    outcomes = evidence.data.load_outcomes()
    without_threads = sorted({found.host for found in outcomes if not found.outcome["generator"]["threads"]})
    if without_threads:
        text = f"no thread figures from {_some(without_threads)}: how busy the generator was is not known"
        yield Verdict.UNDETERMINED, Reason("no-generator-figures", text)


def receiver_known(evidence: Evidence) -> Iterator[Finding]:
    """Receivers that did not report their threads or the received data."""
    data, flows = evidence.data, evidence.flows
    if data.status != "done":
        return
    silent = sorted({found.host for found in data.load_outcomes() if not _answering_figures(found.outcome)})
    if silent:
        text = f"no figures of the answering side for {_some(silent)}: how busy it was is not known"
        yield Verdict.UNDETERMINED, Reason("no-receiver-figures", text)
    unheard = sum(1 for flow in flows if flow.evidence == "sender" and flow.start_ns is not None)
    if unheard:
        text = f"the receiver did not report {unheard} of {len(flows)} flows: their sent data is shown"
        yield Verdict.UNDETERMINED, Reason("sender-side-figure", text)


def _answering_figures(outcome: records.Outcome) -> bool:
    far = outcome.get("receiver")
    return far is not None and bool(far["threads"])


def shared_cpus(evidence: Evidence) -> Iterator[Reason]:
    """Hosts that share one machine."""
    data = evidence.data
    host = host_metrics.gateway_of(data) or next(iter(data.hosts), None)
    together = host_metrics.neighbours(data, host)
    if len(together) > 1:
        yield _shared_cpus(data, host, together, evidence.window)


def clocks_compared(evidence: Evidence) -> Iterator[Reason]:
    """Clocks of several machines whose offsets are only roughly known."""
    data = evidence.data
    loose = {name: bound for name, bound in data.clock_bounds_ns.items() if bound > validity.CLOCK_BOUND_NS}
    if loose and len({facts.get("boot_id") for facts in data.facts.values()}) > 1:
        text = f"clock offsets are only known to within {max(loose.values()) / 1e6:.3g} ms ({_some(sorted(loose))})"
        yield Reason("unsynchronised-clock", text)


def receiver_totals(evidence: Evidence) -> Iterator[Reason]:
    """Flows whose receiver reported only a total."""
    if evidence.data.spec.counts_units or evidence.data.spec.connects_clients:
        return
    whole_only = sum(1 for flow in evidence.flows if flow.evidence == "receiver-total")
    if whole_only:
        text = (
            f"{counted(whole_only, 'flow')} with only a total from the receiver: an even rate is assumed for the window"
        )
        yield Reason("counters-missing", text)


def open_latencies(evidence: Evidence) -> Iterator[Reason]:
    """A note on the source of the lower bounds; one slow request makes only the maximum one."""
    latency = evidence.histograms.sample("latency")
    if latency.max.is_bound or latency.percentile(99.0).is_bound:
        text = f"{latency.censored:,} of {latency.censored + latency.count:,} requests or transactions had no answer"
        yield Reason(validity.LATENCY_BOUND, f"{text}: latencies with ≥ are at least that")


def undone(evidence: Evidence) -> Iterator[Reason]:
    """Operations that failed, had no answer, or waited for a connection."""
    data = evidence.data
    if error_counts(data):
        yield Reason(
            "errors", f"{counted(sum(error_counts(data).values()), 'operation')} failed: {errors_by_name(data)}"
        )
    unanswered, long = counter(data, "unanswered") or 0, counter(data, "unanswered_over_1s") or 0
    if data.spec.unanswered_is_lost:
        unanswered = 0
    if long or _is_many(unanswered, counter(data, "requests_sent")):
        text = f"{counted(int(unanswered), 'request')} without an answer at the end"
        text += f", {long:,} of them for more than a second"
        yield Reason("unanswered", f"{text}; their latency is at least their age then")
    late, unsent = counter(data, "due_while_busy") or 0, counter(data, "unsent_while_busy") or 0
    due = operations_due(data, evidence.flows)
    # In a closed loop each connection asks for its next request: none waits for a free one.
    has_pace = data.spec.paced or data.spec.inside_gap_s is not None
    if not has_pace:
        return
    if _is_many(late + unsent, due) or unsent > validity.WAITING_FEW:
        text = f"no connection was free when {late + unsent} of {due} requests were due, and {unsent} were not sent"
        yield Reason(validity.CONNECTIONS_BUSY, f"{text}: they waited for the server, which their latency shows")


def refused(evidence: Evidence) -> Iterator[Reason]:
    """A note if more than a few answers refuse the request: they may cost a server less than what was asked for."""
    data = evidence.data
    answers = counter(data, "responses")
    count = sum(counter(data, name) or 0 for name in validity.REFUSED)
    if _is_many(count, answers):
        text = f"{count} of {answers} answers have a status of 400 or above"
        yield Reason("answers-refuse", f"{text}: rate and latency are theirs too")


def _is_many(count: int, whole: int | None) -> bool:
    return count > max(validity.WAITING_FEW, validity.WAITING_SHARE * (whole or 0))


def machine_not_saturated(evidence: Evidence) -> Iterator[Finding]:
    """Hosts that share a machine whose CPUs were all busy: the limit is then unknown, since no host had CPUs of its
    own."""
    data, window = evidence.data, evidence.window
    host = host_metrics.gateway_of(data) or next(iter(data.hosts), None)
    if data.spec.paced or window is None or len(host_metrics.neighbours(data, host)) < 2:
        return
    samples = host_metrics.machine_samples(data, host)
    busy = host_metrics.busy_percent(host_metrics.cpu_percent(samples, window), samples)
    cpus = samples[-1].cpus if samples else None
    if busy is not None and cpus and busy >= 100 * cpus * validity.SATURATED_BUSY:
        text = (
            f"the machine that the hosts share was {busy / cpus:.0f} % busy: on CPUs of its own the gateway may do more"
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
    """The names as text, at most three in full."""
    shown = ", ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"
