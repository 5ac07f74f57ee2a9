"""Files that were made to harm a reader: what is nested, repeated, huge, oddly encoded or cut off."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from jmx_texts import element, get, group, plan

from jmx_elements import property_of


def _jmx(*below: str) -> bytes:
    return plan(group(*below))


def _module(name: str) -> str:
    return element("ModuleController", "m", ModuleController__node_path=["plan", name])


def _entry(url: str, at_s: int, text: str = "", **more: Any) -> dict[str, Any]:
    return {
        "startedDateTime": f"2026-01-01T00:{at_s // 60:02}:{at_s % 60:02}.000Z",
        "time": 10,
        "request": {"method": "GET", "url": url, "headers": []},
        "response": {"status": 200, "headers": [], "content": {"text": text}},
        **more,
    }


def _har(*entries: Any) -> bytes:
    return json.dumps({"log": {"version": "1.2", "entries": list(entries)}}).encode()


def _laughs(levels: int) -> bytes:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]" for level in range(1, levels)]
    return "\n".join([*lines, "get: http://a.test/"]).encode()


_DTD = "".join(f'<!ENTITY e{level} "{f"&e{level - 1};" * 10}">' for level in range(1, 12))
_TOKENS = "".join(f'<input type="hidden" name="f{number}" value="a1b2c3d4{number}">' for number in range(1_000))
_SENT = "&".join(f"f{number}=a1b2c3d4{number}" for number in range(1_000))

FILES: dict[str, Callable[[], bytes]] = {
    "laughs.jmx": lambda: (
        b'<!DOCTYPE x [<!ENTITY e0 "ha">' + _DTD.encode() + b"]><jmeterTestPlan>&e11;</jmeterTestPlan>"
    ),
    "external.jmx": lambda: (
        b'<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]><jmeterTestPlan>&e;</jmeterTestPlan>'
    ),
    "deep.jmx": lambda: b"<jmeterTestPlan>" + b"<hashTree>" * 100_000,
    "wide.jmx": lambda: b"<jmeterTestPlan><hashTree>" + b"<a/><hashTree/>" * 40_000 + b"</hashTree></jmeterTestPlan>",
    "pieces.jmx": lambda: _jmx(get("/")).replace(b"</jmeterTestPlan>", b"x<!-- -->" * 200_000 + b"</jmeterTestPlan>"),
    "samplers.jmx": lambda: _jmx(*(get(f"/{number}") for number in range(500))),
    "attributes.jmx": lambda: b"<jmeterTestPlan " + b" ".join(b"a%d='1'" % number for number in range(20_000)) + b"/>",
    "long-attribute.jmx": lambda: _jmx(get("/" + "a" * 4_000_000)),
    "long-name.jmx": lambda: b"<" + b"a" * 4_000_000 + b"/>",
    "comments.jmx": lambda: b"<jmeterTestPlan>" + b"<!-- a -->" * 200_000 + b"</jmeterTestPlan>",
    "wide-encoding.jmx": lambda: (
        _jmx(get("/a")).decode().replace('encoding="UTF-8"', 'encoding="UTF-16"').encode("utf-16")
    ),
    "unknown-encoding.jmx": lambda: b'<?xml version="1.0" encoding="ebcdic-nothing"?><jmeterTestPlan/>',
    "seven-bits.jmx": lambda: b'<?xml version="1.0" encoding="utf-7"?><jmeterTestPlan>+ADw-a+AD4-</jmeterTestPlan>',
    "nulls.jmx": lambda: b"<\x00" * 1_000,
    "numbers.jmx": lambda: plan(
        group(get("/"), loops="9" * 400, ThreadGroup__num_threads="1" + "0" * 300, ThreadGroup__ramp_time="1e999")
    ),
    "negative.jmx": lambda: plan(
        group(get("/"), loops="-7", ThreadGroup__num_threads="-1", ThreadGroup__ramp_time="-5")
    ),
    "digits.jmx": lambda: _jmx(element("ConstantTimer", ConstantTimer__delay="9" * 100_000), get("/")),
    "placeholders.jmx": lambda: _jmx(get("/" + "${a}" * 10_000)),
    "functions.jmx": lambda: _jmx(get("/" + "${__urlencode(" * 400 + "x" + ")}" * 400)),
    "script.jmx": lambda: _jmx(
        element(
            "JSR223Sampler", script="vars.put('a', " + "(" * 20_000 + "1" + ")" * 20_000 + ")", scriptLanguage="groovy"
        ),
        get("/"),
    ),
    "script-lines.jmx": lambda: _jmx(
        element("JSR223Sampler", script="if (a)" + "\n" * 19_000 + "{}", scriptLanguage="groovy"), get("/")
    ),
    "script-branches.jmx": lambda: _jmx(
        element("IfController", "", get("/"), IfController__condition="if (1) return 1;" * 1_200)
    ),
    "script-doubling.jmx": lambda: _jmx(
        element("IfController", "", get("/"), IfController__condition="def a = 'x';" + "a = a + a;" * 60 + "a")
    ),
    "modules.jmx": lambda: plan(
        *(
            element("TestFragmentController", f"level {level}", *(_module(f"level {level + 1}") for _ in range(20)))
            for level in range(9)
        ),
        element("TestFragmentController", "level 9", get("/a")),
        group(_module("level 0")),
    ),
    "stairs.jmx": lambda: plan(
        *(
            element("ConcurrencyThreadGroup", f"g{steps}", get("/"), TargetLevel=level, RampUp="1e300", Steps=steps)
            for steps, level in (("1000000000", "5"), ("1e999", "1e999"), ("-5", "5"), ("2000", "9" * 300))
        ),
        element(
            "SteppingThreadGroup",
            "s",
            get("/"),
            inner=property_of("ThreadGroup.num_threads", "1e999") + property_of("Start users count", "nan"),
        ),
    ),
    "schedule.jmx": lambda: plan(
        element("OpenModelThreadGroup", "g", get("/"), OpenModelThreadGroup__schedule="rate(1/s) /* " * 100_000)
    ),
    "indexes.jmx": lambda: _jmx(get("/" + "__jm__" * 100_000)),
    "script-terms.jmx": lambda: _jmx(
        element("JSR223Sampler", script="vars.put('a', " + "+".join(["1"] * 20_000) + ")", scriptLanguage="groovy"),
        get("/"),
    ),
    "regex.jmx": lambda: _jmx(
        get(
            "/", element("RegexExtractor", RegexExtractor__refname="t", RegexExtractor__regex="(" * 5_000 + ")" * 5_000)
        )
    ),
    "deep.har": lambda: b'{"log": {"entries": ' + b"[" * 500_000,
    "deep-mappings.har": lambda: b'{"a":' * 500_000,
    "deep-body.har": lambda: _har(_entry("http://a.test/", 0, "[" * 500_000)),
    "entries.har": lambda: _har(*[{}] * 25_000),
    "empty-entries.har": lambda: _har(*[{}] * 15_000),
    "odd-entries.har": lambda: _har(
        1, None, "x", [], {"request": []}, {"request": {"headers": 7, "url": 3}}, _entry("http://a.test/", 0)
    ),
    "numbers.har": lambda: _har(
        *(_entry("http://a.test/", 0, time=value) for value in (1e308, -1e308, 10**400, True, "x", None))
    ),
    "infinite.har": lambda: _har(_entry("http://a.test/", 0)).replace(b'"time": 10', b'"time": 1e999'),
    "digits.har": lambda: _har(_entry("http://a.test/", 0)).replace(b'"time": 10', b'"time": ' + b"9" * 100_000),
    "years.har": lambda: _har(
        *(
            _entry("http://a.test/", 0) | {"startedDateTime": text}
            for text in (
                "0001-01-01T00:00:00+14:00",
                "9999-12-31T23:59:59-14:00",
                "2026-01-01T00:00:00Z",
                "20260101",
                "2026-W01-1",
            )
        )
    ),
    "surrogates.har": lambda: _har(_entry("http://a.test/\ud800", 0, "\udfff"), _entry("http://a.test/x", 1)),
    "wide.har": lambda: _har(_entry("http://a.test/", 0)).decode().encode("utf-16"),
    "values.har": lambda: _har(
        _entry("http://a.test/", 0, _TOKENS), *(_entry(f"http://a.test/{n}?{_SENT[:60_000]}", n + 1) for n in range(20))
    ),
    "tokens.har": lambda: _har(
        *(_entry(f"http://a.test/{n}?t=a1b2c3d4{n - 1}", n, json.dumps({"t": f"a1b2c3d4{n}"})) for n in range(2_000))
    ),
    "unclosed-tags.har": lambda: _har(_entry("http://a.test/", 0, "<input " * 280_000)),
    "attributes.har": lambda: _har(
        _entry("http://a.test/", 0, "<input " + "a" * 1_900 + ">" + "<meta name=" * 100_000)
    ),
    "one-word.har": lambda: _har(
        _entry("http://a.test/", 0, json.dumps({"a": "a1" * 900_000})), _entry("http://a.test/?" + "a1" * 100_000, 1)
    ),
    "overlap.har": lambda: _har(*(_entry(f"http://a.test/{n}", 0, time=60_000 + n) for n in range(2_000))),
    "redirects.har": lambda: _har(
        *(_entry("http://a.test/", n % 3_000) | {"response": {"status": 302, "redirectURL": "/"}} for n in range(5_000))
    ),
    "bad-urls.har": lambda: _har(
        *(
            _entry(url, 0)
            for url in (
                "http://[",
                "http://a:99999/",
                "//x",
                "http://",
                "http://a.test:x/",
                "http://[::1",
                "http://\u2100/",
            )
        ),
        _entry("http://a.test/", 0),
    ),
    "laughs.yaml": lambda: _laughs(12),
    "itself.yaml": lambda: b"get: http://a.test/\nvariables: &a\n  x: *a\n",
    "itself-in-list.yaml": lambda: b"base: http://a.test\nflow: &a [*a]\n",
    "merged.yaml": lambda: b"a: &a {<<: *a}\n",
    "deep-lists.yaml": lambda: b"get: http://a.test/\nflow: " + b"[" * 5_000,
    "deep-steps.yaml": lambda: (
        b"base: http://a.test\nflow:\n" + b"".join(b" " * depth + b"- steps:\n" for depth in range(1, 900))
    ),
    "short-steps.yaml": lambda: b"base: http://a.test\nflow: " + b"[{steps: " * 300 + b"[{get: /}]" + b"}]" * 300,
    "steps.yaml": lambda: b"base: http://a.test\nflow:\n" + b"- get: /a\n" * 3_000,
    "digits.yaml": lambda: b"get: http://a.test/\nusers: " + b"9" * 100_000 + b"\n",
    "numbers.yaml": lambda: b"get: http://a.test/\nload: {users: 1e300, duration: .inf}\n",
    "nan.yaml": lambda: b"get: http://a.test/\nload: {rate: .nan, duration: -.inf}\n",
    "minutes.yaml": lambda: b"get: http://a.test/\nload: {users: 190:20:30, duration: 0o17}\n",
    "objects.yaml": lambda: b"get: !!python/object/apply:os.system ['true']\n",
    "version.yaml": lambda: b"%YAML 9.9\n---\nget: http://a.test/\n",
    "documents.yaml": lambda: b"get: http://a.test/\n---\nget: http://b.test/\n" * 500,
    "tabs.yaml": lambda: b"get:\thttp://a.test/\n\tusers: 1\n",
    "wide.yaml": lambda: "get: http://a.test/\n".encode("utf-16"),
    "controls.yaml": lambda: b"get: http://a.test/\x07\x1b[31m\n",
    "keys.yaml": lambda: b"get: http://a.test/\n" + b"".join(b"k%d: 1\n" % number for number in range(5_000)),
    "same-keys.yaml": lambda: b"get: http://a.test/\n" * 3_000,
    "complex-keys.yaml": lambda: b"? [get, {a: b}]\n: http://a.test/\n? {x: y}\n: 1\n",
    "expression.yaml": lambda: b"get: 'http://a.test/${" + b"(" * 30_000 + b"}'\n",
    "terms.yaml": lambda: b"get: 'http://a.test/${" + b"+".join([b"1"] * 30_000) + b"}'\n",
    "nots.yaml": lambda: b"base: http://a.test\nflow: [{if: '" + b"!" * 30_000 + b"x', then: [{get: /}]}]\n",
    "choices.yaml": lambda: b"base: http://a.test\nflow: [{if: '" + b"a ? b : " * 10_000 + b"c', then: [{get: /}]}]\n",
    "braces.yaml": lambda: b"get: 'http://a.test/" + b"${a" * 50_000 + b"'\n",
    "tags.yaml": lambda: b"get: http://a.test/\ntags: {" + b"x" * 100_000 + b": y}\n",
    "rows.yaml": lambda: b"get: http://a.test/\ndata: [{columns: [a], rows: [" + b"[1]," * 8_000 + b"]}]\n",
}
