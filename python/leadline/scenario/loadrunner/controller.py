"""A Controller's scenario (`.lrs`) in the native form: its groups, each with its script, and their schedule.

The scripts' folders lie beside it: it has their paths on the machine where it was saved.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from leadline.errors import PlanError
from leadline.plan.source import Node
from leadline.scenario.conversion import Conversion, tree
from leadline.scenario.loadrunner.encodings import decode
from leadline.scenario.loadrunner.ini import read_number
from leadline.scenario.loadrunner.schedule import Schedule, load_of, read_schedules
from leadline.scenario.loadrunner.script import ADVICE, Reader, ReadScript, ScriptFiles, document, read_script
from leadline.scenario.loadrunner.thinking import pace_steps
from leadline.scenario.loadrunner.tokens import SourceLine

MAX_UP = 3
"""Folders above the scenario's own in which scripts are looked for."""


@dataclass(slots=True)
class Part:
    """A part in braces: its entries, its other lines, and the parts in it."""

    name: str
    line: int
    entries: dict[str, str] = field(default_factory=dict)
    parts: list[Part] = field(default_factory=list)
    text: list[str] = field(default_factory=list)

    def find(self, name: str) -> Part | None:
        """The first part of a name below this one."""
        return next((one for one in self.all() if one.name == name), None)

    def all(self) -> Iterator[Part]:
        """All parts below this one."""
        pending = self.parts[::-1]
        while pending:
            one = pending.pop()
            yield one
            pending += reversed(one.parts)


@dataclass(slots=True)
class Group:
    """A group of users with one script."""

    name: str
    script: str
    """The name of the script's part."""
    line: int
    users: int = 0
    percent: float | None = None
    is_enabled: bool = True


def is_controller(content: bytes) -> bool:
    """Whether a file's content is a Controller's scenario."""
    head = content[:4096]
    return b"{ScenarioGeneralConfig" in head or b"{ScenarioPrivateConfig" in head or b"LoadRunner Controller" in head


def read_lrs(content: bytes, file: str, read_file: Reader | None, *, skips_scripts: bool) -> tuple[Node, Conversion]:
    """The scenario of a `.lrs`, and what became of its parts.

    Raises:
        PlanError: it is none, a script is missing, or, unless scripts are skipped, parts of one cannot run.
    """
    conversion = Conversion(file)
    root = read_parts(decode(content))
    groups = [one for one in read_groups(root) if _is_used(one, conversion)]
    if not groups:
        raise PlanError(file, None, "the scenario has no enabled group", hint="enable one in the Controller")
    part = root.find("ScenarioSchedulerConfig")
    if part is None:
        raise PlanError(file, None, "the scenario has no schedule", hint="save it by version 11 or later")
    schedule, by_group = read_schedules("\n".join(part.text), file, part.line)
    _share_users(groups, schedule, by_group)
    scripts: list[ReadScript] = []
    for group in groups:
        own = schedule or by_group.get(group.name.lower()) or Schedule(is_until_complete=True)
        scripts.append(_read_group(root, group, conversion, read_file, skips_scripts=skips_scripts))
        total = own.most_users or group.users
        one = scripts[-1]
        load = load_of(own, group.users / total if total else 1, group.users, one.settings.run.iterations)
        one.group["load"] = load
        names = {other.name.lower(): other.name for other in groups}
        if own.after:
            one.group["after"] = [names.get(name.lower(), name) for name in own.after]
        pace = pace_steps(one.settings.pace, load.get("iterations"), SourceLine(file, group.line))
        one.group["flow"] = [*one.group["flow"], *pace]
        if own.has_batches:
            why = "users start and end evenly; the Controller starts and ends several at once"
            conversion.changed(f"group {group.name}", group.line, why)
    if (meetings := root.find("RendezChief")) is not None and meetings.parts:
        conversion.changed("RendezChief", meetings.line, "all users of a group meet, for 30s at most")
    conversion.raise_if_stopped(ADVICE)
    return tree(document(PurePosixPath(file).stem, scripts), file), conversion


def read_parts(text: str) -> Part:
    """The parts in braces of a text."""
    root = Part("", 1)
    open_parts = [root]
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if line.startswith("{"):
            part = Part(stripped[1:].strip(), number)
            open_parts[-1].parts.append(part)
            open_parts.append(part)
        elif stripped == "}" and len(open_parts) > 1:
            open_parts.pop()
        else:
            open_parts[-1].text.append(line)
            name, equals, value = stripped.partition("=")
            if equals and not stripped.startswith("<"):
                open_parts[-1].entries.setdefault(name.strip(), value.strip())
    return root


