"""OpenVPN's files, word for word."""

from __future__ import annotations

from ipaddress import ip_network
from pathlib import Path

import pytest
from pydantic import ValidationError
from sites import CLIENT_LAN, POOL, SERVER_LAN

from leadline.plan.field_types import validate_input
from leadline.sut.openvpn.config import (
    Keys,
    Networks,
    client_config,
    client_directory_entry,
    pool_range,
    route_networks,
    server_config,
)
from leadline.sut.openvpn.parameters import OpenvpnSut
from leadline.sut.openvpn.program import OpenvpnProgram
from leadline.sut.pki import Identity

NEW = OpenvpnProgram(
    "openvpn",
    "2.6",
    frozenset({"data-ciphers", "allow-compression", "disable-dco", "connect-freq-initial", "providers"}),
)
OLD = OpenvpnProgram("openvpn", "2.4", frozenset({"cipher", "ncp-ciphers"}))
FOLDER = Path("/run/keys")
NETWORKS = Networks(POOL, tuple(SERVER_LAN.values()))
SITES = Networks(POOL, tuple(SERVER_LAN.values()), tuple(CLIENT_LAN.values()))


def keys(name: str, control: bool = True) -> Keys:
    identity = Identity(FOLDER / f"{name}.crt", FOLDER / f"{name}.key")
    return Keys(FOLDER / "ca.crt", identity, FOLDER / "control.key" if control else None)


def server(
    parameters: OpenvpnSut, program: OpenvpnProgram = NEW, networks: Networks = NETWORKS, clients: int = 5
) -> list[str]:
    text = server_config(
        parameters, program, keys("gateway"), networks, listen="10.81.0.1", clients=clients, folder=FOLDER
    )
    assert text.endswith("\n")
    return text.splitlines()


def client(parameters: OpenvpnSut, program: OpenvpnProgram = NEW) -> list[str]:
    return client_config(parameters, program, keys("client1"), remote="10.81.0.1").splitlines()


def test_the_server_with_everything_by_default() -> None:
    assert server(OpenvpnSut()) == [
        "dev tun0",
        "proto udp4",
        "local 10.81.0.1",
        "port 1194",
        "topology subnet",
        "server 10.83.0.0 255.255.0.0",
        "server-ipv6 fd83::/64",
        'push "route 10.82.0.0 255.255.255.0"',
        'push "route-ipv6 fd82::/64"',
        'ca "/run/keys/ca.crt"',
        'cert "/run/keys/gateway.crt"',
        'key "/run/keys/gateway.key"',
        'tls-crypt "/run/keys/control.key"',
        "data-ciphers AES-256-GCM",
        "disable-dco",
        "verb 3",
        "remote-cert-tls client",
        "dh none",
        "keepalive 10 60",
        'status "/run/keys/status" 10',
        "status-version 2",
    ]


def test_the_client_with_everything_by_default() -> None:
    assert client(OpenvpnSut()) == [
        "client",
        "dev tun0",
        "proto udp",
        "remote 10.81.0.1 1194",
        "nobind",
        "connect-retry 1",
        'ca "/run/keys/ca.crt"',
        'cert "/run/keys/client1.crt"',
        'key "/run/keys/client1.key"',
        'tls-crypt "/run/keys/control.key"',
        "data-ciphers AES-256-GCM",
        "disable-dco",
        "verb 3",
        "remote-cert-tls server",
        "explicit-exit-notify 1",
    ]


def test_a_small_pool_is_what_the_macros_stand_for() -> None:
    lines = server(OpenvpnSut(pool_size=3))
    assert not any(line.startswith("server") for line in lines)
    start = lines.index("mode server")
    assert lines[start : start + 10] == [
        "mode server",
        "tls-server",
        'push "topology subnet"',
        "ifconfig 10.83.0.1 255.255.0.0",
        "ifconfig-pool 10.83.0.2 10.83.0.4 255.255.0.0",
        'push "route-gateway 10.83.0.1"',
        "route-gateway 10.83.0.2",
        "ifconfig-ipv6 fd83::1/64 fd83::2",
        "ifconfig-ipv6-pool fd83::1000/64",
        'push "tun-ipv6"',
    ]


def test_a_small_pool_of_point_to_point_addresses() -> None:
    lines = server(OpenvpnSut(pool_size=2, topology="net30"))
    assert "ifconfig 10.83.0.1 10.83.0.2" in lines
    assert "ifconfig-pool 10.83.0.4 10.83.0.11" in lines
    assert "route 10.83.0.0 255.255.0.0" in lines
    assert 'push "route 10.83.0.1"' in lines


@pytest.mark.parametrize(
    ("topology", "ends"),
    [
        ("subnet", ("10.83.0.2", "10.83.0.2")),
        ("net30", ("10.83.0.4", "10.83.0.7")),
        ("p2p", ("10.83.0.4", "10.83.0.4")),
    ],
)
def test_a_pool_for_one_client(topology: str, ends: tuple[str, str]) -> None:
    assert pool_range(OpenvpnSut.model_validate({"topology": topology, "pool_size": 1}), POOL[4]) == ends


