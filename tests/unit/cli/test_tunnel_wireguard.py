"""The options of `leadline tunnel` for WireGuard: files, folders, clients that are made, each refusal in one line."""

from __future__ import annotations

import base64
import stat
from pathlib import Path

import pytest

from in_process import subcommand
from leadline.contract.models import TunnelWorkload, WireguardFiles
from leadline.errors import InputError
from leadline.kinds.tunnel import wg_quick
from leadline.kinds.tunnel.command import parse_options, run

PRIVATE = "dwdtCnMYpX08FsFyUbJmRd9ML4frwJkqsXf7pR25LCo="
PUBLIC = "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo="
"""RFC 7748, section 6.1: Alice's keys."""
SHARED = base64.b64encode(bytes(range(32))).decode()
FILE = f"""# a client
[Interface]
PrivateKey = {PRIVATE}
Address = 10.83.0.2/16
Address = fd83::2/64
[Peer]
PublicKey = 3p7bfXt9wbTTW2HC7OQ1Nz+DQ8hbeGdNrfx+FG+IK08=
Endpoint = 192.0.2.1:51820
AllowedIPs = 10.83.0.0/16, fd83::/64
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "wg0.conf"
    path.write_text(FILE)
    return path


def loads(*arguments: str | Path) -> list[TunnelWorkload]:
    context = subcommand("tunnel").make_context("tunnel", [str(argument) for argument in arguments])
    return [made for _, made in parse_options(context.params)[0]]


def texts(*arguments: str | Path) -> list[str]:
    [made] = loads(*arguments)
    assert isinstance(made.identities, WireguardFiles)
    assert (made.profile, made.clients) == ("", len(made.identities.files))
    return [one.text for one in made.identities.files]


def refused(*arguments: str | Path) -> str:
    with pytest.raises(InputError) as caught:
        loads(*arguments)
    return str(caught.value)


def test_wireguard_file_is_one_client_as_it_stands(file: Path) -> None:
    assert texts(file) == [FILE]


def test_folder_has_a_client_for_each_file(file: Path) -> None:
    other = FILE.replace(PRIVATE, SHARED).replace(".0.2/", ".0.3/")
    (file.parent / "wg1.conf").write_text(other)
    (file.parent / "notes.txt").write_text("nothing")
    assert texts(file.parent) == [FILE, other]
    assert [one.clients for one in loads(file.parent, "-n", "1,2")] == [1, 2]


def test_made_clients_have_keys_and_addresses_of_their_own_and_the_same_in_each_run(file: Path) -> None:
    made = texts(file, "--peers", "300")
    assert made[0] == FILE
    assert made == texts(file, "--peers", "300")
    clients = [wg_quick.read_client(text) for text in made]
    assert len({client.private_key for client in clients}) == 300
    assert [str(address) for address in clients[299].addresses] == ["10.83.1.45/16", "fd83::12d/64"]
    assert all(text.count("\n") == FILE.count("\n") for text in made), "messages name the lines of the user's file"


def test_written_peers_are_what_the_gateway_needs(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(FILE + f"PresharedKey = {SHARED}\n")
    target = file.parent / "peers.conf"
    context = subcommand("tunnel").make_context("tunnel", [str(file), "--peers", "2", "--write-peers", str(target)])
    assert run(context.params) == 0
    sections = target.read_text().split("[Peer]\n")[1:]
    assert sections[0] == f"PublicKey = {PUBLIC}\nPresharedKey = {SHARED}\nAllowedIPs = 10.83.0.2/32, fd83::2/128\n\n"
    second = wg_quick.read_client(texts(file, "--peers", "2")[1])
    assert f"PublicKey = {second.public_key}\n" in sections[1]
    assert "AllowedIPs = 10.83.0.3/32, fd83::3/128\n" in sections[1]
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert f"wg addconf INTERFACE {target}" in capsys.readouterr().out
    assert PRIVATE not in target.read_text()


def test_mistakes_are_one_line_without_keys(file: Path, tmp_path: Path) -> None:
    assert "Address = 10.83.0.2/16 has no room for 70000 clients: 65533 fit" in refused(file, "--peers", "70000")
    file.write_text(FILE.replace("10.83.0.2/16", "10.83.0.2/32"))
    assert "Address = 10.83.0.2/32 has no room for 2 clients: 1 fit" in refused(file, "--peers", "2")
    file.write_text(FILE.replace(PRIVATE, "SECRET"))
    assert refused(file).startswith(f"{file}: line 3: PrivateKey: a key is 44 characters of base64, 32 bytes; ")
    file.write_text(FILE.replace("Address", "Adress"))
    assert refused(file) == f"{file}: Address of [Interface] is missing"
    file.write_text(FILE)
    assert refused(file, "-n", "5").startswith(f"--number: 5 clients, and {file} makes 1 client: a gateway knows a")
    empty = tmp_path / "empty"
    empty.mkdir()
    assert refused(empty).startswith(f"{empty} has no .conf file; ")


def test_options_of_the_other_protocol_are_refused(file: Path) -> None:
    assert refused(file, "--ca-key", "ca.key").startswith(f"--ca-key is for OpenVPN, and {file} is WireGuard's; ")
    profile = file.parent / "client.ovpn"
    profile.write_text("client\nremote 192.0.2.7 1194 udp\n")
    assert refused(profile, "--peers", "2").startswith(f"--peers is for WireGuard, and {profile} has no [Interface]; ")
    folder = file.parent
    assert refused(folder, "--peers", "2").startswith(
        f"--peers makes clients from one file, and {folder} is a folder; "
    )


def test_source_that_this_host_does_not_have_is_named(file: Path) -> None:
    said = refused(file, "--source", "192.0.2.77")
    assert said.startswith("--source: 192.0.2.77 is not an address of this host; add it: ip address add")
    assert "ip route add local NETWORK dev lo" in said
    [made] = loads(file, "--source", "127.0.0.0/29")
    assert made.bind == [f"127.0.0.{number}" for number in range(1, 7)]
