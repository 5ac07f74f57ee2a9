"""Test plans of one shape each: where requests go, and what plans of the public have that JMeter reads in its own way."""

# ruff: noqa: E501 (a plan reads as a tree)

from __future__ import annotations

from oracle_elements import Case, args, case, get, json_, loop, post, request, rows_of, while_, whole

from jmx_elements import element, group, property_of, raw_body, variables


def _fields(*rows: tuple[str, str]) -> str:
    """A header manager whose fields may have one name."""
    items = "".join(
        f'<elementProp name="" elementType="Header">{property_of("Header.name", name)}{property_of("Header.value", value)}</elementProp>'
        for name, value in rows
    )
    return element(
        "HeaderManager", "fields", inner=f'<collectionProp name="HeaderManager.headers">{items}</collectionProp>'
    )


def _static_hosts(**hosts: str) -> str:
    """A DNS cache manager; `__` in a name stands for a dot."""
    items = "".join(
        f'<elementProp name="{name}" elementType="StaticHost">{property_of("StaticHost.Name", name.replace("__", "."))}{property_of("StaticHost.Address", address)}</elementProp>'
        for name, address in hosts.items()
    )
    inner = (
        '<collectionProp name="DNSCacheManager.servers"/>'
        f'<collectionProp name="DNSCacheManager.hosts">{items}</collectionProp>'
    )
    return element("DNSCacheManager", "dns", inner=inner, gui="DNSCachePanel", DNSCacheManager__isCustomResolver=True)


CASES: tuple[Case, ...] = (
    case(
        "static-hosts",
        _static_hosts(shop__example="127.0.0.1", www__example="127.0.0.1,127.0.0.9"),
        get("/a", inner=property_of("HTTPSampler.domain", "shop.example") + args()),
        get("/b", inner=property_of("HTTPSampler.domain", "www.example") + args()),
    ),
    case(
        "paths-of-variables",
        variables(ROOT="/ru", PRE="ru", HOST="127.0.0.1", URL="http://127.0.0.1:${__P(port)}/whole", NONE=""),
        get("${ROOT}/a"),
        get("${ROOT}b/c"),
        get("/${PRE}/p"),
        get("${PRE}/q"),
        get("${URL}/u"),
        get("/d", inner=property_of("HTTPSampler.domain", "${HOST}") + args()),
        get("/e", inner=property_of("HTTPSampler.protocol", "${NONE}") + args()),
        get("${ROOT}?x=1", inner=args(("y", "2"))),
    ),
    case(
        "fields-given-twice",
        _fields(("X-Far", "1"), ("X-Far", "2"), ("X-Both", "far")),
        get("/a", _fields(("X-A", "1"), ("X-A", "2"), ("x-a", "3"), ("X-Both", "near"), ("X-Both", "nearer"))),
        get("/b"),
    ),
    case(
        "names-of-variables",
        variables(**{"base url": "v", "==== first part ====": "", "DI //--//--//": "x", "a.b-c": "w", "it's (1)": "q"}),
        get("/a/${base url}/${a.b-c}"),
        post("/b", inner=raw_body("${DI //--//--//}|${it's (1)}")),
    ),
    case(
        "parameters-without-names",
        post("/a", inner=args(("", "x=1"), ("b", "2"), (" ", "3"))),
        get("/g", inner=args(("", "x"), ("b", ""))),
        post("/m", inner=args(("", "x"), ("b", "2")), DO_MULTIPART_POST=True),
    ),
    case(
        "bodies-of-other-methods",
        *(request(method, "/raw", inner=raw_body("text")) for method in ("GET", "DELETE", "OPTIONS", "HEAD", "PATCH")),
        *(request(method, "/form", inner=args(("a", "1"))) for method in ("DELETE", "OPTIONS", "PATCH", "PUT")),
    ),
    case(
        "charsets",
        post("/a", inner=args(("n", "café"), ("~", "*-._~ +"), ("plain", "x")), contentEncoding="ISO-8859-1"),
        get("/b", inner=args(("n", "café")), contentEncoding="ISO-8859-1"),
        post("/c", inner=raw_body("café"), contentEncoding="UTF-16BE"),
        post("/d", inner=args(("n", "caf%C3%A9", False)), contentEncoding="utf-8"),
    ),
    case(
        "controls-in-texts",
        post("/a", inner=raw_body("x\x01y\x1fz").replace("\x01", "&#x1;").replace("\x1f", "&#31;")),
    ),
    case(
        "data-with-long-separator",
        rows_of("rows.csv", "u,p", delimiter="||"),
        post("/a", inner=raw_body("${u}:${p}")),
        loops="4",
        files={"rows.csv": "u1||p1\n||p2\nu3||\n"},
    ),
    case(
        "data-with-blank-lines",
        rows_of("rows.csv", "u,p"),
        post("/a", inner=raw_body("${u}:${p}")),
        loops="6",
        files={"rows.csv": "u1,p1\n\nu2,p2\n\n"},
    ),
    case(
        "lists-with-empty-ends",
        get("/list", json_("a;b;", "$.token;$.total;", "1;1;", "N;M;"), json_("c", "$.token;;", "", "N;;")),
        get("/a/${a}/${b}/${c}"),
        get("/list", json_("d", ".id", "2", "N"), json_("e", "total", "1", "N")),
        get("/b/${d}/${e}"),
    ),
    # JMeter has no sample of a request whose extractor it refuses.
    case(
        "lists-of-different-lengths",
        get("/list", json_("f;g", "$.token;$.total", "1;1", "N")),
        post("/c", inner=raw_body("${f}|${g}")),
        counts="none",
    ),
    case("durations-of-any-case", post("/a", inner=raw_body("${__timeShift(yyyy,,+pt0m,,)}")), masks=()),
    case("include-without-file", element("IncludeController", "none", IncludeController__includepath=""), get("/b")),
    case("defaults-that-are-empty", post("/a", inner=raw_body("[${__P(none,)}|${__property(none,,)}|${__P(none)}]"))),
    case(
        "indexes-of-loops",
        loop("2", get("/i/${__jm__my loop__idx}"), name="my loop"),
        while_("${__javaScript(${__jm__a while__idx} < 2)}", get("/w/${__jm__a while__idx}"), name="a while"),
        loops="2",
    ),
    whole("no-loops", group(get("/never"), loops="0", name="idle"), group(get("/once"))),
)
