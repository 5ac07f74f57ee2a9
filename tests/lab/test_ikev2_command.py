"""`leadline tunnel` with a connection of swanctl.conf: IKEv2 clients at a real strongSwan."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import cli_runs as cli
import openvpn_servers as servers
import pytest
from openvpn_servers import Inside

from leadline.sut.strongswan import log
from leadline.sut.strongswan.config import daemon_argv, daemon_config
from leadline.sut.strongswan.parameters import StrongswanSut

_PATH = f"{os.environ['PATH']}:/usr/local/sbin:/usr/sbin:/sbin"
DAEMON, SWANCTL, ENV = (shutil.which(name, path=_PATH) for name in ("charon-systemd", "swanctl", "env"))
pytestmark = [
    pytest.mark.lab,
    pytest.mark.takes(8),
    pytest.mark.skipif(bool(cli.why_not()), reason=cli.why_not() or "-"),
    pytest.mark.skipif(DAEMON is None or SWANCTL is None, reason="charon-systemd is not installed"),
]
CLIENTS = 60
PROTECTED = "10.30.0.1"
KEY = "a key of the test"
IKE, ESP = "aes128gcm16-prfsha256-x25519", "aes128gcm16-x25519"
ENDS = "version = 2\n proposals = {ike}\n local {{ auth = psk\n id = {own} }}\n remote {{ auth = psk\n{peer} }}\n"
GATEWAY = """connections {{
  {name} {{ pools = {name}
 {ends}
  children {{ net {{ local_ts = 10.30.0.0/16
    esp_proposals = {esp} }} }} }}
}}
pools {{ {name} {{ addrs = {pool} }} }}
secrets {{ ike-1 {{ secret = "{key}" }} }}
"""


def gateway_text(pool: str = "10.20.0.0/16") -> str:
    ends = ENDS.format(ike=IKE, own="gateway.test", peer="")
    return GATEWAY.format(name="all", ends=ends, pool=pool, esp=ESP, key=KEY)


def client_text(*, esp: str = ESP, ike: str = IKE, key: str = KEY) -> str:
    ends = ENDS.format(ike=ike, own="client{n}@test", peer=" id = gateway.test")
    return (
        f"connections {{ home {{ remote_addrs = 127.0.0.1\n vips = 0.0.0.0\n {ends}\n"
        f" children {{ net {{ remote_ts = 10.30.0.0/16\n esp_proposals = {esp} }} }} }} }}\n"
        f'secrets {{ ike-1 {{ secret = "{key}" }} }}\n'
    )


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Inside]:
    with servers.inside(tmp_path_factory.mktemp("ikev2")) as jail:
        subprocess.run(jail.enter(["ip", "address", "add", f"{PROTECTED}/32", "dev", "lo"]), check=True)
        yield jail


@contextlib.contextmanager
def strongswan(place: Inside, text: str) -> Iterator[None]:
    """charon in a folder of its own, with this swanctl.conf, that lets all clients in at once."""
    assert DAEMON is not None and SWANCTL is not None and ENV is not None
    folder = place.folder / "gateway"
    folder.mkdir(exist_ok=True)
    settings = daemon_config(StrongswanSut(), "libipsec", swanctl=SWANCTL, connects=False)
    settings = settings.replace("charon-systemd {", "charon-systemd {\n  dos_protection = no", 1)
    (folder / "strongswan.conf").write_text(settings)
    (folder / "swanctl.conf").write_text(text)
    output = folder / "log"
    with output.open("wb") as said:
        process = place.start(daemon_argv(DAEMON, ENV, folder), stdout=said, stderr=subprocess.STDOUT)
    try:
        deadline = time.monotonic() + cli.WITHIN_S
        while log.READY.encode() not in output.read_bytes():
            assert process.poll() is None and time.monotonic() < deadline, output.read_text()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=0.02)
        yield
    finally:
        os.kill(servers.inner(process), signal.SIGTERM)
        process.wait(cli.WITHIN_S)


def write(place: Inside, text: str) -> Path:
    file = place.folder / "swanctl.conf"
    file.write_text(text)
    return file


def test_clients_come_up_renew_their_keys_and_return(place: Inside) -> None:
    file = write(place, client_text())
    with strongswan(place, gateway_text()):
        later = ("--renegotiate-at", "1s", "--reconnect-at", "2s")
        fleet = servers.fleet(place, file, "-n", str(CLIENTS), "--echo", PROTECTED, *later)
    assert (fleet.code, fleet.states) == (0, {"configured": CLIENTS}), fleet.err
    steps = ("ike_up", "ip_assigned", "child_up", "traffic_both_ways", "renegotiated", "reconnects_begun")
    assert {name: fleet.count(name) for name in steps} == dict.fromkeys(steps, CLIENTS)
    assert len({row["addresses"][0] for row in fleet.rows}) == CLIENTS


def test_clients_without_an_address_of_the_pool_stay_partial(place: Inside) -> None:
    """Their IKE SAs are up all the same: 8 addresses for 20 clients."""
    file = write(place, client_text())
    with strongswan(place, gateway_text("10.20.0.1-10.20.0.8")):
        fleet = servers.fleet(place, file, "-n", "20", "--echo", PROTECTED)
    assert fleet.states == {"configured": 8, "partial": 12}
    assert fleet.causes("partial") == {"no_pool_address": 12}
    assert [fleet.count(name) for name in ("ike_up", "ip_assigned", "child_up")] == [20, 8, 8]


def test_each_failure_has_its_own_cause(place: Inside) -> None:
    with strongswan(place, gateway_text()):
        # The gateway narrows what a client asks for.
        wide = write(place, client_text().replace("remote_ts = 10.30.0.0/16", "remote_ts = 10.0.0.0/8"))
        routes = ("--expect-route", "10.30.0.0/16", "--expect-route", "10.40.0.0/16")
        fleet = servers.fleet(place, wide, "-n", "3", "--echo", PROTECTED, *routes)
        assert fleet.causes("partial") == {"partial_route_missing": 3}
        for text, state, cause in (
            (client_text(key="another key"), "failed", "authentication_refused"),
            (client_text(ike="aes256-sha384-ecp384"), "failed", "no_proposal_chosen"),
            (client_text(esp="aes256-sha256"), "partial", "no_proposal_chosen"),
        ):
            fleet = servers.fleet(place, write(place, text), "-n", "3", "--echo", PROTECTED)
            assert fleet.causes(state) == {cause: 3}
            assert KEY not in fleet.err


def test_mistakes_are_refused_in_one_line(place: Inside) -> None:
    for text, options, expected in (
        (client_text(), (), "give --echo an address that answers"),
        (client_text(), ("--echo", "192.0.2.1"), "remote_ts does not hold the echo's destination 192.0.2.1"),
        (client_text().replace("{n}", ""), ("-n", "2", "--echo", PROTECTED), "write {n} in the file"),
        (client_text().replace("auth = psk", "auth = xauth", 1), ("--echo", PROTECTED), "xauth"),
        (client_text(), ("--echo", PROTECTED, "--users", "users.txt"), "--users is for OpenVPN"),
    ):
        fleet = servers.fleet(place, write(place, text), *options)
        assert fleet.code == 2
        assert expected in fleet.err
        assert KEY not in fleet.err