@pytest.mark.parametrize(
    ("transport", "ip", "server_line", "client_line"),
    [
        ("udp", 6, "proto udp6", "proto udp"),
        ("tcp", 4, "proto tcp4-server", "proto tcp-client"),
        ("tcp", 6, "proto tcp6-server", "proto tcp-client"),
    ],
)
def test_transport_sets_proto_on_both_ends(transport: str, ip: int, server_line: str, client_line: str) -> None:
    parameters = OpenvpnSut.model_validate({"transport": transport, "ip": ip})
    assert server_line in server(parameters)
    assert client_line in client(parameters)
    assert ("explicit-exit-notify 1" in client(parameters)) == (transport == "udp")


@pytest.mark.parametrize(
    ("control", "server_line", "client_line"),
    [
        ("tls-auth", 'tls-auth "/run/keys/control.key" 0', 'tls-auth "/run/keys/control.key" 1'),
        ("tls-crypt-v2", 'tls-crypt-v2 "/run/keys/control.key"', 'tls-crypt-v2 "/run/keys/control.key"'),
    ],
)
def test_control_channel_mode_is_on_both_ends(control: str, server_line: str, client_line: str) -> None:
    parameters = OpenvpnSut.model_validate({"control": control})
    assert server_line in server(parameters)
    assert client_line in client(parameters)


def test_no_control_channel_protection() -> None:
    text = client_config(OpenvpnSut(control="none"), NEW, keys("client1", control=False), remote="10.81.0.1")
    assert "tls-" not in text.replace("remote-cert-tls", "")


def test_compression_has_to_be_allowed_where_it_can_be_forbidden() -> None:
    assert client(OpenvpnSut(compression="lz4-v2"))[-6:-4] == ["compress lz4-v2", "allow-compression yes"]
    old = client(OpenvpnSut(compression="lzo"), OLD)
    assert "compress lzo" in old
    assert "allow-compression yes" not in old


def test_an_old_build_is_spoken_to_in_its_own_words() -> None:
    lines = server(OpenvpnSut(), OLD, clients=100)
    assert "cipher AES-256-GCM" in lines
    assert "ncp-ciphers AES-256-GCM" in lines
    assert not any(line.startswith(("data-ciphers", "disable-dco", "connect-freq-initial")) for line in lines)


def test_ciphers_of_the_legacy_provider() -> None:
    assert "providers legacy default" in client(OpenvpnSut(cipher="BF-CBC"))
    assert "providers legacy default" not in client(OpenvpnSut(cipher="DES-EDE3-CBC"))


@pytest.mark.parametrize(("clients", "line"), [(25, None), (26, "connect-freq-initial 104 10")])
def test_many_clients_together_are_not_throttled(clients: int, line: str | None) -> None:
    found = [line for line in server(OpenvpnSut(), clients=clients) if line.startswith("connect-freq")]
    assert found == ([line] if line else [])
    assert not any(line.startswith("connect-freq") for line in server(OpenvpnSut(transport="tcp"), clients=1000))


@pytest.mark.parametrize(("asked", "line"), [("default", None), (30, "connect-freq-initial 30 10")])
def test_the_limit_of_first_packets_is_the_one_that_is_asked_for(asked: int | str, line: str | None) -> None:
    sut = validate_input(OpenvpnSut, {"connect_freq_initial": asked})
    found = [line for line in server(sut, clients=1000) if line.startswith("connect-freq")]
    assert found == ([line] if line else [])


@pytest.mark.parametrize("wrong", [0, True, "none", 1.5])
def test_no_other_limit_of_first_packets_is_taken(wrong: object) -> None:
    with pytest.raises(ValidationError, match="neither a number of first packets in 10 s nor 'default'"):
        validate_input(OpenvpnSut, {"connect_freq_initial": wrong})


def test_client_limit_and_mtu_are_in_the_server_file() -> None:
    lines = server(OpenvpnSut(max_clients=7, tun_mtu=1400))
    assert "max-clients 7" in lines
    assert "tun-mtu 1400" in lines


def test_two_sites_route_to_each_other() -> None:
    lines = server(OpenvpnSut(), networks=SITES, clients=1)
    assert "route 10.84.0.0 255.255.255.0" in lines
    assert "route-ipv6 fd84::/64" in lines
    assert 'client-config-dir "/run/keys/ccd"' in lines
    assert client_directory_entry(SITES) == "iroute 10.84.0.0 255.255.255.0\niroute-ipv6 fd84::/64\n"


def test_a_kernel_without_ipv6() -> None:
    lines = server(OpenvpnSut(pool_size=2), networks=Networks({4: POOL[4]}, [SERVER_LAN[4]]))
    assert not any("ipv6" in line for line in lines)


def test_pushed_routes_come_after_the_servers_network_and_once() -> None:
    parameters = OpenvpnSut.model_validate({"push_routes": ("10.90.0.0/24", "10.82.0.0/24", "fd90::/64")})
    pushed = route_networks(parameters, tuple(SERVER_LAN.values()))
    expected = ["10.82.0.0/24", "fd82::/64", "10.90.0.0/24", "fd90::/64"]
    assert pushed == [ip_network(text) for text in expected]


def test_a_path_with_spaces_and_quotes_stays_one_word() -> None:
    odd = Keys(Path('/run/my "keys"\\/ca.crt'), keys("c").identity, None)
    text = client_config(OpenvpnSut(control="none"), NEW, odd, remote="10.81.0.1")
    assert 'ca "/run/my \\"keys\\"\\\\/ca.crt"' in text
