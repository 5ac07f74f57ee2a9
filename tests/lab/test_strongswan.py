"""strongSwan under test: real daemons, real packets, each case in a jail of its own."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cli_runs as cli
import pytest
from _pytest.mark import ParameterSet
from sut_runs import WITHIN_S, lab_is_possible, run, states

__all__ = ["lab_is_possible"]

DAEMON = shutil.which("charon-systemd", path=f"{os.environ['PATH']}:/usr/local/sbin:/usr/sbin:/sbin")
pytestmark = [
    pytest.mark.lab,
    pytest.mark.apart,
    pytest.mark.takes(4),
    pytest.mark.usefixtures("lab_is_possible"),
    pytest.mark.skipif(DAEMON is None, reason="charon-systemd is not installed"),
]

AUTHENTICATIONS = ("psk", "ecdsa", "rsa", "eap-mschapv2")
CIPHERS = ("aes256gcm16", "aes256-sha256", "chacha20poly1305")
ALWAYS = (
    ("psk", "aes256gcm16", 4, "remote-access"),
    ("ecdsa", "aes256-sha256", 6, "site-to-site"),
    ("rsa", "chacha20poly1305", 4, "site-to-site"),
    ("eap-mschapv2", "aes256gcm16", 6, "remote-access"),
)
"""Each value at least once."""


def combinations() -> Iterator[ParameterSet]:
    """All of them in `make test-all`; `make test` runs a few."""
    for row in ALWAYS:
        yield pytest.param(*row)
    known = {row[:3] for row in ALWAYS}
    for number, values in enumerate(itertools.product(AUTHENTICATIONS, CIPHERS, (4, 6))):
        if values not in known:
            topology = ("remote-access", "site-to-site")[number // 2 % 2]
            yield pytest.param(*values, topology, marks=pytest.mark.full_matrix)


@pytest.mark.parametrize(("auth", "esp", "ip", "topology"), list(combinations()))
def test_every_client_connects(tmp_path: Path, auth: str, esp: str, ip: int, topology: str) -> None:
    """The probe of each client is answered over IPv4 and IPv6 inside of the tunnel; nothing is left behind."""
    clients = 2 if topology == "remote-access" else 1
    parameters = {"method": auth, "esp": esp, "ip": ip, "data_plane": "libipsec"}
    said = run(tmp_path, topology=topology, clients=clients, kind="strongswan", parameters=parameters)
    assert states(said) == ["connected"] * clients
    assert all(0 < client["time_s"] < WITHIN_S for client in said["up"]["clients"])
    assert re.fullmatch(r"strongSwan \S+ with kernel-libipsec \(user space\)", said["up"]["version"])
    assert said["up"]["name"] == "strongswan (kernel-libipsec)"
    log = next((tmp_path / "logs").glob("*gateway-b.log" if clients == 1 else "*gateway.log")).read_text()
    cipher = {"aes256gcm16": "AES_GCM_16_256", "aes256-sha256": "AES_CBC_256", "chacha20poly1305": "CHACHA20_POLY1305"}
    assert f"selected proposal: ESP:{cipher[esp]}" in log
    peer = r"fd81::\S+" if ip == 6 else r"10\.81\.\S+"
    assert re.search(rf"received packet: from {peer}\[4500\]", log), "the tunnel uses the version that it was given"


def test_keys_are_readable_by_their_owner_only_and_never_printed(tmp_path: Path) -> None:
    parameters = {"method": "eap-mschapv2"}
    run(tmp_path, topology="remote-access", clients=1, kind="strongswan", parameters=parameters)
    trial = tmp_path / "c01-1"
    files = [path for path in trial.rglob("*") if path.is_file()]
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert {stat.S_IMODE(path.stat().st_mode) for path in trial.rglob("*") if path.is_dir()} == {0o700}
    passwords = {text for path in files for text in re.findall(r'secret = "(.+)"', path.read_text())}
    keys = {path.read_text().splitlines()[1] for path in files if path.suffix == ".key"}
    assert len(passwords) == 1 and keys
    heard = (tmp_path / "heard.jsonl").read_text() + "".join(log.read_text() for log in (tmp_path / "logs").iterdir())
    assert "strongswan-gateway" in heard
    for secret in passwords | keys:
        assert secret not in heard


@pytest.mark.parametrize(
    ("spec", "state", "cause"),
    [
        ({"wrong_secret": True}, "failed", "the pre-shared keys differ: tried 1 shared key for 'gateway' - 'client1'"),
        (
            {"parameters": {"client_ike": "aes256-sha384-ecp384"}},
            "failed",
            "there is no common IKE proposal: it offers AES_CBC_256/HMAC_SHA2_384_192/PRF_HMAC_SHA2_384/ECP_384, the",
        ),
        (
            {"parameters": {"client_esp": "aes256-sha256"}},
            "partial",
            "there is no common ESP proposal: it offers AES_CBC_256/HMAC_SHA2_256_128/NO_EXT_SEQ, the gateway has AES_",
        ),
        pytest.param(
            {"wrong_secret": True, "parameters": {"method": "eap-mschapv2"}},
            "failed",
            "the gateway refused its password: EAP-MS-CHAPv2 failed with error ERROR_AUTHENTICATION_FAILURE",
            marks=pytest.mark.full_matrix,
        ),
        pytest.param(
            {"parameters": {"esp": "aes256gcm16-esn", "data_plane": "libipsec"}},
            "partial",
            "kernel-libipsec has no extended sequence numbers: IPsec SA: ESN not supported",
            marks=pytest.mark.full_matrix,
        ),
        pytest.param(
            {"parameters": {"client_esp": "aes257gcm16"}},
            "failed",
            "it does not know an algorithm: algorithm 'aes257gcm16' not recognized",
            marks=pytest.mark.full_matrix,
        ),
    ],
    ids=["wrong-psk", "ike-proposals", "esp-proposals", "wrong-password", "esn", "unknown-algorithm"],
)
def test_refused_client_has_its_cause(tmp_path: Path, spec: dict[str, Any], state: str, cause: str) -> None:
    said = run(tmp_path, topology="remote-access", clients=1, kind="strongswan", **spec)
    [client] = said["clients"]
    assert client["state"] == state
    assert client["cause"].startswith(cause)
    assert cause in said["error"]["message"] and "\n" not in said["error"]["message"]


def test_exhausted_pool_leaves_clients_partial(tmp_path: Path) -> None:
    said = run(tmp_path, topology="remote-access", clients=3, kind="strongswan", parameters={"pool_size": 2})
    assert sorted(states(said)) == ["connected", "connected", "partial"]
    [partial] = [client for client in said["up"]["clients"] if client["state"] == "partial"]
    assert {"ipv4 address", "ipv6 address"} <= set(partial["missing"])
    assert partial["cause"].startswith("the gateway's address pool is used up: ")


@pytest.mark.full_matrix
def test_gateway_that_refuses_its_configuration(tmp_path: Path) -> None:
    said = run(tmp_path, topology="remote-access", clients=1, kind="strongswan", parameters={"esp": "aes257gcm16"})
    message = said["error"]["message"]
    assert message.startswith("strongswan-gateway on gateway: it does not know an algorithm: algorithm 'aes257gcm16'")


def test_results_name_the_data_plane_and_keep_no_secret(tmp_path: Path) -> None:
    """The whole command: the name in every output, and nothing of the keys in the run's folder."""
    run_ = cli.run(
        """
        name: ipsec
        axes: {sut: [{kind: route}, {kind: strongswan, data_plane: libipsec}, {kind: libreswan, optional: true}]}
        tests: [{name: ping, kind: rr, number: 200, duration: 60s, timeout: 60s}]
        baseline: {sut: route}
        """,
        tmp_path,
        "--verbose",
    )
    assert run_.code == 0, run_.err
    # What the kernel lacks is skipped as a missing program is.
    assert [trial["status"] for trial in run_.report()["trials"] if trial["sut"] == "libreswan"] in (
        ["skipped"],
        ["done"],
    )
    systems = {trial["sut"]: trial["sut_version"] for trial in run_.report()["trials"]}
    assert "strongswan" not in systems
    assert systems["strongswan (kernel-libipsec)"].endswith("with kernel-libipsec (user space)")
    assert "IPsec by strongSwan with kernel-libipsec (user space) is not the same system" in " ".join(run_.out.split())
    kept = b"".join(path.read_bytes() for path in run_.folder.rglob("*") if path.is_file())
    assert b"PRIVATE KEY" not in kept and not re.search(rb'secret = "', kept)


