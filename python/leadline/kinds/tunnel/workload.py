"""Converts a fleet's test and its clients' identities to an agent's workload. Pure; no message contains a key or
password."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from leadline.contract.models import (
    GivenIdentities,
    HttpRequest,
    Ikev2Connections,
    IssuedIdentities,
    ProfileIdentity,
    RateStage,
    TunnelAction,
    TunnelEcho,
    TunnelExpectation,
    TunnelHttp,
    TunnelTcp,
    TunnelUdp,
    TunnelUser,
    TunnelWorkload,
    WireguardFiles,
)
from leadline.errors import InputError
from leadline.kinds.tunnel.model import Moment, TunnelLoad, TunnelTest

_SESSION_PORT, _HTTP_PORT = 5201, 8080

GIVEN_UP_S = 60.0
"""The same for clients whose handshake was aborted: the time that a server waits for them (`hand-window`)."""

Identities = ProfileIdentity | GivenIdentities | IssuedIdentities | WireguardFiles | Ikev2Connections


@dataclass(frozen=True, slots=True)
class Access:
    """The clients' identities. They are not part of the test, and are never printed."""

    profile: str = field(repr=False)
    """Text of an `.ovpn` file, with each file that it refers to as an inline block, or of a swanctl.conf; empty for
    WireGuard."""
    identities: Identities = field(default_factory=ProfileIdentity, repr=False)
    users: Sequence[TunnelUser] = field(default=(), repr=False)

    @property
    def clients(self) -> int:
        """The number of clients if the test sets none: one, or one for each WireGuard file."""
        return len(self.identities.files) if isinstance(self.identities, WireguardFiles) else 1


def tunnel_workload(test: TunnelTest, access: Access, clients: int, inside: str | None = None) -> TunnelWorkload:
    """A fleet with this number of clients. Its traffic goes to `inside` if the test names no address.

    Raises:

        InputError: the traffic needs an address, and none is known.
    """
    test = test.counted(clients)
    return TunnelWorkload(
        profile=access.profile,
        clients=clients,
        threads=test.threads,
        identities=access.identities,
        users=list(access.users),
        bind=list(test.addresses),
        arrivals=[RateStage(**stage.model_dump()) for stage in test.stages],
        settled=test.settled,
        settling_ms=test.settling_ms,
        duration_ms=test.stay_ms,
        attempt_ms=test.attempt_timeout_ms,
        retries=test.retries,
        expect=TunnelExpectation(
            pools=list(test.expect.pools),
            routes=list(test.expect.routes),
            dns=list(test.expect.dns),
            options=list(test.expect.options),
            echo=test.expect.echo,
        ),
        first_data_ms=test.first_data_ms,
        ping_ms=test.ping_every_ms,
        pinged_ms=test.pinged_ms,
        actions=_actions(test),
        traffic=None if test.traffic is None else _traffic(test.traffic, inside),
        interval_ms=test.interval_ms,
    )


def _actions(test: TunnelTest) -> list[TunnelAction]:
    """The planned actions, in the order of their times."""
    reconnects = [_action(moment, "reconnect") for moment in test.reconnect_at]
    renegotiations = [_action(moment, "renegotiate") for moment in test.renegotiate_at]
    return sorted([*reconnects, *renegotiations], key=lambda action: action.at_ms)


def _action(moment: Moment, what: str) -> TunnelAction:
    return TunnelAction.model_validate({"at_ms": moment.at_ms, "over_ms": moment.over_ms, "what": what})


def _traffic(load: TunnelLoad, inside: str | None) -> TunnelEcho | TunnelUdp | TunnelTcp | TunnelHttp:
    host = load.to or inside
    if load.kind == "echo":
        assert load.rate_per_s is not None, "the model requires a rate for echo"
        return TunnelEcho(
            to=load.to, rate_pps=load.rate_per_s, packet_bytes=load.size_bytes, duration_ms=load.duration_ms
        )
    if host is None:
        raise InputError(
            f"{load.kind} in the tunnels needs an address", hint="give the address of the server behind the gateway"
        )
    match load.kind:
        case "udp":
            return TunnelUdp(
                host=host,
                port=load.port or _SESSION_PORT,
                direction=load.direction,
                rate_pps=load.rate_per_s,
                datagram_bytes=load.size_bytes,
                duration_ms=load.duration_ms,
            )
        case "tcp":
            return TunnelTcp(
                host=host, port=load.port or _SESSION_PORT, direction=load.direction, duration_ms=load.duration_ms
            )
        case "http":
            authority = f"[{host}]" if ":" in host else host
            url = f"http://{authority}:{load.port or _HTTP_PORT}{load.path}"
            return TunnelHttp(
                request=HttpRequest(url=url, method="GET", headers=[], weight=1),
                rate_per_s=load.rate_per_s,
                duration_ms=load.duration_ms,
            )
