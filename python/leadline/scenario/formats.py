"""Which format a scenario's file has, and its tree: native YAML, JMeter's, LoadRunner's and HAR files. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from leadline.errors import PlanError
from leadline.scenario.conversion import Conversion
from leadline.scenario.given_parameters import check_given_parameters
from leadline.scenario.har import read_har
from leadline.scenario.jmx.plan import read_jmx
from leadline.scenario.loadrunner.controller import is_controller, read_lrs
from leadline.scenario.loadrunner.script import read_usr
from leadline.scenario.native import ReadScenario, checked, read_native

MOST_YAML_BYTES = 2 * 2**20
"""Size of a YAML text at most; reading one of this size takes some seconds."""


@dataclass(frozen=True, slots=True)
class FormatOptions:
    """How files of other formats are read."""

    parameters: Mapping[str, str] = field(default_factory=dict)
    """By `-J name=value`."""
    skips_scripts: bool = False
    """Whether parts that cannot run are left out."""
    only_hosts: tuple[str, ...] = ()
    """HAR: requests to these hosts alone; all if empty."""
    correlates: bool = True
    """HAR: whether values that an answer gave are taken from the answer."""


def read_scenario(
    content: bytes, file: str, options: FormatOptions, read_file: Callable[[str], bytes] | None = None
) -> tuple[ReadScenario, Conversion | None]:
    """The scenario of a file's content, and what became of its parts; None for the native format.

    Raises:
        PlanError: its mistakes, each with its line.
    """
    head = content.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    if not head and file.endswith((".har", ".jmx")):
        tool = "the browser" if file.endswith(".har") else "JMeter"
        raise PlanError(file, None, "the file is empty", hint=f"save it in {tool} again")
    if re.match(rb"[\w.$]+\s*\(\s*\{", content.lstrip(b"\xef\xbb\xbf \t\r\n")[:200]) and file.endswith(".har"):
        hint = "remove what is around the braces"
        raise PlanError(file, 1, "this is JSONP: a script that calls a function; a HAR file is JSON", hint=hint)
    if head == b"<" and file.endswith(".har"):
        raise PlanError(file, 1, "this is XML or a web page; a HAR file is JSON", hint="save it in the browser again")
    contents = [content]
    reader = None if read_file is None else _remembering(read_file, contents)
    found = _read_content(content, head, file, options, reader)
    added = found[1].parameters if found[1] is not None else ()
    check_given_parameters((name for name in options.parameters if name not in added), contents, file)
    return found


def _remembering(read_file: Callable[[str], bytes], contents: list[bytes]) -> Callable[[str], bytes]:
    """The same function, which adds what it reads to a list."""

    def read(name: str) -> bytes:
        contents.append(read_file(name))
        return contents[-1]

    return read


def _read_content(
    content: bytes, head: bytes, file: str, options: FormatOptions, read_file: Callable[[str], bytes] | None
) -> tuple[ReadScenario, Conversion | None]:
    # XML may be in UTF-16, which its mark tells.
    if head == b"<" or content.startswith((b"\xff\xfe<\x00", b"\xfe\xff\x00<")):
        root, conversion = read_jmx(
            content, file, parameters=options.parameters, skips_scripts=options.skips_scripts, read_file=read_file
        )
        return checked(root), conversion
    if _USR.search(content[:4096]) is not None and not file.endswith((".yaml", ".yml", ".har")):
        root, conversion = read_usr(content, file, read_file, options.parameters, skips_scripts=options.skips_scripts)
        return checked(root), conversion
    if is_controller(content) and not file.endswith((".yaml", ".yml", ".har")):
        root, conversion = read_lrs(content, file, read_file, skips_scripts=options.skips_scripts)
        return checked(root), conversion
    if head == b"{" and not file.endswith((".yaml", ".yml")):
        root, conversion = read_har(content, file, only_hosts=options.only_hosts, correlates=options.correlates)
        return checked(root), conversion
    if len(content) > MOST_YAML_BYTES:
        raise PlanError(file, None, f"is too large; at most {MOST_YAML_BYTES // 2**20} MiB of YAML")
    try:
        return read_native(content.decode("utf-8-sig"), file), None
    except UnicodeDecodeError:
        raise PlanError(file, None, "this is not text in UTF-8", hint="give YAML, a .jmx or a .har file") from None


_USR = re.compile(rb"^\s*\[(General|Actions)\]\s*$", re.M)
"""What a script's `.usr` has in its first lines."""
