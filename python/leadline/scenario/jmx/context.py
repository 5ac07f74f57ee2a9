"""What is in scope at an element, and how its texts become native ones, with reports about what cannot.

Pure; shared by the modules that read elements.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from leadline.scenario.conversion import Conversion, Made
from leadline.scenario.expressions import Call, Expression, Literal, show, show_template
from leadline.scenario.functions import template
from leadline.scenario.jmx.scripts import Scripts
from leadline.scenario.jmx.texts import CannotRun, Texts
from leadline.scenario.jmx.tree import Element
from leadline.scenario.lower_expressions import Names


@dataclass(frozen=True, slots=True)
class Scope:
    """The elements that govern a place by level, outer ones first."""

    levels: tuple[tuple[Element, ...], ...] = ()

    def with_siblings(self, elements: Iterable[Element]) -> Scope:
        """The scope of an element's children: what stands beside them governs them too."""
        return Scope((*self.levels, tuple(elements)))

    def of(self, *kinds: str) -> list[Element]:
        """The elements of some kinds."""
        return [element for level in self.levels for element in level if element.kind in kinds]

    def nearest_first(self, kind: str) -> list[Element]:
        """The elements of a kind by how they win: the nearest level, and on it the one that stands first."""
        return [element for level in reversed(self.levels) for element in level if element.kind == kind]

    def only(self, kind: str) -> Element | None:
        """The one that remains of managers that replace one another: the outermost level's last."""
        found = [elements[-1] for level in self.levels if (elements := [one for one in level if one.kind == kind])]
        return found[0] if found else None


@dataclass(slots=True)
class Context:
    """One conversion."""

    file: str
    conversion: Conversion
    texts: Texts
    scripts: Scripts
    parameters: Mapping[str, str]
    """By `-J name=value`."""
    skips_scripts: bool = False
    constants: dict[str, str] = field(default_factory=dict)
    """User Defined Variables that are constants."""
    data: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Data sources by name."""
    hosts: dict[str, str] = field(default_factory=dict)
    """Addresses of names that are not resolved."""
    sources: dict[tuple[str, str], Made] = field(default_factory=dict)
    """Those of them that take rows from one position, by file and share mode."""
    counters: dict[str, list[Element]] = field(default_factory=dict)
    """The counters of each variable."""
    finished_elements: set[int] = field(default_factory=set)
    indexes: frozenset[str] = frozenset()
    """Variables with the number of a loop's pass that the plan reads."""
    skipped: int = 0
    """How many parts were left out so far."""
    group_users: Any = 0
    """The number of users of the group that is read; 0 if it has no single one."""
    parents: list[Element] = field(default_factory=list)
    """The controllers around the element that is read, outer ones first."""

    def reader_of_texts(self, read_file: Callable[[str], bytes] | None) -> Callable[[Call], str] | None:
        """What reads the file that a call names, with the values that are known now."""

        def read(call: Call) -> str:
            try:
                return Names(self.parameters, dict(self.constants), read_file=read_file).text((call,))
            except ValueError as error:
                raise CannotRun(f"__FileToString: {error}") from None

        return None if read_file is None else read

    def text(self, element: Element, text: str) -> str:
        """A text in the native form. One that cannot run is reported and stays as it is."""
        with self.reported(element):
            return show_template(self.texts.template(text))
        return text.replace("${", "$${")

    def label(self, element: Element) -> str:
        """An element's name. A placeholder stays as it is written unless it is the same for all users."""
        name = element.name
        if "${" not in name:
            return name
        if set(re.findall(r"\$\{__(\w+)", name)) <= {"P", "property"}:
            kept = len(self.texts.before)
            try:
                native = show_template(self.texts.template(name))
                Names(self.parameters, dict(self.constants)).text(template(native))
            except ValueError:
                pass  # it depends on the user
            else:
                return native
            finally:
                del self.texts.before[kept:]  # the request's texts set the variables
        why = "its label is not computed for each user: results have it as written"
        self.conversion.changed(element.what, element.line, why)
        return name.replace("${", "$${")

    def expression(self, element: Element, text: str) -> Expression | None:
        """A text as an expression; None if it cannot run."""
        with self.reported(element):
            return self.texts.expression(text)
        return None

    @contextmanager
    def reported(self, element: Element) -> Iterator[None]:
        """Report what cannot run in the block, which then ends."""
        try:
            yield
        except CannotRun as error:
            self.cannot(element, str(error))
        for note in self.texts.notes:
            self.conversion.changed(element.what, element.line, note)
        self.texts.notes.clear()

    def cannot(self, element: Element, why: str) -> None:
        """Report a part that cannot run; with `--scripts skip` it is left out."""
        self.skipped += 1
        if self.skips_scripts:
            self.conversion.dropped(element.what, element.line, f"skipped: {why}")
        else:
            self.conversion.cannot(element.what, element.line, why)

    def needed_before(self) -> list[dict[str, Any]]:
        """The steps that the texts since the last call need before them."""
        found, self.texts.before, self.texts.after = [*self.texts.before, *self.texts.after], [], []
        return found

    def needed_after(self) -> list[dict[str, Any]]:
        """The steps that they need after it."""
        found, self.texts.after = self.texts.after, []
        return found

    def milliseconds(self, element: Element, text: str, default: str = "0") -> str:
        """A time in ms as a native duration."""
        return self._time(element, text.strip() or default, "ms")

    def seconds(self, element: Element, text: str, default: str = "0") -> str:
        """A time in s as a native duration."""
        return self._time(element, text.strip() or default, "s")

    def _time(self, element: Element, text: str, unit: str) -> str:
        if re.fullmatch(r"\d+(\.\d+)?", text):
            return _plain_time(text, unit)
        tree = self.expression(element, text)
        if isinstance(tree, Literal) or tree is None:
            if tree is not None:
                self.conversion.changed(element.what, element.line, f"{text!r} is not a time; it is 0")
            return "0s"
        return f"${{{show(tree)}}}{unit}"

    def number(self, element: Element, text: str, default: str = "0") -> int | float | str:
        """A number in the native form."""
        text = text.strip() or default
        if re.fullmatch(r"-?\d{1,15}", text):
            return int(text)
        if re.fullmatch(r"-?\d{1,15}\.\d+", text):
            return float(text)
        tree = self.expression(element, text)
        if tree is None or isinstance(tree, Literal):
            if tree is not None:
                self.conversion.changed(element.what, element.line, f"{text!r} is not a number; it is {default}")
            return int(default)
        return f"${{{show(tree)}}}"

    def static(self, element: Element, text: str, default: float = 0) -> float:
        """A number that must be known now: parameters have their values, which the conversion fixes."""
        if not text.strip():
            return default
        tree = self.expression(element, text)
        if tree is None:
            return default
        try:
            value = Names(self.parameters, dict(self.constants)).number(tree)
        except ValueError as error:
            self.conversion.cannot(element.what, element.line, f"{text}: {error}")
            return default
        if not abs(value) <= _GREATEST:
            self.cannot(element, f"{text[:40]} is too large")
            return default
        if not isinstance(tree, Literal):
            self.conversion.changed(element.what, element.line, f"{text} is fixed at {value:g}")
        return value

    def constant(self, element: Element, text: str) -> str | None:
        """A text that must be known now: parameters have their values, which the conversion fixes."""
        native = self.text(element, text)
        try:
            value = Names(self.parameters, dict(self.constants)).text(template(native))
        except ValueError as error:
            self.cannot(element, f"{text[:60]}: {error}")
            return None
        if value != text:
            self.conversion.changed(element.what, element.line, f"{text[:60]} is fixed at {value[:60]}")
        return value

    def finished(self, element: Element, *ignored: str) -> None:
        """Report an element as kept, and its properties that nothing asked for."""
        if id(element) in self.finished_elements:
            return
        self.finished_elements.add(id(element))
        self.conversion.kept(element.what, element.line)
        for name, text in element.unused():
            if name in ignored or name in _WITHOUT_EFFECT or name.startswith("TestPlan.comments"):
                continue
            if text.lower() in ("false", "", "0", "-1"):
                continue
            shown = text if len(text) <= 40 else text[:37] + "..."
            self.conversion.changed(element.what, element.line, f"{name} = {shown or '...'} has no meaning here")


