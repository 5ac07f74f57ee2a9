"""Whether a scenario's file has the parameters that are given to it: a value that nothing reads is a mistake. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

from leadline.errors import PlanError


def check_given_parameters(given: Iterable[str], contents: Iterable[bytes], file: str) -> None:
    """Compare the names of parameters with those that the texts of a scenario read.

    Raises:
        PlanError: nothing reads one of them.
    """
    names = list(given)
    if not names:
        return
    known: set[str] = set()
    for content in contents:
        # XML in UTF-16 has its characters in pairs with a zero.
        text = content.replace(b"\0", b"").decode("utf-8", "replace").replace("&quot;", '"').replace("&apos;", "'")
        if _COMPUTED.search(text):
            return
        known |= {name.strip() for groups in _READ.findall(text) for name in groups if name.strip()}
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, sorted(known), n=1)
            listed = f"it reads {', '.join(sorted(known)[:_MAX_LISTED])}" if known else "it has no parameters"
            hint = f"did you mean '{near[0]}'?" if near else listed
            raise PlanError(file, None, f"nothing in it reads the parameter '{name}'", hint=hint)


_MAX_LISTED = 12
_READ = re.compile(
    r"""\bparam\(\s*(?:"([^"]+)"|'([^']+)')"""
    r"""|__(?:P|property|isPropDefined|setProperty|env|GetSecret)\(\s*([^,)$]+)"""
    r"""|\bprops\s*(?:\.\s*(?:get|getProperty|put|setProperty)\s*\(|\[)\s*(?:"([^"]+)"|'([^']+)')"""
    r"""|\bprops\s*\.\s*(\w+)"""
    r"""|\b(?:JMeterUtils\s*\.\s*(?:getProperty|getPropDefault|setProperty)|getenv)\s*\(\s*(?:"([^"]+)"|'([^']+)')"""
)
_COMPUTED = re.compile(
    r"""\bparam\(\s*[^"'\s]|__(?:P|property|isPropDefined)\(\s*\$|"""
    r"""\bprops\s*(?:\.\s*(?:get|getProperty)\s*\(|\[)\s*[^"'\s]|__V\("""
)
"""A name that is known only while the test runs."""
