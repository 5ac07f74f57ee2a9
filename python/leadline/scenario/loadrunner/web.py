"""Web functions as requests: `web_url`, `web_custom_request`, `web_submit_data`, header fields, cookies, resources."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urljoin

from leadline.scenario.conversion import Made
from leadline.scenario.expressions import Call, Literal, split_template
from leadline.scenario.loadrunner import syntax as c
from leadline.scenario.loadrunner.answers import MAX_VALUE_BYTES, Answers, Registered
from leadline.scenario.loadrunner.arguments import Arguments, Entries
from leadline.scenario.loadrunner.context import CannotRun, Script, Steps, made
from leadline.scenario.loadrunner.numbers import read_whole
from leadline.scenario.loadrunner.searches import REQUESTS
from leadline.scenario.loadrunner.templates import native
from leadline.scenario.loadrunner.tokens import SourceLine, unescape
from leadline.scenario.loadrunner.values import Names, Value
from leadline.scenario.request_models import METHODS

ANY_STATUS = "100-599"
"""Statuses of a resource that the script does not need: a missing one is a warning."""
MAX_AT_ONCE = 6


@dataclass(slots=True)
class Session:
    """What later requests have of earlier calls."""

    headers: dict[str, str] = field(default_factory=dict)
    """Of all requests, by name."""
    next_headers: dict[str, str] = field(default_factory=dict)
    basic: dict[str, str] | None = None
    checks: list[dict[str, Any]] = field(default_factory=list)
    timeout: str | None = None
    keeps_alive: bool = True
    concurrent: SourceLine | None = None
    """Where requests that are sent together begin."""
    has_requests: bool = False
    cookies: list[Made] = field(default_factory=list)
    """Cookies that are for the host of the next request."""


class Web(Answers):
    """Requests, and what is set for them."""

    def __init__(self, script: Script, names: Names) -> None:
        super().__init__(script, names)
        self.registered = Registered()
        self.max_value_bytes = MAX_VALUE_BYTES
        self.session = Session()

    def send(self, call: c.FunctionCall) -> Value:
        """A call that sends a request, or sets what requests have. Its value is whether it passed."""
        _WEB[call.name](self, call)
        if call.name in REQUESTS:
            return Value(Call("if", (Call("last_ok"), Literal(0), Literal(1))), "int")
        return Value(Literal(0), "int")

    def _url(self, call: c.FunctionCall) -> None:
        given = self._read_arguments(call, is_named=True)
        request = self._request(call, given, given.text("method", default="GET"), given.text("url"))
        self._finish(call, given, request)

    def _custom(self, call: c.FunctionCall) -> None:
        given = self._read_arguments(call, is_named=True)
        request = self._request(call, given, given.text("method", default="GET"), given.text("url"))
        self._set_body(request, call, given)
        self._finish(call, given, request)

    def _set_body(self, request: Made, call: c.FunctionCall, given: Arguments) -> None:
        if "bodyfilepath" in given.entries:
            request["body_file"] = given.text("bodyfilepath").replace("\\", "/")
        elif "bodybinary" in given.entries:
            self._binary_body(request, given)
        elif "body" in given.entries:
            request["body"] = given.text("body")
        else:
            return
        kind = given.text("enctype", default="" if "bodybinary" in given.entries else _FORM)
        if kind and not any(name.lower() == "content-type" for name in request["headers"]):
            request["headers"]["Content-Type"] = kind
        if given.text("contentencoding"):
            self.script.changed(call.name, call.place, "the body is sent without compression")

    def _binary_body(self, request: Made, given: Arguments) -> None:
        """A body in which `\\x41` is a byte."""
        parts = [
            re.sub(r"\\x[0-9a-fA-F]{2}", lambda found: unescape(found[0]), one) if isinstance(one, str) else one
            for one in given.entries["bodybinary"]
        ]
        texts = "".join(one for one in parts if isinstance(one, str))
        if all((ord(character) < 0x80 and character.isprintable()) or character in "\r\n\t" for character in texts):
            request["body"] = native(parts)
        elif all(isinstance(one, str) for one in parts):
            content = b"".join(
                bytes([ord(character)]) if ord(character) < 256 else character.encode() for character in texts
            )
            request["body_base64"] = base64.b64encode(content).decode()
        else:
            raise CannotRun("a binary body with parameters has no native form")

    def _submit_data(self, call: c.FunctionCall) -> None:
        given = self._read_arguments(call, is_named=True)
        method = given.text("method", default="POST")
        request = self._request(call, given, method, given.text("action"))
        self._fields(request, given, is_query=method.upper() == "GET")
        self._finish(call, given, request)

    def _fields(self, request: Made, given: Arguments, *, is_query: bool) -> None:
        """The fields of ITEMDATA."""
        items = [item for item in given.items if "name" in item]
        if given.text("enctype").lower().startswith("multipart/") or any("file" in item for item in items):
            request["multipart"] = [self._part(item) for item in items]
        elif is_query:
            request["query"] = [_make_pair(item) for item in items]
        else:
            request["form"] = [_make_pair(item) for item in items]
        for key in ("multipart", "query", "form"):
            if not request.get(key, True):
                del request[key]

    def _part(self, item: Entries) -> dict[str, Any]:
        value = native(item.get("value", []))
        part: dict[str, Any] = {"name": native(item["name"])}
        if native(item.get("file", [])).lower() in ("yes", "1", "true"):
            if not value:
                return part | {"value": "", "type": "application/octet-stream"}
            part |= {"file": value.replace("\\", "/")}
            if "filepath" in item:
                part["file"] = native(item["filepath"]).replace("\\", "/")
            kind = native(item.get("contenttype", []))
            return part | ({"type": kind} if kind else {})
        kind = native(item.get("contenttype", []))
        return part | {"value": value} | ({"type": kind} if kind else {})

    def _follow(self, call: c.FunctionCall) -> None:
        """`web_link`, `web_image`, `web_submit_form`: an element of the last page."""
        given = self._read_arguments(call, is_named=True)
        key, names = _ELEMENTS[call.name]
        element: dict[str, Any] = {own: given.text(own) for own in names if given.text(own)}
        ordinal = given.text("ordinal", default="1")
        if ordinal != "1":
            element["number"] = read_whole(ordinal) if ordinal.isdecimal() else ordinal
        fields = [native(item["name"]) for item in given.items if "name" in item]
        if key == "submit" and not element:
            element["fields"] = [one for one in fields if not one.endswith((".x", ".y"))]
        if not element and key != "submit":
            raise CannotRun(f"{call.name} needs one of {', '.join(name.title() + '=' for name in names)}", call.place)
        request = made(call.place, name=native(given.name))
        request[key] = element
        request["_request"], request["_base"] = key, None
        request["headers"] = {**self.session.headers, **self.session.next_headers}
        self.session.next_headers = {}
        if fields:
            request["form"] = [_make_pair(item) for item in given.items if "name" in item]
        self._finish(call, given, request)

    def _request(self, call: c.FunctionCall, given: Arguments, method: str, url: str) -> Made:
        """A request with what all requests have. Raises CannotRun."""
        url = url.strip()
        if not url:
            raise CannotRun("the URL is missing", call.place)
        origin, path = _split_url(url)
        if not origin and not url.startswith("${"):
            raise CannotRun(f"the URL '{url[:60]}' has no host", call.place)
        request = made(call.place)
        name = native(given.name)
        if name:
            request["name"] = name
        key = method.lower() if method.lower() in METHODS else "url"
        request[key] = path if origin else url
        if key == "url":
            request["method"] = method
        request["_request"], request["_base"] = key, origin or None
        request["headers"] = {**self.session.headers, **self.session.next_headers}
        self.session.next_headers = {}
        if given.text("referer"):
            request["headers"].setdefault("Referer", given.text("referer"))
        for cookie in self.session.cookies:
            cookie["domain"] = re.sub(r"^https?://|:\d*$", "", origin) or url
        self.session.cookies = []
        return request

    def _finish(self, call: c.FunctionCall, given: Arguments, request: Made) -> None:
        """Add what is registered, and send the request with its resources."""
        session, registered = self.session, self.registered
        if session.basic is not None:
            request["basic"] = dict(session.basic)
        if not session.keeps_alive:
            request["keep_alive"] = False
        if session.timeout is not None:
            request["timeout"] = session.timeout
        if given.text("resource") == "1":
            request["ok"] = ANY_STATUS
        elif given.text("mode", default="HTML").upper() != "HTTP" and self.script.settings.fetches_resources:
            request["embedded"] = {"may_fail": True}
        if registered.extract:
            request["extract"] = registered.extract
        if checks := [*session.checks, *registered.check]:
            request["check"] = checks
        after = [*registered.after, *self.after_request(call.place)]
        self.registered = Registered()
        if after:
            request["after"] = after
        session.has_requests = True
        self.script.kept(call.name, call.place)
        self.out.append(request)
        self._resources(call, given, request)

    def after_request(self, place: SourceLine) -> Steps:
        """Steps after each request."""
        return []

    def _resources(self, call: c.FunctionCall, given: Arguments, page: Made) -> None:
        """EXTRARES: resources that the page's script asks for, as many at once as a browser has connections."""
        key = page["_request"]
        base = (page["_base"] or "") + page[key] if isinstance(page[key], str) else ""
        found: Steps = []
        for one in given.resources:
            if "url" not in one:
                continue
            address = native(one["url"])
            url = address if address.startswith("${") else _join_url(base, address)
            origin, path = _split_url(url)
            if not origin and not url.startswith("${"):
                why = (
                    f"the resource {address[:60]} is left out: the URL of the page is not known before the test begins"
                )
                self.script.changed(call.name, call.place, why)
                continue
            resource = made(call.place, get=path if origin else url, ok=ANY_STATUS)
            resource["_request"], resource["_base"] = "get", origin or None
            resource["headers"] = dict(self.session.headers)
            if native(one.get("referer", [])):
                resource["headers"].setdefault("Referer", native(one["referer"]))
            found.append(resource)
        if len(found) == 1 or (found and self.session.concurrent is not None):
            self.out += found
        elif found:
            self.out.append(made(call.place, parallel=found, connections=MAX_AT_ONCE))

    def _add_header(self, call: c.FunctionCall) -> None:
        name, value = (native(self.filled(one.place, self.text_of(one))) for one in _need_arguments(call, 2)[:2])
        self.session.next_headers[name] = value
        self.script.kept(call.name, call.place)

    def _add_auto_header(self, call: c.FunctionCall) -> None:
        name, value = (native(self.filled(one.place, self.text_of(one))) for one in _need_arguments(call, 2)[:2])
        self.session.headers[name] = value
        self.script.kept(call.name, call.place)

    def _remove_auto_header(self, call: c.FunctionCall) -> None:
        name = native(self.filled(call.place, self.text_of(_need_arguments(call, 1)[0])))
        self.session.headers = {own: one for own, one in self.session.headers.items() if own.lower() != name.lower()}
        self.script.kept(call.name, call.place)

    def _add_cookie(self, call: c.FunctionCall) -> None:
        text = native(self.filled(call.place, self.text_of(_need_arguments(call, 1)[0])))
        first, *rest = (part.strip() for part in text.split(";"))
        name, equals, value = first.partition("=")
        if not equals or not name:
            raise CannotRun("the cookie is not NAME=VALUE", call.place)
        fields = {key.strip().lower(): own.strip() for key, _, own in (part.partition("=") for part in rest)}
        cookie = made(call.place, cookie=name, value=value, domain=fields.get("domain", ""))
        if fields.get("path", "/") != "/":
            cookie["path"] = fields["path"]
        if not cookie["domain"]:
            self.session.cookies.append(cookie)
        self.out.append(cookie)
        self.script.kept(call.name, call.place)

    def _cleanup_cookies(self, call: c.FunctionCall) -> None:
        if not self.session.has_requests:
            self.script.dropped(call.name, call.place, "a user that begins has no cookies")
        elif self.may_clear_cookies():
            self.script.kept(call.name, call.place)
        else:
            raise CannotRun("cookies can be cleared only where an iteration begins or ends", call.place)

    def may_clear_cookies(self) -> bool:
        """Whether all cookies may be cleared here, as the group does it between iterations."""
        return False

    def _set_user(self, call: c.FunctionCall) -> None:
        user, password = (native(self.filled(one.place, self.text_of(one))) for one in _need_arguments(call, 2)[:2])
        self.session.basic = {"user": user.rpartition("\\")[2], "password": password}
        why = "basic authentication is sent with each following request, to any host"
        self.script.changed(call.name, call.place, why)

    def _set_max_length(self, call: c.FunctionCall) -> None:
        tree = self.text_of(_need_arguments(call, 1)[0])
        text = str(tree.value) if isinstance(tree, Literal) else ""
        if not text.isdecimal() or (length := read_whole(text)) == 0:
            raise CannotRun("the length is no number", call.place)
        self.max_value_bytes = min(length, 2**32 - 1)
        self.script.kept(call.name, call.place)

    def _set_timeout(self, call: c.FunctionCall) -> None:
        kind, length = _need_arguments(call, 2)[:2]
        seconds = str(getattr(self.text_of(length), "value", ""))
        name = kind.name if isinstance(kind, c.Name) else str(getattr(self.text_of(kind), "value", ""))
        if name.upper() in ("STEP", "RECEIVE") and seconds.isdecimal() and read_whole(seconds):
            self.session.timeout = f"{seconds}s"
            self.script.kept(call.name, call.place)
        else:
            self.script.dropped(call.name, call.place, "time limits of connecting are those of the command line")

    def _set_keep_alive(self, call: c.FunctionCall) -> None:
        self.session.keeps_alive = call.name == "web_enable_keep_alive"
        self.script.kept(call.name, call.place)

    def _verify_globally(self, call: c.FunctionCall) -> None:
        before = self.registered
        self.registered = Registered()
        self.session.checks += self.find_check(call)
        self.registered = before
        self.script.kept(call.name, call.place)

    def _start_concurrent(self, call: c.FunctionCall) -> None:
        self.session.concurrent = call.place
        self.out.append(made(call.place, parallel=[], connections=MAX_AT_ONCE))
        self.script.kept(call.name, call.place)

    def _end_concurrent(self, call: c.FunctionCall) -> None:
        start = next((at for at in range(len(self.out) - 1, -1, -1) if self.out[at].get("parallel") == []), None)
        self.session.concurrent = None
        self.script.kept(call.name, call.place)
        if start is None:
            raise CannotRun("web_concurrent_start stands in another block", call.place)
        inner = self.out[start + 1 :]
        del self.out[start:]
        has_steps = any("after" in one for one in inner)
        if has_steps or not all("_request" in one for one in inner) or not inner:
            why = "its requests are sent one after another, as other steps stand between them"
            self.script.changed("web_concurrent_start", call.place, why)
            self.out += inner
        else:
            self.out.append(made(call.place, parallel=inner, connections=MAX_AT_ONCE))


