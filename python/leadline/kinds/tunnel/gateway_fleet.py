"""Converts a plan's tests to fleet workloads. Each test has its own fleet, which connects, carries the load, and
leaves.

Pure; the only module that knows both a gateway's keys for a fleet and the tests of a plan.
"""

from __future__ import annotations

from leadline.contract.models import Ikev2Connections, IssuedIdentities, TunnelFile, TunnelWorkload, WireguardFiles
from leadline.kinds.tunnel.model import TunnelExpected, TunnelLoad, TunnelTest
from leadline.kinds.tunnel.workload import Access, tunnel_workload
from leadline.plan import BaseTest
from leadline.sut.model import FleetAccess

_CONNECT_WITHIN_MS = 60_000
_RETRIES = 2
"""Retries of clients that carry load. The load begins when all clients had time to connect."""


def measured(test: TunnelTest, access: FleetAccess, clients: int, server: str) -> TunnelWorkload:
    """The fleet of a `tunnel` test; its traffic goes to the run's server."""
    asked = test.model_copy(update={"expect": _filled(test.expect, access)})
    return tunnel_workload(asked, _who(access), test.number or clients, server)


def carried(test: BaseTest, load: TunnelLoad, access: FleetAccess, clients: int, server: str) -> TunnelWorkload:
    """The fleet of a test of another kind: all clients connect at the same time, then carry its load."""
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
    """The test's expectations; what it does not set are the gateway's."""
    known = _expected(access)
    return asked.model_copy(
        update={key: getattr(known, key) for key in ("pools", "routes", "echo") if key not in asked.model_fields_set}
    )


def _expected(access: FleetAccess) -> TunnelExpected:
    return TunnelExpected(pools=access.pools, routes=access.routes, echo=access.echo)


def _who(access: FleetAccess) -> Access:
    """Access with one certificate, one WireGuard file, or one name in a connection, per client."""
    if access.connection:
        files = [TunnelFile(name=name, text=text) for name, text in access.connection_files]
        return Access(access.connection, Ikev2Connections(connection=None, files=files))
    if access.client_files:
        named = enumerate(access.client_files)
        return Access(
            "", WireguardFiles(files=[TunnelFile(name=f"client {number}", text=text) for number, text in named])
        )
    identities = IssuedIdentities(
        authority_pem=access.authority_pem, authority_key_pem=access.authority_key_pem, name_prefix="client-"
    )
    return Access(access.profile, identities)
