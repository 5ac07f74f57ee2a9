"""Interfaces of wireguard-go and of the kernel: files, commands, refusals."""

from __future__ import annotations

from pathlib import Path

import pytest
from sites import ADDRESSING

from leadline.errors import MissingBinary
from leadline.sut.wireguard import SYSTEM, KeyPair, WireguardSut, client_config, gateway_config
from leadline.sut.wireguard_device import Programs, find_programs, set_up_commands, wg_config, wireguard_go_argv

OWN, KEYS = KeyPair("own-private", "own-public"), KeyPair("private", "public")
PROGRAMS = Programs("/sbin/ip", "/usr/bin/wg", "/usr/bin/wireguard-go")
CONFIG = client_config(ADDRESSING, ADDRESSING.clients[0], KEYS, OWN, outer="fd81::1", mtu_bytes=1420)
FILE = Path("/keys/client1.conf")


def test_file_has_the_key_and_the_peer() -> None:
    assert wg_config(CONFIG).splitlines() == [
        "[Interface]",
        "PrivateKey = private",
        "",
        "[Peer]",
        "PublicKey = own-public",
        "AllowedIPs = 10.83.0.0/16, fd83::/64, 10.82.0.0/24, fd82::/64",
        "Endpoint = [fd81::1]:51820",
    ]


def test_gateway_listens_and_knows_no_endpoints() -> None:
    clients = [KEYS.public for _ in ADDRESSING.clients]
    text = wg_config(gateway_config(ADDRESSING, OWN, clients, "10.81.0.1", 1420))
    assert "ListenPort = 51820" in text and "Endpoint" not in text
    assert text.count("[Peer]") == len(clients)


def test_commands_set_keys_addresses_and_mtu_and_contain_no_key() -> None:
    commands = set_up_commands(PROGRAMS, CONFIG, FILE)
    assert commands == [
        "/usr/bin/wg setconf wg0 /keys/client1.conf",
        "/sbin/ip address add 10.83.1.1/16 dev wg0",
        "/sbin/ip address add fd83::1:1/64 dev wg0 nodad",
        "/sbin/ip link set wg0 mtu 1420 up",
    ]
    argv = wireguard_go_argv(PROGRAMS, CONFIG, FILE)
    assert argv[:2] == ("unshare", "--mount") and "private" not in " ".join(argv)
    assert argv[-1].endswith("/usr/bin/wireguard-go -f wg0")


class Bare:
    """A host without any program."""

    name = "gateway"

    async def find_program(self, name: str) -> str | None:
        return "/sbin/ip" if name == "ip" else None

    def missing(self, program: str, hint: str) -> MissingBinary:
        return MissingBinary(program, host=self.name, hint=hint)


async def test_missing_program_is_named_with_its_package() -> None:
    with pytest.raises(MissingBinary) as missing:
        await find_programs(Bare(), "wireguard-go")  # type: ignore[arg-type]
    assert str(missing.value) == "wg is not installed or not executable on gateway; apt-get install wireguard-tools"


@pytest.mark.parametrize(
    ("parameters", "names", "attribution"),
    [
        (WireguardSut(), ["/dev/net/tun"], "process"),
        (WireguardSut(implementation="wireguard-go"), ["wireguard-go", "wg", "/dev/net/tun"], "process"),
        (WireguardSut(implementation="wireguard-kernel"), ["wg", "WireGuard in the kernel"], "kernel"),
    ],
    ids=["embedded", "wireguard-go", "wireguard-kernel"],
)
def test_each_implementation_has_its_needs(parameters: WireguardSut, names: list[str], attribution: str) -> None:
    assert [need.name for need in SYSTEM.needs(parameters, fleet=False)] == names
    assert SYSTEM.cpu_attribution(parameters) == attribution
