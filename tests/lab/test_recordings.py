"""A visit that was recorded as Chrome, Firefox and mitmproxy do: the same requests, with the same overlap, in a session
whose tokens are others than those of the file."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import parse_qsl

import pytest
from recordings import FORM, VISITS, har, overlapping, replayer

from in_process import leadline

pytestmark = [pytest.mark.agent, pytest.mark.takes(4)]


@pytest.mark.parametrize("shape", ["chrome", "firefox", "mitmproxy"])
def test_requests_and_their_overlap_are_those_of_the_file(shape: str, tmp_path: Path) -> None:
    with replayer() as server:
        file = tmp_path / f"{shape}.har"
        file.write_bytes(har(shape, server.port))
        done = leadline("scenario", str(file), "--json")
    assert done.returncode == 0, done.stderr
    assert not server.late, (server.late, server.asked)
    expected = [(place, one.path, one.headers, _body(one.headers, one.body)) for place, one in enumerate(VISITS)]
    found = [(place, path, headers, _body(headers, body)) for place, path, headers, body in server.asked]
    assert sorted(found, key=str) == sorted(expected, key=str), done.stderr
    assert server.overlaps == overlapping(), done.stderr
    labels = json.loads(done.stdout)["scenario"]["labels"]
    assert sum(one["failed"] for one in labels) == 0
    pages = {one["name"]: one["ended"] for one in labels if one["is_transaction"]}
    assert pages == ({} if shape == "mitmproxy" else {"Welcome": 1, "Shop": 1})


def _body(headers: dict[str, str], body: str) -> object:
    """A form's fields: their encoding may differ."""
    return parse_qsl(body) if headers.get("Content-Type", "").startswith(FORM) else body
