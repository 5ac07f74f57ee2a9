"""Profiles and certificates as old guides write them, against a real OpenVPN server: what it takes, the fleet has to
take too, or say by name why not.
"""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import openvpn_servers as servers
import pytest
from openvpn_keys import Keys
from openvpn_servers import Inside, Setting

pytestmark = [pytest.mark.lab, pytest.mark.takes(20)]

CLIENTS = 3


def of_version_1(keys: Keys, folder: Path, name: str) -> Path:
    """NAME.crt and NAME.key of the authority as `openssl x509 -req` makes them unless told otherwise."""
    authority, made = keys.folder / "authority", folder / name
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", f"/CN={name}")
    request = ("-keyout", f"{made}.key", "-out", f"{made}.csr")
    subprocess.run(["openssl", "req", *curve, *request], check=True, capture_output=True)
    signed = ("-in", f"{made}.csr", "-CA", f"{authority}.crt", "-CAkey", f"{authority}.key", "-out", f"{made}.crt")
    number = ("-set_serial", "1", "-days", "2")
    subprocess.run(["openssl", "x509", "-req", *signed, *number], check=True, capture_output=True)
    return made.with_suffix(".crt")


def test_a_clients_certificate_of_version_1(place: Inside, keys: Keys, tmp_path: Path) -> None:
    with servers.server(place, keys, Setting(more=("duplicate-cn",))) as server:
        profile = server.profile("old", identity=of_version_1(keys, tmp_path, "old-client"))
        fleet = servers.fleet(place, profile, "-n", str(CLIENTS))
        assert (fleet.code, fleet.states) == (0, {"configured": CLIENTS}), fleet.err
        assert len(server.said("VERIFY OK: depth=0, CN=old-client")) == CLIENTS


def test_a_servers_certificate_of_version_1(place: Inside, keys: Keys, tmp_path: Path) -> None:
    old = of_version_1(keys, tmp_path, "old-server")
    with servers.server(place, replace(keys, server=old), Setting()) as server:
        profile = server.profile("client", identity=keys.client)
        profile.write_text(profile.read_text().replace("remote-cert-tls server\n", ""))
        fleet = servers.fleet(place, profile, "-n", str(CLIENTS))
        assert fleet.causes("failed") == {"tls_certificate_version": CLIENTS}, fleet.err
        assert "X.509 version 3" in fleet.document["error_examples"]["tls_certificate_version"]


@pytest.mark.parametrize(
    ("cipher", "transport"),
    [
        ("AES-256-GCM", "tcp"),
        ("AES-256-CBC", "udp"),
        *(
            pytest.param(cipher, transport, marks=pytest.mark.full_matrix)
            for cipher, transport in (
                ("AES-256-GCM", "udp"),
                ("AES-256-CBC", "tcp"),
                ("CHACHA20-POLY1305", "udp"),
                ("CHACHA20-POLY1305", "tcp"),
            )
        ),
    ],
)
def test_auth_none_carries_data(place: Inside, keys: Keys, transport: str, cipher: str) -> None:
    """`auth none`: CBC's packets prove nothing then, and the others prove themselves."""
    setting = Setting(transport=transport, ciphers=cipher, auth="none", more=("duplicate-cn",))
    with servers.server(place, keys, setting) as server:
        profile = server.profile("unproved", f"data-ciphers {cipher}", f"cipher {cipher}", identity=keys.client)
        running = servers.start_fleet(place, profile, "-n", str(CLIENTS), *servers.echo("20/s"))
        running.until_carried(10)
        fleet = running.interrupt()
        assert fleet.states == {"configured": CLIENTS}, fleet.err
        assert {row["cipher"] for row in fleet.rows} == {cipher}
        # It compares the options of both ends, and says where they differ.
        assert not server.said("used inconsistently|present in (local|remote) config but missing")


@pytest.mark.parametrize("transport", ["udp", pytest.param("tcp", marks=pytest.mark.full_matrix)])
def test_a_server_without_a_route(place: Inside, keys: Keys, transport: str) -> None:
    """No attempt could change that: the fleet ends before its first one, or takes the profile's other server."""
    with servers.server(place, keys, Setting(transport=transport, more=("duplicate-cn",))) as server:
        profile = server.profile("two", identity=keys.client)
        own, nowhere = f"remote {server.remote}", f"remote 192.0.2.1 1194 {server.remote.split()[-1]}"
        profile.write_text(profile.read_text().replace(own, f"{nowhere}\n{own}"))
        fleet = servers.fleet(place, profile, "-n", str(CLIENTS))
        assert (fleet.code, fleet.states) == (0, {"configured": CLIENTS}), fleet.err
        assert "192.0.2.1:1194: this host has no route to it" in "".join(fleet.document["fleet"]["ignored_options"])
        profile.write_text(profile.read_text().replace(f"{own}\n", ""))
        fleet = servers.fleet(place, profile, "-n", str(CLIENTS), "--retries", "5")
        assert fleet.code == 1
        assert "192.0.2.1:1194: this host has no route to it; add it, or give" in fleet.err


def test_what_large_providers_write(place: Inside, keys: Keys) -> None:
    """A whole subject as the server's name, suites of old times, an option that sizes buffers; dashes as on a command
    line."""
    lines = ("--tun-mtu-extra 32", "tls-cipher TLS-DHE-RSA-WITH-AES-256-GCM-SHA384:TLS-DHE-RSA-WITH-AES-256-CBC-SHA")
    with servers.server(place, keys, Setting(more=("duplicate-cn",))) as server:
        for name, expected in (("CN=server", {"configured": CLIENTS}), ("CN=other", {"failed": CLIENTS})):
            profile = server.profile(name[3:], *lines, f"verify-x509-name {name}", identity=keys.client)
            fleet = servers.fleet(place, profile, "-n", str(CLIENTS))
            assert fleet.states == expected, fleet.err
        assert fleet.causes("failed") == {"tls_certificate_name_mismatch": CLIENTS}
        assert "verify-x509-name" in fleet.document["error_examples"]["tls_certificate_name_mismatch"]
