"""`leadline crypto` with a real agent: its table, its document, and how bad input ends."""

from __future__ import annotations

import json
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from in_process import leadline

pytestmark = pytest.mark.agent

QUICK = ("-d", "2ms", "--spread", "64KiB")


def crypto(*arguments: str) -> CompletedProcess[str]:
    return leadline("crypto", *arguments)


@pytest.mark.decided_by("that everything was measured")
def test_the_document_has_every_figure() -> None:
    ciphers = ("--cipher", "aes-256-gcm", "--cipher", "AES-128-CBC", "--cipher", "DES-EDE3-CBC")
    sizes = ("-l", "64", "-l", "576", "-l", "1400")
    ended = crypto(*QUICK, *ciphers, "--digest", "SHA256", *sizes, "--json")
    assert ended.returncode == 0, ended.stderr
    document: dict[str, Any] = json.loads(ended.stdout)
    assert (document["schema"], document["duration_ms"], document["spread_bytes"]) == ("leadline.crypto/1", 2, 65536)
    kinds = [(one["what"], one["algorithm"]) for one in document["figures"] if one["bytes"] in (64, None)]
    handshake = document["figures"][-1]["algorithm"]
    assert kinds == [
        ("seal", "AES-256-GCM"),
        ("open", "AES-256-GCM"),
        ("cipher", "AES-256-GCM"),
        ("seal", "AES-128-CBC+SHA256"),
        ("open", "AES-128-CBC+SHA256"),
        ("cipher", "AES-128-CBC"),
        ("cipher", "DES-EDE3-CBC"),
        ("hmac", "SHA256"),
        ("handshake", handshake),
        ("handshake_client", handshake),
        ("handshake_server", handshake),
    ]
    assert all(one["operations"] > 0 for one in document["figures"])
    assert len(document["fits"]) == 8
    assert document["validity"]["verdict"] == "valid"


def test_the_tables_fit_80_columns() -> None:
    ended = crypto(*QUICK, "--cipher", "AES-256-CBC", "--digest", "SHA512")
    assert ended.returncode == 0, ended.stderr
    assert max(map(len, ended.stdout.splitlines())) <= 80
    for part in ("AES-256-CBC+SHA512", "seal", "ns per byte", "Handshakes", "valid"):
        assert part in ended.stdout.replace("undetermined", "valid")


def test_bad_input_is_refused_in_one_line() -> None:
    for arguments, says in (
        (("--cipher", "BF-CBC"), "no cipher is called BF-CBC; there are AES-128-GCM"),
        (("--digest", "MD5"), "no digest is called MD5; there are SHA1"),
        (("--size", "0"), "a payload has 1 to"),
        (("--size", "1K"), "write 1400"),
        (("--duration", "5x"), "write 10s"),
        (("--spread", "1GB"), "at most"),
    ):
        ended = crypto(*arguments, "--no-handshakes")
        assert (ended.returncode, ended.stdout) == (2, ""), (arguments, ended)
        assert says in ended.stderr and len(ended.stderr.splitlines()) == 1, ended.stderr


def test_existing_profile_survives_a_failed_measurement(tmp_path: Path) -> None:
    before = tmp_path / "before.svg"
    before.write_text("<svg/>")
    new = tmp_path / "new.svg"
    for path in (before, new):
        ended = crypto("--cipher", "BF-CBC", "--no-handshakes", "--profile", str(path))
        assert ended.returncode == 2, ended
    assert before.read_text() == "<svg/>" and not new.exists()
    ended = crypto("--no-handshakes", "--profile", str(tmp_path / "nowhere" / "x.svg"))
    assert ended.returncode == 2 and "--profile" in ended.stderr, ended
