"""JMeter's HTTP sampler with its scope, as a native request."""

from __future__ import annotations

import base64
import codecs
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import quote_plus, unquote_plus

from leadline.scenario.conversion import Made
from leadline.scenario.expressions import Call, Literal, show
from leadline.scenario.functions import template
from leadline.scenario.jmx.context import Context, Scope, made
from leadline.scenario.jmx.tree import Element, Tag, inner_tag, inner_text, is_true
from leadline.scenario.lower_expressions import Names, as_text

DEFAULT_SERVER = "default_server"
"""The parameter that has the server of requests which name none."""
_METHODS = frozenset({"GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"})
_WITH_QUERY = frozenset({"GET", "DELETE", "OPTIONS"})
_WITHOUT_BODY = frozenset({"HEAD", "OPTIONS"})
_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})
_JAVA_CHARSETS = {
    "utf-8": "UTF-8", "iso8859-1": "ISO-8859-1", "iso8859-15": "ISO-8859-15", "cp1252": "windows-1252",
    "ascii": "US-ASCII", "utf-16-be": "UTF-16BE", "utf-16-le": "UTF-16LE", "shift_jis": "Shift_JIS", "euc_jp": "EUC-JP",
    "gbk": "GBK", "gb2312": "GB2312", "gb18030": "GB18030", "big5": "Big5", "euc_kr": "EUC-KR", "koi8-r": "KOI8-R",
}  # fmt: skip
"""Names of charsets as Java writes them, by Python's."""
_FORM = "application/x-www-form-urlencoded"


def request(context: Context, element: Element, scope: Scope) -> Made:
    """The request of an HTTP sampler, with everything in scope but timers and processors."""
    settings = _Settings(context, element, scope)
    method = (settings.text("HTTPSampler.method", "GET") or "GET").strip()
    settings.read_charset()
    base, path = settings.url()
    key = method.lower() if method in _METHODS else "url"
    found = made(element, **{key: path})
    if element.name:
        found["name"] = context.label(element)
    if key == "url":
        found["method"] = context.text(element, method)
    settings.body(found, method)
    settings.headers(found)
    settings.options(found)
    found["_request"] = key
    found["_base"] = base
    return found


