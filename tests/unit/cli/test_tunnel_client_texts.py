"""Files of VPN clients that are no text or too long: one line, for each protocol."""

from __future__ import annotations

from pathlib import Path

import pytest

from leadline.errors import InputError
from leadline.kinds.tunnel import args
from leadline.kinds.tunnel.client_texts import read_text

NONE_GIVEN = dict.fromkeys([
    "peers", "write_peers", "connection", "ca_key", "ca", "name_prefix", "identities", "users", "expect_option",
])  # fmt: skip


@pytest.mark.parametrize(
    ("name", "first_line", "hint"),
    [
        ("client.ovpn", b"client", "name a file that can be read"),
        ("wg0.conf", b"[Interface]", "name a wg-quick file"),
        ("swanctl.conf", b"connections {", "name a swanctl.conf, with its certificates and keys as PEM"),
    ],
)
def test_file_that_is_no_text_is_refused_with_its_line(tmp_path: Path, name: str, first_line: bytes, hint: str) -> None:
    file = tmp_path / name
    file.write_bytes(first_line + b"\n# B\xfcro\n")
    with pytest.raises(InputError, match=f"{name} is not UTF-8 text: see line 2; {hint}$"):
        args.read_access({**NONE_GIVEN, "file": file})


@pytest.mark.parametrize(("max_bytes", "size"), [(1 << 16, "64 KiB"), (1 << 20, "1 MiB")])
def test_file_that_is_too_long_is_refused_with_the_limit(max_bytes: int, size: str) -> None:
    with pytest.raises(ValueError, match=f"/dev/zero is longer than {size}"):
        read_text(Path("/dev/zero"), max_bytes)


def test_lines_end_in_lf(tmp_path: Path) -> None:
    file = tmp_path / "client.ovpn"
    file.write_bytes(b"client\r\ndev tun\r")
    assert read_text(file, 100) == "client\ndev tun\n"