@pytest.mark.full_matrix
def test_traffic_goes_on_while_keys_are_renewed(tmp_path: Path) -> None:
    run_ = cli.run(
        """
        name: rekey
        sut: {kind: strongswan, data_plane: libipsec}
        axes: {sut.child_rekey: [1s], sut.ike_rekey: [2s]}
        tests: [{name: load, kind: udp, rate: 500kbit, packet: 500, duration: 6s}]
        """,
        tmp_path,
    )
    assert run_.code == 0, run_.err
    found = run_.figures("load", "c01")
    assert (found["received"] or 0) > 0
    log = next((run_.folder / "logs").glob("*gateway.log")).read_text()
    assert "inbound CHILD_SA net{2} established" in log and "IKE_SA gateway[2] rekeyed" in log


@pytest.mark.parametrize("parameters", [{"data_plane": "kernel"}, {"compression": True}], ids=["kernel", "compression"])
def test_kernel_without_esp_is_refused_in_one_line(tmp_path: Path, parameters: dict[str, Any]) -> None:
    said = run(tmp_path, topology="remote-access", clients=1, kind="strongswan", parameters=parameters)
    if "up" in said:
        pytest.skip("this kernel has ESP")
    assert said["error"]["code"] == "missing_kernel_feature"
    assert "needs ESP in the kernel, and gateway's has none (" in said["error"]["message"]


def test_missing_plugin_is_named_with_its_packages(tmp_path: Path) -> None:
    """A daemon that says that it loaded too little: Debian has kernel-libipsec in a package of its own."""
    daemon = tmp_path / "charon-without-libipsec"
    daemon.write_text(
        "#!/bin/sh\necho '00[LIB] loaded plugins: charon-systemd random nonce kernel-netlink vici'\n"
        "echo '00[DMN] leadline: swanctl is done'\nexec sleep 60\n"
    )
    daemon.chmod(0o755)
    parameters = {"binary": str(daemon), "data_plane": "libipsec"}
    said = run(tmp_path, topology="remote-access", clients=1, kind="strongswan", parameters=parameters)
    assert said["error"]["code"] == "missing_binary"
    assert "strongSwan's plugin pem is not installed" in said["error"]["message"]
    assert "apt-get install charon-systemd" in said["error"]["message"]


@pytest.mark.full_matrix
def test_gateway_that_dies_is_reported(tmp_path: Path) -> None:
    spec: dict[str, Any] = {"topology": "remote-access", "clients": 1, "kind": "strongswan"}
    said = run(tmp_path, **spec, kill=["gateway", "strongswan-gateway"])
    assert said["failure"].startswith("strongswan-gateway on gateway was ended by signal 9; its log ends:")
