"""A script of LoadRunner (`.usr`) as a scenario in the native form: which files it has, and in which order its actions
run. `translator` translates the actions; the Controller's scenarios are in `controller`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any

from leadline.errors import PlanError
from leadline.plan import units
from leadline.plan.source import Node
from leadline.scenario.conversion import Conversion, Made, hoist, ordered, tree
from leadline.scenario.loadrunner import syntax as c
from leadline.scenario.loadrunner.chains import flatten
from leadline.scenario.loadrunner.context import CannotRun, Script, Steps, made
from leadline.scenario.loadrunner.encodings import decode
from leadline.scenario.loadrunner.ini import Section, read_ini
from leadline.scenario.loadrunner.parameter_file import read_parameters
from leadline.scenario.loadrunner.parameters import ParameterReader
from leadline.scenario.loadrunner.parser import parse
from leadline.scenario.loadrunner.saved_names import find_saved
from leadline.scenario.loadrunner.settings import Block, RunLogicError, Settings, ThinkTime, read_settings
from leadline.scenario.loadrunner.thinking import pace_steps
from leadline.scenario.loadrunner.tokens import CSyntaxError, Preprocessor, SourceLine
from leadline.scenario.loadrunner.translator import Translator

ADVICE = "change it, or leave out what cannot run with --scripts skip (in a plan: scripts: skip)"
Reader = Callable[[str], bytes]


@dataclass(slots=True)
class ScriptFiles:
    """The files of one script."""

    usr: str
    """The path of the `.usr` as the user sees it."""
    content: bytes
    read_file: Reader
    """Reads a file that is named relative to the scenario's own file."""
    folder: str = ""
    """The script's folder, relative to that."""
    usp: str | None = None
    """Run logic and settings in place of those of the script's own files."""
    cfg: str | None = None

    def read(self, name: str) -> bytes:
        """A file of the script. Raises ValueError."""
        name = name.replace("\\", "/")
        path = name if not self.folder or name.startswith("/") else f"{self.folder}/{name}"
        try:
            return self.read_file(path)
        except ValueError:
            base = name.rpartition("/")[2]
            if base == base.lower():
                raise
            head = path[: len(path) - len(base)]
            return self.read_file(f"{head}{base.lower()}")  # Windows does not distinguish them

    def shown(self, name: str) -> str:
        """The path of one of its files as the user sees it."""
        return str(PurePosixPath(self.usr).parent / name.replace("\\", "/"))


@dataclass(slots=True)
class ReadScript:
    """A script as a group of users without its load."""

    name: str
    group: Made
    data: list[dict[str, Any]] = field(default_factory=list)
    settings: Settings = field(default_factory=lambda: Settings(Block(())))


def read_usr(
    content: bytes, file: str, read_file: Reader | None, parameters: Mapping[str, str], *, skips_scripts: bool
) -> tuple[Node, Conversion]:
    """The scenario of a `.usr`, and what became of its parts.

    Raises:
        PlanError: it is no script, a file of it is missing, or, unless scripts are skipped, parts of it cannot run.
    """
    conversion = Conversion(file)
    files = ScriptFiles(file, content, read_file or _read_nothing)
    read = read_script(files, conversion, skips_scripts=skips_scripts)
    read.group["load"] = _make_own_load(read, conversion, parameters)
    conversion.raise_if_stopped(ADVICE)
    return tree(document(read.name, [read]), file), conversion


def _read_nothing(name: str) -> bytes:
    raise ValueError(f"{name} cannot be read here")


def document(name: str, scripts: list[ReadScript]) -> dict[str, Any]:
    """The scenario of several groups."""
    found: dict[str, Any] = {"name": name, "http": {"verify": False}}
    agents = {one.settings.user_agent for one in scripts}
    if len(agents) == 1 and (agent := agents.pop()):
        found["http"] = {"verify": False, "headers": {"User-Agent": agent.replace("${", "$${")}}
    data = [source for one in scripts for source in one.data]
    if data:
        found["data"] = data
    found["groups"] = [one.group for one in scripts]
    shared = found["http"].pop("headers", None)
    hoist(found)
    if shared:
        found["http"]["headers"] = {**shared, **found["http"].get("headers", {})}
    return ordered(found, ("name", "base", "http", "data", "groups"))


def read_script(files: ScriptFiles, conversion: Conversion, *, skips_scripts: bool) -> ReadScript:
    """A script as a group. Raises PlanError."""
    usr = read_ini(decode(files.content))
    actions = usr.get("Actions")
    if actions is None or not actions.entries:
        raise PlanError(files.usr, None, "the script has no [Actions]", hint="give the .usr of a script in C")
    general = usr.get("General", Section("General", 1))
    _refuse_kind(files.usr, general)
    names = [name for name in actions.names if name not in ("vuser_init", "vuser_end")]
    settings = _read_own_settings(files, usr, general, names)
    if files.cfg is None:
        # VuGen writes NOTHINK into its own settings, whatever the test will be.
        settings = replace(settings, think_time=ThinkTime())
    script = Script(files.usr, conversion, skips_scripts, settings, locale=general.text("ScriptLocale"))
    script.braces = (general.text("ParamLeftBrace", "{") or "{", general.text("ParamRightBrace", "}") or "}")
    declared = _read_actions(files, script, usr, actions)
    _read_parameters(files, script, general)
    find_saved(script)
    return _Group(files, script, declared).read(files.usr)


