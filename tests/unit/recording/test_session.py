"""What ends a recording, and what is known then: with a scripted proxy in mitmproxy's place."""

from __future__ import annotations

import asyncio
import datetime
import sys
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from leadline.errors import InputError
from leadline.recording import session
from leadline.recording.session import Progress, ProxyOptions, RecorderFailed, record
from leadline.recording.trust import certificate_of

pytestmark = pytest.mark.processes
START = "import sys, json; say = lambda **e: print(json.dumps(e), flush=True); sys.stdin.readline()\n"
LISTEN = 'say(event="listening", host="127.0.0.1", port=8888)\n'
ENTRY = 'say(event="entry", host="shop.test", is_document=True, title="Home")\n'
END = 'sys.stdin.read(); say(event="ended", outstanding=2)\n'


@pytest.fixture
def authority(tmp_path: Path) -> Path:
    """A folder with the certificate that the proxy would have made."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "mitmproxy")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + datetime.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    certificate_of(tmp_path).write_bytes(made.public_bytes(serialization.Encoding.PEM))
    return tmp_path


async def run(
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    script: str,
    *argv: str,
    length_s: float | None = None,
    end_at: str | None = None,
) -> tuple[Progress, list[str]]:
    """Record with a proxy that does what a script says; an end is requested at an event."""
    monkeypatch.setattr(session, "PROGRAM", (sys.executable, "-S", "-c", START + script))
    ending, shown = asyncio.Event(), []

    def show(event: str, progress: Progress, fields: dict[str, Any]) -> None:
        shown.append(event)
        if event == end_at:
            ending.set()

    options = ProxyOptions("127.0.0.1", 0, str(folder), str(folder / "j"), 1000, (), False, None)
    progress = await record(options, argv, ending, show, length_s=length_s, quiet_command=True)
    return progress, shown


async def test_requested_end_ends_the_proxy_by_its_stdin(monkeypatch: pytest.MonkeyPatch, authority: Path) -> None:
    progress, shown = await run(monkeypatch, authority, LISTEN + ENTRY + END, end_at="entry")
    assert shown == ["listening", "entry", "ended"]
    assert (progress.requests, progress.pages, progress.host, progress.outstanding) == (1, 1, "shop.test", 2)
    assert progress.url == "http://127.0.0.1:8888" and progress.failure is None


async def test_time_counts_from_when_the_proxy_listens(monkeypatch: pytest.MonkeyPatch, authority: Path) -> None:
    progress, shown = await run(monkeypatch, authority, LISTEN + END, length_s=0.01)
    assert shown == ["listening", "ended"] and progress.failure is None


async def test_commands_end_ends_the_recording(monkeypatch: pytest.MonkeyPatch, authority: Path) -> None:
    script = 'test "$http_proxy" = http://127.0.0.1:8888 && test -s "$SSL_CERT_FILE" && exit 7'
    progress, _ = await run(monkeypatch, authority, LISTEN + END, "sh", "-c", script)
    assert progress.command_status == 7 and progress.failure is None


async def test_command_is_ended_with_the_recording(monkeypatch: pytest.MonkeyPatch, authority: Path) -> None:
    progress, _ = await run(monkeypatch, authority, LISTEN + ENTRY + END, "sleep", "1000", end_at="entry")
    assert progress.command_status is None and progress.failure is None


async def test_proxy_that_ends_by_itself_is_named_with_its_last_words(
    monkeypatch: pytest.MonkeyPatch, authority: Path
) -> None:
    progress, _ = await run(monkeypatch, authority, LISTEN + ENTRY + 'sys.exit("out of luck")', "sleep", "1000")
    assert progress.requests == 1 and progress.failure == "the proxy ended by itself: out of luck"


async def test_journal_that_cannot_be_written_is_named(monkeypatch: pytest.MonkeyPatch, authority: Path) -> None:
    full = 'say(event="failed", why="No space left on device")\n'
    progress, _ = await run(monkeypatch, authority, LISTEN + full, "sleep", "1000")
    assert progress.failure == "the journal cannot be written: No space left on device"


@pytest.mark.parametrize(("script", "why"), [('sys.exit("no port")', "no port"), ("sys.exit(3)", "exit code 3")])
async def test_proxy_that_does_not_start_is_an_error(
    monkeypatch: pytest.MonkeyPatch, authority: Path, script: str, why: str
) -> None:
    with pytest.raises(RecorderFailed, match=f"the proxy did not start: {why}"):
        await run(monkeypatch, authority, script)


async def test_refusals_are_counted_by_host(monkeypatch: pytest.MonkeyPatch, authority: Path) -> None:
    refused = 'say(event="refused", by="client", host="shop.test", why="unknown ca")\n'
    progress, _ = await run(monkeypatch, authority, LISTEN + refused * 2 + ENTRY + END, end_at="entry")
    assert progress.refused == {("client", "shop.test"): 2}


async def test_folder_without_an_authority_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="its authority cannot be used"):
        await run(monkeypatch, tmp_path, LISTEN + END)
