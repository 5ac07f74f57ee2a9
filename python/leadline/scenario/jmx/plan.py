"""A JMeter test plan as a scenario in the native form: the walk through the tree, in JMeter's order and scopes.

Before a sampler: pre-processors, outer ones first; then every timer in scope; after it: post-processors, then
assertions. A node governs what stands beside it and below; under a sampler, that sampler alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import Any

from leadline.errors import PlanError
from leadline.plan.source import Node
from leadline.scenario.conversion import Conversion, hoist, ordered, tree
from leadline.scenario.expressions import show_template
from leadline.scenario.functions import template
from leadline.scenario.jmx import answers, scripted
from leadline.scenario.jmx.context import Context, Scope, made
from leadline.scenario.jmx.controllers import CONTROLLERS, Steps, named, pause
from leadline.scenario.jmx.dns import read_static_hosts
from leadline.scenario.jmx.groups import THREAD_GROUPS, group
from leadline.scenario.jmx.samplers import ignores_cookies, request
from leadline.scenario.jmx.scripts import Scripts
from leadline.scenario.jmx.sources import SOURCES, source_steps
from leadline.scenario.jmx.texts import CannotRun, Texts, csv_variable
from leadline.scenario.jmx.timers import TIMERS, waits
from leadline.scenario.jmx.tree import Element, Tag, inner_tag, inner_text, read_tree
from leadline.scenario.lower_expressions import Names
from leadline.scenario.values import VARIABLE

MOST_COPIED = 20_000
"""Elements that are read as a part of modules and included files."""
ADVICE = "change it, or leave out what cannot run with --scripts skip (in a plan: scripts: skip)"


def read_jmx(
    content: bytes,
    file: str,
    *,
    parameters: Mapping[str, str] | None = None,
    skips_scripts: bool = False,
    read_file: Callable[[str], bytes] | None = None,
) -> tuple[Node, Conversion]:
    """The scenario of a test plan, and what became of its parts.

    Raises:
        PlanError: it is no test plan, or, unless scripts are skipped, parts of it cannot run.
    """
    plan = read_tree(content, file)
    scripts = Scripts(_unread_files(content))
    found = re.findall(
        rb"__setProperty\(\s*([\w.\-]+)"
        rb"|(?:props|JMeterUtils)\s*\.\s*(?:put|setProperty)\(\s*(?:&quot;|[\"'])([\w.\-]+)",
        content,
    )
    shared = frozenset(name.decode() for pair in found for name in pair if name)
    texts = Texts(scripts.expression, None, PurePath(file).name, shared)
    scripts.texts = texts
    indexes = frozenset(
        name.decode("utf-8", "replace") for name in re.findall(rb"__jm__[^<>${}\"']{1,200}?__idx", content)
    )
    conversion = Conversion(file)
    context = Context(file, conversion, texts, scripts, parameters or {}, skips_scripts, indexes=indexes)
    texts.file_text = context.reader_of_texts(read_file)
    document = _Walk(context, plan, read_file).document()
    conversion.raise_if_stopped(ADVICE)
    return tree(document, file), conversion


def _unread_files(content: bytes) -> frozenset[str]:
    """The files that `__StringToFile` writes and whose names stand nowhere else in the plan."""
    found = [name.strip() for name in re.findall(rb"__StringToFile\(([^,$<]+),", content)]
    bases = [name.rpartition(b"/")[2] for name in found]
    return frozenset(
        name.decode("utf-8", "replace")
        for name, base in zip(found, bases, strict=True)
        if content.count(base) == bases.count(base)
    )


class _Walk:
    def __init__(self, context: Context, plan: Element, read_file: Callable[[str], bytes] | None) -> None:
        self._context = context
        self._plan = plan
        self._read_file = read_file
        self._inlined: list[tuple[str, int]] = []
        self._copied = 0
        self._included: dict[str, Element] = {}
        self._config: dict[int, Element] = {}

    def document(self) -> dict[str, Any]:
        """The scenario."""
        context, plan = self._context, self._plan
        variables = self._variables()
        top = [element for element in plan.elements if element.enabled]
        self._disabled(plan)
        scope = Scope().with_siblings(element for element in top if self._is_config(element))
        groups = self._groups(top, scope)
        for element in self._config.values():
            context.finished(element)
        names: dict[str, int] = {}
        for one in groups:
            names[one["name"]] = names.get(one["name"], 0) + 1
            if names[one["name"]] > 1:
                one["name"] += f" ({names[one['name']]})"
        found: dict[str, Any] = {"name": plan.name or "scenario"}
        if variables:
            found["variables"] = variables
        found |= {"unset_variables": "keep", "http": {"verify": False}}
        self._csv_reads(groups)
        if context.hosts:
            found["hosts"] = context.hosts
        if context.data:
            found["data"] = list(context.data.values())
        if plan.flag("TestPlan.serialize_threadgroups"):
            found["serial"] = True
        found["groups"] = groups
        after_stop = plan.flag("TestPlan.tearDown_on_shutdown")
        for one in groups:
            if one.get("phase") == "teardown" and not after_stop:
                one["after_stop"] = False
        plan.flag("TestPlan.functional_mode")
        context.finished(plan, "TestPlan.user_define_classpath", "TestPlan.comments")
        hoist(found)
        keys = ("name", "base", "hosts", "variables", "unset_variables", "http", "data", "serial", "groups")
        return ordered(found, keys)

    def _groups(self, top: list[Element], scope: Scope) -> Steps:
        """The thread groups that do something. Raises PlanError if there is none."""
        context, plan = self._context, self._plan
        groups: Steps = []
        idle: Element | None = None
        for element in top:
            if element.kind not in THREAD_GROUPS:
                if not self._is_config(element):
                    self._other(element)
                continue
            one = self._group(element, scope, top)
            if one.get("load", {}).get("loops") == 0:
                idle = element
                context.conversion.dropped(element.what, element.line, "it has 0 loops")
            else:
                groups.append(one)
        if groups:
            return groups
        if idle is not None:
            hint = "give it a number of loops"
            raise PlanError(context.file, idle.line, f"{idle.what} has 0 loops, so nothing is sent", hint=hint)
        raise PlanError(context.file, plan.line, "the test plan has no enabled thread group", hint="enable one")

    def _variables(self) -> dict[str, str]:
        """User Defined Variables, wherever they stand; computed once at the start."""
        found: dict[str, str] = {}
        listed: list[tuple[Element, Tag | None]] = [(self._plan, self._plan.tag("TestPlan.user_defined_variables"))]
        listed += [(element, None) for element in _enabled(self._plan) if element.kind == "Arguments"]
        for element, own in listed:
            before = frozenset(found)
            rows = (
                element.rows("Arguments.arguments")
                if own is None
                else getattr(inner_tag(own, "Arguments.arguments"), "tags", [])
            )
            for tag in rows:
                name = inner_text(tag, "Argument.name").strip()
                if not name:
                    continue
                if VARIABLE.fullmatch(name) is None:
                    self._context.cannot(element, f"the variable's name {name[:60]!r} has no native form")
                    continue
                skipped = self._context.skipped
                value = self._context.text(element, inner_text(tag, "Argument.value"))
                if self._context.skipped > skipped:
                    continue  # what reads it is listed
                found[name] = _known(value, before)
                self._constant(name, found[name])
            if element is not self._plan:
                self._context.finished(element)
        self._context.needed_before()
        return found

    def _constant(self, name: str, text: str) -> None:
        context = self._context
        try:
            context.constants[name] = Names(context.parameters, dict(context.constants)).text(template(text))
        except ValueError:
            context.constants.pop(name, None)

    def _group(self, element: Element, scope: Scope, top: list[Element]) -> dict[str, Any]:
        context = self._context
        found = made(element, **group(context, element))
        context.group_users = found.get("load", {}).get("threads", 0)
        found["name"] = found["name"].replace("${", "$${")
        children = [one for one in element.elements if one.enabled]
        self._disabled(element)
        start = [one for one in top if one.kind in SOURCES]
        inner = scope.with_siblings(one for one in children if self._is_config(one))
        cookies = inner.only("CookieManager")
        if cookies is not None and self._clears(cookies, element):
            found["clear_cookies"] = True
        cache = inner.only("CacheManager")
        if cache is not None and self._clears_cache(cache, element):
            found["clear_cache"] = True
        before = [] if cookies is None or ignores_cookies(cookies) else self._cookies(cookies)
        if before:
            found["before"] = before
        steps = [*(step for one in start for step in source_steps(context, one)), *self._children(children, scope)]
        if not steps:
            context.conversion.changed(element.what, element.line, "it has no requests")
            steps = [{"wait": "1ms"}]
        found["flow"] = steps
        return found

    def _clears(self, manager: Element, group: Element) -> bool:
        """Whether each iteration begins without cookies."""
        if manager.flag("CookieManager.controlledByThreadGroup"):
            return not group.flag("ThreadGroup.same_user_on_next_iteration", True)
        return manager.flag("CookieManager.clearEachIteration")

    def _clears_cache(self, manager: Element, group: Element) -> bool:
        """Whether each iteration begins without cached answers."""
        if not manager.flag("useExpires"):
            why = "answers that have not expired are not asked for again"
            self._context.conversion.changed(manager.what, manager.line, why)
        if manager.flag("CacheManager.controlledByThread"):
            return not group.flag("ThreadGroup.same_user_on_next_iteration", True)
        return manager.flag("clearEachIteration")

    def _cookies(self, manager: Element) -> Steps:
        found: Steps = []
        for tag in manager.rows("CookieManager.cookies"):
            values = {
                key: self._context.text(manager, inner_text(tag, f"Cookie.{key}"))
                for key in ("value", "domain", "path")
            }
            name = tag.attributes.get("testname") or tag.attributes.get("name", "")
            if name and values["domain"]:
                values = {key: value for key, value in values.items() if value}
                found.append(made(manager, cookie=self._context.text(manager, name), **values))
        return found

    def _children(self, elements: list[Element], scope: Scope) -> Steps:
        """The steps of a controller's children: what begins each pass, then the children in order."""
        return [step for child in self._by_child(elements, scope) for step in child]

    def _by_child(self, elements: list[Element], scope: Scope) -> list[Steps]:
        context = self._context
        inner = scope.with_siblings(one for one in elements if self._is_config(one))
        found: list[Steps] = [source_steps(context, one) for one in elements if one.kind in SOURCES]
        for element in elements:
            steps = None if self._is_config(element) else self._element(element, inner)
            if steps is not None:
                found.append(steps)
        return [steps for steps in found if steps]

    def _element(self, element: Element, scope: Scope) -> Steps | None:
        """The steps of a controller or a sampler; None for another element."""
        context = self._context
        self._copied += bool(self._inlined)
        if self._copied > MOST_COPIED:
            why = f"modules and included files repeat more than {MOST_COPIED} elements"
            raise PlanError(context.file, element.line, why, hint="use loops in place of repeated modules")
        if element.kind in CONTROLLERS:
            self._disabled(element)
            children = [one for one in element.elements if one.enabled]
            before_condition = list(context.needed_before())
            context.parents.append(element)
            by_child = self._by_child(children, scope)
            context.parents.pop()
            steps = [step for child in by_child for step in child]
            found = CONTROLLERS[element.kind](context, element, steps, by_child)
            context.finished(element)
            return [*before_condition, *context.needed_before(), *found]
        if element.kind in ("HTTPSamplerProxy", "HTTPSampler", "HTTPSampler2"):
            return self._request(element, scope)
        if element.kind in _OTHER_SAMPLERS or element.kind in scripted.SCRIPTED:
            return self._other_sampler(element, scope)
        if element.kind == "ModuleController":
            return self._module(element, scope)
        if element.kind == "IncludeController":
            return self._include(element, scope)
        self._other(element)
        return None

    def _within(self, element: Element, scope: Scope) -> tuple[Scope, Steps, Steps]:
        """A sampler's scope, the steps before it, and those after it; scripts that are checks are left to it."""
        context = self._context
        context.texts.sampler = None if "${" in element.name else element.name
        self._disabled(element)
        own = [one for one in element.elements if one.enabled]
        for one in own:
            if not self._is_config(one):
                self._other(one)
        inner = scope.with_siblings(own)
        before: Steps = [step for one in own if one.kind in SOURCES for step in source_steps(context, one)]
        for one in inner.of(*scripted.PRE):
            before += self._processor(one)
        after: Steps = []
        for one in inner.of(*scripted.POST):
            after += [] if scripted.is_check(one) else self._processor(one)
        for one in inner.of(*scripted.ASSERTIONS, *scripted.LISTENERS):
            after += [] if scripted.is_check(one) else scripted.script_steps(context, one)
        return inner, before, after

    def _scripted_checks(self, scope: Scope, after: Steps, checks: Steps) -> None:
        """Add the checks that scripts are; what stands in the place of one that is refused is a step."""
        for one in scope.of(*scripted.POST, *scripted.ASSERTIONS):
            if scripted.is_check(one):
                found, instead = scripted.checks(self._context, one, after, checks)
                checks += found
                after += instead

    def _processor(self, element: Element) -> Steps:
        if element.kind == "UserParameters":
            return scripted.user_parameters(self._context, element)
        if element.kind == "ResultAction":
            return scripted.result_action(self._context, element)
        return scripted.script_steps(self._context, element)

    def _request(self, element: Element, scope: Scope) -> Steps:
        context = self._context
        inner, before, after = self._within(element, scope)
        context.texts.before.clear()
        skipped = context.skipped
        found = request(context, element, inner)
        if context.skips_scripts and context.skipped > skipped:
            context.conversion.dropped(element.what, element.line, "it is not sent: a part of it was left out")
            context.needed_before()
            context.texts.sampler = None
            return []
        extract: dict[str, Any] = {}
        for one in inner.of(*answers.EXTRACTORS):
            taken = answers.extractors(context, one)
            for name in extract.keys() & taken.keys():
                context.conversion.changed(one.what, one.line, f"it replaces another extractor of {name}")
            extract |= taken
        checks = [check for one in inner.of(*answers.ASSERTIONS) for check in answers.checks(context, one)]
        after = [*context.needed_after(), *after]
        before = [*before, *context.needed_before()]
        self._scripted_checks(inner, after, checks)
        timers = waits(context, inner.of(*TIMERS))
        for key, value in (("before", before), ("extract", extract), ("check", checks), ("after", after)):
            if value:
                found[key] = value
        if timers:
            found["waits"] = timers if len(timers) > 1 else timers[0]
        context.finished(element)
        context.texts.sampler = None
        return [found]

    def _other_sampler(self, element: Element, scope: Scope) -> Steps:
        """A sampler without a request: its processors and timers, and what it does."""
        context = self._context
        inner, before, after = self._within(element, scope)
        pauses: Steps = [pause(element, wait) for wait in waits(context, inner.of(*TIMERS))]
        own = self._action(element) if element.kind == "TestAction" else self._sample(element, inner)
        context.texts.sampler = None
        steps = [*context.needed_before(), *before, *pauses, *own, *after]
        if len(steps) <= 1:
            return steps
        found = named(element, steps=steps)
        found.is_one = True
        return [found]

    def _sample(self, element: Element, scope: Scope) -> Steps:
        """A sample that sends nothing: a transaction, so that its label is counted."""
        context = self._context
        if element.kind in scripted.SCRIPTED:
            own = scripted.script_steps(context, element)
        else:
            context.conversion.changed(element.what, element.line, "its sample has no content")
            own = []
        if scripted.is_ignored(element):
            return own
        if scope.of(*answers.ASSERTIONS) or any(map(scripted.is_check, scope.of(*scripted.POST, *scripted.ASSERTIONS))):
            why = "the assertions in its scope are not applied to it: it has no answer"
            context.conversion.changed(element.what, element.line, why)
        found = made(element, transaction=context.label(element) or element.kind)
        if any("wait" in step for step in own):
            found["with_waits"] = True
        found["steps"] = own
        found.is_one = True
        return [found]

    def _action(self, element: Element) -> Steps:
        context = self._context
        action, target = (element.text(f"ActionProcessor.{name}", "0").strip() for name in ("action", "target"))
        duration = element.text("ActionProcessor.duration")
        if action == "1":
            steps: Steps = [made(element, wait=context.milliseconds(element, duration))]
        elif action in ("0", "2"):
            stop = "user" if target == "0" else "test" if action == "0" else "test-now"
            steps = [made(element, stop=stop)]
        else:
            steps = [made(element, stop={"3": "iteration", "4": "pass", "5": "loop"}.get(action, "iteration"))]
        context.finished(element, "ActionProcessor.duration")
        return steps

    def _module(self, element: Element, scope: Scope) -> Steps:
        """The steps of another controller, in the scope of this place."""
        context = self._context
        path = [tag.text for tag in element.rows("ModuleController.node_path")]
        # The first name is the window's root, the second the plan's; old files have the plan's alone.
        path = path[2:] if path[1:2] == [self._plan.name] else path[1:] if path[:1] == [self._plan.name] else path
        target: Element | None = self._plan
        for name in path:
            target = next((one for one in target.elements if one.name == name), None) if target else None
        if target is None or target is self._plan or not path:
            context.cannot(element, f"there is no element '{'/'.join(path)}'")
            return []
        return self._inline(element, target, scope)

    def _inline(self, element: Element, target: Element, scope: Scope) -> Steps:
        if (target.file, id(target)) in self._inlined:
            self._context.cannot(element, "it contains itself")
            return []
        if len(self._inlined) >= _DEEPEST_INLINED:
            self._context.cannot(element, f"modules and included files are nested deeper than {_DEEPEST_INLINED}")
            return []
        self._inlined.append((target.file, id(target)))
        try:
            if target.kind in CONTROLLERS:
                found = self._element(target, scope) or []
            else:
                found = self._children([one for one in target.elements if one.enabled], scope)
        finally:
            self._inlined.pop()
        self._context.finished(element)
        return [named(element, steps=found)] if found else []

    def _include(self, element: Element, scope: Scope) -> Steps:
        context = self._context
        name = element.text("IncludeController.includepath").strip()
        if not name:
            context.conversion.dropped(element.what, element.line, "it names no file")
            return []
        try:
            target = self._included_file(show_template(context.texts.template(name)), element.line)
        except (ValueError, CannotRun) as error:
            context.cannot(element, f"{name}: {error}")
            return []
        return self._inline(element, target, scope)

    def _included_file(self, name: str, line: int) -> Element:
        """The elements of a file, which is read once. Raises ValueError."""
        if name not in self._included:
            if self._read_file is None:
                raise ValueError("other files are not read here")
            included = read_tree(self._read_file(name), name)
            fragments = [one for one in included.elements if one.kind == "TestFragmentController"]
            inside = [below for one in fragments for below in one.elements] if fragments else included.elements
            target = Element("GenericController", "", included.name, "", True, line, {}, name)
            target.elements = [one for one in inside if one.kind not in THREAD_GROUPS]
            self._included[name] = target
        return self._included[name]

    def _is_config(self, element: Element) -> bool:
        is_config = element.kind in _CONFIG or element.kind in SOURCES
        if is_config and element.enabled and element.kind in _FINISHED_LAST:
            self._config[id(element)] = element
        return is_config

    def _other(self, element: Element) -> None:
        """Report an element that has no steps."""
        context = self._context
        if element.kind == "DNSCacheManager":
            read_static_hosts(context, element)
        elif element.kind in _WITHOUT_USE:
            context.conversion.dropped(element.what, element.line, _WITHOUT_USE[element.kind])
        elif element.kind == "Arguments":
            return
        elif element.kind.endswith(_LISTENERS):
            context.conversion.dropped(element.what, element.line, "a listener; results are Leadline's own")
        else:
            context.cannot(element, f"{element.full_kind} has no native form")

    def _disabled(self, element: Element) -> None:
        for one in element.elements:
            if not one.enabled:
                self._context.conversion.dropped(one.what, one.line, "it is disabled")

    def _csv_reads(self, groups: Steps) -> None:
        """Files of __CSVRead: each user has a row from its beginning, and the next one by `next`."""
        for file, last in self._context.texts.csv_columns.items():
            columns = [csv_variable(file, index) for index in range(last + 1)]
            self._context.data[file] = {"name": file, "file": file, "columns": columns, "advance": "explicit"}
            for one in groups:
                one["before"] = [{"next": file}, *one.get("before", [])]


