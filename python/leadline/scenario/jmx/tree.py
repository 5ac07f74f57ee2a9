"""The tree of a JMX file: elements, their properties, and the elements below them, each with its line.

Owns the XML. A document type is refused, and with it entities; size, depth and number of elements are bounded, and
the time to read grows with the size alone. Pure.
"""

from __future__ import annotations

import re
import xml.parsers.expat
from collections.abc import Iterator
from dataclasses import dataclass, field

from leadline.errors import PlanError

MAX_BYTES = 16 * 2**20
"""As much as an agent takes of a scenario in one message."""
MAX_DEPTH = 200
MAX_TAGS = 300_000
"""Some twenty for each of the samplers of a large plan; reading them takes some seconds."""


_STAND_IN = 0xF700
_CONTROL = re.compile(rb"&#(?:x0{0,6}([0-9A-Fa-f]{1,2})|0{0,6}([0-9]{1,2}));")


@dataclass(slots=True)
class Tag:
    """One XML element."""

    name: str
    attributes: dict[str, str]
    line: int
    text: str = ""
    tags: list[Tag] = field(default_factory=list)


@dataclass(slots=True)
class Element:
    """A test element, with the properties that were read from it."""

    kind: str
    """The last part of its class' name."""
    full_kind: str
    name: str
    """Its label."""
    gui: str
    enabled: bool
    line: int
    properties: dict[str, Tag]
    file: str = ""
    elements: list[Element] = field(default_factory=list)
    used: set[str] = field(default_factory=set)
    """Names of the properties that were asked for."""

    @property
    def what(self) -> str:
        """Class and label, for reports."""
        return f"{self.kind} '{self.name}'" if self.name else self.kind

    def has(self, name: str) -> bool:
        """Whether a property is there and not empty."""
        return self.text(name) != ""

    def text(self, name: str, default: str = "") -> str:
        """A property's text."""
        self.used.add(name)
        tag = self.properties.get(name)
        return default if tag is None else _text(tag)

    def flag(self, name: str, default: bool = False) -> bool:
        """A boolean property."""
        return is_true(self.text(name), default)

    def tag(self, name: str) -> Tag | None:
        """A property that is an object or a list."""
        self.used.add(name)
        return self.properties.get(name)

    def rows(self, name: str) -> list[Tag]:
        """The items of a list."""
        found = self.tag(name)
        return [] if found is None else [tag for tag in found.tags if not _is_name(tag)]

    def unused(self) -> Iterator[tuple[str, str]]:
        """Properties with a text that were not asked for."""
        for name, tag in self.properties.items():
            if name not in self.used and (_text(tag).strip() or tag.tags):
                yield name, _text(tag).strip()


def is_true(text: str, default: bool) -> bool:
    """A boolean property's value; the default for an empty text."""
    word = text.strip().lower()
    return default if not word else word == "true"


def inner_text(tag: Tag, name: str, default: str = "") -> str:
    """The text of a property inside of an object."""
    found = inner_tag(tag, name)
    return default if found is None else _text(found)


def inner_tag(tag: Tag, name: str) -> Tag | None:
    """A property inside of an object."""
    return next((one for one in tag.tags if _name(one) == name), None)


def texts(tag: Tag) -> list[str]:
    """The texts of a list."""
    return [_text(one) for one in tag.tags]


def read_tree(content: bytes, file: str) -> Element:
    """The test plan, whose elements are those below it.

    Raises:
        PlanError: it is not XML, not a test plan, has a document type, or is too deep or too large.
    """
    if len(content) > MAX_BYTES:
        raise PlanError(file, None, f"is too large; at most {MAX_BYTES // 2**20} MiB of a JMeter test plan")
    root = _Reader(file).read(content)
    if root.name != "jmeterTestPlan":
        raise PlanError(
            file, root.line, f"<{root.name[:60]}> is not a JMeter test plan", hint="it begins with <jmeterTestPlan>"
        )
    top = next((tag for tag in root.tags if tag.name == "hashTree"), None)
    found = [] if top is None else _elements(top, file)
    plan = next((element for element in found if element.kind == "TestPlan"), None)
    if plan is not None:
        rest = [element for element in found if element is not plan]
        plan.elements += rest
        return plan
    if not found:
        raise PlanError(file, root.line, "the test plan is empty", hint="save it again in JMeter")
    return Element("TestPlan", "TestPlan", "", "", True, root.line, {}, file, found)


