"""JMeter's requests, and the timers, extractors and assertions in their scope, as native steps."""

# ruff: noqa: E501 (an element of XML is one line)

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from jmx_texts import arguments, converted, element, flow, get, group, headers, plan, post, raw_body

from in_process import leadline
from jmx_elements import property_of
from leadline.errors import PlanError


def _rows(*rows: str) -> str:
    """A load profile of jpgc, whose rows have values between commas."""
    values = ["".join(f'<stringProp name="v">{value}</stringProp>' for value in row.split(",")) for row in rows]
    inner = "".join(f'<collectionProp name="row">{value}</collectionProp>' for value in values)
    return f'<collectionProp name="load_profile">{inner}</collectionProp>'


def test_a_request_has_jmeters_defaults() -> None:
    document, _ = converted(group(get("/a", name="first")))
    assert document["base"] == "http://shop.test"
    assert document["http"] == {"verify": False, "follow": False, "cookies": False}
    assert document["groups"] == [
        {"name": "users", "load": {"threads": 1, "loops": 1}, "flow": [{"get": "/a", "name": "first"}]}
    ]
    assert document["unset_variables"] == "keep"


def test_defaults_of_the_nearest_level_win_if_they_are_not_empty() -> None:
    outer = element("ConfigTestElement", gui="HttpDefaultsGui", HTTPSampler__domain="a.test", HTTPSampler__port="81")
    inner = element("ConfigTestElement", gui="HttpDefaultsGui", HTTPSampler__domain="b.test", HTTPSampler__port="")
    sampler = element("HTTPSamplerProxy", "x", HTTPSampler__path="/x")
    document, _ = converted(outer, group(inner, sampler))
    assert document["base"] == "http://b.test:81"


def test_header_managers_merge_and_the_nearest_wins() -> None:
    document, _ = converted(headers(A="1", B="1"), group(headers(B="2"), get("/x", headers(C="3", A="9")), get("/y")))
    first, second = document["groups"][0]["flow"]
    assert document["http"]["headers"] == {"B": "2"}
    assert (first["headers"], second["headers"]) == ({"C": "3", "A": "9"}, {"A": "1"})


def test_credentials_of_a_header_manager_follow_redirects() -> None:
    first, second = flow(
        get("/a", headers(Authorization="Bearer x"), HTTPSampler__follow_redirects=True),
        get("/b", headers(A="1"), HTTPSampler__follow_redirects=True),
    )
    assert (first["headers_elsewhere"], "headers_elsewhere" in second) == ("all", False)


def test_every_timer_in_scope_is_before_every_request_and_they_add() -> None:
    constant = element("ConstantTimer", ConstantTimer__delay="300")
    uniform = element("UniformRandomTimer", ConstantTimer__delay="100", RandomTimer__range="50.0")
    steps = flow(constant, get("/a", uniform), get("/b"))
    assert steps[0]["waits"] == ["300ms", {"uniform": ["0s", "50.0ms"], "plus": "100ms"}]
    assert steps[1]["waits"] == "300ms"


@pytest.mark.parametrize(
    ("timer", "wait"),
    [
        (element("ConstantTimer", ConstantTimer__delay="2000"), "2s"),
        (element("ConstantTimer", ConstantTimer__delay="${t}"), "${t}ms"),
        (
            element("GaussianRandomTimer", ConstantTimer__delay="300", RandomTimer__range="100.0"),
            {"normal": ["300ms", "100.0ms"]},
        ),
        (
            element("PoissonRandomTimer", ConstantTimer__delay="300", RandomTimer__range="100"),
            {"poisson": "100ms", "plus": "300ms"},
        ),
        (
            element("ConstantThroughputTimer", throughput="60", calcMode="2"),
            {"throughput": 60, "scope": "group-share", "name": "line 6"},
        ),
        (
            element("SyncTimer", "gate", groupSize="5", timeoutInMs="100"),
            {"meet": "gate (line 6)", "users": 5, "timeout": "100ms"},
        ),
        (
            element("kg.apc.jmeter.timers.VariableThroughputTimer", inner=_rows("1,10,60", "20,20,30")),
            {
                "throughput": 60,
                "scope": "all",
                "name": "line 6",
                "stages": [{"to": 600, "over": "60s"}, {"to": 1200, "over": "0s"}, {"to": 1200, "over": "30s"}],
            },
        ),
        (
            element("kg.apc.jmeter.timers.VariableThroughputTimer", inner=_rows("5,5,60")),
            {"throughput": 300, "scope": "all", "name": "line 6"},
        ),
        (element("JSR223Timer", script="return 100 + 50", scriptLanguage="groovy"), "${100 + 50}ms"),
    ],
)
def test_timer_is_a_wait_before_the_request(timer: str, wait: object) -> None:
    document, _ = converted(group(get("/a", timer)))
    assert document["http"]["waits"] == wait


