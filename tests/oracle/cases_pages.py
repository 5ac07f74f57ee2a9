"""Test plans of one shape each: caches, resources of pages, CSS selectors, users that meet."""

from __future__ import annotations

from typing import Any

from oracle_elements import Case, action, case, get, if_, loop, post, request, transaction

from jmx_elements import element, headers, variables


def _cache(**values: Any) -> str:
    return element("CacheManager", "cache", **{"useExpires": True, "clearEachIteration": False, **values})


def _css(name: str, selector: str, attribute: str = "", number: str = "1", default: str = "", **values: Any) -> str:
    given = {"refname": name, "expr": selector, "attribute": attribute, "match_number": number, "default": default}
    named: dict[str, Any] = {f"HtmlExtractor__{key}": value for key, value in {**given, **values}.items()}
    return element("HtmlExtractor", name, HtmlExtractor__extractor_impl="JSOUP", **named)


def _page(name: str = "page", path: str = "/res/page", pool: str = "", match: str = "", **values: Any) -> str:
    given = {"image_parser": True, "concurrentDwn": bool(pool), "concurrentPool": pool, "embedded_url_re": match}
    return get(path, name=name, **{**given, **values})


_KINDS = ("max-age", "expires", "expired", "modified", "both", "no-store", "zero", "private", "plain")
_MEET: dict[str, Any] = {"groupSize": "0", "timeoutInMs": "0"}

CASES: tuple[Case, ...] = (
    case("cache", _cache(), loop("3", *(get(f"/cache/{kind}") for kind in _KINDS))),
    case(
        "cache-methods",
        _cache(),
        loop(
            "2",
            post("/cache/max-age"),
            request("HEAD", "/cache/expires"),
            get("/cache/max-age"),
            get("/cache/max-age?x=1"),
        ),
    ),
    case(
        "cache-varies",
        _cache(),
        loop("2", get("/cache/vary", headers(X_Kind="a"))),
        get("/cache/vary", headers(X_Kind="b")),
    ),
    case(
        "cache-cleared",
        _cache(clearEachIteration=True),
        get("/cache/max-age"),
        get("/cache/max-age"),
        get("/cache/etag"),
        loops="2",
    ),
    case("cache-per-user", _cache(), get("/cache/max-age"), get("/cache/max-age"), users="2"),
    case("cache-in-scope", loop("2", get("/cache/max-age"), get("/cache/expires", _cache()))),
    case(
        "cache-extracts-once",
        _cache(),
        loop(
            "2",
            get(
                "/cache/expires",
                element(
                    "RegexExtractor",
                    "word",
                    RegexExtractor__refname="word",
                    RegexExtractor__regex="(exp.*)",
                    RegexExtractor__template="$1$",
                    RegexExtractor__match_number="1",
                    RegexExtractor__useHeaders="false",
                    RegexExtractor__default="NONE",
                ),
            ),
            get("/${word}", name="after"),
        ),
    ),
    case("resources", _page(), ordered=False),
    case("resources-one-by-one", _page(pool=""), get("/after")),
    case(
        "resources-by-pattern",
        _page(match=".*[ab]\\.(css|js)"),
        _page("parts", match="/res/"),
        _page("pool", pool="3", match=".*png.*"),
        ordered=False,
        by_user=False,
    ),
    case("resources-excluded", _page(match=".*res.*", embedded_url_exclude_re=".*png.*"), ordered=False),
    case("resources-cached", _cache(), loop("2", _page(pool="6")), ordered=False, by_user=False),
    case(
        "resources-missing",
        _page("page", "/res/broken"),
        _page("there", "/res/broken", match=".*there.*"),
        ordered=False,
    ),
    case(
        "css-extractor",
        get(
            "/page",
            _css("first", "a"),
            _css("second", "a", number="2"),
            _css("href", "a#a3", "href"),
            _css("all", "a", "id", "-1"),
            _css("field", "input[name=csrf]", "value"),
            _css("none", "p.none", default="NONE"),
            _css("empty", "p.none", default_empty_value=True),
            _css("starts", "a[href^=/tw]"),
            _css("ends", "a[href$=ree]", "id"),
            _css("has", "a[href*=wo]", "id"),
            _css("several", "a, input", "id", "4", "too few"),
            _css("child", "a:eq(1)"),
            _css("last", "a:nth-of-type(2)"),
            _css("contains", "a:contains(third)", "id"),
            _css("lacking", "a", "class", default="NO"),
        ),
        get("/${first}/${second}?href=${href}&all=${all_matchNr},${all_1},${all_3}&field=${field}", name="a"),
        get("/${none}/${starts}/${ends}/${has}?empty=${empty}&several=${several}", name="b"),
        get("/${child}/${last}/${contains}?lacking=${lacking}", name="c"),
    ),
    case(
        "computed-labels",
        variables(env="prod", other="x"),
        transaction(
            "shop ${env}", get("/a", name="get ${__P(port)} ${__P(absent,none)}"), get("/b", name="${env}-${other}")
        ),
    ),
    case("double-slashes", get("/a//b/./c/../d"), get("/e//")),
    case(
        "meeting-all",
        loop("2", get("/a"), element("SyncTimer", "meet", **_MEET), name="twice"),
        users="3",
    ),
    case(
        "meeting-when-users-end",
        if_("${__groovy(vars.get('X') == null)}", get("/first"), expression=True),
        loop(
            "2",
            if_("${__jexl3(${__threadNum} == 3)}", action(0, 0)),
            get("/met", element("SyncTimer", "meet", **{**_MEET, "timeoutInMs": "600"})),
        ),
        users="3",
    ),
)
