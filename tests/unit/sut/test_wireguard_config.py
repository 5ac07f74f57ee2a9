"""WireGuard's keys and files in both topologies."""

from __future__ import annotations

import base64
from dataclasses import replace

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from sites import ADDRESSING, CLIENTS, ipv4_alone

from leadline.sut.addressing import TunnelClient
from leadline.sut.wireguard import KeyPair, client_config, fleet_access, gateway_config

OWN = KeyPair("private-g", "public-g")
KEYS = {"client1": KeyPair("private-1", "public-1"), "client2": KeyPair("private-2", "public-2")}
PUBLIC = [pair.public for pair in KEYS.values()]


def test_a_key_pair_belongs_together() -> None:
    pair = KeyPair.generate()
    private = X25519PrivateKey.from_private_bytes(base64.b64decode(pair.private, validate=True))
    assert private.public_key().public_bytes_raw() == base64.b64decode(pair.public, validate=True)
    assert KeyPair.generate() != pair


def test_the_gateway_knows_each_client_by_its_address() -> None:
    assert gateway_config(ADDRESSING, OWN, PUBLIC, "10.81.0.1", 1440) == {
        "interface": "wg0",
        "mtu": 1440,
        "private_key": "private-g",
        "listen_port": 51820,
        "listen_address": "10.81.0.1",
        "addresses": ["10.83.0.1/16", "fd83::1/64"],
        "peers": [
            {
                "public_key": "public-1",
                "endpoint": None,
                "allowed_ips": ["10.83.1.1/32", "fd83::1:1/128"],
                "keepalive_s": None,
            },
            {
                "public_key": "public-2",
                "endpoint": None,
                "allowed_ips": ["10.83.1.2/32", "fd83::1:2/128"],
                "keepalive_s": None,
            },
        ],
    }


def test_a_client_sends_everything_behind_the_gateway_to_it() -> None:
    config = client_config(ADDRESSING, CLIENTS[1], KEYS["client2"], OWN, outer="fd81::1", mtu_bytes=1420)
    assert config == {
        "interface": "wg0",
        "mtu": 1420,
        "private_key": "private-2",
        "listen_port": None,
        "listen_address": "::",
        "addresses": ["10.83.1.2/16", "fd83::1:2/64"],
        "peers": [
            {
                "public_key": "public-g",
                "endpoint": "[fd81::1]:51820",
                "allowed_ips": ["10.83.0.0/16", "fd83::/64", "10.82.0.0/24", "fd82::/64"],
                "keepalive_s": None,
            }
        ],
    }


def test_between_sites_the_clients_network_belongs_to_its_gateway() -> None:
    end = TunnelClient("client1", "gateway-a", 1)
    addressing = replace(ADDRESSING, gateway="gateway-b", clients=(end,))
    config = gateway_config(addressing, OWN, ["public-1"], "10.81.0.2", 1440)
    assert addressing.site_to_site
    assert config["peers"] == [
        {
            "public_key": "public-1",
            "endpoint": None,
            "allowed_ips": ["10.83.1.1/32", "fd83::1:1/128", "10.84.0.0/24", "fd84::/64"],
            "keepalive_s": None,
        }
    ]


def test_each_client_of_a_fleet_has_a_file_that_the_gateway_knows() -> None:
    access = fleet_access(ADDRESSING, "public-g", [KEYS["client1"], KEYS["client2"]], outer="fd81::1", mtu_bytes=1420)
    assert access.client_files[1] == (
        "[Interface]\nPrivateKey = private-2\nAddress = 10.83.1.2/16, fd83::1:2/64\nMTU = 1420\n"
        "[Peer]\nPublicKey = public-g\nEndpoint = [fd81::1]:51820\n"
        "AllowedIPs = 10.83.0.0/16, fd83::/64, 10.82.0.0/24, fd82::/64\n"
    )
    assert (access.pools, access.routes) == (("10.83.0.0/16", "fd83::/64"), ("10.82.0.0/24", "fd82::/64"))
    assert "private-2" not in repr(access)


def test_a_lab_without_ipv6() -> None:
    addressing = ipv4_alone(ADDRESSING)
    config = client_config(addressing, CLIENTS[0], KEYS["client1"], OWN, outer="10.81.0.1", mtu_bytes=1440)
    assert config["addresses"] == ["10.83.1.1/16"]
    assert ":" not in str(gateway_config(addressing, OWN, PUBLIC, "10.81.0.1", 1440)["addresses"])