def test_parameters_are_the_query_of_get_and_the_form_of_post() -> None:
    first, second = flow(get("/a", inner=arguments(q="x y", r="${v}")), post("/b", inner=arguments(q="1")))
    assert first["query"] == {"q": "x y", "r": "${v}"}
    assert second["form"] == {"q": "1"}


def test_a_raw_body_is_the_body() -> None:
    (step,) = flow(post("/a", inner=raw_body('{"a": "${x}"}')))
    assert step["body"] == '{"a": "${x}"}'


def test_a_single_nameless_file_is_the_body_and_others_are_parts() -> None:
    def files(name: str) -> str:
        return (
            '<elementProp name="HTTPsampler.Files" elementType="HTTPFileArgs"><collectionProp name="HTTPFileArgs.files">'
            f'<elementProp name="f" elementType="HTTPFileArg"><stringProp name="File.path">up.bin</stringProp>'
            f'<stringProp name="File.paramname">{name}</stringProp><stringProp name="File.mimetype">image/png</stringProp>'
            "</elementProp></collectionProp></elementProp>"
        )

    body, parts = flow(post("/a", inner=files("")), post("/b", inner=files("pic")))
    assert body["body_file"] == "up.bin"
    assert body["headers"] == {"Content-Type": "image/png"}
    assert parts["multipart"] == [{"name": "pic", "file": "up.bin", "type": "image/png"}]


def test_a_path_that_is_a_url_replaces_the_server() -> None:
    (step,) = flow(get("https://other.test/x"))
    assert step["get"] == "https://other.test/x"


def test_redirects_and_cookies() -> None:
    cookies = element("CookieManager", CookieManager__clearEachIteration=True)
    document, conversion = converted(
        cookies,
        element("CacheManager", clearEachIteration=True, useExpires=True),
        group(
            get(
                "/a",
                HTTPSampler__follow_redirects=True,
                HTTPSampler__image_parser=True,
                HTTPSampler__concurrentDwn=True,
                HTTPSampler__concurrentPool="4",
                HTTPSampler__embedded_url_re=".*png",
            )
        ),
    )
    embedded = {"connections": 4, "match": ".*png"}
    assert document["http"] == {"verify": False, "follow": True, "cache": True, "embedded": embedded}
    group_ = document["groups"][0]
    assert (group_["clear_cookies"], group_["clear_cache"]) == (True, True)
    assert conversion.counts() == {"kept": 5, "changed": 0, "dropped": 0, "cannot-run": 0}


