"""What a scenario's users say of their generator: whether they waited for it, and why its ceiling is unknown."""

from __future__ import annotations

from collections.abc import Iterator

from leadline.analysis import busy_users
from leadline.analysis.metrics import counter, error_counts, error_examples
from leadline.analysis.model import Reason, Verdict
from leadline.analysis.validity import NOTHING_ANSWERED, Evidence, Finding
from leadline.kinds.scenario.findings import findings
from leadline.kinds.scenario.own_ceiling import count_running_users, too_short

MAX_FAILED_SHARE = 0.01
"""Of the answers: the time of requests that failed is in no latency, so more of them leave open where users were."""


def users_wait(evidence: Evidence) -> Iterator[Finding]:
    """Users without waits of their own that are mostly outside of requests."""
    data = evidence.data
    users = count_running_users(data, evidence.window)
    response_us = evidence.histograms.sample("latency").mean.value_us
    if users is None or response_us is None or data.status != "done":
        return
    if sum(error_counts(data).values()) > MAX_FAILED_SHARE * users.answers:
        return
    yield from busy_users.judge_users(
        users.mean, users.answers_per_s, response_us / 1e6, has_think_time=data.spec.has_waits
    )


def something_sent(evidence: Evidence) -> Iterator[Finding]:
    """A load that sent nothing: there is no figure of a server in it."""
    data = evidence.data
    found = findings(data)
    # What is not known may have been sent.
    if data.status != "done" or found is None or counter(data, "requests_sent") != 0:
        return
    if counter(data, "requests_due") or counter(data, "responses"):
        return
    errors = sorted(error_counts(data).items(), key=lambda item: -item[1])
    examples = error_examples(data)
    shown = [f"{count:,} x {name}" + (f" ({examples[name]})" if name in examples else "") for name, count in errors]
    if not shown and not sum(group.begun for group in found.groups):
        shown = ["no iteration began"]
    why = ", ".join(shown) or "no step of the flow that was reached is a request"
    yield Verdict.INCOMPLETE, Reason(NOTHING_ANSWERED, f"no request was sent: {why}")


def run_too_short(evidence: Evidence) -> Iterator[Reason]:
    """A note if the run was too short for its CPU time to tell the ceiling."""
    why = too_short(evidence.data, evidence.window)
    if why is not None:
        yield Reason("ceiling-too-short", f"the generator's ceiling is not known: {why}")
