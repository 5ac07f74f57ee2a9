"""Test plans of one shape each: what is taken from answers, what is asserted of them, and the plugins' groups."""

# ruff: noqa: E501 (a plan reads as a tree)

from __future__ import annotations

from typing import Any

from oracle_elements import (
    Case,
    args,
    asserts,
    case,
    counter,
    get,
    json_,
    loop,
    post,
    regex,
    rows_of,
    timer,
    transaction,
    whole,
)

from jmx_elements import element, headers, raw_body, variables


def _boundary(name: str, left: str, right: str, **values: str) -> str:
    given: dict[str, Any] = {
        "refname": name,
        "lboundary": left,
        "rboundary": right,
        "match_number": "1",
        "default": "",
        "useHeaders": "false",
        **values,
    }
    named: dict[str, Any] = {f"BoundaryExtractor__{key}": value for key, value in given.items()}
    return element("BoundaryExtractor", name, **named)


def _jmes(path: str, expected: str, **values: Any) -> str:
    """An assertion that a JMESPath has a value."""
    given: dict[str, Any] = {"JSONVALIDATION": True, "EXPECT_NULL": False, "INVERT": False, "ISREGEX": False, **values}
    return element("JMESPathAssertion", path, JMES_PATH=path, EXPECTED_VALUE=expected, **given)


def _taken(path: str, name: str) -> str:
    """An extractor by a JMESPath."""
    given = {"referenceName": name, "jmesPathExpr": path, "matchNumber": "1", "defaultValue": "NONE"}
    named: dict[str, Any] = {f"JMESExtractor__{key}": value for key, value in given.items()}
    return element("JMESPathExtractor", name, **named)


