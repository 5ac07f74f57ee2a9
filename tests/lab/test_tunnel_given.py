"""What the clients of `leadline tunnel` are given and give, against a real OpenVPN server: many routes, source
addresses, certificates of their own; and what goes through the tunnels to a `leadline serve` behind the server.
"""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import cli_runs as cli
import openvpn_servers as servers
import pytest
from openvpn_keys import Keys
from openvpn_servers import Inside, Server, Setting

pytestmark = [pytest.mark.lab, pytest.mark.takes(15)]


def test_more_routes_than_one_message_holds(place: Inside, keys: Keys) -> None:
    routes = [f"172.20.{number}.0" for number in range(60)]
    pushed = tuple(f'push "route {route} 255.255.255.0"' for route in routes)
    with servers.server(place, keys, Setting(more=(*pushed, "duplicate-cn"))) as server:
        expected = [f"--expect-route={route}/24" for route in (routes[0], routes[-1])]
        fleet = servers.fleet(place, server.profile("routes", identity=keys.client), "-n", "3", *expected)
        assert (fleet.code, fleet.states) == (0, {"configured": 3}), fleet.err
        assert len(server.said("SENT CONTROL.*push-continuation 2")) >= 3
        profile = server.profile("more", identity=keys.client)
        missing = servers.fleet(place, profile, "-n", "2", "--expect-route=172.20.60.0/24")
        assert missing.causes("partial") == {"partial_route_missing": 2}


@pytest.mark.parametrize("transport", ["udp", pytest.param("tcp", marks=pytest.mark.full_matrix)])
def test_source_addresses_are_used_in_turn(place: Inside, keys: Keys, transport: str) -> None:
    with servers.server(place, keys, Setting(transport=transport)) as server:
        bind = ("--bind", "127.0.0.2-127.0.0.9", "--ping", "500ms", *servers.STAY)
        running = servers.start_fleet(place, server.profile("bound"), "-n", "16", *bind, *servers.issued(server))
        seen = Counter(row["Real Address"].rsplit(":", 1)[0] for row in server.listed(16))
        fleet = running.interrupt_once(configured=16)
        assert fleet.states == {"configured": 16}, fleet.err
        assert seen == {f"127.0.0.{number}": 2 for number in range(2, 10)}
        assert Counter(row["local"].rsplit(":", 1)[0] for row in fleet.rows) == seen


def test_certificates_from_a_folder(place: Inside, keys: Keys) -> None:
    """They take turns, so that two clients share the first."""
    with servers.server(place, keys, Setting(more=("duplicate-cn",))) as server:
        names = [f"user-{number}" for number in range(4)]
        folder = server.folder / "identities"
        folder.mkdir()
        authority = replace(keys.authority, folder=folder)
        for name in names:
            authority.issue(name)
        stay = ("-n", "5", "--identities", folder, "--ping", "500ms", *servers.STAY)
        running = servers.start_fleet(place, server.profile("people"), *stay)
        seen = Counter(row["Common Name"] for row in server.listed(5))
        fleet = running.interrupt_once(configured=5)
        assert fleet.states == {"configured": 5}, fleet.err
        assert seen == Counter([*names, names[0]])


def test_http_load_inside_the_tunnels_is_counted(place: Inside, keys: Keys) -> None:
    with servers.server(place, keys, Setting()) as server, responder(server):
        load = ("--traffic", "http", "--to", f"http://{server.gateway}:8080/x", "--traffic-rate", "20/s")
        way = ("-n", "4", *servers.issued(server), *load, "--traffic-duration", "1s")
        fleet = servers.fleet(place, server.profile("http"), *way)
        assert (fleet.code, fleet.states) == (0, {"configured": 4}), fleet.err
        assert fleet.count("sent") == fleet.count("received") == 80 - fleet.unsent
        assert fleet.document["errors"] == {}


@pytest.mark.parametrize(
    "direction", [("--bidir",), *(pytest.param(one, marks=pytest.mark.full_matrix) for one in ((), ("-R",)))]
)
def test_tcp_load_inside_the_tunnels_is_counted(place: Inside, keys: Keys, direction: tuple[str, ...]) -> None:
    with servers.server(place, keys, Setting()) as server, responder(server):
        load = ("--traffic", "tcp", "--to", server.gateway, "--traffic-duration", "3s", *direction)
        fleet = servers.fleet(place, server.profile("tcp"), "-n", "3", *servers.issued(server), *load)
        assert (fleet.code, fleet.states) == (0, {"configured": 3}), fleet.err
        assert fleet.document["errors"] == {}
        assert fleet.document["metrics"]["throughput_bps"]["value"] > 1e6


@contextmanager
def responder(server: Server) -> Iterator[None]:
    """A `leadline serve` at the server's end of the tunnels until the end of the block."""
    pipe = subprocess.PIPE
    process = server.place.start([cli.quick_command, "serve", "--bind", server.gateway], stdout=pipe, stderr=pipe)
    try:
        assert process.stdout is not None and process.stdout.readline()
        yield
    finally:
        servers.interrupt(process)
        process.communicate(timeout=cli.WITHIN_S)