class _Reader:
    """Builds tags from expat's events."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._parser = xml.parsers.expat.ParserCreate()
        self._parser.buffer_text = True
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._characters
        self._parser.StartDoctypeDeclHandler = self._refused
        self._stack: list[Tag] = [Tag("", {}, 1)]
        self._texts: list[list[str]] = [[]]
        self._count = 0

    def read(self, content: bytes) -> Tag:
        try:
            self._parser.Parse(_CONTROL.sub(_stand_in, content), True)
        except xml.parsers.expat.ExpatError as error:
            words = xml.parsers.expat.ErrorString(error.code)
            raise PlanError(self._file, error.lineno, f"not XML: {words}", hint="save it again in JMeter") from None
        except (ValueError, LookupError) as error:
            raise PlanError(self._file, None, f"not XML: {error}", hint="save it again in JMeter") from None
        return self._stack[0].tags[0]

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        line = self._parser.CurrentLineNumber
        self._count += 1
        if len(self._stack) > MAX_DEPTH:
            raise PlanError(self._file, line, f"elements are nested deeper than {MAX_DEPTH}")
        if self._count > MAX_TAGS:
            hint = "split the test plan"
            raise PlanError(self._file, line, f"more than {MAX_TAGS:,} elements are too many", hint=hint)
        tag = Tag(name, {key: _with_controls(value) for key, value in attributes.items()}, line)
        self._stack[-1].tags.append(tag)
        self._stack.append(tag)
        self._texts.append([])

    def _end(self, name: str) -> None:
        # Once for all pieces: expat begins another one after each comment, and at each line of a section.
        self._stack.pop().text = _with_controls("".join(self._texts.pop()))

    def _characters(self, text: str) -> None:
        self._texts[-1].append(text)

    def _refused(self, *_: object) -> None:
        line = self._parser.CurrentLineNumber
        raise PlanError(self._file, line, "a test plan has no document type (<!DOCTYPE>)", hint="remove it")


def _stand_in(match: re.Match[bytes]) -> bytes:
    """A character of Unicode's private area for a control character, which XML 1.0 has no reference to and JMeter
    reads."""
    code = int(match[2], 10) if match[2] else int(match[1], 16)
    return b"&#%d;" % (_STAND_IN + code) if code < 32 and code not in (9, 10, 13) else match[0]


def _with_controls(text: str) -> str:
    if not any(_STAND_IN <= ord(character) < _STAND_IN + 32 for character in text):
        return text
    first, last = chr(_STAND_IN), chr(_STAND_IN + 31)
    return re.sub(f"[{first}-{last}]", lambda match: chr(ord(match[0]) - _STAND_IN), text)


def _elements(tree: Tag, file: str) -> list[Element]:
    """The elements of a hashTree: each is followed by the hashTree with those below it."""
    found: list[Element] = []
    for tag in tree.tags:
        if tag.name == "hashTree":
            if found:
                found[-1].elements += _elements(tag, file)
            continue
        found.append(_element(tag, file))
    return found


def _element(tag: Tag, file: str) -> Element:
    attributes = tag.attributes
    full = attributes.get("testclass") or tag.name
    kind = tag.name.rpartition(".")[2]
    properties = {name: one for one in tag.tags if (name := _name(one))}
    return Element(
        kind,
        full if "." in full else tag.name,
        attributes.get("testname", "") or _property_text(properties, "TestElement.name"),
        attributes.get("guiclass", "").rpartition(".")[2],
        (attributes.get("enabled") or _property_text(properties, "TestElement.enabled") or "true").lower() != "false",
        tag.line,
        properties,
        file,
        used={"TestElement.name", "TestElement.enabled", "TestElement.gui_class", "TestElement.test_class"},
    )


def _property_text(properties: dict[str, Tag], name: str) -> str:
    return _text(properties[name]) if name in properties else ""


def _name(tag: Tag) -> str:
    """A property's name: an attribute, or a child."""
    named = tag.attributes.get("name")
    if named is not None:
        return named
    child = next((one for one in tag.tags if one.name == "name"), None)
    return child.text if child is not None and not child.tags else ""


def _is_name(tag: Tag) -> bool:
    return tag.name in ("name", "value") and not tag.attributes


def _text(tag: Tag) -> str:
    value = next((one for one in tag.tags if one.name == "value"), None)
    return value.text if value is not None else tag.text if not tag.tags else ""
