"""Whether users wait for their load generator: Little's law on the users of a closed load.

The rate of answers times the mean response time is the number of users that are inside of a request at a time. Users
without think time have no other place to be: those outside wait for the tool that plays them. This holds for any tool,
and needs no more than what all of them report. Pure.
"""

from __future__ import annotations

from leadline.analysis.model import Reason, Verdict
from leadline.quantities import microseconds, rounded_share

USERS_WAIT = "users-wait"
MOSTLY = 0.4
"""Of the users, up to which those inside of requests are so few that the generator is what all wait for. Above it,
what response times leave out (opening connections, reading) may be the rest."""


def judge_users(
    users: float, rate_per_s: float, response_s: float, *, has_think_time: bool | None
) -> tuple[tuple[Verdict, Reason], ...]:
    """The finding that users wait for their generator; none where they have waits of their own, or may have."""
    inside = rate_per_s * response_s
    if has_think_time is not False or users <= 0 or rate_per_s <= 0 or inside > MOSTLY * users:
        return ()
    text = (
        f"{inside:.3g} of {users:.4g} users were inside of a request at a time ({rate_per_s:.4g}/s of "
        f"{microseconds(response_s * 1e6)} each): without think time the others, {rounded_share(1 - inside / users)}, "
        "waited for the load generator"
    )
    return ((Verdict.GENERATOR_LIMITED, Reason(USERS_WAIT, text)),)
