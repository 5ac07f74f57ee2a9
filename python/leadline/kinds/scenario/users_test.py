"""The parameters that all tests with virtual users have, whatever tells them what to do."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from leadline.kinds.http.parts import ResolvedName, TlsTrust
from leadline.plan.base_test import BaseTest
from leadline.plan.field_types import DurationMs, Items, Percentile

LONGEST_MS = 24 * 3600 * 1000


class UsersTest(BaseTest):
    """How users reach their servers, and which of their figures are wanted."""

    timeout_ms: DurationMs = Field(default=60_000, validation_alias="timeout")
    """Longest time for an answer, where the scenario gives none."""
    connect_timeout_ms: DurationMs = Field(default=10_000, validation_alias="connect_timeout")
    """Longest time to connect, where the scenario gives none."""
    resolve: Items[ResolvedName] = ()
    """Addresses to use instead of DNS: HOST:PORT:ADDRESS."""
    tls: TlsTrust | None = None
    """Certificates to accept, and the client's own, for https; with `ca`, certificates are checked in any case."""
    connections_per_user: Annotated[int, Field(ge=1, le=256)] = 6
    """Connections of each user to one server at most."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 1
    """Seed of all random values."""
    percentiles: Items[Percentile] = ()
    """Percentiles of latency and service time to report in addition to the usual ones."""
    keep_headers: Items[str] = ()
    """Names of header fields and parameters whose values are shown although the names are those of secrets."""
    single_requests: Literal["none", "all", "urls"] = "none"
    """Whether every request and transaction is kept by itself, in `requests.parquet`; with `urls`, its URL too."""

    @property
    def kept_names(self) -> tuple[str, ...]:
        """Names of header fields and parameters that are shown all the same."""
        return self.keep_headers