@pytest.mark.parametrize(
    ("extractor", "native"),
    [
        (
            element("RegexExtractor", RegexExtractor__refname="t", RegexExtractor__regex='id="(.+?)"', RegexExtractor__template="$1$", RegexExtractor__match_number="1"),
            {"t": {"regex": 'id="(.+?)"', "groups": True}},
        ),
        (
            element("RegexExtractor", RegexExtractor__refname="t", RegexExtractor__regex="(.+)", RegexExtractor__match_number="1", RegexExtractor__useHeaders="message"),
            {"t": {"regex": "(.+)", "from": "message", "groups": True}},
        ),
        (
            element("BoundaryExtractor", BoundaryExtractor__refname="t", BoundaryExtractor__lboundary="a", BoundaryExtractor__rboundary="b", BoundaryExtractor__match_number="1", BoundaryExtractor__useHeaders="message"),
            {"t": {"between": ["a", "b"], "from": "message"}},
        ),
        (
            element("RegexExtractor", RegexExtractor__refname="t", RegexExtractor__regex="a(.)", RegexExtractor__useHeaders="true", RegexExtractor__default="none"),
            {"t": {"regex": "a(.)", "from": "headers", "match": "random", "default": "none", "groups": True}},
        ),
        (
            element("JSONPostProcessor", JSONPostProcessor__referenceNames="a;b", JSONPostProcessor__jsonPathExprs="$.a;$..b", JSONPostProcessor__match_numbers="1;-1", JSONPostProcessor__defaultValues="N;M"),
            {"a": {"json": "$.a", "default": "N"}, "b": {"json": "$..b", "match": "all", "default": "M"}},
        ),
        (
            element("BoundaryExtractor", BoundaryExtractor__refname="x", BoundaryExtractor__lboundary="<b>", BoundaryExtractor__rboundary="</b>", BoundaryExtractor__match_number="2"),
            {"x": {"between": ["<b>", "</b>"], "match": 2}},
        ),
        (
            element("HtmlExtractor", HtmlExtractor__refname="x", HtmlExtractor__expr="input[name=a]", HtmlExtractor__attribute="value", HtmlExtractor__match_number="1"),
            {"x": {"css": "input[name=a]", "attribute": "value"}},
        ),
    ],
)  # fmt: skip
def test_post_processor_is_an_extractor_of_its_request(extractor: str, native: object) -> None:
    assert flow(get("/a", extractor))[0]["extract"] == native


@pytest.mark.parametrize(
    ("kind", "native"),
    [
        (1, {"matches": ["a"]}),
        (2, {"contains_match": ["a"]}),
        (6, {"contains_match": ["a"], "invert": True}),
        (8, {"equals": ["a"]}),
        (16, {"contains": ["a"]}),
        (20, {"contains": ["a"], "invert": True}),
        (34, {"contains_match": ["a"], "any": True}),
        (26, {"contains_match": ["a"]}),
    ],
)
def test_the_bits_of_a_response_assertion(kind: int, native: dict[str, Any]) -> None:
    assertion = element("ResponseAssertion", Asserion__test_strings=["a"], Assertion__test_type=kind)
    assert flow(get("/a", assertion))[0]["check"] == [native]


@pytest.mark.parametrize(
    ("field", "where"),
    [
        ("response_code", "status"),
        ("response_headers", "headers"),
        ("response_message", "message"),
        ("sample_label", "url"),
    ],
)
def test_what_a_response_assertion_reads(field: str, where: str) -> None:
    assertion = element(
        "ResponseAssertion",
        "ok",
        Asserion__test_strings=["200"],
        Assertion__test_type=8,
        Assertion__test_field=f"Assertion.{field}",
    )
    assert flow(get("/a", assertion))[0]["check"] == [{"from": where, "equals": ["200"], "name": "ok"}]


@pytest.mark.parametrize(
    ("assertion", "native"),
    [
        (element("DurationAssertion", DurationAssertion__duration="1500"), {"duration": "1500ms"}),
        (
            element("SizeAssertion", SizeAssertion__size="10", SizeAssertion__operator="3", Assertion__test_field="SizeAssertion.response_data"),
            {"size": "> 10"},
        ),
        (element("JSONPathAssertion", JSON_PATH="$.a", EXPECTED_VALUE="1", JSONVALIDATION=True, ISREGEX=False), {"json": "$.a", "value": "1"}),
        (element("JSONPathAssertion", JSON_PATH="$.a", JSONVALIDATION=False, INVERT=True), {"json": "$.a", "invert": True}),
    ],
)  # fmt: skip
def test_other_assertions(assertion: str, native: object) -> None:
    assert flow(get("/a", assertion))[0]["check"] == [native]


