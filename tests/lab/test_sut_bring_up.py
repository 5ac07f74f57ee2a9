"""Every system under test comes up in both topologies, counts its clients truly, and leaves nothing behind.

Real daemons and real packets: each case is a run of `sut_trial.py` in a jail of its own.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from _pytest.mark import ParameterSet
from sut_runs import WITHIN_S, lab_is_possible, run, states

__all__ = ["lab_is_possible"]

pytestmark = [pytest.mark.lab, pytest.mark.apart, pytest.mark.takes(5), pytest.mark.usefixtures("lab_is_possible")]

OPENVPN = shutil.which("openvpn", path=f"{os.environ['PATH']}:/usr/local/sbin:/usr/sbin:/sbin")
needs_wireguard_go = pytest.mark.skipif(
    not (shutil.which("wireguard-go") and shutil.which("wg")), reason="wireguard-go or wg is not installed"
)
needs_strongswan = pytest.mark.skipif(
    shutil.which("charon-systemd", path=f"{os.environ['PATH']}:/usr/local/sbin:/usr/sbin:/sbin") is None,
    reason="charon-systemd is not installed",
)
needs_openvpn = pytest.mark.skipif(OPENVPN is None, reason="openvpn is not installed")


TOPOLOGIES = ("remote-access", "site-to-site")
BRING_UPS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("route", {}),
    ("wireguard", {"ip": 4}),
    ("wireguard", {"ip": 6}),
    ("openvpn", {}),
    ("openvpn", {"transport": "tcp", "ip": 6, "control": "tls-crypt-v2"}),
    ("openvpn", {"topology": "net30", "control": "tls-auth", "cipher": "CHACHA20-POLY1305"}),
    (
        "openvpn",
        {"topology": "p2p", "control": "none", "compression": "lz4-v2", "cipher": "AES-128-CBC", "tun_mtu": 1400},
    ),
    ("wireguard", {"implementation": "wireguard-go", "ip": 6}),
    ("wireguard", {"implementation": "wireguard-kernel"}),
    ("libreswan", {}),
)
REFUSED_BY_KERNEL = {
    "wireguard": "implementation: wireguard-kernel needs WireGuard in the kernel, and gateway",
    "libreswan": "Libreswan carries packets by ESP in the kernel alone, and gateway",
}
"""What systems that need the kernel say of one that lacks it."""


def bring_ups() -> Iterator[ParameterSet]:
    """Each in both topologies; `make test` runs each in one of them, and each kind in both but the plain route."""
    for number, (kind, parameters) in enumerate(BRING_UPS):
        for position, topology in enumerate(TOPOLOGIES):
            marks = [needs_openvpn] if kind == "openvpn" else []
            marks += [needs_wireguard_go] if parameters.get("implementation") == "wireguard-go" else []
            marks += [pytest.mark.full_matrix] if number % 2 != position else []
            yield pytest.param(topology, kind, parameters, marks=marks)


@pytest.mark.parametrize(("topology", "kind", "parameters"), list(bring_ups()))
def test_every_client_connects(tmp_path: Path, topology: str, kind: str, parameters: dict[str, Any]) -> None:
    clients = 2 if topology == "remote-access" else 1
    said = run(tmp_path, topology=topology, clients=clients, kind=kind, parameters=parameters)
    refusal = said.get("error", {"code": "", "message": ""})
    if refusal["code"] == "missing_kernel_feature" or (kind == "libreswan" and refusal["code"] == "missing_binary"):
        assert refusal["code"] == "missing_binary" or REFUSED_BY_KERNEL[kind] in refusal["message"]
        pytest.skip(refusal["message"])
    assert states(said) == ["connected"] * clients
    assert [client["host"] for client in said["up"]["clients"]] == ["client1", "client2"][:clients]
    assert said["up"]["version"]
    assert said["up"]["target"]["4"] == "10.82.0.2"
    if kind != "route" and said["up"]["processes"]:
        assert all(0 < client["time_s"] < WITHIN_S for client in said["up"]["clients"])


@pytest.mark.parametrize(
    "kind",
    [
        *("route", "wireguard"),
        pytest.param("openvpn", marks=needs_openvpn),
        pytest.param("strongswan", marks=[needs_strongswan, pytest.mark.full_matrix]),
    ],
)
def test_every_client_connects_without_root(tmp_path: Path, kind: str) -> None:
    said = run(tmp_path, _without_rights(), topology="remote-access", clients=2, kind=kind)
    assert states(said) == ["connected", "connected"]


@pytest.mark.parametrize(
    ("topology", "kind"),
    [("remote-access", "route"), ("site-to-site", "wireguard")],
)
def test_agents_alone_bring_it_up_and_leave_their_hosts_as_they_were(tmp_path: Path, topology: str, kind: str) -> None:
    """As on hosts elsewhere: files, commands, routes and settings go through each host's agent."""
    said = run(tmp_path, topology=topology, clients=1, kind=kind, by_agents=True)
    assert states(said) == ["connected"]
    assert said["after"] == said["before"], "routes"
    assert (set(said["forwarding"]), said["files_left"]) == ({"0"}, False)


