"""What a replay's source says of its figures: whether it was read in time and to its end, and how exact its times
are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from leadline import quantities
from leadline.analysis import rules
from leadline.analysis.metrics import counter
from leadline.analysis.model import Reason, Verdict
from leadline.analysis.validity import NOT_STARTED, NOTHING_REPLAYED, Evidence, Finding
from leadline.kinds.replay.findings import replay_findings
from leadline.kinds.scenario.findings import findings

READ_LATE_SHARE = 0.01
"""Of the requests: more that were read after they were due were late because of the reader."""
_WHOLE_SECOND_MS = 1000.0


def whole(evidence: Evidence) -> Iterator[Finding]:
    """What all kinds need to be whole, but that a thread may have no session, and that the duration is a limit."""
    has_begun = any(flow.start_ns is not None for flow in evidence.flows)
    spec = replace(evidence.data.spec, duration_ns=None)
    for verdict, reason in rules.whole(replace(evidence, data=replace(evidence.data, spec=spec))):
        if not (has_begun and reason.code == NOT_STARTED):
            yield verdict, reason


def nothing_replayed(evidence: Evidence) -> Iterator[Finding]:
    """A replay that sent nothing: what the source had instead of requests."""
    found, data = replay_findings(evidence.data), evidence.data
    if found is None or counter(data, "requests_sent") != 0 or counter(data, "requests_due"):
        return
    left_out = ", ".join(f"{count:,} {cause.replace('_', ' ')}" for cause, count in found.left_out.items())
    why = found.broken_off or (f"left out: {left_out}" if left_out else "the source has no request")
    yield Verdict.INCOMPLETE, Reason(NOTHING_REPLAYED, f"no request was sent: {why} ({found.format})")


def requests_lost(evidence: Evidence) -> Iterator[Finding]:
    """Requests that were passed on and of which nothing is known."""
    found, data = replay_findings(evidence.data), evidence.data
    users = findings(data)
    if found is None or users is None or data.status != "done" or found.broken_off is not None:
        return
    due = sum(group.due for group in users.groups)
    if due < found.passed_on and not sum(group.not_begun for group in users.groups) and not data.spec.duration_ns:
        text = f"{found.passed_on - due:,} of the requests that were read were neither sent nor counted as not sent"
        yield Verdict.INCOMPLETE, Reason("requests-lost", text)


def reading_was_late(evidence: Evidence) -> Iterator[Finding]:
    """A source that was read too slowly: the generator was the limit."""
    found = replay_findings(evidence.data)
    if found is None or not found.passed_on or found.read_late is None:
        return
    share = found.read_late / found.passed_on
    if share > READ_LATE_SHARE:
        text = f"{quantities.share(share)} of the requests had not been read from the source when they were due"
        yield Verdict.GENERATOR_LIMITED, Reason("source-read-late", text)


def source_broken_off(evidence: Evidence) -> Iterator[Finding]:
    """A source that could not be read to its end."""
    found = replay_findings(evidence.data)
    if found is not None and found.broken_off is not None:
        yield Verdict.INCOMPLETE, Reason("source-broken-off", f"reading the source ended early: {found.broken_off}")


def source_notes(evidence: Evidence) -> Iterator[Reason]:
    """How exact the source's times are, where that is coarse."""
    found = replay_findings(evidence.data)
    if found is not None and found.precision_ms >= _WHOLE_SECOND_MS:
        text = "the source has whole seconds: its requests were spread at random within their second"
        yield Reason("source-whole-seconds", text)