def _make_pair(item: Entries) -> dict[str, Any]:
    return {"name": native(item["name"]), "value": native(item.get("value", []))}


def _need_arguments(call: c.FunctionCall, count: int) -> tuple[c.Expression, ...]:
    """The arguments of a call, at least as many as it needs."""
    found = tuple(one for one in call.arguments if not (isinstance(one, c.Name) and one.name == "LAST"))
    if len(found) < count:
        raise CannotRun(f"{call.name} needs {count} arguments, not {len(found)}", call.place)
    return found


def _join_url(base: str, address: str) -> str:
    try:
        return urljoin(base, address)
    except ValueError:
        raise CannotRun(f"the URL '{address[:60]}' of a resource is none") from None


def _split_url(url: str) -> tuple[str, str]:
    """The origin of a URL and its path; the origin is empty if it has none."""
    found = re.match(r"(?i)https?://", url)
    if found is None:
        return "", url
    length = found.end()
    for is_placeholder, part in split_template(url[length:]):
        at = None if is_placeholder else re.search(r"[/?#]", part)
        if at is not None:
            length += at.start()
            break
        length += len(part) + (3 if is_placeholder else 0)
    path = url[length:]
    return url[:length], path if path.startswith("/") else f"/{path}"


_ELEMENTS = {
    "web_link": ("link", ("text", "href", "name", "id")), "web_image": ("image", ("alt", "src", "name", "id")),
    "web_submit_form": ("submit", ("action", "name", "id")),
}  # fmt: skip
_FORM = "application/x-www-form-urlencoded"
_WEB = {
    "web_url": Web._url, "web_custom_request": Web._custom, "web_submit_data": Web._submit_data,
    "web_link": Web._follow, "web_image": Web._follow, "web_submit_form": Web._follow,
    "web_add_header": Web._add_header, "web_add_auto_header": Web._add_auto_header,
    "web_remove_auto_header": Web._remove_auto_header, "web_revert_auto_header": Web._remove_auto_header,
    "web_add_cookie": Web._add_cookie, "web_add_cookie_ex": Web._add_cookie,
    "web_cleanup_cookies": Web._cleanup_cookies, "web_set_user": Web._set_user,
    "web_set_max_html_param_len": Web._set_max_length, "web_set_timeout": Web._set_timeout,
    "web_disable_keep_alive": Web._set_keep_alive, "web_enable_keep_alive": Web._set_keep_alive,
    "web_global_verification": Web._verify_globally, "web_concurrent_start": Web._start_concurrent,
    "web_concurrent_end": Web._end_concurrent,
}  # fmt: skip
WEB = frozenset(_WEB)