def _refuse_kind(file: str, general: Section) -> None:
    """Raise PlanError for scripts in other languages."""
    language = general.text("ScriptLanguage", "C").lower()
    kind = general.text("Type")
    if language not in ("c", "") or kind.lower() in ("java", "java_vuser", "vb", "vbs", "javascript", "dotnet"):
        raise PlanError(
            file, general.line, f"the script is in {language if language not in ('c', '') else kind}, not C"
        )


def _read_own_settings(files: ScriptFiles, usr: dict[str, Section], general: Section, names: list[str]) -> Settings:
    usp, cfg = files.usp, files.cfg
    name = None
    if usp is None:
        logic = usr.get("RunLogicFiles", Section("", 1))
        name = next(iter(logic.entries.values()), "default.usp")
        usp = _read_optional(files, name)
    if cfg is None:
        cfg = _read_optional(files, general.text("DefaultCfg", "default.cfg"))
    try:
        return read_settings(names, usp, cfg)
    except RunLogicError as error:
        # A Controller's scenario has the run logic as one line, in which its lines cannot be found.
        file, line = (files.usr, None) if name is None else (files.shown(name), error.line)
        raise PlanError(file, line, str(error), hint="change it in VuGen's run-time settings") from None


def _read_optional(files: ScriptFiles, name: str) -> str:
    """The text of a file; nothing if there is none."""
    try:
        return decode(files.read(name)) if name else ""
    except ValueError:
        return ""


def _read_actions(
    files: ScriptFiles, script: Script, usr: dict[str, Section], actions: Section
) -> tuple[c.Statement, ...]:
    """Read the actions and the files beside them; returns what these declare."""

    def read_text(name: str) -> str | None:
        try:
            return decode(files.read(name), script.locale)
        except ValueError:
            return None

    preprocessor = Preprocessor(read_text, shown=files.shown)
    extra = [name for name in usr.get("ExtraFiles", Section("", 1)).names if name.lower().endswith((".h", ".c"))]
    declared: list[c.Statement] = []
    for name in dict.fromkeys([*(one for one in extra if one.lower() != "globals.h"), "globals.h"]):
        if name.lower().endswith(".c"):
            continue  # globals.h includes it, if it is needed before the actions
        declared += _read_c(script, preprocessor, None, name, set())
    for name in extra:
        if name.lower().endswith(".c"):
            declared += _read_c(script, preprocessor, None, name, set())
    own = {name: actions.text(name) for name in actions.names}
    for name, path in own.items():
        try:
            text = decode(files.read(path), script.locale)
        except ValueError as error:
            raise PlanError(script.file, actions.line, f"the action {name}: {error}") from None
        declared += _read_c(script, preprocessor, text, path, {name})
    for name, path in own.items():
        if name not in script.actions:
            raise PlanError(files.shown(path), 1, f"the file has no function {name}()")
    return tuple(declared)


def _read_c(
    script: Script, preprocessor: Preprocessor, text: str | None, path: str, actions: set[str]
) -> tuple[c.Statement, ...]:
    """Read a file of C; `actions` are the names of functions that are actions."""
    shown = preprocessor.shown(path)
    try:
        tokens = preprocessor.include(path) if text is None else preprocessor.read(text, shown)
    except CSyntaxError as error:
        raise PlanError(error.place.file, error.place.line, str(error)) from None
    unit = parse(tokens, shown)
    for function in unit.functions:
        into = script.actions if function.name in actions else script.functions
        into.setdefault(function.name, function)
    return unit.globals


def _read_parameters(files: ScriptFiles, script: Script, general: Section) -> None:
    name = general.text("ParameterFile")
    if not name:
        return
    try:
        text = decode(files.read(name), script.locale)
    except ValueError:
        why = f"the file of parameters, {name}, is missing"
        script.changed("ParameterFile", SourceLine(script.file, general.line), why)
        return
    script.parameters = read_parameters(text, files.shown(name))


