"""How the clients of `leadline tunnel` come back to a real OpenVPN server: one that stands still amid a storm, one that
ends, one that is restarted. Every count is exact.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import openvpn_servers as servers
import polars as pl
import pytest
from openvpn_keys import Keys
from openvpn_servers import Fleet, Inside, Running, Server, Setting

pytestmark = [pytest.mark.lab, pytest.mark.takes(30)]

CLIENTS = 20
STAY = ("-n", str(CLIENTS), "--ping", "100ms", *servers.STAY)


def test_a_server_that_stops_amid_a_storm(place: Inside, keys: Keys) -> None:
    """The clients repeat their first packets, and all of them come up by the attempt that they had begun."""
    clients = 60
    with servers.server(place, keys, stops_itself(place)) as server:
        patience = ("-n", str(clients), "--rate", "30/s", "--first-data", "60s")
        running = servers.start_fleet(place, server.profile("storm"), *patience, *servers.issued(server))
        stopped_until(server, running, lambda: running.standing()["resets_sent"] > running.standing()["attempts"])
        fleet = running.finish()
        assert fleet.states == {"configured": clients}, fleet.err
        assert (fleet.count("attempts"), fleet.count("recovered")) == (clients, 0)
        assert fleet.count("retransmits") > 0
        # A first packet is repeated after 2 s.
        assert fleet.document["metrics"]["connect_max_ms"]["value"] >= 2000


def test_clients_that_gave_up_come_back_by_themselves(place: Inside, keys: Keys) -> None:
    """The server stops until a client has begun its second attempt."""
    with servers.server(place, keys, stops_itself(place)) as server:
        # Long enough for a handshake beside other work: else clients of a busy machine give up again and again.
        patience = ("-n", "30", "--rate", "10/s", "--attempt-timeout", "4s", "--retries", "50", "--first-data", "60s")
        running = servers.start_fleet(place, server.profile("storm"), *patience, *servers.issued(server))
        stopped_until(server, running, lambda: running.standing()["attempts"] > 30 - running.standing()["waiting"])
        fleet = running.finish()
        assert fleet.states == {"configured": 30}, fleet.err
        again = [row for row in fleet.rows if row["attempts"] > 1]
        assert again and fleet.count("recovered") == len(again)
        assert fleet.count("attempts") == sum(row["attempts"] for row in fleet.rows) > 30
        # It rests for 1 s at least after it has failed.
        assert fleet.document["metrics"]["recovered_min_ms"]["value"] >= 1000
        assert fleet.count("recovered_partial") == fleet.count("tunnels_lost") == 0


@pytest.mark.parametrize(
    ("transport", "cause"),
    [("udp", "restarted_by_server"), pytest.param("tcp", "closed_by_server", marks=pytest.mark.full_matrix)],
)
def test_clients_of_a_stopped_server_are_lost_with_one_cause(
    place: Inside, keys: Keys, transport: str, cause: str
) -> None:
    """Over UDP it tells its clients (`explicit-exit-notify`). Without retries each is lost, by one cause."""
    exit_options = ("explicit-exit-notify 1",) if transport == "udp" else ()
    with servers.server(place, keys, Setting(transport=transport, more=exit_options)) as server:
        running = servers.start_fleet(place, server.profile("lost"), *STAY, *servers.issued(server))
        until_all_carry(server, running)
        server.end()
        fleet = once_all_failed(running)
        assert fleet.states == {"failed": CLIENTS}, fleet.err
        assert fleet.causes("failed") == {cause: CLIENTS}
        assert fleet.count("tunnels_lost") == CLIENTS
        assert fleet.count("recovered") == 0
        assert fleet.limits == {}


def test_a_server_that_falls_silent(place: Inside, keys: Keys) -> None:
    """The clients get no notice; they miss its pings (`ping-restart`)."""
    # Longer than it may be kept from its processor before the test wants it to be silent.
    with servers.server(place, keys, Setting(more=("keepalive 1 8",))) as server:
        running = servers.start_fleet(place, server.profile("silent"), *STAY, *servers.issued(server))
        until_all_carry(server, running)
        with server.stopped():
            fleet = once_all_failed(running)
        assert fleet.states == {"failed": CLIENTS}, fleet.err
        assert fleet.causes("failed") == {"ping_restart": CLIENTS}
        assert fleet.count("tunnels_lost") == CLIENTS


@pytest.mark.parametrize("transport", [pytest.param("udp", marks=pytest.mark.full_matrix), "tcp"])
def test_a_restarted_server_gets_all_clients_back(place: Inside, keys: Keys, transport: str) -> None:
    """All its clients come back to it, and are answered inside again."""
    exit_options = ("explicit-exit-notify 1",) if transport == "udp" else ()
    with servers.server(place, keys, Setting(transport=transport, more=exit_options)) as server:
        patience = ("--attempt-timeout", "5s", "--retries", "50")
        running = servers.start_fleet(place, server.profile("again"), *STAY, *patience, *servers.issued(server))
        until_all_carry(server, running)
        server.end()
        server.start()
        running.until(lambda: running.standing()["lost"] >= CLIENTS)
        until_all_carry(server, running)
        fleet = running.interrupt()
        assert fleet.states == {"configured": CLIENTS}, fleet.err
        # Who comes up by its second attempt has recovered too.
        assert fleet.count("recovered") >= fleet.count("tunnels_lost") >= CLIENTS
        assert fleet.count("attempts") >= 2 * CLIENTS
        assert fleet.document["metrics"]["recovered_min_ms"]["value"] >= 1000


def test_a_server_that_is_killed_deals_its_addresses_out_again(place: Inside, keys: Keys) -> None:
    """Its clients miss it one after another; those that come back first are given what others still hold."""
    with servers.server(place, keys, Setting(more=("keepalive 1 4",))) as server:
        patience = ("--attempt-timeout", "5s", "--retries", "50")
        running = servers.start_fleet(place, server.profile("killed"), *STAY, *patience, *servers.issued(server))
        until_all_carry(server, running)
        os.kill(servers.inner(server.process), signal.SIGKILL)
        server.process.wait()
        server.start()
        running.until(lambda: running.standing()["lost"] >= CLIENTS)
        until_all_carry(server, running)
        fleet = running.interrupt()
        assert fleet.states == {"configured": CLIENTS}, fleet.err
        assert [row["addresses"] for row in fleet.rows if len(row["addresses"]) != 2] == []
        attempts = pl.read_parquet(fleet.folder / "attempts.parquet")
        assert attempts.height == fleet.count("attempts") >= 2 * CLIENTS
        last = attempts.group_by("client").agg(pl.col("addresses", "cause", "ended_ns").sort_by("attempt").last())
        assert last["addresses"].n_unique() == CLIENTS, "no two have the same in the end"
        assert last["cause"].null_count() == last["ended_ns"].null_count() == CLIENTS


SERVED = 5
"""The client at which a server stops itself: the others find it stopped."""


def stops_itself(place: Inside) -> Setting:
    """A server's setting: a script that it waits for stops it (SIGSTOP) before it accepts this client."""
    script = place.folder / f"stop-{place.servers}"
    script.write_text(
        f'#!/bin/sh\necho "$common_name" >> "{script}.seen"\n'
        f'if [ "$(wc -l < "{script}.seen")" -eq {SERVED} ]; then kill -STOP "$PPID"; fi\n'
    )
    script.chmod(0o755)
    return Setting(more=("script-security 2", f'client-connect "{script}"'))


def stopped_until(server: Server, running: Running, happened: Callable[[], bool]) -> None:
    """Let a server that has stopped itself go on as soon as that is so."""
    # nsenter stops once it has seen that its child has.
    server.until(lambda: Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")
    with server.stopped():
        running.until(happened)


def until_all_carry(server: Server, running: Running) -> None:
    """Every client is there, and has been answered inside."""
    running.until_stand(configured=CLIENTS)
    server.listed(CLIENTS)


def once_all_failed(running: Running) -> Fleet:
    """The end of a fleet of which no client has a tunnel any more."""
    return running.interrupt_once(failed=CLIENTS)