CASES: tuple[Case, ...] = (
    case(
        "jmespath",
        get(
            "/list",
            _taken("token", "a"),
            _taken("items[0].id", "b"),
            _taken("nope.x", "c"),
            _taken("items[99]", "d"),
            name="take",
        ),
        get("/${a}/${b}/${c}/${d}"),
        get("/list", json_("first", "$.items.[0].id", "1"), name="dot"),
        get("/${first}"),
        get("/list", _jmes("items[0].id", "11"), name="met or not"),
        get("/list", _jmes("items[0].name", "ant"), name="text"),
        get("/list", _jmes("nope", "x"), name="missing"),
        get("/list", _jmes("nope", "x", INVERT=True), name="missing, inverted"),
        get("/list", _jmes("items[0].id", "\\d+", ISREGEX=True), name="pattern"),
        get("/list", _jmes("token", "zzz", INVERT=True), name="inverted"),
    ),
    case(
        "regex-extractor",
        get(
            "/page",
            regex("first", 'href="([^"]+)" id="([^"]+)"'),
            regex("second", 'href="([^"]+)"', match_number="2"),
            regex("both", 'href="([^"]+)" id="([^"]+)"', template="$2$-$1$", match_number="3"),
            regex("all", 'id="([^"]+)"', match_number="-1"),
            regex("none", "nothing (.)", default="NONE"),
            regex("keeps", "nothing (.)"),
            regex("empty", "nothing (.)", default_empty_value=True),
            regex("header", "X-Token: (.+)", useHeaders="true"),
            regex("code", "(\\d)\\d\\d", useHeaders="code"),
            regex("url", "://[^/]+(/.*)", useHeaders="URL"),
            regex("whole", "csrf", template="$0$"),
            regex("late", 'href="([^"]+)"', match_number="9", default="too few"),
        ),
        post("/t", inner=raw_body("/1/${first}/${first_g}/${first_g0}/${first_g1}/${first_g2}")),
        post("/t", inner=raw_body("/2/${second}/${both}/${all_1}/${all_2}/${all_3}/${all_matchNr}/${all}")),
        post("/t", inner=raw_body("/3/${none}/${keeps}/${empty}/${header}/${code}/${url}/${whole}/${late}")),
        post("/t", inner=raw_body("/4/${all_1_g1}/${all_1_g}/${both_g}")),
        variables(keeps="old"),
    ),
    case(
        "json-extractor",
        get(
            "/list",
            json_("token;total", "$.token;$.total", "1;1", "no;no"),
            json_("ids", "$.items[*].id", "-1"),
            json_("second", "$..name", "2"),
            json_("filtered", "$.items[?(@.id == 12)].name", "1"),
            json_("missing", "$.nope", "1", "NONE"),
            json_("kept", "$.nope", "1"),
            json_("flag;price;empty", "$.deep.flag;$.deep.price;$.empty", "1;1;1", "d;d;d"),
            json_("plain", "token", "1"),
        ),
        post("/t", inner=raw_body("/1/${token}/${total}/${ids_1}/${ids_3}/${ids_matchNr}/${second}/${filtered}")),
        post("/t", inner=raw_body("/2/${missing}/${kept}/${flag}/${price}/${empty}/${plain}")),
        variables(kept="old"),
    ),
    case(
        "boundary-extractor",
        get(
            "/page",
            _boundary("a", 'href="', '"'),
            _boundary("b", 'href="', '"', match_number="3"),
            _boundary("all", 'id="', '"', match_number="-1"),
            _boundary("none", "<<", ">>", default="NONE"),
            _boundary("head", "X-Token: ", "\n", useHeaders="true"),
        ),
        post("/t", inner=raw_body("/${a}/${b}/${all_1}/${all_2}/${all_matchNr}/${none}/${head}")),
    ),
    case(
        "extract-from-variable",
        get("/list", json_("item", "$.items[0]", "1")),
        get(
            "/x",
            regex("id", '"id":\\s*(\\d+)', Sample__scope="variable", Scope__variable="item"),
            json_("name", "$.name", "1", Sample__scope="variable", Scope__variable="item"),
        ),
        post("/t", inner=raw_body("/${id}/${name}")),
    ),
    case(
        "response-assertions",
        *(
            get("/page", asserts(kind, *patterns), name=f"{kind} {' '.join(patterns)}")
            for kind, *patterns in (
                (16, "csrf"),
                (16, "csrf", "nothing"),
                (48, "csrf", "nothing"),
                (20, "nothing"),
                (20, "csrf"),
                (52, "csrf", "nothing"),
                (2, "c..f"),
                (2, "^c"),
                (6, "c..f"),
                (6, "zzz"),
                (34, "zzz", "f.rst"),
                (1, "<html>.*</html>"),
                (1, "html"),
                (5, "html"),
                (8, "ok"),
                (12, "ok"),
                (16, "CSRF"),
                (2, "(?i)CSRF"),
            )
        ),
        get("/a", asserts(8, "ok"), name="equals"),
    ),
    case(
        "response-message",
        get("/page", asserts(8, "OK", field_="Assertion.response_message"), name="ok"),
        get("/page", asserts(8, "Fine", field_="Assertion.response_message"), name="not"),
        get("/status/404", regex("m", "(N.*)", useHeaders="message"), name="taken"),
        get("/m/${m}", name="sent"),
    ),
    whole(
        "arrivals",
        element(
            "com.blazemeter.jmeter.threads.arrivals.ArrivalsThreadGroup",
            "arrivals",
            # It is a matter of speed whether one user takes all arrivals.
            get("/arrivals", headers(X_User="arrivals")),
            gui="com.blazemeter.jmeter.threads.arrivals.ArrivalsThreadGroupGui",
            inner='<elementProp name="ThreadGroup.main_controller" elementType="com.blazemeter.jmeter.control.VirtualUserController"/>',
            TargetLevel="20",
            RampUp="0",
            Steps="1",
            Hold="1",
            LogFilename="",
            Iterations="",
            Unit="S",
            # As many as arrivals: however slow the server is, none is without a user.
            ConcurrencyLimit="20",
            ThreadGroup__on_sample_error="continue",
        ),
        by_user=False,
    ),
    whole(
        "open-model",
        element(
            "OpenModelThreadGroup",
            "open",
            get("/a"),
            gui="OpenModelThreadGroupGui",
            OpenModelThreadGroup__schedule="rate(20/s) even_arrivals(500 ms) pause(100 ms) even_arrivals(250 ms)",
            OpenModelThreadGroup__random_seed="1",
            ThreadGroup__on_sample_error="continue",
        ),
        by_user=False,
    ),
    case(
        "assertion-fields",
        get("/page", asserts(8, "200", field_="Assertion.response_code"), name="code"),
        get("/page", asserts(2, "X-Token: h", field_="Assertion.response_headers"), name="headers"),
        get("/page?x=1", asserts(16, "/page?x=1", field_="Assertion.sample_label"), name="url"),
        get("/page", asserts(16, "X-User: 1", field_="Assertion.request_headers"), name="request headers"),
        post("/page", asserts(16, "a=1", field_="Assertion.request_data"), name="request data", inner=args(("a", "1"))),
        get("/status/404", asserts(8, "404", field_="Assertion.response_code"), name="code without assume"),
        get(
            "/status/404",
            asserts(8, "404", field_="Assertion.response_code", Assertion__assume_success=True),
            name="code with assume",
        ),
        get("/status/204", asserts(16, "x"), name="empty"),
        get("/status/204", asserts(20, "x"), name="empty not"),
        get("/page", asserts(16, "${word}"), name="variable"),
        get("/page", asserts(16, "nothing"), asserts(16, "csrf"), name="two"),
        get(
            "/page",
            asserts(16, "fir", field_="Assertion.response_data", Assertion__scope="variable", Scope__variable="word"),
            name="in a variable",
        ),
        variables(word="first"),
    ),
    case(
        "other-assertions",
        get("/slow", element("DurationAssertion", "fast", DurationAssertion__duration="50"), name="too slow"),
        get("/a", element("DurationAssertion", "fast", DurationAssertion__duration="20000"), name="quick"),
        *(
            get(
                "/a",
                element(
                    "SizeAssertion",
                    "size",
                    SizeAssertion__size=size,
                    SizeAssertion__operator=operator,
                    Assertion__test_field="SizeAssertion.response_data",
                ),
                name=f"size {operator} {size}",
            )
            for operator, size in (("1", "2"), ("1", "3"), ("2", "2"), ("3", "1"), ("4", "2"), ("5", "2"), ("6", "1"))
        ),
        *(
            get(
                "/list",
                element(
                    "JSONPathAssertion",
                    "json",
                    JSON_PATH=path,
                    EXPECTED_VALUE=value,
                    JSONVALIDATION=checks,
                    EXPECT_NULL=null,
                    INVERT=invert,
                    ISREGEX=regex_,
                ),
                name=f"json {number}",
            )
            for number, (path, value, checks, null, invert, regex_) in enumerate(
                (
                    ("$.total", "3", True, False, False, True),
                    ("$.total", "4", True, False, False, True),
                    ("$.total", "", False, False, False, True),
                    ("$.nope", "", False, False, False, True),
                    ("$.nope", "", False, False, True, True),
                    ("$.token", "t-.", True, False, False, True),
                    ("$.token", "t-.", True, False, False, False),
                    ("$.nothing", "", True, True, False, True),
                    ("$.items[*].id", "12", True, False, False, True),
                    ("$.token", "t-1", True, False, True, False),
                    ("$.deep.flag", "true", True, False, False, False),
                    ("$.empty", "", True, False, False, False),
                )
            )
        ),
        get(
            "/a",
            element(
                "JSONPathAssertion",
                "json",
                JSON_PATH="$.a",
                JSONVALIDATION=False,
                EXPECT_NULL=False,
                INVERT=False,
                ISREGEX=True,
            ),
            name="no json",
        ),
    ),
    case(
        "token-flow",
        rows_of("u.csv", "user"),
        transaction("log in", post("/login", json_("token", "$.token", "1"), inner=args(("user", "${user}")))),
        headers(Authorization="Bearer ${token}"),
        loop("3", get("/item/${i}", counter("i", per_user=True), timer("1"))),
        users="2",
        loops="1",
        by_user=False,
        ordered=False,
        files={"u.csv": "ada\nbob\n"},
    ),
    whole(
        "plugin-groups",
        element(
            "kg.apc.jmeter.threads.UltimateThreadGroup",
            "ultimate",
            get("/ultimate", timer("200")),
            gui="kg.apc.jmeter.threads.UltimateThreadGroupGui",
            inner='<elementProp name="ThreadGroup.main_controller" elementType="LoopController"><intProp name="LoopController.loops">-1</intProp></elementProp>'
            '<collectionProp name="ultimatethreadgroupdata"><collectionProp name="r"><stringProp name="1">2</stringProp><stringProp name="2">0</stringProp><stringProp name="3">0</stringProp><stringProp name="4">1</stringProp><stringProp name="5">0</stringProp></collectionProp></collectionProp>',
            ThreadGroup__on_sample_error="continue",
        ),
        element(
            "com.blazemeter.jmeter.threads.concurrency.ConcurrencyThreadGroup",
            "concurrency",
            get("/concurrency", timer("200")),
            gui="com.blazemeter.jmeter.threads.concurrency.ConcurrencyThreadGroupGui",
            inner='<elementProp name="ThreadGroup.main_controller" elementType="com.blazemeter.jmeter.control.VirtualUserController"/>',
            TargetLevel="2",
            RampUp="0",
            Steps="1",
            Hold="1",
            LogFilename="",
            Iterations="",
            Unit="S",
            ThreadGroup__on_sample_error="continue",
        ),
        element(
            "com.blazemeter.jmeter.threads.arrivals.ArrivalsThreadGroup",
            "arrivals",
            # It is a matter of speed whether one user takes all arrivals.
            get("/arrivals", headers(X_User="arrivals")),
            gui="com.blazemeter.jmeter.threads.arrivals.ArrivalsThreadGroupGui",
            inner='<elementProp name="ThreadGroup.main_controller" elementType="com.blazemeter.jmeter.control.VirtualUserController"/>',
            TargetLevel="5",
            RampUp="0",
            Steps="1",
            Hold="1",
            LogFilename="",
            Iterations="",
            Unit="S",
            ConcurrencyLimit="10",
            ThreadGroup__on_sample_error="continue",
        ),
        counts="labels",
        ordered=False,
    ),
)