def test_static_hosts_of_a_dns_cache_manager_are_addresses_of_the_scenario() -> None:
    def manager(address: str, server: str = "") -> str:
        host = property_of("StaticHost.Name", "shop.test") + property_of("StaticHost.Address", address)
        servers = f'<stringProp name="1">{server}</stringProp>' if server else ""
        inner = (
            f'<collectionProp name="DNSCacheManager.servers">{servers}</collectionProp>'
            f'<collectionProp name="DNSCacheManager.hosts"><elementProp name="shop.test">{host}</elementProp></collectionProp>'
        )
        return element("DNSCacheManager", "dns", inner=inner, DNSCacheManager__isCustomResolver=True)

    document, conversion = converted(manager("192.0.2.7,192.0.2.8"), group(get("/a")))
    assert document["hosts"] == {"shop.test": "192.0.2.7"}
    assert all(item.outcome == "kept" for item in conversion.items)
    with pytest.raises(PlanError, match=r"the address of shop\.test is 'staging'; write an IP address"):
        converted(manager("staging"), group(get("/a")))
    with pytest.raises(PlanError, match=r"names are not resolved by the servers 192\.0\.2\.53"):
        converted(manager("192.0.2.7", "192.0.2.53"), group(get("/a")))
    with pytest.raises(PlanError, match=r"shop\.test has another address elsewhere in the plan"):
        converted(manager("192.0.2.7"), group(manager("192.0.2.9"), get("/a")))


@pytest.mark.parametrize(
    ("kind", "patterns", "native"),
    [
        (2, ["HTTP/1.1 302"], [{"status": "302", "name": "a"}]),
        (16 | 4, ["HTTP/1.1 200 OK"], [{"status": "200", "invert": True, "name": "a"}]),
        (2 | 32, [r"HTTP/1\.[01] 200", "HTTP/1.1 302 Found"], [{"status": "200,302", "name": "a"}]),
        (16, ["Location: /x"], [{"contains": ["Location: /x"], "from": "headers", "name": "a"}]),
    ],
)
def test_a_status_line_among_the_headers_is_the_status(kind: int, patterns: list[str], native: list[Any]) -> None:
    given = element(
        "ResponseAssertion", "a", Asserion__test_strings=patterns, Assertion__test_type=kind,
        Assertion__test_field="Assertion.response_headers",
    )  # fmt: skip
    (step,) = flow(get("/a", given))
    assert step["check"] == native


def test_a_pattern_of_a_status_line_that_is_no_status_is_refused() -> None:
    given = element(
        "ResponseAssertion", "a", Asserion__test_strings=["HTTP/1.1 (2|3)00"], Assertion__test_type=2,
        Assertion__test_field="Assertion.response_headers",
    )  # fmt: skip
    with pytest.raises(PlanError, match="the status line is not among the headers"):
        converted(group(get("/a", given)))


def sampler_without_server(*below: str, **values: str) -> str:
    given: dict[str, Any] = {"HTTPSampler__path": "/a", "HTTPSampler__method": "GET", **values}
    return element("HTTPSamplerProxy", "a", *below, gui="HttpTestSampleGui", **given)


def test_a_request_without_a_server_asks_for_one(tmp_path: Path) -> None:
    document, conversion = converted(group(sampler_without_server(HTTPSampler__port="81")))
    assert document["base"] == "http://${param('default_server')}:81"
    assert "give one with -J default_server=HOST" in next(item.why for item in conversion.items if item.why)
    file = tmp_path / "plan.jmx"
    file.write_bytes(plan(group(sampler_without_server())))
    # The plan itself does not read that parameter, so that the check of parameters must know it.
    written = leadline("convert", file, "-J", "default_server=shop.test")
    assert written.returncode == 0, written.stderr
    ran = leadline("scenario", file)
    assert ran.returncode == 2
    assert "the parameter 'default_server' has no value; give -J default_server=VALUE" in ran.stderr


