"""A thousand damaged files: each is read, or refused in one clear line with its file; none hangs, none grows."""

# ruff: noqa: E501 (a file's part is one line)

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable

import pytest
from jmx_texts import arguments, element, get, group, headers, plan, post, variables

from leadline.errors import PlanError
from leadline.scenario.formats import FormatOptions, read_scenario
from leadline.scenario.lowering import lower
from leadline.scenario.native_writer import write_native

SEED = 20_261_123
EACH = 334
LONGEST_S = 5.0
MOST_TIMES_LARGER = 200

JMX = plan(
    variables(host="${__P(host,h.test)}"),
    element("CookieManager", CookieManager__clearEachIteration=True),
    headers(Accept="*/*"),
    group(
        element("ConstantTimer", ConstantTimer__delay="${__Random(1,9)}"),
        element("CSVDataSet", filename="a.csv", variableNames="a,b"),
        element(
            "IfController",
            "if",
            get("/${a}", element("RegexExtractor", RegexExtractor__refname="t", RegexExtractor__regex="(.)")),
            IfController__condition='${__groovy(vars.get("a") == "x" && vars.get("n").toInteger() < 5)}',
            IfController__useExpression=True,
        ),
        post("/b", inner=arguments(user="${a}")),
        element("JSR223Sampler", script="vars.put('z', 'q' + vars.get('a')); log.info('x')", scriptLanguage="groovy"),
    ),
)
HAR = json.dumps(
    {
        "log": {
            "version": "1.2",
            "pages": [{"id": "p", "title": "page"}],
            "entries": [
                {
                    "startedDateTime": f"2026-01-01T00:00:0{second}.000Z",
                    "time": 500,
                    "pageref": "p",
                    "request": {
                        "method": "POST",
                        "url": f"http://a.test/{second}?t=abc123def456",
                        "headers": [{"name": "Accept", "value": "*/*"}],
                        "postData": {"mimeType": "application/x-www-form-urlencoded", "text": "a=1&b=2"},
                    },
                    "response": {"status": 200, "headers": [], "content": {"text": '{"token": "abc123def456"}'}},
                    "timings": {"send": 1, "wait": 2, "receive": 3, "ssl": -1},
                }
                for second in range(3)
            ],
        }
    },
    indent=1,
).encode()
YAML = b"""base: http://a.test/${param('x', 'y')}
variables: {token: '1'}
data: [{rows: [[a, b]], columns: [c, d]}]
load: {executor: ramping-arrival-rate, preAllocatedVUs: 2, stages: [{target: 5, duration: 5s}]}
thresholds: {http_req_duration: ['p(95)<500']}
flow:
  - transaction: login
    steps:
      - post: /login
        form: {user: '${c}', n: '${random(1, 6) + 2}'}
        extract: {token: {regex: 'a(.+?)b', match: 1}}
        check: [200, {contains: ok}]
  - if: token != '' && length(token) > 3
    then: [{wait: {uniform: [1s, 2s]}}]
  - weighted: [{weight: 3, steps: [{get: /x}]}, {steps: [{stop: iteration}]}]
"""
SOUP = [
    b"${", b"}", b"${__P(", b"<", b">", b"&", b'"', b"'", b"\x00", b"\xff", b"{", b"[", b"- ", b": ", b"\n", b"\t", b"null", b"-1",
    b"1e999", b"99999999999999999999", b"true", b"hashTree", b"</hashTree>", b"<!DOCTYPE a [<!ENTITY b 'c'>]>", b"&b;", b"((((((",
    b"*a", b"&a ", b"<<: ", b"!!python/object ", b"\\", b"%s", b"\xf0\x9f\x98\x80", b"\xed\xa0\x80",
]  # fmt: skip


def damaged(content: bytes, source: random.Random) -> bytes:
    """The content after a few changes: bytes turned, cut, repeated, and pieces of syntax put in."""
    data = bytearray(content)
    for _ in range(source.randint(1, 6)):
        at, length = source.randrange(len(data) or 1), source.randint(1, 40)
        change = source.randrange(6)
        if change == 0 and data:
            data[at] ^= 1 << source.randrange(8)
        elif change == 1:
            del data[at : at + length]
        elif change == 2:
            data[at:at] = data[at : at + length] * source.randint(1, 4)
        elif change == 3:
            data[at:at] = source.choice(SOUP) * source.choice((1, 1, 1, 50))
        elif change == 4:
            other = source.randrange(len(data) or 1)
            data[at : at + length] = data[other : other + length]
        else:
            del data[at : None if source.random() < 0.2 else at + 1]
    return bytes(data)


def read_whole(content: bytes, file: str) -> str:
    """The native text of a file, which the agent's form can be made of."""
    read, conversion = read_scenario(content, file, FormatOptions(skips_scripts=True), lambda name: b"a,b\n1,2\n")
    lower(read.scenario, read.root, lambda name: b"a,b\n1,2\n")
    return write_native(read.root, conversion)


@pytest.mark.parametrize(("content", "file"), [(JMX, "a.jmx"), (HAR, "a.har"), (YAML, "a.yaml")])
def test_what_is_damaged_is_whole_before(content: bytes, file: str) -> None:
    assert read_whole(content, file)


@pytest.mark.parametrize(("content", "file"), [(JMX, "a.jmx"), (HAR, "a.har"), (YAML, "a.yaml")])
def test_damaged_files_are_read_or_refused_in_a_line(content: bytes, file: str) -> None:
    source = random.Random(f"{SEED} {file}")
    refused = 0
    for number in range(EACH):
        data = damaged(content, source)
        began = time.process_time()
        try:
            text = read_whole(data, file)
            assert len(text) < MOST_TIMES_LARGER * len(content), number
        except PlanError as error:
            refused += 1
            for one in (error, *error.others):
                assert str(one).startswith(file), (number, str(one))
                assert len(str(one).splitlines()) == 1, (number, str(one))
                assert len(str(one)) < 2_000, number
        assert time.process_time() - began < LONGEST_S, (number, data)
    assert 0 < refused < EACH


@pytest.mark.parametrize(
    "grown",
    [
        lambda: b"base: http://a.test\nflow: [{get: /" + b"${" * 200_000 + b"}]\n",
        lambda: plan(group(post("/a", inner=arguments(a="${" * 100_000)))),
        lambda: plan(group(get("/" + "${__V(" * 5_000))),
        lambda: plan(
            group(element("IfController", "", get("/"), IfController__condition="(" * 9_000 + "1" + ")" * 9_000))
        ),
        lambda: b"<jmeterTestPlan><hashTree>" * 50_000,
        lambda: b'{"log": {"entries": [' + b"[" * 300_000,
    ],
)
def test_nesting_and_repetition_end_soon(grown: Callable[[], bytes]) -> None:
    content = grown()
    began = time.process_time()
    try:
        read_whole(
            content, "a" + (".yaml" if content.startswith(b"base") else ".har" if content.startswith(b"{") else ".jmx")
        )
    except PlanError as error:
        assert len(str(error)) < 5_000
    assert time.process_time() - began < 2 * LONGEST_S
