"""The rows of the controller: each event of scripted agents is counted once, and a lost one as lost."""

from __future__ import annotations

import json
from pathlib import Path

import controller_rows
import pytest

GOLDEN = Path(__file__).parents[3] / "contract" / "golden" / "events.jsonl"


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    """The greeting and the observations of the golden transcript, with the keys in an agent's order."""
    events = [json.loads(line) for line in GOLDEN.read_text().splitlines()]
    chosen = [{"type": event["type"], **event} for event in events if event["type"] in ("hello", "observation")]
    path = tmp_path / "lines"
    path.write_text("".join(f"{json.dumps(event, separators=(',', ':'))}\n" for event in chosen))
    return path


@pytest.mark.parametrize(("agents", "rate"), [(1, 0), (3, 500)])
def test_each_event_of_scripted_agents_is_in_the_journal_once(lines: Path, agents: int, rate: int) -> None:
    cost = controller_rows.follow(lines, agents, 40, rate)
    assert (cost.events, cost.lost) == (agents * 40, 0)
    assert cost.cpu_s > 0


def test_events_of_an_agent_that_breaks_the_contract_count_as_lost(lines: Path) -> None:
    greeting, first, *_ = lines.read_text().splitlines(keepends=True)
    lines.write_text(greeting + first * 4 + first.replace("observer_cpu_s", "observer_gpu_s"))
    cost = controller_rows.follow(lines, 1, 20, 0)
    assert (cost.events, cost.lost) == (4, 16)