def test_a_file_is_no_server() -> None:
    with pytest.raises(PlanError, match="it reads a file, which is no request"):
        converted(group(sampler_without_server(HTTPSampler__protocol="file")))


def test_an_unknown_charset_matters_only_to_what_is_encoded_with_it() -> None:
    unknown: dict[str, Any] = {"HTTPSampler__contentEncoding": "application/json"}
    converted(group(get("/a", **unknown)))
    with pytest.raises(PlanError, match="the charset application/json is not known"):
        converted(group(get("/a", inner=arguments(q="1"), **unknown)))


JMES: dict[str, Any] = {"JMESExtractor__referenceName": "v", "JMESExtractor__matchNumber": "1"}


@pytest.mark.parametrize(
    ("given", "native"),
    [
        (
            element("JMESPathExtractor", "x", JMESExtractor__jmesPathExpr="a.b[0].c", **JMES),
            {"v": {"json": "$.a.b[0].c", "default": ""}},
        ),
        (
            element("com.atlantbh.JSONPathExtractor", "x", VAR="v", JSONPATH="a.b", DEFAULT="d", SUBJECT="BODY"),
            {"v": {"json": "$.a.b", "default": "d"}},
        ),
        (
            element("com.atlantbh.JSONPathExtractor", "x", VAR="v", JSONPATH="$.a", SUBJECT="VAR", VARIABLE="w"),
            {"v": {"json": "$.a", "default": "", "from": "variable:w"}},
        ),
    ],
)
def test_paths_of_names_and_numbers_are_those_of_json(given: str, native: dict[str, Any]) -> None:
    (step,) = flow(get("/a", given))
    assert step["extract"] == native


def test_what_json_paths_mean_otherwise_is_refused() -> None:
    for path in ("a[*].b", "length(a)", "a || b", "a.*"):
        with pytest.raises(PlanError, match="more than names and numbers"):
            converted(group(get("/a", element("JMESPathExtractor", "x", JMESExtractor__jmesPathExpr=path, **JMES))))
    with pytest.raises(PlanError, match="more than names and numbers"):
        converted(group(get("/a", element("com.atlantbh.JSONPathExtractor", "x", VAR="v", JSONPATH="$..a"))))
    with pytest.raises(PlanError, match="need only exist, or be null"):
        converted(group(get("/a", element("JMESPathAssertion", "x", JMES_PATH="a", JSONVALIDATION=False))))


def test_a_jmespath_with_a_value_is_a_check() -> None:
    given = element("JMESPathAssertion", "x", JMES_PATH="a.b", JSONVALIDATION=True, EXPECTED_VALUE="1", ISREGEX=False)
    (step,) = flow(get("/a", given))
    assert step["check"] == [{"json": "$.a.b", "value": "1", "name": "x"}]


def test_a_dot_before_a_bracket_of_a_json_path_has_no_meaning() -> None:
    values = {"referenceNames": "v", "jsonPathExprs": "$.rows.*.[0]", "match_numbers": "1", "defaultValues": "d"}
    named: dict[str, Any] = {f"JSONPostProcessor__{key}": value for key, value in values.items()}
    given = element("JSONPostProcessor", "x", **named)
    (step,) = flow(get("/a", given))
    assert step["extract"]["v"]["json"] == "$.rows.*[0]"


def test_an_empty_proxy_is_none() -> None:
    given = element("ConfigTestElement", gui="HttpDefaultsGui", HTTPSampler__proxyHost="${__P(proxyHost,)}")
    converted(given, group(get("/a")))
    with pytest.raises(PlanError, match="through a proxy"):
        converted(given, group(get("/a")), parameters={"proxyHost": "p.test"})


def test_a_plan_whose_groups_have_no_loops_is_refused() -> None:
    with pytest.raises(PlanError, match="has 0 loops, so nothing is sent"):
        converted(group(get("/a"), loops="0"))