class _Group:
    """Makes a group of users of a script."""

    def __init__(self, files: ScriptFiles, script: Script, declared: tuple[c.Statement, ...]) -> None:
        self._files = files
        self._script = script
        self._parameters = ParameterReader(script, self._read_table, files.folder)
        self._parameters.prepare()
        self._translator = Translator(script)
        for one in declared:
            try:
                self._translator.globals((one,))
            except CannotRun as error:
                place = error.place or one.place
                script.dropped("declaration", place, f"{error}; what uses it is refused")

    def _read_table(self, name: str) -> bytes:
        try:
            return self._files.read(name)
        except ValueError as error:
            raise CannotRun(str(error)) from None

    def read(self, file: str) -> ReadScript:
        """The group, without its load."""
        script, settings = self._script, self._script.settings
        place = SourceLine(file, 1)
        init = self._section("vuser_init") if "vuser_init" in script.actions else []
        flow = self._run(settings.run, place)
        end = self._section("vuser_end") if "vuser_end" in script.actions else []
        steps = self._parameters.finish()
        name = PurePosixPath(file).stem
        group = made(place, name=name.replace("${", "$${"))
        if not settings.continues_on_error:
            group["on_error"] = "next-iteration"
        if not settings.keeps_user:
            group |= {"clear_cookies": True, "new_connections": True}
        elif self._translator.clears_cookies:
            group["clear_cookies"] = True
        if before := [*steps.before, *init]:
            group["before"] = before
        flow = [*steps.start, *flow]
        if not flow:
            script.changed("the script", place, "its iterations have no requests")
            flow = [{"wait": "1ms"}]
        group["flow"] = flow
        if end:
            group["afterwards"] = end
        for key in ("before", "flow", "afterwards"):
            if key in group:
                group[key] = flatten(group[key], self._translator.names.unique)
        self._set_first_values(group)
        if settings.simulates_cache:
            why = "pages load their resources each time; LoadRunner's cache is not simulated"
            script.changed("SimulateCache", place, why)
        return ReadScript(name, group, steps.data, settings)

    def _set_first_values(self, group: Made) -> None:
        """Variables of the script, and parameters that may be read before they are saved: these are their own names."""
        used = _find_words_below([group.get("before", []), group["flow"], group.get("afterwards", [])])
        opening, closing = self._script.braces
        found = {name: first for name, first in self._translator.names.first.items() if name in used}
        for name in sorted(self._script.saved - set(self._script.parameters)):
            if name in used and name not in self._script.lists:
                found[name] = "0" if name in self._script.counts else f"{opening}{name}{closing}"
        for name in sorted(self._script.lists):
            if f"{name}_matchNr" in used:
                found[f"{name}_matchNr"] = "0"
        if found:
            group["variables"] = {name: text.replace("${", "$${") for name, text in found.items()}

    def _section(self, name: str) -> Steps:
        steps = self._translator.action(name)
        if self._script.settings.has_action_transactions and steps:
            place = self._script.actions[name].place
            return [made(place, transaction=f"{name}_Transaction", steps=steps)]
        return steps

    def _run(self, block: Block, place: SourceLine) -> Steps:
        """The steps of a block of actions."""
        parts: list[tuple[float, Steps]] = []
        for one in block.actions:
            if one.block is not None:
                inner = self._run(one.block, place)
                if one.block.iterations > 1 and inner:
                    inner = [made(place, repeat=one.block.iterations, steps=inner)]
                parts.append((one.percent, inner))
            elif one.name in self._script.actions:
                parts.append((one.percent, self._section(one.name)))
            else:
                self._script.changed(f"run logic {one.name}", place, "there is no action of this name")
        if not block.is_random:
            return [step for _, steps in parts for step in steps]
        weighted = [{"weight": percent, "steps": steps} for percent, steps in parts if percent > 0]
        rest = 100 - sum(percent for percent, _ in parts)
        if rest > 0.01 and weighted:
            weighted.append({"weight": rest, "steps": []})
        return [made(place, weighted=weighted)] if weighted else []


def _find_words_below(value: Any) -> set[str]:
    """All words of the texts below a value, by which names of variables are found."""
    found: set[str] = set()
    pending = [value]
    while pending:
        one = pending.pop()
        if isinstance(one, dict):
            pending += one.values()
            found |= {str(key) for key in one}
        elif isinstance(one, list):
            pending += one
        elif isinstance(one, str):
            found |= _find_words(one)
    return found


def _find_words(text: str) -> set[str]:
    """The names in a text's placeholders and conditions."""
    return set(re.findall(r"[A-Za-z_]\w*", text)) | set(re.findall(r"'([^'\\]+)'", text))


def _make_own_load(read: ReadScript, conversion: Conversion, parameters: Mapping[str, str]) -> dict[str, Any]:
    """The load of a script without a Controller: users that the command line gives, and the script's iterations."""
    settings = read.settings
    iterations = settings.run.iterations
    load: dict[str, Any] = {"users": "${param('users')}"}
    conversion.parameters |= {"users", "ramp", "duration"}
    note = "users, ramp and duration are parameters: -J users=N; think times are the recorded ones"
    if "duration" in parameters:
        try:
            load["duration"] = f"{units.duration_us(parameters['duration'])}us"
        except ValueError as error:
            raise PlanError(f"-J duration={parameters['duration']}", None, str(error)) from None
        last = None
    else:
        load["iterations"] = last = iterations
    if "ramp" in parameters:
        load["ramp"] = parameters["ramp"]
    conversion.changed("load", None, f"there is no Controller's scenario: {note}")
    read.group["flow"] = [*read.group["flow"], *pace_steps(settings.pace, last, SourceLine(conversion.file, 1))]
    return load