def _known(text: str, names: frozenset[str]) -> str:
    """A variable's value: it sees the variables of the elements before its own; other placeholders stay."""
    return re.sub(r"(?<!\$)\$\{([A-Za-z]\w*)\}", lambda match: match[0] if match[1] in names else f"${match[0]}", text)


def _enabled(element: Element) -> list[Element]:
    """All enabled elements below one, in the order of the file."""
    found = []
    for one in element.elements:
        if one.enabled:
            found += [one, *_enabled(one)]
    return found


_DEEPEST_INLINED = 10
_OTHER_SAMPLERS = frozenset({"TestAction", "DebugSampler"})
_FINISHED_LAST = frozenset({
    "ConfigTestElement", "HeaderManager", "CookieManager", "CacheManager", "AuthManager", "SampleTimeout",
})  # fmt: skip
_CONFIG = frozenset({
    *_FINISHED_LAST, *TIMERS, *answers.EXTRACTORS, *answers.ASSERTIONS, *scripted.PRE, *scripted.POST,
    *scripted.ASSERTIONS, *scripted.LISTENERS,
})  # fmt: skip
_WITHOUT_USE = {
    "TestFragmentController": "it is used where a module controller names it",
    "KeystoreConfig": "client certificates are given to the command",
    "DebugPostProcessor": "it only shows variables",
    "DebugSampler": "it only shows variables",
    "ConfigTestElement": "it sets nothing for HTTP",
    "LoginConfig": "it sets nothing for HTTP",
    "JDBCDataSource": "a pool of database connections has no use without its requests",
    "ProxyControl": "a recorder", "WorkBench": "it is no part of the test", "HttpMirrorControl": "no part of the test",
    "Summariser": "a listener; results are Leadline's own", "PropertyControlGui": "no part of the test",
    "PerfMonCollector": "a listener; results are Leadline's own", "LoadosophiaUploader": "a listener",
    "AutoStop": "use a threshold with abortOnFail",
}  # fmt: skip
_LISTENERS = ("Collector", "Listener", "Visualizer", "Summariser", "Writer", "Reporter", "Gui", "ResultSaver")