@needs_openvpn
def test_more_clients_than_addresses(tmp_path: Path) -> None:
    """OpenVPN's clients all say "Initialization Sequence Completed"; two of these five have no address."""
    said = run(tmp_path, topology="remote-access", clients=5, kind="openvpn", parameters={"pool_size": 3})
    assert sorted(states(said)) == ["connected"] * 3 + ["partial"] * 2
    for client in said["up"]["clients"]:
        if client["state"] == "partial":
            assert {"ipv4 address", "route 10.82.0.0/24"} <= set(client["missing"])
            assert client["cause"].startswith("the gateway's address pool is used up")
    # The client is named beside it; the cause itself is the same for both, so that causes can be counted.
    assert len({client["cause"] for client in said["up"]["clients"] if client["state"] == "partial"}) == 1


@needs_openvpn
def test_pushed_routes_arrive(tmp_path: Path) -> None:
    routes = ["10.90.0.0/24", "fd90::/64"]
    said = run(tmp_path, topology="remote-access", clients=1, kind="openvpn", parameters={"push_routes": routes})
    assert states(said) == ["connected"]
    log = next((tmp_path / "logs").glob("*client1.log")).read_text()
    assert "10.90.0.0/24" in log


@pytest.mark.parametrize("kind", ["wireguard", pytest.param("openvpn", marks=needs_openvpn)])
def test_keys_are_readable_by_their_owner_only_and_never_printed(tmp_path: Path, kind: str) -> None:
    run(tmp_path, topology="remote-access", clients=1, kind=kind)
    trial = tmp_path / "c01-1"
    files = [path for path in trial.rglob("*") if path.is_file() and path.name != "status"]
    assert files
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert stat.S_IMODE(trial.stat().st_mode) == 0o700
    heard = (tmp_path / "heard.jsonl").read_text() + "".join(log.read_text() for log in (tmp_path / "logs").iterdir())
    for secret in _secrets(files):
        assert secret not in heard


@needs_openvpn
def test_a_daemon_that_dies_is_reported(tmp_path: Path) -> None:
    spec: dict[str, Any] = {"topology": "remote-access", "clients": 1, "kind": "openvpn"}
    said = run(tmp_path, **spec, kill=["gateway", "openvpn-server"])
    assert said["failure"].startswith("openvpn-server on gateway was ended by signal 9; its log ends:")


def test_a_client_process_that_dies_is_reported(tmp_path: Path) -> None:
    spec: dict[str, Any] = {"topology": "remote-access", "clients": 2, "kind": "wireguard"}
    said = run(tmp_path, **spec, kill=["client2", "wireguard-client"])
    assert said["failure"].startswith("wireguard-client on client2 was ended by signal 9")


@needs_openvpn
def test_a_gateway_that_refuses_its_options(tmp_path: Path) -> None:
    said = run(tmp_path, topology="remote-access", clients=1, kind="openvpn", parameters={"cipher": "NO-SUCH-CIPHER"})
    assert said["error"]["code"] == "sut_failed"
    assert "openvpn-server on gateway: it refuses its options: Options error" in said["error"]["message"]
    assert "its log ends: " in said["error"]["message"]


def test_a_program_that_is_something_else(tmp_path: Path) -> None:
    said = run(tmp_path, topology="remote-access", clients=1, kind="openvpn", parameters={"binary": "/bin/true"})
    assert said["error"]["code"] == "sut_failed"
    assert "/bin/true is not OpenVPN" in said["error"]["message"]


def test_a_program_that_is_missing(tmp_path: Path) -> None:
    said = run(tmp_path, topology="remote-access", clients=1, kind="openvpn", parameters={"binary": "/no/openvpn"})
    assert said["error"]["code"] == "missing_binary"
    assert "/no/openvpn" in said["error"]["message"]


def _without_rights() -> tuple[str, ...]:
    """Before a command, to run it without the capabilities that root has; only a user namespace is left to it."""
    if os.geteuid() != 0:
        return ()
    if shutil.which("setpriv") is None:
        pytest.skip("setpriv is not installed, so root can't drop its rights")
    # CAP_SETFCAP is what Linux asks of uid 0 to map itself into a user namespace; another user needs nothing.
    return ("setpriv", "--bounding-set=-all,+setfcap", "--inh-caps=-all")


def _secrets(files: list[Path]) -> list[str]:
    """A line out of each private key."""
    found = []
    for path in files:
        text = path.read_text()
        if path.suffix == ".json":
            found.append(str(json.loads(text)["private_key"]))
        elif path.suffix == ".key":
            found.append(text.splitlines()[2])
    assert found
    return found
