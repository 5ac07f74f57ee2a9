"""A `traceparent` for each request of a scenario, by which servers' logs name it (W3C Trace Context). Pure."""

from __future__ import annotations

from leadline.scenario.model import Scenario

NAME = "traceparent"
VALUE = "00-${md5(uuid())}-${random_text(16, '0123456789abcdef')}-01"
"""Version, random id of the trace, random id of the request, and that it is to be recorded."""


def with_trace(scenario: Scenario) -> Scenario:
    """The scenario, each of whose requests has a `traceparent` of its own; as it is if it has one for all already."""
    given = (*scenario.headers, *scenario.http.headers)
    if NAME in (name.lower() for name in given):
        return scenario
    return scenario.model_copy(update={"headers": {**scenario.headers, NAME: (VALUE,)}})
