"""The shop and the bank in our format and in JMeter's: the same requests, in the same order, on the same terms."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from in_process import leadline
from leadline.contract.models import ScenarioPlan
from leadline.scenario.files import reader_below
from leadline.scenario.formats import FormatOptions, read_scenario
from leadline.scenario.lowering import lower
from leadline.scenario.native import read_native

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
SHOP = {"host": "shop.test", "loops": "3"}
_NOT_COMPARED = ("nodes", "otherwise", "checks", "keeps_headers_elsewhere")


def plan(name: str, parameters: Mapping[str, str] = SHOP) -> dict[str, Any]:
    """A whole example for the agent."""
    path = EXAMPLES / name
    read, conversion = read_scenario(path.read_bytes(), name, FormatOptions())
    assert conversion is None or conversion.counts()["kept"] == len(conversion.items)
    made = lower(read.scenario, read.root, reader_below(path.parent), parameters).plan
    ScenarioPlan.model_validate(made)
    return made


def shape(nodes: list[dict[str, Any]]) -> list[Any]:
    """What the nodes do, without names and lines, on one server: only JMeter sends a token to another one that it is
    redirected to, and a form's charset."""
    found: list[Any] = []
    for node in nodes:
        action = {key: value for key, value in node["action"].items() if key not in _NOT_COMPARED}
        form = {"name": ["Content-Type"], "value": ["application/x-www-form-urlencoded; charset=UTF-8"]}
        fields = sorted((one for one in action.get("headers", []) if one != form), key=lambda one: str(one["name"]))
        action |= {"headers": fields} if "headers" in action else {}
        found.append([_without_fallbacks(action), shape(node["action"].get("nodes", []))])
    return found


def _without_fallbacks(value: Any) -> Any:
    """JMeter keeps the placeholder of a variable that is not set, and empties one whose JSON path finds nothing."""
    if isinstance(value, dict):
        return {
            key: _without_fallbacks(one)
            for key, one in value.items()
            if not (key == "value" and value.get("op") == "variable") and key != "on_miss"
        }
    return [_without_fallbacks(one) for one in value] if isinstance(value, list) else value


def test_both_shops_are_the_same_scenario() -> None:
    native, jmeters = plan("shop.yaml"), plan("shop.jmx")
    (ours,), (theirs,) = native["populations"], jmeters["populations"]
    assert ours["arrivals"] == theirs["arrivals"]
    assert shape(ours["flow"]) == shape(theirs["flow"])
    for found in (native, jmeters):
        assert found["feeders"][0]["rows"] == [
            ["ada", "analytical"],
            ["bob", "engine"],
            ["cleo", "difference"],
            ["dan", "number"],
        ]


def test_both_banks_are_the_same_scenario() -> None:
    native, jmeters = (
        plan("bank-users.yaml", {"users": "7", "scheme": "https"}),
        plan("bank.jmx", {"users": "7", "scheme": "https"}),
    )
    (ours,), (theirs,) = native["populations"], jmeters["populations"]
    assert ours["arrivals"] == theirs["arrivals"]
    assert shape(ours["flow"]) == shape(theirs["flow"])


def test_scenarios_in_the_document_are_whole() -> None:
    text = (EXAMPLES.parent / "docs" / "scenarios.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```yml\n(.*?)^```", text, re.S | re.M)
    assert len(blocks) == 3
    for block in blocks:
        found = read_native(block, "scenarios.md")
        made = lower(found.scenario, found.root, lambda name: b"user,password\nada,1\n")
        ScenarioPlan.model_validate(made.plan)


def test_a_scenario_written_into_another_folder_finds_its_files(tmp_path: Path) -> None:
    output = tmp_path / "a" / "shop.yaml"
    output.parent.mkdir()
    done = leadline("convert", EXAMPLES / "shop.jmx", "-o", output)
    assert done.returncode == 0 and "run it with --any-file, or move them beside it" in done.stderr
    read, _ = read_scenario(output.read_bytes(), "shop.yaml", FormatOptions())
    made = lower(read.scenario, read.root, reader_below(output.parent, anywhere=True), {}).plan
    assert made["feeders"][0]["rows"] == plan("shop.jmx")["feeders"][0]["rows"]
    beside = leadline("convert", EXAMPLES / "shop.jmx", "--json")
    assert "file: shop-users.csv" in json.loads(beside.stdout)["scenario"]
