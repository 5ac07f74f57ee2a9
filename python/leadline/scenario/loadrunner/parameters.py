"""The parameters of a script (`.prm`): tables become data sources, the others steps that compute them. Pure."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from leadline.scenario.expressions import Call, Expression, Literal, Variable, show
from leadline.scenario.loadrunner.context import CannotRun, Script, Steps, made
from leadline.scenario.loadrunner.dates import java_pattern
from leadline.scenario.loadrunner.encodings import find_encoding
from leadline.scenario.loadrunner.numbers import format_integer, read_whole
from leadline.scenario.loadrunner.parameter_file import Parameter


@dataclass(slots=True)
class ParameterSteps:
    """What the parameters of a script become."""

    data: list[dict[str, Any]] = field(default_factory=list)
    before: Steps = field(default_factory=list)
    """Steps before `vuser_init`."""
    start: Steps = field(default_factory=list)
    """Steps at the start of each iteration."""


class ParameterReader:
    """Gives the parameters that are used their native form."""

    def __init__(self, script: Script, read_table: Callable[[str], bytes], folder: str = "") -> None:
        """`folder` is that of the script, from the scenario's own."""
        self._script = script
        self._read_table = read_table
        self._folder = folder
        self.steps = ParameterSteps()

    def prepare(self) -> None:
        """Decide what each parameter is, before statements read it."""
        for one in self._script.parameters.values():
            kind = one.section.text("Type").lower()
            if kind == "table":
                one.source = self._source_name(one)
            else:
                try:
                    one.value = self._compute(one, kind)
                except CannotRun:
                    continue  # named where it is used

    def _source_name(self, one: Parameter) -> str:
        """The data source of a table's parameter: that of the one whose line it is on."""
        seen = {one.name}
        leader = one
        while (match := _SAME_LINE.match(leader.section.text("SelectNextRow"))) is not None:
            following = self._script.parameters.get(match[1].strip())
            if following is None or following.name in seen:
                break
            seen.add(following.name)
            leader = following
        one.renewed = leader.renewed
        return leader.name

    def finish(self) -> ParameterSteps:
        """The data sources and steps of the parameters that are used."""
        used = [one for one in self._script.parameters.values() if one.is_used]
        for leader_name in dict.fromkeys(one.source for one in used if one.source is not None):
            followers = [one for one in used if one.source == leader_name]
            leader = self._script.parameters[leader_name]
            try:
                self._add_table(leader, followers)
            except CannotRun as error:
                self._script.cannot(f"parameter {leader.name}", leader.place, str(error))
        for one in used:
            if one.source is None:
                self._add_computed(one)
        return self.steps

    def _add_table(self, leader: Parameter, followers: list[Parameter]) -> None:
        if leader not in followers:
            followers = [leader, *followers]
        source = made(leader.place, name=leader.name)
        source |= self._make_table(leader, followers)
        order = leader.section.text("SelectNextRow").lower()
        if order == "random":
            source["order"] = "random"
        elif order == "unique":
            source |= self._unique(leader)
        else:
            source["share"] = "user"
        for one in followers:
            self._script.kept(f"parameter {one.name}", one.place)
        is_before = any(one.is_used_before for one in followers)
        if leader.renewed == "iteration" and not is_before and not leader.is_advanced:
            self.steps.data.append(source)
            return
        source["advance"] = "explicit"
        self.steps.data.append(source)
        step = made(leader.place, next=leader.name)
        if leader.renewed == "once":
            self.steps.before.append(step)
        elif leader.renewed == "iteration" and not is_before:
            self.steps.start.append(step)
        elif leader.renewed == "iteration":
            # The first iteration has the values of vuser_init.
            self.steps.before.append(step)
            self.steps.start.append(made(leader.place, **{"if": "iteration() > 0", "then": [step]}))

    def _unique(self, leader: Parameter) -> dict[str, Any]:
        policy = leader.section.text("OutOfRangePolicy").lower()
        why = "user n of N has the rows n, n + N ...; LoadRunner gives each user a block of rows"
        at_end = "recycle"
        if policy == "abortvuser":
            at_end = "stop-user"
        elif policy == "continuewithlast":
            why += "; after the last row the first one follows, in LoadRunner the last one is kept"
        self._script.changed(f"parameter {leader.name}", leader.place, why)
        return {"order": "unique", "at_end": at_end}

    def _make_table(self, leader: Parameter, followers: list[Parameter]) -> dict[str, Any]:
        """The rows of a table: the file itself, or, where rows are left out, their values."""
        name = _table_name(leader)
        if not name:
            raise CannotRun("it has no table; values of a database are not read")
        content = self._read_table(name)
        encoding = find_encoding(content, self._script.locale)
        text = content.decode(encoding, "replace").removeprefix("\ufeff")
        separator = _SEPARATORS.get(
            leader.section.text("Delimiter", ",").lower(), leader.section.text("Delimiter", ",")
        )
        is_quoted = '"' in text and len(separator) == 1
        rows = _read_rows(text, separator, is_quoted=is_quoted)
        if not rows:
            raise CannotRun(f"the table {name} is empty")
        others = [one for one in followers if _table_name(one) != name]
        followers = [one for one in followers if one not in others]
        columns = self._find_column_names(leader, followers, rows[0], name)
        if others:
            return self._join_tables(leader, others, columns, rows)
        start = int(leader.section.number("StartRow", 1))
        extra: dict[str, Any] = {"separator": "\\t" if separator == "\t" else separator} if separator != "," else {}
        extra |= {} if is_quoted else {"quoted": False}
        if start <= 1:
            encoded = {} if encoding in ("utf-8", "utf-8-sig") else {"encoding": encoding}
            path = f"{self._folder}/{name}" if self._folder else name
            return {"file": path.replace("${", "$${"), "columns": columns, "header": True, **extra, **encoded}
        body = [[*row, *[""] * (len(columns) - len(row))][: len(columns)] for row in rows[start:]]
        if not body:
            raise CannotRun(f"StartRow is {start}, but the table {name} has {len(rows) - 1} rows")
        return {"rows": body, "columns": columns}

    def _join_tables(
        self, leader: Parameter, others: list[Parameter], columns: list[str], rows: list[list[str]]
    ) -> dict[str, Any]:
        """The rows of several tables of which the same line is taken: as many as the shortest one has."""
        start = max(1, int(leader.section.number("StartRow", 1)))
        wide = [[*row, *[""] * (len(columns) - len(row))][: len(columns)] for row in rows[start:]]
        columns = list(columns)
        for name in dict.fromkeys(map(_table_name, others)):
            own = [one for one in others if _table_name(one) == name]
            further = self._make_table(own[0], own)
            if "rows" not in further:
                text = self._read_table(name)
                decoded = text.decode(find_encoding(text, self._script.locale), "replace").removeprefix("\ufeff")
                separator = str(further.get("separator", ",")).replace("\\t", "\t")
                table = _read_rows(decoded, separator, is_quoted="quoted" not in further)[1:]
                width = len(further["columns"])
                further["rows"] = [[*row, *[""] * (width - len(row))][:width] for row in table]
            columns += further["columns"]
            wide = [[*one, *two] for one, two in zip(wide, further["rows"], strict=False)]
        if not wide:
            raise CannotRun("one of its tables has no rows")
        return {"rows": wide, "columns": columns}

    def _find_column_names(
        self, leader: Parameter, followers: list[Parameter], header: list[str], table: str
    ) -> list[str]:
        names = [f"{leader.name}.{index}" for index in range(1, len(header) + 1)]
        for one in followers:
            wanted = one.section.text("ColumnName", "Col 1").strip()
            numbered = re.fullmatch(r"(?i)col (\d+)", wanted)
            place = next((index for index, name in enumerate(header) if name.strip() == wanted), None)
            if place is None and numbered is not None:
                place = read_whole(numbered[1]) - 1
            if place is None or place >= len(header):
                raise CannotRun(f"the table {table} has no column '{wanted}' ({one.name})")
            if not names[place].startswith(f"{leader.name}."):
                self.steps.start.append(made(one.place, set={one.name: f"${{{show(Variable(names[place]))}}}"}))
                continue
            names[place] = one.name
        return names

    def _compute(self, one: Parameter, kind: str) -> Expression:
        section = one.section
        if kind == "random":
            low, high = int(section.number("MinValue", 1)), int(section.number("MaxValue", 100))
            return format_integer(section.text("Format", "%lu"), Call("random", (Literal(low), Literal(high))))
        if kind in ("time", "date/time", "datetime"):
            pattern = java_pattern(section.text("Format") or "%Y-%m-%d")
            offset = int(section.number("Offset", 0)) * 1000
            return Call("date", (Literal(pattern), *((Literal(offset),) if offset else ())))
        if kind in ("unique", "uniqueno", "uniquenumber"):
            start, block = (
                int(section.number("Start", 1)),
                int(section.number("Number", section.number("BlockSize", 100))),
            )
            own = Call("multiply", (Call("subtract", (Call("user"), Literal(1))), Literal(max(block, 1))))
            count = Call("user_counter", (Literal(one.name), Literal(start)))
            return format_integer(section.text("Format", "%d"), Call("add", (own, count)))
        simple: dict[str, Expression] = {
            "custom": Literal(section.text("OriginalValue")),
            "userid": Call("user"),
            "vuserid": Call("user"),
            "currentiteration": Call("add", (Call("iteration"), Literal(1))),
            "iteration": Call("add", (Call("iteration"), Literal(1))),
            "group": Call("group"),
            "groupname": Call("group"),
        }
        if kind not in simple:
            raise CannotRun(f"parameters of type {section.text('Type')} have no native form")
        return format_integer(section.text("Format", "%s"), simple[kind])

    def _add_computed(self, one: Parameter) -> None:
        kind = one.section.text("Type")
        if one.value is None:
            why = f"parameters of type {kind} have no native form"
            self._script.cannot(f"parameter {one.name}", one.place, why)
            return
        if kind.lower() == "custom":
            why = f"a custom parameter has its original value, '{one.section.text('OriginalValue')}'"
            self._script.changed(f"parameter {one.name}", one.place, why)
        else:
            self._script.kept(f"parameter {one.name}", one.place)
        step = made(one.place, set={one.name: f"${{{show(one.value)}}}"})
        if isinstance(one.value, Literal):
            step = made(one.place, set={one.name: str(one.value.value).replace("${", "$${")})
        if one.renewed == "once" or one.is_used_before:
            self.steps.before.append(step)
        if one.renewed == "iteration":
            again = step if not one.is_used_before else made(
                one.place, **{"if": "iteration() > 0", "then": [made(one.place, **step)]}
            )  # fmt: skip
            self.steps.start.append(again)


def _table_name(one: Parameter) -> str:
    return (one.section.text("Table") or one.section.text("TableName")).replace("\\", "/")


def _read_rows(text: str, separator: str, *, is_quoted: bool) -> list[list[str]]:
    if is_quoted:
        return [row for row in csv.reader(io.StringIO(text), delimiter=separator) if row]
    return [line.split(separator) for line in text.splitlines() if line]


_SAME_LINE = re.compile(r"(?i)same line as\s+(.+)")
_SEPARATORS = {"\\t": "\t", "tab": "\t", "comma": ",", "space": " ", "": ","}
