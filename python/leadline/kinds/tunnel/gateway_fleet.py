"""A plan's tests as what a fleet does: a fleet of its own for each test, which connects, carries the load, and leaves.

Pure; the one place that knows both a gateway's keys for a fleet and the tests of a plan.
"""

from __future__ import annotations

from leadline.contract.models import IssuedIdentities, TunnelWorkload
from leadline.kinds.tunnel.model import TunnelExpected, TunnelLoad, TunnelTest
from leadline.kinds.tunnel.workload import Access, tunnel_workload
from leadline.plan import BaseTest
from leadline.sut.model import FleetAccess

_CONNECT_WITHIN_MS = 60_000
_RETRIES = 2
"""Of the clients that carry a load: it begins when all have had their time to come up."""


def measured(test: TunnelTest, access: FleetAccess, clients: int, server: str) -> TunnelWorkload:
    """What the fleet does in a test of its clients; the load that they carry goes to the run's server."""
    asked = test.model_copy(update={"expect": _filled(test.expect, access)})
    return tunnel_workload(asked, _who(access), test.number or clients, server)


def carried(test: BaseTest, load: TunnelLoad, access: FleetAccess, clients: int, server: str) -> TunnelWorkload:
    """What the fleet does in a test of another kind: all clients connect at once, and carry its load then."""
    fleet = TunnelTest(
        name=test.name,
        number=clients,
        threads=test.threads,
        interval_ms=test.interval_ms,
        attempt_timeout_ms=_CONNECT_WITHIN_MS,
        retries=_RETRIES,
        expect=_expected(access),
        traffic=load,
    )
    return tunnel_workload(fleet, _who(access), clients, server)


def _filled(asked: TunnelExpected, access: FleetAccess) -> TunnelExpected:
    """What the test expects, and of the gateway's pools and routes whatever the test says nothing of."""
    known = _expected(access)
    return asked.model_copy(
        update={key: getattr(known, key) for key in ("pools", "routes") if key not in asked.model_fields_set}
    )


def _expected(access: FleetAccess) -> TunnelExpected:
    return TunnelExpected(pools=access.pools, routes=access.routes)


def _who(access: FleetAccess) -> Access:
    """A certificate for each client."""
    identities = IssuedIdentities(
        authority_pem=access.authority_pem, authority_key_pem=access.authority_key_pem, name_prefix="client-"
    )
    return Access(access.profile, identities)