class _Settings:
    """A sampler's properties, with the defaults that are in scope: the nearest one that is not empty."""

    def __init__(self, context: Context, element: Element, scope: Scope) -> None:
        self.context = context
        self.element = element
        self.scope = scope
        self.is_utf8 = True
        self.charset = "UTF-8"
        """That of bodies and parameters."""
        self.levels = [element, *(one for one in scope.nearest_first("ConfigTestElement") if one.gui in _HTTP_DEFAULTS)]

    def read_charset(self) -> None:
        """Read the charset of bodies and parameters."""
        given = self.text("HTTPSampler.contentEncoding").strip()
        named = self.context.constant(self.element, given) if "${" in given else given
        if not named:
            return
        try:
            codec = codecs.lookup(named).name
        except LookupError:
            if self.text("HTTPSampler.method", "GET").strip() in _WITH_QUERY and not self._arguments():
                return  # nothing of the request is encoded with it
            self.context.cannot(self.element, f"the charset {named} is not known")
            return
        self.charset, self.is_utf8 = _JAVA_CHARSETS.get(codec, named), codec == "utf-8"

    def text(self, name: str, default: str = "") -> str:
        # Each level's value is asked for: one that a nearer level hides has its meaning elsewhere.
        texts = [level.text(name) for level in self.levels]
        return next((text for text in texts if text.strip()), default)

    def flag(self, name: str, default: bool = False) -> bool:
        return is_true(self.text(name), default)

    def native(self, name: str, default: str = "") -> str:
        return self.context.text(self.element, self.text(name, default).strip())

    def url(self) -> tuple[str, str]:
        """The base, and the path below it; an absolute path has no base."""
        path = self.native("HTTPSampler.path")
        if re.match(r"https?://", path, re.IGNORECASE):
            return "", path
        domain, port = self.native("HTTPSampler.domain"), self.native("HTTPSampler.port")
        scheme = self.native("HTTPSampler.protocol", "http") or "http"
        if not domain:
            known = re.match(r"\$\{([^${}]+)\}", path)
            if known is not None and self.context.constants.get(known[1], "http").startswith("http"):
                return "", path
            if scheme.lower() == "file":
                self.context.cannot(self.element, "it reads a file, which is no request")
            domain = self._given_server()
        scheme = scheme.removesuffix("://").rstrip(":/")
        base = f"{scheme}://{domain}" + (f":{port}" if port and port != "0" else "")
        # What begins with a variable may be a path with or without its slash, or a whole URL.
        return base, _single_slashes(path if path.startswith(("/", "${")) else "/" + path)

    def _given_server(self) -> str:
        """The server of a request that names none: a parameter without a default; a run without it is refused."""
        conversion = self.context.conversion
        conversion.parameters.add(DEFAULT_SERVER)
        why = f"it names no server: give one with -J {DEFAULT_SERVER}=HOST; without it nothing is run"
        conversion.changed(self.element.what, self.element.line, why)
        return f"${{{show(Call('param', (Literal(DEFAULT_SERVER),)))}}}"

    def body(self, found: Made, method: str) -> None:
        arguments = self._arguments()
        files = self._files()
        is_raw = self.flag("HTTPSampler.postBodyRaw") or bool(arguments and not any(name for name, _, _ in arguments))
        # Of other parameters JMeter leaves out those without a name.
        arguments = [one for one in arguments if is_raw or one[0].strip()]
        as_multipart = self.flag("HTTPSampler.DO_MULTIPART_POST")
        if len(files) == 1 and not inner_text(files[0], "File.paramname") and not arguments and not as_multipart:
            self._file_body(found, files[0])
        elif (files or as_multipart) and method not in _WITH_QUERY:
            self._multipart(found, arguments, files)
        elif is_raw and method in _WITHOUT_BODY:
            if any(value for _, value, _ in arguments):
                self.context.conversion.dropped(self.element.what, self.element.line, f"a body: {method} has none")
        elif arguments and is_raw and (method not in _WITH_QUERY or self.flag("HTTPSampler.postBodyRaw")):
            self._raw_body(found, "".join(self._raw(value, tag) for _, value, tag in arguments))
        elif method in _WITH_QUERY:
            pairs = [one for one in arguments if one[0].strip()]
            # A path that is a whole URL is taken as it is.
            if pairs and not re.match(r"https?://", self.native("HTTPSampler.path"), re.IGNORECASE):
                found["query"] = self._pairs(pairs)
            if pairs and method == "DELETE":
                found["form"] = self._fields(pairs)
        elif arguments and method == "HEAD":
            self.context.conversion.dropped(self.element.what, self.element.line, "parameters: HEAD has no body")
        elif arguments:
            found["form"] = self._fields(arguments)
        has_text = bool(found.keys() & {"body", "body_base64"})
        if has_text or "form" in found or (method in _WITH_BODY and not found.keys() & {"multipart", "body_file"}):
            self._body_type(found, f"{'text/plain' if has_text else _FORM}; charset={self.charset}")

    def _body_type(self, found: Made, kind: str) -> None:
        """JMeter's type of a body that no header manager gives one."""
        given = [
            inner_text(tag, "Header.name")
            for one in self.scope.of("HeaderManager")
            for tag in one.rows("HeaderManager.headers")
        ]
        if "content-type" not in (name.strip().lower() for name in (*given, *found.get("headers", {}))):
            found["headers"] = {**found.get("headers", {}), "Content-Type": kind}

    def _raw_body(self, found: Made, text: str) -> None:
        """A raw body, whose bytes are those of its charset."""
        plain = None if self.is_utf8 else self._plain(text)
        content = None if plain is None else plain.encode(self.charset, "replace")
        if plain is None or content is None or content == plain.encode():
            found["body"] = text
        else:
            found["body_base64"] = base64.b64encode(content).decode()

    def _plain(self, text: str) -> str | None:
        """A native text without placeholders; None, with a report, for one whose values are sent in UTF-8."""
        parts = template(text)
        if all(isinstance(part, str) for part in parts):
            return "".join(part for part in parts if isinstance(part, str))
        why = f"the values of variables are sent in UTF-8, not in {self.charset}"
        self.context.conversion.changed(self.element.what, self.element.line, why)
        return None

    def _encoded(self, row: dict[str, Any]) -> dict[str, Any]:
        """A parameter; in another charset than UTF-8 it is percent-encoded here."""
        if self.is_utf8 or row.get("encode") is False or all(value.isascii() for value in row.values()):
            return row
        plain = {key: self._plain(value) for key, value in row.items()}
        if None in plain.values():
            return row
        made = {key: _java_encoded(value or "", self.charset) for key, value in plain.items()}
        return {**made, "encode": False}

    def _raw(self, value: str, tag: Tag) -> str:
        """A part of a raw body; one that is marked so is encoded as in a form."""
        if inner_text(tag, "HTTPArgument.always_encode").strip().lower() != "true":
            return self.context.text(self.element, value)
        return self._computed("url_encode", value, quote_plus)

    def _computed(self, function: str, value: str, of_plain: Callable[[str], str]) -> str:
        """A text that a function of one argument makes of another."""
        with self.context.reported(self.element):
            tree = self.context.texts.expression(value)
            if isinstance(tree, Literal):
                return of_plain(value).replace("${", "$${")
            return f"${{{show(Call(function, (tree,)))}}}"
        return value.replace("${", "$${")

    def _fields(self, arguments: list[tuple[str, str, Tag]]) -> Any:
        """The fields of a form, which are always encoded: what is encoded already is decoded before."""
        rows = []
        for name, value, tag in arguments:
            is_plain = inner_text(tag, "HTTPArgument.always_encode").strip().lower() == "true" or not re.search(
                r"[%+$]", value
            )
            shown = (
                self.context.text(self.element, value)
                if is_plain
                else self._computed("url_decode", value, unquote_plus)
            )
            rows.append(self._encoded({"name": self.context.text(self.element, name), "value": shown}))
        if len({row["name"] for row in rows}) == len(rows) and not any("encode" in row for row in rows):
            return {row["name"]: row["value"] for row in rows}
        return rows

    def _pairs(self, arguments: list[tuple[str, str, Tag]]) -> Any:
        """A mapping if names differ and everything is encoded; else a list."""
        rows = []
        for name, value, tag in arguments:
            row: dict[str, Any] = {"name": self.context.text(self.element, name)}
            row["value"] = self.context.text(self.element, value)
            if inner_text(tag, "HTTPArgument.always_encode").strip().lower() != "true":
                row["encode"] = False
            if (
                not value
                and inner_text(tag, "HTTPArgument.use_equals") == "false"
                and inner_text(tag, "Argument.metadata") != "="
            ):
                row = {"value": row["name"], **({"encode": False} if "encode" in row else {})}
            rows.append(self._encoded(row))
        plain = all(set(row) == {"name", "value"} for row in rows)
        if plain and len({row["name"] for row in rows}) == len(rows):
            return {row["name"]: row["value"] for row in rows}
        return rows

    def _arguments(self) -> list[tuple[str, str, Tag]]:
        """Parameters; those of defaults follow."""
        found: list[tuple[str, str, Tag]] = []
        for level in self.levels:
            for name in ("HTTPsampler.Arguments", "HTTPSampler.Arguments"):
                tag = level.tag(name)
                listed = None if tag is None else inner_tag(tag, "Arguments.arguments")
                for one in [] if listed is None else listed.tags:
                    found.append((inner_text(one, "Argument.name"), inner_text(one, "Argument.value"), one))
        return found

    def _files(self) -> list[Tag]:
        tag = self.element.tag("HTTPsampler.Files") or self.element.tag("HTTPSampler.Files")
        listed = None if tag is None else inner_tag(tag, "HTTPFileArgs.files") or inner_tag(tag, "Files.files")
        found = [] if listed is None else [one for one in listed.tags if inner_text(one, "File.path").strip()]
        if self.element.has("HTTPSampler.FILE_NAME"):
            names = ("FILE_NAME", "FILE_FIELD", "MIMETYPE")
            path, field, kind = (self.element.text(f"HTTPSampler.{name}") for name in names)
            tags = [Tag("stringProp", {"name": name}, self.element.line, text) for name, text in
                    (("File.path", path), ("File.paramname", field), ("File.mimetype", kind))]  # fmt: skip
            found.append(Tag("elementProp", {}, self.element.line, "", tags))
        return found

    def _file_body(self, found: Made, file: Tag) -> None:
        path = self._path(file)
        if path:
            found["body_file"] = path
        kind = inner_text(file, "File.mimetype")
        if kind:
            found["headers"] = {"Content-Type": self.context.text(self.element, kind)}

    def _path(self, file: Tag) -> str:
        """A file's path, which must be known before the test begins."""
        text = inner_text(file, "File.path")
        tree = self.context.expression(self.element, text)
        if tree is not None:
            try:
                Names(self.context.parameters, dict(self.context.constants)).value(tree)
                return self.context.text(self.element, text)
            except ValueError:
                self.context.cannot(self.element, f"the path {text} of a file depends on a user")
        return ""

    def _multipart(self, found: Made, arguments: list[tuple[str, str, Tag]], files: list[Tag]) -> None:
        parts: list[dict[str, Any]] = []
        for name, value, tag in arguments:
            kind = inner_text(tag, "HTTPArgument.content_type") or "text/plain"
            one = {"name": self.context.text(self.element, name), "value": self.context.text(self.element, value)}
            parts.append({**one, "type": self.context.text(self.element, f"{kind}; charset=UTF-8")})
        for file in files:
            one = {"name": self.context.text(self.element, inner_text(file, "File.paramname"))}
            one["file"] = self._path(file)
            if inner_text(file, "File.mimetype"):
                one["type"] = self.context.text(self.element, inner_text(file, "File.mimetype"))
            if one["file"]:
                parts.append(one)
        if parts:
            found["multipart"] = parts

    def headers(self, found: Made) -> None:
        """Header managers merge by name: the nearest wins, with all of its fields of that name; of another one the
        first field is added."""
        headers: dict[str, tuple[str, list[str]]] = {}
        for index, manager in enumerate(self.scope.nearest_first("HeaderManager")):
            for tag in manager.rows("HeaderManager.headers"):
                name = self.context.text(manager, inner_text(tag, "Header.name").strip())
                value = self.context.text(manager, inner_text(tag, "Header.value"))
                if name and not name.startswith(":") and (index == 0 or name.lower() not in headers):
                    headers.setdefault(name.lower(), (name, []))[1].append(value)
        fields = {name: values[0] if len(values) == 1 else values for name, values in headers.values()}
        own = {name: value for name, value in fields.items() if name.lower() not in ("content-length", "host")}
        dropped = [name for name, _ in headers.values() if name.lower() == "content-length"]
        if dropped:
            self.context.conversion.dropped(self.element.what, self.element.line, "Content-Length: it is computed")
        if "host" in headers:
            own["Host"] = headers["host"][1][-1]
        if own:
            given = {name.lower() for name in own}
            kept = {name: value for name, value in found.get("headers", {}).items() if name.lower() not in given}
            found["headers"] = kept | own

    def options(self, found: Made) -> None:
        context, element = self.context, self.element
        follows = self.flag("HTTPSampler.follow_redirects") or self.flag("HTTPSampler.auto_redirects")
        found["follow"] = follows
        found["keep_alive"] = self.flag("HTTPSampler.use_keepalive", True)
        cookies = self.scope.only("CookieManager")
        found["cookies"] = cookies is not None and not ignores_cookies(cookies)
        for name, key in (("response_timeout", "timeout"), ("connect_timeout", "connect_timeout")):
            text = self.text(f"HTTPSampler.{name}").strip()
            if text and text != "0":
                found[key] = context.milliseconds(element, text)
        limits = self.scope.of("SampleTimeout")
        if limits:
            found["timeout"] = context.milliseconds(limits[-1], limits[-1].text("InterruptTimer.timeout"))
        if self.scope.of("CacheManager"):
            found["cache"] = True
        self._embedded(found)
        names = {name.lower() for name in found.get("headers", {})}
        if (follows or "embedded" in found) and names & {"authorization", "proxy-authorization", "cookie", "host"}:
            # A header manager's fields go with each request that follows; a user and password do by their URL.
            found["headers_elsewhere"] = "all"
        self._basic(found)
        if self.flag("HTTPSampler.md5"):
            context.conversion.changed(element.what, element.line, "the body is not replaced with its MD5 sum")
        if not self._is_empty(self.text("HTTPSampler.proxyHost").strip()):
            context.cannot(element, "requests through a proxy have no native form")
        if not self._is_empty(self.text("HTTPSampler.ipSource").strip()):
            context.cannot(element, "a source address for each user has no native form")
        for name in ("proxyScheme", "proxyUser", "proxyPass"):
            element.text(f"HTTPSampler.{name}")

    def _is_empty(self, text: str) -> bool:
        """Whether a text, with the values that are known before the test, is empty: `${__P(proxyHost,)}`."""
        tree = self.context.expression(self.element, text) if "${" in text else None
        if tree is None:
            return not text
        try:
            return not as_text(Names(self.context.parameters, dict(self.context.constants)).value(tree)).strip()
        except ValueError:
            return False

    def _embedded(self, found: Made) -> None:
        """The resources of its page: one after another, or several at once."""
        fetches, at_once = self.flag("HTTPSampler.image_parser"), self.flag("HTTPSampler.concurrentDwn")
        pool, pattern = (
            self.text("HTTPSampler.concurrentPool").strip(),
            self.text("HTTPSampler.embedded_url_re").strip(),
        )
        if not fetches:
            return
        connections = min(max(int(pool[:9]), 1), 256) if pool.isdecimal() else 6
        found["embedded"] = {"connections": connections if at_once else 1}
        excluded = self.text("HTTPSampler.embedded_url_exclude_re").strip()
        if "${" in pattern or "${" in excluded:
            why = "its pattern of resources has variables: all are fetched"
            self.context.conversion.changed(self.element.what, self.element.line, why)
        elif pattern or excluded:
            not_those = f"(?!(?:{excluded})$)" if excluded else ""
            found["embedded"]["match"] = not_those + (f"(?:{pattern or '.*'})" if excluded else pattern)

    def _begins_with(self, prefix: str) -> bool:
        """Whether the request's URL begins so, as texts or with the values that are known."""
        url = "".join(self.url())
        if url.startswith(prefix):
            return True
        try:
            known = Names(self.context.parameters, dict(self.context.constants))
            return known.text(template(url)).startswith(known.text(template(prefix)))
        except ValueError:
            if "${" in prefix:
                why = f"whether its URL begins with {prefix} is not known: it is sent the password"
                self.context.conversion.changed(self.element.what, self.element.line, why)
            return "${" in prefix

    def _basic(self, found: Made) -> None:
        """The manager's entry whose URL begins this request's. Of several managers the outermost is used."""
        manager = self.scope.only("AuthManager")
        if manager is not None:
            for tag in manager.rows("AuthManager.auth_list"):
                prefix = self.context.text(manager, inner_text(tag, "Authorization.url").strip())
                mechanism = inner_text(tag, "Authorization.mechanism").strip().upper()
                if not self._begins_with(prefix):
                    continue
                if mechanism not in ("", "BASIC", "BASIC_DIGEST"):
                    self.context.cannot(manager, f"authentication by {mechanism} has no native form")
                    continue
                user, password = (inner_text(tag, f"Authorization.{name}") for name in ("username", "password"))
                found["basic"] = {
                    "user": self.context.text(manager, user),
                    "password": self.context.text(manager, password),
                }
                return


def ignores_cookies(manager: Element) -> bool:
    """Whether a cookie manager neither keeps nor sends cookies."""
    return manager.text("CookieManager.policy").strip().lower() == "ignorecookies"


def _java_encoded(text: str, charset: str) -> str:
    """A text as Java encodes one for a form."""
    return quote_plus(text, safe="*", encoding=charset, errors="replace").replace("~", "%7E").replace("${", "$${")


def _single_slashes(path: str) -> str:
    """A path in which slashes do not repeat, as JMeter's client sends it; expressions and the query stay."""
    found, is_query = "", False
    for piece in re.split(r"(\$\{[^{}]*\})", path):
        own, mark, query = piece.partition("?")
        keeps = piece.startswith("${") or is_query
        found += piece if keeps else re.sub(r"/{2,}", "/", own) + mark + query
        is_query = is_query or (not keeps and bool(mark))
    return found


_HTTP_DEFAULTS = frozenset({"HttpDefaultsGui", "HttpDefaultsBeanInfo"})
