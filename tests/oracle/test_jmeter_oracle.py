"""JMeter is the oracle: for test plans of one shape each, users send the same requests in the same order as JMeter's,
and samples are as many by label. `answers/` has what JMeter did; `make test-all` asks it again.

LEADLINE_RECORD_ORACLE=1 with `-m full_matrix` writes the answers again.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from cases_answers import CASES as ANSWER_CASES
from cases_control import CASES as CONTROL
from cases_http import CASES as HTTP
from cases_pages import CASES as PAGES
from cases_requests import CASES as REQUESTS
from cases_scripts import CASES as SCRIPTS
from jmeter import VERSION, JMeter, is_available
from oracle_elements import Case
from recording_server import RecordingServer

from in_process import leadline

CASES = {one.name: one for one in (*CONTROL, *HTTP, *ANSWER_CASES, *PAGES, *REQUESTS, *SCRIPTS)}
ANSWERS = Path(__file__).parent / "answers"
pytestmark = [pytest.mark.agent, pytest.mark.takes(40)]


@pytest.mark.parametrize("name", CASES)
def test_users_do_what_jmeters_users_do(name: str, server: RecordingServer, tmp_path: Path) -> None:
    one = CASES[name]
    expected = json.loads((ANSWERS / f"{name}.json").read_text(encoding="utf-8"))
    server.taken()
    done = leadline("scenario", written(one, tmp_path), "-J", f"port={server.port}", "--json")
    assert done.returncode == 0, done.stderr
    found = facts(one, server.taken(), samples(json.loads(done.stdout)), server.port)
    for kind in ("requests", "samples"):
        assert found[kind] == expected[kind], done.stderr


@pytest.mark.full_matrix
@pytest.mark.skipif(not is_available(), reason="JMeter needs Maven and a JDK")
# JMeter interrupts what an open model's schedule has begun and not ended at its end, after 850 ms.
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.exclusive] * (name == "open-model")) for name in CASES]
)
def test_jmeter_does_what_its_recorded_answer_says(
    name: str, server: RecordingServer, oracle: JMeter, tmp_path: Path
) -> None:
    one = CASES[name]
    server.taken()
    counted = oracle.run(written(one, tmp_path), port=str(server.port))
    found = {"jmeter": VERSION, **facts(one, server.taken(), counted, server.port)}
    file = ANSWERS / f"{name}.json"
    if os.environ.get("LEADLINE_RECORD_ORACLE"):
        file.write_text(text_of(found), encoding="utf-8")
    assert found == json.loads(file.read_text(encoding="utf-8"))


def test_each_answer_has_its_case() -> None:
    assert {file.stem for file in ANSWERS.glob("*.json")} == set(CASES)


def written(one: Case, folder: Path) -> Path:
    """The case's files in a folder."""
    for name, text in one.files.items():
        (folder / name).write_text(text, encoding="utf-8")
    plan = folder / "plan.jmx"
    plan.write_bytes(one.content)
    return plan


def facts(one: Case, requests: dict[str, Any], counted: dict[str, list[int]], port: int) -> dict[str, Any]:
    """What is the same in each run of a case."""
    text = json.dumps(requests, ensure_ascii=False).replace(str(port), "PORT")
    users: dict[str, list[list[Any]]] = json.loads(text)
    if not one.by_user:
        users = {"all": [row for rows in users.values() for row in rows]}
    for rows in users.values():
        for row in rows:
            for mask in one.masks:
                row[1] = re.sub(mask, "*", row[1])
        if not one.ordered:
            rows.sort(key=lambda row: json.dumps(row, sort_keys=True))
    if one.counts == "labels":
        distinct = {
            user: [row for index, row in enumerate(rows) if row not in rows[:index]] for user, rows in users.items()
        }
        return {"requests": distinct, "samples": sorted(counted)}
    named = {label.replace(str(port), "PORT"): count for label, count in counted.items()}
    return {"requests": users, "samples": {} if one.counts == "none" else named}


def samples(document: dict[str, Any]) -> dict[str, list[int]]:
    """Requests and transactions that ended, and failed, by label."""
    found: dict[str, list[int]] = {}
    for label in document["scenario"]["labels"]:
        if label["ended"]:
            one = found.setdefault(label["name"], [0, 0])
            one[0] += label["ended"]
            one[1] += label["failed"]
    return dict(sorted(found.items()))


def text_of(found: dict[str, Any]) -> str:
    """Answers as JSON with a request a line."""
    users = ",\n".join(
        f"    {json.dumps(user)}: [\n"
        + ",\n".join(f"      {json.dumps(row, ensure_ascii=False)}" for row in rows)
        + "\n    ]"
        for user, rows in found["requests"].items()
    )
    counted = json.dumps(found["samples"], ensure_ascii=False)
    return f'{{\n  "jmeter": "{found["jmeter"]}",\n  "requests": {{\n{users}\n  }},\n  "samples": {counted}\n}}\n'