def read_groups(root: Part) -> list[Group]:
    """The groups: by their share of the users, or with users of their own."""
    found = [
        Group(one.entries.get("SCHED_GROUP_NAME", ""), one.entries.get("SCHED_GROUP_NAME", ""), one.line,
              percent=read_number(one.entries.get("TEST_PERCENT_DISTRIBUTION", "0")))
        for one in root.all()
        if one.name == "SCHED_GROUP_DATA"
    ]  # fmt: skip
    listed = root.find("GroupChief")
    own: list[Group] = []
    for part in listed.parts if listed is not None else []:
        settings = next((one for one in part.parts if one.name == "ChiefSettings"), Part("", part.line))
        users = [one for one in part.parts if one.name.isdecimal()]
        script = settings.entries.get("5") or (users[0].entries.get("5", "") if users else "")
        enabled = settings.entries.get("Enabled", "1") != "0"
        own.append(Group(part.name, script or part.name, part.line, len(users), None, enabled))
    return found or own


def _is_used(group: Group, conversion: Conversion) -> bool:
    if not group.is_enabled:
        conversion.dropped(f"group {group.name}", group.line, "it is disabled")
    return group.is_enabled


def _share_users(groups: list[Group], schedule: Schedule | None, by_group: dict[str, Schedule]) -> None:
    """The number of users of each group: of the schedule's users its share, the largest rests first."""
    for group in groups:
        own = by_group.get(group.name.lower())
        if own is not None and own.most_users:
            group.users = own.most_users
    if schedule is None or not schedule.most_users:
        for group in groups:
            group.users = group.users or 1
        return
    total = schedule.most_users
    weights = [one.users if one.percent is None else one.percent for one in groups]
    whole = sum(weights) or 1
    exact = [total * weight / whole for weight in weights]
    for group, share in zip(groups, exact, strict=True):
        group.users = int(share)
    rest = total - sum(group.users for group in groups)
    order = sorted(range(len(groups)), key=lambda at: exact[at] - int(exact[at]), reverse=True)
    for at in order[:rest]:
        groups[at].users += 1


def _read_group(
    root: Part,
    group: Group,
    conversion: Conversion,
    read_file: Reader | None,
    *,
    skips_scripts: bool,
) -> ReadScript:
    """A group's script, with the settings that the scenario has for it. Raises PlanError."""
    file, tests = conversion.file, root.find("TestChief")
    part = next((one for one in (tests.parts if tests else []) if one.name.lower() == group.script.lower()), None)
    if part is None:
        raise PlanError(file, group.line, f"the group {group.name} has no script", hint="choose one in the Controller")
    path, content = _find_script(part, file, read_file)
    folder = str(PurePosixPath(path).parent)
    files = ScriptFiles(
        str(PurePosixPath(file).parent / path),
        content,
        read_file or _read_nothing,
        "" if folder == "." else folder,
        usp=_lines(part.entries.get("ConfigUsp")),
        cfg=_lines(part.entries.get("Config")),
    )
    own = Conversion(files.usr)
    read = read_script(files, own, skips_scripts=skips_scripts)
    for item in own.items:
        conversion.items.append(dataclasses.replace(item, file=item.file or files.usr))
    conversion.parameters |= own.parameters
    read.name = group.name
    read.group["name"] = group.name.replace("${", "$${")
    _rename_data(read, group.name)
    conversion.kept(f"group {group.name}", group.line)
    return read


def _read_nothing(name: str) -> bytes:
    raise ValueError(f"{name} cannot be read here")


def _lines(text: str | None) -> str | None:
    return None if not text else text.replace("\\r\\n", "\n").replace("\\n", "\n")


def _find_script(part: Part, file: str, read_file: Reader | None) -> tuple[str, bytes]:
    """The `.usr` of a part, by the end of its path, in the scenario's folder, below, or in a folder above."""
    written = part.entries.get("Path", "").replace("\\", "/")
    pieces = [piece for piece in written.split("/") if piece and not piece.endswith(":")]
    first: ValueError | None = None
    for up in range(MAX_UP + 1):
        for length in range(1, len(pieces) + 1):
            path = "/".join([*[".."] * up, *pieces[-length:]])
            try:
                return path, (read_file or _read_nothing)(path)
            except ValueError as error:
                if "outside of" in str(error) or first is None:
                    first = error
    name = "/".join(pieces[-2:]) or part.name
    hint = "put the scripts' folders beside the scenario, or give --any-file if they are beside its folder"
    raise PlanError(file, part.line, f"the script {name} is not there", hint=hint) from first


def _rename_data(read: ReadScript, group: str) -> None:
    """Names of data sources are those of parameters, which several groups may have; each group takes its own rows."""
    renamed = {source["name"]: f"{group}: {source['name']}" for source in read.data}
    for source in reversed(read.data):
        if source.get("advance") != "explicit":
            source["advance"] = "explicit"
            read.group["flow"].insert(0, {"next": source["name"]})
    for source in read.data:
        source["name"] = renamed[source["name"]]
    pending: list[object] = [read.group]
    while pending:
        one = pending.pop()
        if isinstance(one, dict):
            if isinstance(one.get("next"), str):
                one["next"] = renamed.get(one["next"], one["next"])
            pending += one.values()
        elif isinstance(one, list):
            pending += one
