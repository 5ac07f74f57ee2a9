"""The cases of `tests/corpus/loadrunner`: a script in sections, and what it becomes.

A case begins with its description. A line `--- NAME` begins a file of the script; `--- expected` what it
becomes, by keys of its only group or of the whole document.
`refused` has the parts that cannot run, `changed` and `dropped` those.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from leadline.errors import PlanError
from leadline.plan.source import plain
from leadline.scenario.conversion import Conversion
from leadline.scenario.loadrunner.script import read_usr

CASES = Path(__file__).parents[2] / "corpus" / "loadrunner"
USR = "[General]\nType=Multi\nDefaultCfg=default.cfg\nParameterFile={}\n[Actions]\nvuser_init=vuser_init.c\n"
EMPTY = {name: f"{name}()\n{{\n    return 0;\n}}\n".encode() for name in ("vuser_init", "Action", "vuser_end")}


@dataclass(frozen=True, slots=True)
class Case:
    """A script and what it becomes."""

    files: dict[str, bytes]
    expected: dict[str, Any]


def read_case(path: Path) -> Case:
    """The case of a file."""
    sections: dict[str, str] = {}
    name = ""
    for line in path.read_text("utf-8").splitlines(keepends=True):
        if line.startswith("--- "):
            name = line[4:].strip()
            sections[name] = ""
        elif name:
            sections[name] += line
    expected = YAML(typ="safe").load(sections.pop("expected", "{}")) or {}
    return Case({name: text.encode() for name, text in sections.items()}, expected)


def convert(files: dict[str, bytes], parameters: dict[str, str] | None = None) -> dict[str, Any]:
    """What the files of a script become: the document, with its only group's keys, and the parts that differ."""
    own = {f"{name}.c": text for name, text in EMPTY.items()} | files
    if "case.usr" not in own:
        actions = [name.removesuffix(".c") for name in own if name.endswith(".c")]
        others = [name for name in actions if name not in ("vuser_init", "vuser_end")]
        lines = "".join(f"{name}={name}.c\n" for name in [*others, "vuser_end"])
        own["case.usr"] = (USR.format("case.prm" if "case.prm" in own else "") + lines).encode()

    def read_file(name: str) -> bytes:
        if name not in own:
            raise ValueError(f"{name} cannot be read: No such file or directory")
        return own[name]

    try:
        root, conversion = read_usr(own["case.usr"], "case.usr", read_file, parameters or {}, skips_scripts=False)
    except PlanError as error:
        return {"refused": [one.message for one in (error, *error.others)]}
    document: dict[str, Any] = plain(root)
    (group,) = document.pop("groups")
    return {**document, **group, **_differing(conversion)}


def _differing(conversion: Conversion) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for item in conversion.items:
        if item.outcome in ("changed", "dropped") and item.what != "load":
            found.setdefault(item.outcome, []).append(f"{conversion.place(item)}: {item.what}: {item.why}")
    return found
