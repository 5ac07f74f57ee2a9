"""`leadline tunnel` with WireGuard's files: clients made from one file come up at a gateway that loaded their list."""

from __future__ import annotations

import json
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
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
PEERS = 20
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
        f"[Peer]\nPublicKey = {OWN.public}\nEndpoint = 127.0.0.1:51820\nAllowedIPs = 10.99.0.0/16\n"
    )
    return file


@pytest.fixture(scope="module")
def gateway(place: Inside, file: Path) -> Iterator[None]:
    """A gateway that loads what `--write-peers` wrote."""
    target = file.with_name("peers.conf")
    subprocess.run(
        [cli.quick_command, "tunnel", file, "--peers", str(PEERS), "--write-peers", target],
        check=True,
        capture_output=True,
    )
    peers = [
        {"public_key": key, "endpoint": None, "allowed_ips": [allowed], "keepalive_s": None}
        for key, allowed in _PEER.findall(target.read_text())
    ]
    config = {
        "interface": "wg0",
        "mtu": 1420,
        "private_key": OWN.private,
        "listen_port": 51820,
        "listen_address": "127.0.0.1",
        "addresses": ["10.99.0.1/16"],
        "peers": peers,
    }
    made = file.with_name("gateway.json")
    made.write_text(json.dumps(config))
    made.chmod(0o600)
    process = place.start([agent_binary(), "wireguard", made], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    assert any(b"ready" in line for line in process.stdout)
    yield
    servers.interrupt(process)
    process.wait(cli.WITHIN_S)
    process.stdout.close()


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
    nowhere.write_text(file.read_text().replace("51820", "51821"))
    fleet = servers.fleet(place, nowhere)
    assert fleet.causes("failed") == {"connection_refused": 1}


def test_file_without_the_gateways_address_asks_for_it(place: Inside, file: Path) -> None:
    single = file.with_name("single.conf")
    text = file.read_text().replace("10.99.0.2/16", "10.99.0.2/32").replace("= 10.99.0.0/16", "= 0.0.0.0/0")
    single.write_text(text)
    fleet = servers.fleet(place, single)
    assert fleet.code == 2
    assert "give --echo" in fleet.err and "PrivateKey" not in fleet.err
