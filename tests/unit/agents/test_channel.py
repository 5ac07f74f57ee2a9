"""What becomes of a child's stderr: a file of the run, our own stderr, the last words of an error."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from leadline.agents.channel import Channel
from leadline.agents.launch import Launch

EVENT = '2026-11-23T00:00:00.000000Z  INFO leadline_agent::control: agent started version="0.1.0"'
COMPLAINT = "leadline-agent: warning: cold"


async def run(*lines: str, log: Path | None) -> str:
    """The reason that a child would be reported with that writes these lines to its stderr."""
    text = "".join(f"{line}\n" for line in lines)
    program = f"import sys; sys.stderr.write({text!r})"
    channel = await Channel.open(Launch((sys.executable, "-I", "-c", program)), log)
    assert await channel.ending() == "its process exited with 0"
    return channel.with_last_words("gone")


async def test_stderr_is_appended_to_the_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "agent-gateway.log"
    assert await run(EVENT, COMPLAINT, log=log) == f"gone; its last stderr lines: {COMPLAINT}"
    assert await run(EVENT, log=log) == "gone", "an event is no last word"
    assert log.read_text() == f"{EVENT}\n{COMPLAINT}\n{EVENT}\n"
    assert capsys.readouterr().err == ""


async def test_without_a_log_events_go_to_our_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert await run(EVENT, COMPLAINT, log=None) == f"gone; its last stderr lines: {COMPLAINT}"
    assert capsys.readouterr().err == f"{EVENT}\n"


async def test_a_silent_process_has_no_log(tmp_path: Path) -> None:
    assert await run(log=tmp_path / "agent.log") == "gone"
    assert not (tmp_path / "agent.log").exists()


async def test_a_log_that_cannot_be_written_is_given_up(tmp_path: Path) -> None:
    assert await run(COMPLAINT, log=tmp_path / "missing" / "agent.log") == f"gone; its last stderr lines: {COMPLAINT}"
