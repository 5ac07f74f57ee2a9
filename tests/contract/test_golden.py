"""The golden transcripts as Python reads them; crates/wire/tests/golden.rs reads the same files."""

from __future__ import annotations

import json
import re
import typing
from pathlib import Path

import pytest

from leadline.agents import messages
from leadline.agents.messages import Command, ContractEvent, MalformedLine, Workload, encode, parse_command, parse_event
from leadline.contract.models import Hello, Prepare

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "contract" / "golden"
COMMANDS = [line for file in sorted(GOLDEN.glob("*commands.jsonl")) for line in file.read_text().splitlines()]
EVENTS = [line for file in sorted(GOLDEN.glob("*events.jsonl")) for line in file.read_text().splitlines()]


@pytest.mark.parametrize("line", COMMANDS)
def test_a_golden_command_reads_and_writes_as_it_stands(line: str) -> None:
    assert json.loads(encode(parse_command(line))) == json.loads(line)


@pytest.mark.parametrize("line", EVENTS)
def test_a_golden_event_reads_and_writes_as_it_stands(line: str) -> None:
    assert json.loads(parse_event(line).model_dump_json(exclude_unset=True)) == json.loads(line)


def test_the_transcripts_hold_every_command_workload_and_event() -> None:
    commands = [parse_command(line) for line in COMMANDS]
    assert {type(command) for command in commands} == set(typing.get_args(Command))
    workloads = {type(command.workload) for command in commands if isinstance(command, Prepare)}
    assert workloads == set(typing.get_args(Workload))
    assert {type(parse_event(line)) for line in EVENTS} == set(typing.get_args(ContractEvent))


def test_both_languages_agree_on_version_and_line_limit() -> None:
    source = (ROOT / "crates" / "wire" / "src" / "lib.rs").read_text()
    version = re.search(r"PROTOCOL_VERSION: u32 = (\d+);", source)
    limit = re.search(r"LINE_LIMIT_BYTES: usize = ([\d *]+);", source)
    assert version is not None
    assert limit is not None
    assert int(version[1]) == messages.PROTOCOL_VERSION
    mebibytes, *kibi = (int(factor) for factor in limit[1].split("*"))
    assert mebibytes * kibi[0] * kibi[1] == messages.LINE_LIMIT_BYTES
    hellos = [event for event in map(parse_event, EVENTS) if isinstance(event, Hello)]
    assert {hello.protocol for hello in hellos} == {messages.PROTOCOL_VERSION}


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("", "JSON"),
        ("{", "JSON"),
        ("[]", "object"),
        ('{"t_ns": 1}', "type"),
        ('{"type": "farewell", "t_ns": 1}', "farewell"),
        ('{"type": "heartbeat"}', "t_ns"),
        ('{"type": "heartbeat", "t_ns": -1}', "t_ns"),
        ('{"type": "heartbeat", "t_ns": 1, "mood": "good"}', "mood"),
    ],
)
def test_malformed_event_is_refused_in_one_line(line: str, word: str) -> None:
    with pytest.raises(MalformedLine, match=re.escape(word)) as caught:
        parse_event(line)
    assert "\n" not in str(caught.value)
