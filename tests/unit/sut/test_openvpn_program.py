"""What a program says of itself, and the keys made with it."""

from __future__ import annotations

import base64
import hmac
import re
import shutil
import stat
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from sites import FakeHost

from leadline.errors import MissingBinary, SutFailed
from leadline.sut.openvpn import program as programs
from leadline.sut.openvpn.program import read_options, read_version

SAID = """OpenVPN 2.6.14 x86_64-pc-linux-gnu [SSL (OpenSSL)] [LZO] [LZ4]
library versions: OpenSSL 3.0.19 27 Jan 2026, LZO 2.10
DCO version: N/A
"""
HOST = FakeHost(agent=None)
installed = pytest.mark.skipif(
    shutil.which("openvpn", path="/usr/local/sbin:/usr/sbin:/sbin:/usr/bin") is None, reason="openvpn is not installed"
)


def test_the_version_has_the_librarys_line() -> None:
    assert read_version("openvpn", SAID) == (
        "OpenVPN 2.6.14 x86_64-pc-linux-gnu [SSL (OpenSSL)] [LZO] [LZ4]; "
        "library versions: OpenSSL 3.0.19 27 Jan 2026, LZO 2.10"
    )


@pytest.mark.parametrize(("said", "quoted"), [("true (GNU coreutils) 9.1\n", "true (GNU"), ("", "it prints nothing")])
def test_another_program_is_not_openvpn(said: str, quoted: str) -> None:
    with pytest.raises(SutFailed, match=re.escape(quoted)):
        read_version("/bin/true", said)


def test_options_are_read_from_the_help() -> None:
    usage = "General Options:\n--config file    : Read\n--disable-dco   : no\n                  --not-this\n"
    assert read_options(usage) == {"config", "disable-dco"}


async def test_a_missing_program_says_what_to_do() -> None:
    with pytest.raises(MissingBinary, match="apt-get install openvpn"):
        await programs.find(HOST, "/nonexistent/openvpn")


async def test_a_program_that_is_something_else() -> None:
    with pytest.raises(SutFailed, match="is not OpenVPN"):
        await programs.find(HOST, "true")


async def test_a_client_program_is_described_by_what_it_says_of_its_version(tmp_path: Path) -> None:
    async def described(script: str) -> str:
        program = tmp_path / "vpn-client"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        return await programs.describe_client(HOST, str(program))

    assert await described("echo; echo 'vpn-client 1.2'; echo more") == "vpn-client, vpn-client 1.2"
    assert await described("echo 'OpenVPN 2.4.12 x86_64'; exit 1") == "vpn-client, OpenVPN 2.4.12 x86_64"
    for script in ("echo 'unknown flag --version'; exit 2", "exit 0"):
        assert await described(script) == "vpn-client (unknown version)"
    assert await programs.describe_client(HOST, "/nonexistent/vpn") == "vpn (unknown version)"


def test_a_static_key_has_2048_bits_in_openvpns_format(tmp_path: Path) -> None:
    file = programs.static_key(tmp_path)
    first, *lines, last = file.read_text().splitlines()
    assert (first, last) == ("-----BEGIN OpenVPN Static key V1-----", "-----END OpenVPN Static key V1-----")
    assert len(lines) == 16
    assert len(bytes.fromhex("".join(lines))) == 256
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert programs.static_key(tmp_path).read_text() != "\n".join((first, *lines, last, ""))


def test_wrapped_keys_are_opened_by_their_servers_key_alone(tmp_path: Path) -> None:
    file, clients = programs.wrapped_keys(tmp_path, ["client1", "client2"])
    files = (file, *clients.values())
    assert len({one.read_bytes() for one in files}) == 3
    assert {stat.S_IMODE(one.stat().st_mode) for one in files} == {0o600}
    server = pem(file, "server")
    for client in clients.values():
        key = pem(client, "client")
        own, tag, hidden, length = key[:256], key[256:288], key[288:-2], key[-2:]
        assert int.from_bytes(length) == len(key) - len(own)
        decryptor = Cipher(algorithms.AES(server[:32]), modes.CTR(tag[:16])).decryptor()
        plain = decryptor.update(hidden)
        assert plain[:256] == own
        assert (len(plain), plain[256]) == (256 + 9, 1), "the metadata are a time"
        assert hmac.digest(server[64:96], length + plain, "sha256") == tag


def pem(file: Path, end: str) -> bytes:
    first, *lines, last = file.read_text().splitlines()
    name = f"OpenVPN tls-crypt-v2 {end} key-----"
    assert (first, last) == (f"-----BEGIN {name}", f"-----END {name}")
    return base64.b64decode("".join(lines))


@installed
async def test_the_installed_program_knows_its_options_and_takes_the_keys(tmp_path: Path) -> None:
    program = await programs.find(HOST, "openvpn")
    assert program.version.startswith("OpenVPN 2.")
    assert program.knows("config")
    if not program.knows("tls-crypt-v2"):
        pytest.skip(f"{program.version} has no tls-crypt-v2")
    server, _ = programs.wrapped_keys(tmp_path, [])
    made = await HOST.run(
        program.path, "--tls-crypt-v2", str(server), "--genkey", "tls-crypt-v2-client", str(tmp_path / "client")
    )
    assert made.status == 0, made.output