def _plain_time(text: str, unit: str) -> str:
    if unit == "ms" and re.fullmatch(r"\d{1,15}", text) and int(text) % 1000 == 0:
        return f"{int(text) // 1000}s"
    if re.match(r"\d{16}", text):
        return f"{text}{unit}"
    # Calculators write 117.60000000000001; native durations are whole microseconds.
    places = {"ms": 3, "s": 6}[unit]
    exact = Decimal(text).quantize(Decimal(1).scaleb(-places))
    return f"{exact.normalize():f}{unit}" if Decimal(text) != exact else f"{text}{unit}"


def made(element: Element, **entries: Any) -> Made:
    """A native mapping with the element's line."""
    found = Made(element.line, **entries)
    found.origin = element.file
    return found


_GREATEST = 1e12
_WITHOUT_EFFECT = frozenset({
    "TestElement.name", "TestElement.enabled", "scriptLanguage", "cacheKey", "HTTPSampler.implementation",
    "HTTPSampler.monitor", "HTTPSampler.ipSource", "HTTPSampler.ipSourceType",
    "CookieManager.implementation", "CookieManager.policy", "maxSize", "calcMode",
    "ThreadGroup.start_time",
    "ThreadGroup.end_time", "ThreadGroup.delayedStart", "HTTPSampler.proxyPort",
    "AuthManager.controlledByThreadGroup", "CookieManager.controlledByThreadGroup",
    "RegexExtractor.default_empty_value", "JSONPostProcessor.compute_concat",
})  # fmt: skip
"""Properties of JMeter's own windows and libraries."""
