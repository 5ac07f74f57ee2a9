"""What a plan can say of HTTP: rates in stages, many URLs, TLS, files beside it, secrets that only others hold."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plan_texts import plan_validator

from leadline.kinds.http.model import HttpTest
from leadline.plan import Plan, describe, load_plan, regular_files
from leadline.plan import load as loading
from leadline.plan.rate import RateStage, peak_per_s, read_rate, total_ms

Load = Callable[..., Plan]
ErrorText = Callable[..., str]


def text(keys: str, more: str = "") -> str:
    return f"name: small\nsut: {{kind: route}}\ntests:\n  - name: load\n    kind: http\n    {keys}\n{more}"


def http(plan: Plan, case: int = 0) -> HttpTest:
    [test] = plan.cases[case].tests
    assert isinstance(test, HttpTest)
    return test


def test_http_test_has_every_default(load: Load) -> None:
    test = http(load(text("connections: 1")))
    assert test == HttpTest(name="load")
    assert (test.stages, test.tls, test.tcp, test.entries[0].path) == ((), None, None, "/")


RATE = (RateStage(from_per_s=0, to_per_s=1000, duration_ms=10_000), RateStage(from_per_s=9, to_per_s=9, duration_ms=1))


@pytest.mark.parametrize(
    "written", ["0:1000/10s,9/1ms", "'0:1k/10s, 9/1ms'", "[0:1000/10s, 9/1ms]", "['0:1000/10s','9/1ms']"]
)
def test_staged_rate_sets_the_duration(load: Load, written: str) -> None:
    plan = load(text(f"rate: {written}"))
    assert http(plan).rate_per_s == RATE
    assert http(plan).stages == RATE
    assert http(plan).duration_ms == 10_001
    assert describe(plan).expected_seconds > 10


def test_a_constant_rate_is_one_stage(load: Load) -> None:
    test = http(load(text("rate: 500/s\n    duration: 3s")))
    assert test.rate_per_s == 500.0
    assert test.stages == (RateStage(from_per_s=500, to_per_s=500, duration_ms=3000),)


def test_a_rate_can_be_an_axis(load: Load) -> None:
    plan = load(text("warmup: 100ms", "axes: {tests.load.rate: [100, '1:2/3s']}\n"))
    assert [http(plan, case).duration_ms for case in (0, 1)] == [10_000, 3000]


@given(
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 10**6), st.integers(1, 10**5)), min_size=1, max_size=20)
)
def test_dumped_test_is_read_back_the_same(stages: list[tuple[int, int, int]]) -> None:
    read = read_rate(",".join(f"{first}:{last}/{ms}ms" for first, last, ms in stages))
    assert isinstance(read, tuple)
    assert [(stage.from_per_s, stage.to_per_s, stage.duration_ms) for stage in read] == stages
    assert total_ms(read) == sum(ms for _, _, ms in stages)
    assert peak_per_s(read) == max(max(first, last) for first, last, _ in stages)


def test_every_http_key_is_read(load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "t0ken")
    monkeypatch.setenv("PROXY", "http://me:pa55@proxy:3128")
    (tmp_path / "x.lua").write_text("-- nothing")
    (tmp_path / "x.pem").write_text("-----BEGIN X-----\n")
    (tmp_path / "key").write_text("k3y\n")
    test = http(
        load(
            text(
                """scheme: https
    script: x.lua
    script_args: [a, b c]
    connections: 60000
    threads: 2
    cpus: 0,2-3
    method: REPORT
    headers: [{name: A, value: b}, {name: X-Api-Key, secret: "@key"}]
    body: text
    bearer: $TOKEN
    keep_alive: false
    timeout: 1s
    connect_timeout: 2s
    bind: [127.0.0.2, "::1"]
    resolve: ["name:443:[::1]"]
    dns: connection
    proxy: $PROXY
    tcp: {delay: true, congestion: bbr, send_buffer: 64KiB, dscp: 46, user_timeout: 3s, fast_open: true}
    tls: {verify: false, cert: x.pem, key: x.pem, versions: 1.3, ciphers: [TLS_AES_128_GCM_SHA256], alpn: [],
          server_name: other, resume: true, early_data: true}"""
            )
        )
    )
    assert test.script is not None
    assert (test.script.content, test.script_args, test.cpus) == (b"-- nothing", ("a", "b c"), (0, 2, 3))
    assert (test.method, [header.text for header in test.headers]) == ("REPORT", ["b", "k3y"])
    assert test.bearer is not None
    assert test.proxy is not None
    assert (test.bearer.value, test.proxy.value) == ("t0ken", "http://me:pa55@proxy:3128")
    assert test.tcp is not None
    assert (test.tcp.send_buffer_bytes, test.tcp.user_timeout_ms) == (65536, 3000)
    assert test.tls is not None
    assert (test.tls.versions, test.tls.alpn, test.tls.server_name) == ("1.3", (), "other")
    shown = f"{test!r} {test.model_dump()}"
    assert not any(secret in shown for secret in ("t0ken", "pa55", "k3y", "BEGIN", "-- nothing"))
    assert (test.model_dump()["bearer"], test.model_dump()["headers"][1]["secret"]) == ("$TOKEN", "@key")


def test_urls_become_weighted_entries(load: Load, tmp_path: Path) -> None:
    (tmp_path / "b.json").write_text("{}")
    test = http(load(text("urls: [/a, weight=3 /b, weight=2 POST /c?d @b.json]")))
    assert [(entry.weight, entry.method, entry.path) for entry in test.entries] == [
        (1, None, "/a"),
        (3, None, "/b"),
        (2, "POST", "/c?d"),
    ]
    assert test.entries[2].body is not None
    assert test.entries[2].body.content == b"{}"
    assert test.model_dump()["urls"][2] == {"path": "/c?d", "method": "POST", "weight": 2, "body": "b.json"}


def test_files_are_relative_to_their_plan(tmp_path: Path) -> None:
    """Relative to the file that names them, even an inherited one; to the current folder from `--set`."""
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "body").write_text("from base")
    (tmp_path / "base" / "base.yaml").write_text(text("body_file: body"))
    (tmp_path / "plan.yaml").write_text("extends: base/base.yaml\n")
    body = http(load_plan(tmp_path / "plan.yaml")).body_file
    assert body is not None
    assert (body.name, body.content) == ("body", b"from base")
    (tmp_path / "over").write_text("from here")
    (tmp_path / "plan.yaml").write_text("extends: base/base.yaml\ntests: [{name: load, body_file: over}]\n")
    body = http(load_plan(tmp_path / "plan.yaml")).body_file
    assert body is not None
    assert body.content == b"from here"
    body = http(load_plan(tmp_path / "plan.yaml", [f"tests.load.body_file={tmp_path}/base/body"])).body_file
    assert body is not None
    assert body.content == b"from base"


MISTAKES = [
    ("rate: 1:2/3s\n    duration: 3s", "plan.yaml:7: tests.load.duration: the rate's stages last 3 s: the"),
    ("rate: [1:2/3s, fast]", "plan.yaml:6: tests.load.rate: 'fast' is not a stage; write 0:1000/10s"),
    ("rate: 0", "plan.yaml:6: tests.load.rate: a rate must be above 0"),
    ("rate: 1:2/2000m", "tests.load.duration: 120000000 ms is too large; at most 86400000 ms (one day)"),
    ("warmup: 1s\n    rate: 5/1s", "tests.load.warmup: 1000 ms of warm-up leave no time of 1000 ms"),
    ("scheme: https", "plan.yaml:6: tests.load.scheme: the certificate of the run's server is made for the run"),
    (
        "tls: {verify: false}",
        "plan.yaml:6: tests.load.tls: there are TLS options, but the scheme is http; use https, or leave",
    ),
    ("scheme: https\n    tls:\n      verfy: false", "plan.yaml:8: unknown key 'verfy' in tests.load.tls; did you mean"),
    ("tcp:\n      dscp: 64", "plan.yaml:7: tests.load.tcp.dscp: 64 is too large; at most 63"),
    ("tcp: {dely: true}", "unknown key 'dely' in tests.load.tcp; did you mean 'delay'?"),
    ("body_file: none", "plan.yaml:6: tests.load.body_file: none cannot be read: No such file or directory"),
    ("script: none", "plan.yaml:6: tests.load.script: none cannot be read: No such file or directory"),
    ("urls: [/, weight=x /]", "tests.load.urls[2]: 'weight=x /' is not '[weight=N] [METHOD] URL [@BODYFILE]'"),
    ("urls: [http://other/]", "tests.load.urls[1]: 'http://other/' is not a path of the run's own server"),
    (
        "urls: [/]\n    path: /x",
        "tests.load.urls: not possible together with path; every line of urls has its own path",
    ),
    ("basic: hunter2:x", "tests.load.basic: a secret must not be in a plan; write '@FILE', or '$NAME' for an env"),
    ("basic: 1234", "plan.yaml:6: tests.load.basic: this is not text"),
    ("script: [x]", "tests.load.script: this is not text"),
    ("urls: [{path: /}]", "tests.load.urls[1]: this is not text"),
    ("rate: {}", "tests.load.rate: a mapping is not a rate"),
    ("basic: $NO_SUCH_NAME", "tests.load.basic: the environment has no NO_SUCH_NAME"),
    ("bearer: '@none'", "tests.load.bearer: none cannot be read: No such file or directory"),
    ("proxy: http://me:hunter2@h:1", "tests.load.proxy: a proxy's password must not be in a plan; write '@FILE' or"),
    (
        "headers:\n      - {name: X-Amz-Security-Token, value: hunter2}",
        "plan.yaml:7: tests.load.headers.X-Amz-Security-Token.value: X-Amz-Security-Token is a secret",
    ),
    (
        "headers:\n      - {name: Cookie, value: hunter2}",
        "plan.yaml:7: tests.load.headers.Cookie.value: Cookie is a secret",
    ),
    (
        "headers:\n      - {name: X-Auth-Key, value: hunter2}",
        "plan.yaml:7: tests.load.headers.X-Auth-Key.value: X-Auth-Key is a secret",
    ),
    ("headers: [{name: A}]", "tests.load.headers.A.value: A needs either a value or a secret"),
    ("method: CONNECT", "tests.load.method: CONNECT opens a tunnel and cannot be measured as a request"),
    ("connections: 0", "tests.load.connections: 0 is too small; at least 1"),
    ("threads: 2", "tests.load.threads: 2 threads for 1 connections; use at least one connection per thread"),
    ("unix_socket: /x\n    proxy: http://h:1", "tests.load.unix_socket: not possible together with proxy"),
    ("resolve: [x]", "tests.load.resolve[1]: 'x' is not HOST:PORT:ADDRESS"),
    ("cpus: 1-x", "tests.load.cpus: '1-x' is not a list of CPUs; write 0,2-3"),
]


@pytest.mark.parametrize(("keys", "said"), MISTAKES, ids=[keys[:40] for keys, _ in MISTAKES])
def test_http_mistake_is_one_line_with_its_place(
    error_text: ErrorText, keys: str, said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    message = error_text(text(keys))
    assert said in message
    assert "hunter2" not in message


SCHEMA: list[tuple[dict[str, Any], bool]] = [
    ({"rate": 1000}, True),
    ({"rate": "1000/s"}, True),
    ({"rate": "0:1000/10s,1000/60s"}, True),
    ({"rate": ["0:1000/10s", "1k/60s"]}, True),
    ({"rate": "{rate}"}, True),
    ({"rate": "fast"}, False),
    ({"rate": []}, False),
    ({"urls": ["/a", "weight=2 POST /b @c"]}, True),
    ({"urls": ["a"]}, False),
    ({"basic": "@file", "bearer": "$NAME"}, True),
    ({"basic": "me:hunter2"}, False),
    ({"scheme": "https", "tls": {"verify": False, "versions": 1.3, "ca": "x.pem"}}, True),
    ({"tls": {"versions": "1.1"}}, False),
    ({"tcp": {"send_buffer": "64KiB", "delay": True}}, True),
    ({"tcp": {"nagle": True}}, False),
    ({"cpus": "0,2-3"}, True),
    ({"cpus": [0, 1]}, True),
    ({"cpus": "all"}, False),
    ({"resolve": ["name:443:[::1]"]}, True),
    ({"resolve": ["name"]}, False),
]


@pytest.mark.parametrize(("keys", "right"), SCHEMA, ids=[str(keys) for keys, _ in SCHEMA])
def test_schema_accepts_valid_http_tests_only(keys: dict[str, Any], right: bool) -> None:
    plan = {"name": "x", "sut": {"kind": "route"}, "tests": [{"name": "a", "kind": "http", **keys}]}
    assert plan_validator().is_valid(plan) is right


def test_files_that_many_cases_name_are_read_once_and_shared(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "body").write_bytes(bytes(6 * 2**20))
    (tmp_path / "token").write_text("a-token\n")
    read: list[str] = []
    really = regular_files.read_regular

    def read_regular(path: Path, most_bytes: int) -> bytes:
        read.append(path.name)
        return really(path, most_bytes)

    monkeypatch.setattr(loading, "read_regular", read_regular)
    keys = "body_file: body\n    method: POST\n    bearer: '@token'\n    connections: '{c}'"
    numbers = ", ".join(str(number) for number in range(1, 41))
    plan = load(text(keys, f"axes: {{c: [{numbers}]}}\n"))
    assert sorted(read) == ["body", "plan.yaml", "token"]
    bodies = [http(plan, case).body_file for case in range(40)]
    assert len({id(body.content) for body in bodies if body is not None}) == 1
    # What has changed meanwhile is read by the next who loads the plan.
    (tmp_path / "body").write_bytes(b"new")
    body = http(load(text(keys, "axes: {c: [1]}\n"))).body_file
    assert body is not None
    assert body.content == b"new"
