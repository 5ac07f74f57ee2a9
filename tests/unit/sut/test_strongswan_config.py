"""strongSwan's files, as text."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError
from sites import CLIENT_LAN, POOL, SERVER_LAN

from leadline.plan.field_types import validate_input
from leadline.sut.strongswan import SYSTEM
from leadline.sut.strongswan.config import End, client_config, daemon_config, fleet_ends, gateway_config, plugins
from leadline.sut.strongswan.parameters import StrongswanSut

GATEWAY = End("gateway", "10.81.0.1", tuple(SERVER_LAN.values()), None)
CLIENT = End("client1", "10.81.1.1", (), "sesame")
SITE = End("gateway-a", "10.81.0.1", tuple(CLIENT_LAN.values()), "sesame")


def lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines()]


def test_remote_access_asks_for_an_address_of_each_version() -> None:
    parameters = StrongswanSut(esp="aes128gcm16, aes256-sha256")
    found = lines(client_config(parameters, CLIENT, GATEWAY, POOL))
    assert {"vips = 0.0.0.0, ::", "remote_addrs = 10.81.0.1", "local_addrs = 10.81.1.1"} <= set(found)
    assert {"remote_ts = 10.82.0.0/24, fd82::/64", "esp_proposals = aes128gcm16, aes256-sha256"} <= set(found)
    assert not [line for line in found if line.startswith("local_ts")]


def test_gateway_has_pools_of_the_asked_size_and_a_secret_for_each_client() -> None:
    clients = [CLIENT, replace(CLIENT, name="client2", secret="open")]
    found = lines(gateway_config(StrongswanSut(pool_size=3), GATEWAY, clients, POOL, site_to_site=False))
    assert {"pools = ipv4, ipv6", "local_ts = 10.82.0.0/24, fd82::/64"} <= set(found)
    assert "ipv4 { addrs = 10.83.0.2-10.83.0.4 }" in found and "ipv6 { addrs = fd83::2-fd83::4 }" in found
    assert found.count('secret = "sesame" }') == found.count('secret = "open" }') == 1


def test_pool_without_a_size_stays_within_its_network() -> None:
    found = lines(gateway_config(StrongswanSut(), GATEWAY, [CLIENT], {4: POOL[4]}, site_to_site=False))
    assert "ipv4 { addrs = 10.83.0.2-10.83.253.233 }" in found


def test_site_to_site_has_networks_at_both_ends_and_no_pool() -> None:
    gateway = lines(gateway_config(StrongswanSut(), GATEWAY, [SITE], {}, site_to_site=True))
    assert {"local_ts = 10.82.0.0/24, fd82::/64", "remote_ts = 10.84.0.0/24, fd84::/64"} <= set(gateway)
    client = lines(client_config(StrongswanSut(), SITE, GATEWAY, {}))
    assert {"local_ts = 10.84.0.0/24, fd84::/64", "remote_ts = 10.82.0.0/24, fd82::/64"} <= set(client)
    assert not [line for line in (*gateway, *client) if line.startswith(("vips", "pools ="))]


@pytest.mark.parametrize(
    ("auth", "own", "other", "secret"),
    [
        ("psk", "auth = psk", "auth = psk", "ike-client1"),
        ("ecdsa", "auth = pubkey", "auth = pubkey", None),
        ("rsa", "auth = pubkey", "auth = pubkey", None),
        ("eap-mschapv2", "auth = eap-mschapv2", "auth = pubkey", "eap-client1"),
    ],
)
def test_client_authenticates_itself_and_its_gateway(auth: str, own: str, other: str, secret: str | None) -> None:
    parameters = StrongswanSut.model_validate({"method": auth})
    end = replace(CLIENT, secret="sesame" if secret else None)
    found = lines(client_config(parameters, end, GATEWAY, POOL))
    assert found[found.index("local {") + 1] == own
    assert found[found.index("remote {") + 1] == other
    assert {"id = client1", "id = gateway"} <= set(found)
    assert ("secrets {" in found) == (secret is not None)
    assert secret is None or any(line.startswith(f"{secret} {{") for line in found)


def test_clients_may_have_proposals_of_their_own() -> None:
    parameters = StrongswanSut(client_ike="aes128-sha256-ecp256", client_esp="chacha20poly1305", compression=True)
    client, gateway = (
        lines(client_config(parameters, CLIENT, GATEWAY, POOL)),
        lines(gateway_config(parameters, GATEWAY, [CLIENT], POOL, site_to_site=False)),
    )
    assert {"proposals = aes128-sha256-ecp256", "esp_proposals = chacha20poly1305", "ipcomp = yes"} <= set(client)
    assert {"proposals = aes256gcm16-prfsha256-x25519", "esp_proposals = aes256gcm16", "ipcomp = yes"} <= set(gateway)


def test_daemon_runs_swanctl_and_says_so_without_the_marker_in_its_command() -> None:
    text = daemon_config(StrongswanSut(), "libipsec", swanctl="/opt/a b/swanctl", connects=True)
    assert "'/opt/a b/swanctl' --initiate --child net" in text
    assert "leadline: swanctl" not in text, "charon logs the command, too"
    assert "--initiate" not in daemon_config(StrongswanSut(), "libipsec", swanctl="swanctl", connects=False)


def test_libipsec_comes_before_netlink_and_only_where_it_is_the_data_plane() -> None:
    user, kernel = plugins(StrongswanSut(), "libipsec"), plugins(StrongswanSut(), "kernel")
    assert user.index("kernel-libipsec") < user.index("kernel-netlink")
    assert "kernel-libipsec" not in kernel and "kernel-netlink" in kernel
    assert "eap-mschapv2" not in user and "eap-mschapv2" in plugins(StrongswanSut(method="eap-mschapv2"), "libipsec")
    assert not {"stroke", "bypass-lan"} & {*user, *kernel}


def test_clients_renew_keys_and_leave_time_for_it() -> None:
    parameters = validate_input(StrongswanSut, {"kind": "strongswan", "ike_rekey": "100s", "child_rekey": "2s"})
    found = lines(client_config(parameters, CLIENT, GATEWAY, POOL))
    assert {"rekey_time = 100s", "over_time = 10s", "rand_time = 10s"} <= set(found)
    assert {"rekey_time = 2s", "life_time = 12s", "rand_time = 0s"} <= set(found)
    gateway = gateway_config(parameters, GATEWAY, [CLIENT], POOL, site_to_site=False)
    assert "rekey_time" not in gateway, "both ends would collide"


def test_lifetimes_of_parts_of_seconds_are_refused() -> None:
    with pytest.raises(ValidationError, match=r"child_rekey is 0\.5 s, and charon knows no parts of seconds"):
        validate_input(StrongswanSut, {"kind": "strongswan", "child_rekey": "500ms"})


@pytest.mark.parametrize("text", ["", "aes256gcm16;id", "AES256", "aes256gcm16,", 'aes" }'])
def test_what_is_no_proposal_is_refused(text: str) -> None:
    with pytest.raises(ValidationError, match="is not a proposal"):
        validate_input(StrongswanSut, {"kind": "strongswan", "esp": text})


def test_libipsec_with_compression_is_refused() -> None:
    with pytest.raises(ValidationError, match="kernel-libipsec has no IPComp"):
        validate_input(StrongswanSut, {"kind": "strongswan", "data_plane": "libipsec", "compression": True})


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        # 1400 bytes of packet, 2 of padding, 2 of trailer, 16 of tag, 8 of IV, 8 of ESP's header; UDP, IP.
        (StrongswanSut(data_plane="libipsec"), (1400, 64)),
        (StrongswanSut(data_plane="libipsec", ip=6, esp="chacha20poly1305"), (1400, 84)),
        # The largest packet that leaves no byte of 1500 unused.
        (StrongswanSut(data_plane="kernel"), (1446, 54)),
        (StrongswanSut(), None),
        (StrongswanSut(data_plane="libipsec", esp="aes256-sha256"), None),
        (StrongswanSut(data_plane="libipsec", esp="aes256gcm16, chacha20poly1305"), None),
    ],
    ids=["libipsec", "libipsec-ipv6", "kernel", "auto", "cbc", "two-proposals"],
)
def test_largest_packet_and_what_is_added_to_it(parameters: StrongswanSut, expected: tuple[int, int] | None) -> None:
    assert SYSTEM.packets(parameters, 1500) == expected


def test_kernel_needs_no_tun_device_and_its_cpu_time_is_the_kernels() -> None:
    kernel, user = StrongswanSut(data_plane="kernel"), StrongswanSut()
    assert [need.kind for need in SYSTEM.needs(kernel, fleet=False)] == ["program", "program", "kernel"]
    assert [need.kind for need in SYSTEM.needs(user, fleet=False)] == ["program", "program", "device"]
    assert (SYSTEM.cpu_attribution(kernel), SYSTEM.cpu_attribution(user)) == ("kernel", "process")


def test_fleet_shares_one_key_or_has_a_password_for_each_name() -> None:
    """A client's file has its number in its name; the gateway knows all names."""
    (all_,) = fleet_ends(StrongswanSut(), 3, "a secret")
    gateway = gateway_config(StrongswanSut(), GATEWAY, [all_], POOL, site_to_site=False)
    assert 'ike-all {\n    secret = "a secret" }' in gateway
    eap = StrongswanSut(method="eap-mschapv2")
    named = gateway_config(eap, GATEWAY, fleet_ends(eap, 3, "a secret"), POOL, site_to_site=False)
    assert [f"eap-client{number} {{ id = client{number}" in named for number in range(4)] == [True, True, True, False]
    client = client_config(StrongswanSut(), End("client{n}", "%any", (), "a secret"), GATEWAY, POOL)
    assert client.count("client{n}") == 3


def test_limits_for_storms_are_the_daemons_own_unless_set() -> None:
    def settings(**keys: Any) -> str:
        return daemon_config(StrongswanSut(**keys), "libipsec", swanctl="swanctl", connects=False)

    assert "dos_protection" not in settings() and "ikesa_table_size" not in settings()
    assert "dos_protection = no\n  ikesa_table_size = 4096" in settings(dos_protection=False, ikesa_table_size=4096)
