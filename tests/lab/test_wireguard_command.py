"""`leadline tunnel` with WireGuard's files: clients made from one file come up at a gateway that loaded their list."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import cli_runs as cli
import openvpn_servers as servers
import pytest
from openvpn_servers import Inside

from leadline.agents import agent_binary
from leadline.sut.wireguard import KeyPair

pytestmark = [
    pytest.mark.lab,
    pytest.mark.takes(6),
    pytest.mark.skipif(bool(cli.why_not()), reason=cli.why_not() or "-"),
]
PEERS = 200
PORT = 51820
OWN = KeyPair.generate()
_PEER = re.compile(r"\[Peer\]\nPublicKey = (\S+)\nAllowedIPs = (\S+)\n")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Inside]:
    with servers.inside(tmp_path_factory.mktemp("wireguard")) as jail:
        yield jail


@pytest.fixture(scope="module")
def file(place: Inside) -> Path:
    file = place.folder / "wg0.conf"
    file.write_text(
        f"[Interface]\nPrivateKey = {KeyPair.generate().private}\nAddress = 10.99.0.2/16\n"
        f"[Peer]\nPublicKey = {OWN.public}\nEndpoint = 127.0.0.1:{PORT}\nAllowedIPs = 10.99.0.0/16\n"
    )
    return file


@pytest.fixture(scope="module")
def peers(file: Path) -> Path:
    """What `--write-peers` writes for the gateway."""
    target = file.with_name("peers.conf")
    command: list[str | Path] = [cli.quick_command, "tunnel", file, "--peers", str(PEERS), "--write-peers", target]
    subprocess.run(command, check=True, capture_output=True)
    return target


@pytest.fixture(scope="module", params=["embedded", "wireguard-go"])
def gateway(request: pytest.FixtureRequest, place: Inside, peers: Path) -> Iterator[None]:
    """A gateway that has loaded the list of the clients."""
    with (_embedded if request.param == "embedded" else _wireguard_go)(place, peers):
        yield


@contextmanager
def _embedded(place: Inside, peers: Path) -> Iterator[None]:
    listed = [
        {"public_key": key, "endpoint": None, "allowed_ips": [allowed], "keepalive_s": None}
        for key, allowed in _PEER.findall(peers.read_text())
    ]
    config = {
        "interface": "wg0",
        "mtu": 1420,
        "private_key": OWN.private,
        "listen_port": PORT,
        "listen_address": "127.0.0.1",
        "addresses": ["10.99.0.1/16"],
        "peers": listed,
    }
    made = peers.with_name("gateway.json")
    made.write_text(json.dumps(config))
    made.chmod(0o600)
    with _running(place, [agent_binary(), "wireguard", made], b"ready"):
        yield


@contextmanager
def _wireguard_go(place: Inside, peers: Path) -> Iterator[None]:
    missing = [name for name in ("wireguard-go", "wg") if shutil.which(name) is None]
    if missing or place.rootless:
        pytest.skip(f"{missing[0]} is not installed" if missing else "its socket needs root")
    # Its socket lies in a folder that all namespaces share.
    name = f"wg{os.getpid() % 100_000}"
    made = peers.with_name("gateway.conf")
    made.write_text(f"[Interface]\nPrivateKey = {OWN.private}\nListenPort = {PORT}\n{peers.read_text()}")
    made.chmod(0o600)
    with _running(place, ["env", "LOG_LEVEL=verbose", "wireguard-go", "-f", name], b"UAPI listener started"):
        commands = (
            ["wg", "setconf", name, str(made)],
            ["ip", "address", "add", "10.99.0.1/16", "dev", name],
            ["ip", "link", "set", name, "up"],
        )
        for command in commands:
            subprocess.run(place.enter(command), check=True, capture_output=True)
        yield


@contextmanager
def _running(place: Inside, command: Sequence[str | Path], ready: bytes) -> Iterator[None]:
    """A program in the jail until the end of the block, once it has said that it is ready."""
    log = place.folder / "gateway.log"
    with log.open("wb") as said:
        process = place.start(command, stdout=said, stderr=subprocess.STDOUT)
    try:
        deadline = time.monotonic() + cli.WITHIN_S
        while ready not in log.read_bytes():
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=0.02)
        yield
    finally:
        servers.interrupt(process)
        process.wait(cli.WITHIN_S)


@pytest.mark.usefixtures("gateway")
def test_made_clients_come_up_from_their_source_addresses(place: Inside, file: Path) -> None:
    source = ("--source", "127.0.0.2-127.0.0.5")
    fleet = servers.fleet(place, file, "--peers", str(PEERS), *source, "--expect-pool", "10.99.0.0/16")
    assert (fleet.code, fleet.states) == (0, {"configured": PEERS}), fleet.err
    assert [fleet.count(name) for name in ("child_up", "traffic_both_ways")] == [PEERS, PEERS]
    used = Counter(row["local"].rsplit(":", 1)[0] for row in fleet.rows)
    assert used == {f"127.0.0.{number}": PEERS // 4 for number in range(2, 6)}
    assert len({row["addresses"][0] for row in fleet.rows}) == PEERS


@pytest.mark.usefixtures("gateway")
def test_each_failure_has_its_own_cause(place: Inside, file: Path) -> None:
    shared = file.with_name("shared.conf")
    shared.write_text(file.read_text() + f"PresharedKey = {KeyPair.generate().private}\n")
    fleet = servers.fleet(place, shared, "--attempt-timeout", "500ms")
    assert fleet.causes("failed") == {"response_rejected": 1}
    stranger = file.with_name("stranger.conf")
    stranger.write_text(re.sub("PrivateKey = .*", f"PrivateKey = {KeyPair.generate().private}", file.read_text()))
    fleet = servers.fleet(place, stranger, "--attempt-timeout", "500ms")
    assert fleet.causes("failed") == {"handshake_unanswered": 1}
    nowhere = file.with_name("nowhere.conf")
    nowhere.write_text(file.read_text().replace(f":{PORT}", f":{PORT + 1}"))
    fleet = servers.fleet(place, nowhere)
    assert fleet.causes("failed") == {"connection_refused": 1}


def test_file_without_the_gateways_address_asks_for_it(place: Inside, file: Path) -> None:
    single = file.with_name("single.conf")
    text = file.read_text().replace("10.99.0.2/16", "10.99.0.2/32").replace("= 10.99.0.0/16", "= 0.0.0.0/0")
    single.write_text(text)
    fleet = servers.fleet(place, single)
    assert fleet.code == 2
    assert "give --echo" in fleet.err and "PrivateKey" not in fleet.err
