"""Test plans of one shape each: requests and their bodies, cookies, authentication, redirects, data, functions, answers."""

# ruff: noqa: E501 (a plan reads as a tree)

from __future__ import annotations

from oracle_elements import (
    Case,
    args,
    case,
    counter,
    files,
    get,
    loop,
    post,
    regex,
    request,
    rows_of,
    script,
    simple,
    whole,
)

from jmx_elements import element, group, headers, property_of, raw_body, variables


def _cookies(*own: tuple[str, str, str], clears: bool = False, name: str = "cookies", policy: str = "standard") -> str:
    """A cookie manager with its own cookies: name, value, path."""
    items = "".join(
        f'<elementProp name="{name_}" elementType="Cookie" testname="{name_}">{property_of("Cookie.value", value)}{property_of("Cookie.domain", "127.0.0.1")}'
        f'{property_of("Cookie.path", path)}{property_of("Cookie.secure", False)}<longProp name="Cookie.expires">0</longProp>'
        f"{property_of('Cookie.path_specified', True)}{property_of('Cookie.domain_specified', True)}</elementProp>"
        for name_, value, path in own
    )
    inner = f'<collectionProp name="CookieManager.cookies">{items}</collectionProp>'
    return element(
        "CookieManager", name, inner=inner, CookieManager__clearEachIteration=clears, CookieManager__policy=policy
    )


def _auth(*rows: tuple[str, str, str]) -> str:
    """An authorization manager: prefix of the URL, user, password."""
    items = "".join(
        f'<elementProp name="" elementType="Authorization">{property_of("Authorization.url", url)}{property_of("Authorization.username", user)}'
        f"{property_of('Authorization.password', password)}{property_of('Authorization.domain', '')}{property_of('Authorization.realm', '')}</elementProp>"
        for url, user, password in rows
    )
    return element(
        "AuthManager",
        "auth",
        inner=f'<collectionProp name="AuthManager.auth_list">{items}</collectionProp>',
        AuthManager__controlledByThreadGroup=False,
    )


def _parameters(*users: dict[str, str], each: bool = False) -> str:
    """User parameters; each iteration takes them again if `each`."""
    names = list(users[0])
    rows = "".join(
        f'<collectionProp name="{n}">'
        + "".join(property_of(str(i), user[name]) for i, name in enumerate(names))
        + "</collectionProp>"
        for n, user in enumerate(users)
    )
    listed = "".join(property_of(str(i), name) for i, name in enumerate(names))
    inner = f'<collectionProp name="UserParameters.names">{listed}</collectionProp><collectionProp name="UserParameters.thread_values">{rows}</collectionProp>'
    return element("UserParameters", "parameters", inner=inner, UserParameters__per_iteration=each)


CASES: tuple[Case, ...] = (
    case(
        "parameters",
        get("/a", inner=args(("q", "x y&z=ü"), ("plain", "a+b/c?d"), ("empty", ""))),
        get("/b", inner=args(("q", "x%20y", False), ("raw", "a/b:c", False), ("no", "", True, False))),
        get("/c?own=1", inner=args(("more", "2"))),
        post("/d", inner=args(("q", "x y&z=ü~*"), ("q", "twice"), ("empty", ""))),
        post("/e", inner=args(("q", "x%20y+z", False), ("r", "a b", False))),
        request("PUT", "/f", inner=args(("k", "v w"))),
        request("PATCH", "/g", inner=args(("k", "v"))),
        request("DELETE", "/h", inner=args(("k", "v"))),
        request("HEAD", "/i"),
        request("OPTIONS", "/j", inner=args(("k", "v"))),
        post("/k", inner=args(("", "text without a name"), ("", " and more"))),
        request("PUT", "/l", inner=args(("", "only value"))),
    ),
    case(
        "bodies",
        variables(x="7"),
        headers(Content_Type="application/json"),
        post("/a", inner=raw_body('{"x": ${x}, "y": "ü", "z": "${unset}"}')),
        request("PUT", "/b", inner=raw_body("line one\nline two")),
        request("PATCH", "/c", inner=raw_body("[1]")),
        request("DELETE", "/d", inner=raw_body('{"gone": true}')),
        post("/e"),
        get("/f", inner=raw_body("with get")),
        post("/g?x=1", inner=raw_body("")),
    ),
    case(
        "bodies-without-type",
        post("/a", inner=raw_body("text")),
        post("/b"),
        request("PUT", "/c", inner=raw_body("text")),
    ),
    case(
        "files",
        post("/a", inner=files(("part.txt", "", "text/plain"))),
        request("PUT", "/b", inner=files(("part.txt", "", ""))),
        post("/c", inner=files(("part.txt", "doc", "text/plain")) + args(("field", "some value"), ("other", "ü"))),
        post("/d", inner=files(("part.txt", "one", "text/plain"), ("part.txt", "two", "application/octet-stream"))),
        post("/e", inner=args(("field", "v")), DO_MULTIPART_POST=True),
        files={"part.txt": "content of the file\n"},
    ),
    case(
        "paths",
        get("/a b"),
        get("/p%20q"),
        get("/quoted'x'(y)"),
        get("relative"),
        get("/x;v=1/y"),
        get("/e?q=a b"),
        get("/deep/../up"),
        get("/q?already=%7Bx%7D"),
        get("//double"),
    ),
    case(
        "cookies-ignored", _cookies(("own", "o1", "/"), policy="ignorecookies"), get("/cookies"), get("/a"), loops="2"
    ),
    case(
        "cookies",
        _cookies(("own", "o1", "/"), ("far", "o2", "/far")),
        get("/a"),
        get("/cookies"),
        get("/b"),
        get("/deep/c"),
        get("/deeper"),
        post("/login"),
        get("/far/away"),
        loops="2",
    ),
    case("cookies-cleared", _cookies(clears=True), get("/a"), post("/login"), get("/b"), loops="2", users="2"),
    case("cookies-without-manager", post("/login"), get("/a")),
    whole(
        "two-cookie-managers",
        _cookies(("plan", "1", "/"), name="of the plan"),
        group(simple("inner", _cookies(("inner", "2", "/"), name="inner"), get("/a")), get("/b")),
    ),
    case(
        "authorization",
        _auth(
            ("http://127.0.0.1:${__P(port)}/private", "ada", "secret"),
            ("http://127.0.0.1:${__P(port)}/private/deep", "bob", "pass"),
            ("http://other.test/", "no", "no"),
        ),
        get("/private"),
        get("/private/deep/x"),
        get("/public"),
        simple("inner", _auth(("http://127.0.0.1:${__P(port)}/", "cleo", "pw")), get("/all"), get("/private/y")),
    ),
    case("authorization-header", get("/a", headers(Authorization="Bearer t"))),
    case(
        "redirects",
        _cookies(),
        get("/redirect/2", follow_redirects=True),
        get("/redirect/2", name="not followed"),
        post("/redirect/1", name="post", inner=args(("k", "v")), follow_redirects=True),
        *(
            post(f"/status/{code}", name=f"post {code}", inner=args(("k", "v")), follow_redirects=True)
            for code in (301, 303)
        ),
        get("/redirect/query", follow_redirects=True),
        get("/redirect/relative", follow_redirects=True),
        get("/status/304", name="not modified", follow_redirects=True),
        request("HEAD", "/redirect/1", name="head", follow_redirects=True),
        get("/landed", regex("x", "landed")),
    ),
    case("redirects-by-library", get("/redirect/2", auto_redirects=True), get("/redirect/query", auto_redirects=True)),
    case("redirect-loop", get("/redirect/loop", follow_redirects=True), get("/after"), counts="none"),
    case("redirect-headers", headers(X_Kept="1", Authorization="Bearer t"), get("/redirect/1", follow_redirects=True)),
    case(
        "statuses",
        *(get(f"/status/{code}") for code in (200, 204, 301, 399, 400, 404, 500, 503)),
        request("HEAD", "/status/404", name="head"),
    ),
    case(
        "failures",
        get("/close", name="closed"),
        get("/after"),
        get("/held", name="slow", response_timeout="100"),
        get("/refused", name="refused", port="1"),
        get("/end"),
    ),
    case(
        "data-recycled",
        rows_of("u.csv", "name,pass"),
        get("/${name}/${pass}"),
        loops="5",
        files={"u.csv": "ada,1\nbob,2\n"},
    ),
    case(
        "data-stops-user",
        rows_of("u.csv", "name", recycle=False, stopThread=True),
        get("/${name}"),
        loops="5",
        files={"u.csv": "ada\nbob\n"},
    ),
    case(
        "data-at-end",
        rows_of("u.csv", "name,pass", recycle=False),
        post("/x", inner=raw_body("${name} ${pass}")),
        loops="3",
        files={"u.csv": "ada,1\n"},
    ),
    case(
        "data-header-row",
        rows_of("u.csv"),
        get("/${name}-${pass}"),
        loops="3",
        files={"u.csv": "name,pass\nada,1\nbob,2\n"},
    ),
    case(
        "data-ignored-row",
        rows_of("u.csv", "a,b", ignoreFirstLine=True),
        get("/${a}-${b}"),
        loops="3",
        files={"u.csv": "x,y\nada,1\nbob,2\n"},
    ),
    case(
        "data-quoted",
        rows_of("u.csv", "a,b", quotedData=True),
        post("/x", inner=raw_body("${a}|${b}")),
        loops="2",
        files={"u.csv": '"one, two","say ""hi"""\nplain,"x"\n'},
    ),
    case(
        "data-not-quoted",
        rows_of("u.csv", "a,b"),
        post("/x", inner=raw_body("${a}|${b}")),
        loops="2",
        files={"u.csv": '"one","two"\nthree,"4"\n'},
    ),
    case(
        "data-separators",
        rows_of("t.csv", "a,b", delimiter="\\t"),
        rows_of("s.csv", "c,d", delimiter=";"),
        get("/${a}-${b}-${c}-${d}"),
        files={"t.csv": "x\ty\n", "s.csv": "1;2\n"},
    ),
    case(
        "data-per-user",
        rows_of("u.csv", "a", shareMode="shareMode.thread"),
        get("/${a}"),
        users="2",
        loops="2",
        files={"u.csv": "x\ny\nz\n"},
    ),
    case(
        "data-shared",
        rows_of("u.csv", "a"),
        get("/${a}"),
        users="2",
        loops="2",
        ordered=False,
        by_user=False,
        files={"u.csv": "w\nx\ny\nz\n"},
    ),
    whole(
        "data-in-two-groups",
        rows_of("u.csv", "a"),
        group(get("/1/${a}"), name="one", loops="2"),
        group(get("/2/${a}"), name="two", loops="2"),
        files={"u.csv": "w\nx\ny\nz\n"},
        plan_values={"TestPlan__serialize_threadgroups": True},
    ),
    whole(
        "data-of-one-file-by-name",
        group(rows_of("u.csv", "a"), get("/1/${a}"), name="one", loops="2"),
        group(rows_of("u.csv", "a"), get("/2/${a}"), name="two", loops="2"),
        group(rows_of("u.csv", "b", shareMode="night"), get("/3/${b}"), name="three", loops="2"),
        group(rows_of("u.csv", "b", shareMode="night"), get("/4/${b}"), name="four", loops="2"),
        group(rows_of("u.csv", "c", shareMode="shareMode.group"), get("/5/${c}"), name="five", loops="2"),
        files={"u.csv": "v\nw\nx\ny\nz\n"},
        plan_values={"TestPlan__serialize_threadgroups": True},
    ),
    case(
        "counters-of-one-variable",
        loop("2", counter("i", "1", "1"), get("/a/${i}")),
        loop("2", counter("i", "1", "1"), get("/b/${i}")),
        loop("2", counter("i", "1", "1", per_user=True), get("/c/${i}")),
        loops="2",
    ),
    case(
        "counters",
        counter("a", "5", "2", end="10"),
        counter("b", "1", "1", format="000", per_user=True),
        loop("2", counter("c", "0", "1"), get("/${a}/${b}/${c}")),
        get("/d/${d}", counter("d", "9", "3")),
        loops="4",
    ),
    case(
        "random-variable",
        element(
            "RandomVariableConfig",
            "random",
            gui="TestBeanGUI",
            minimumValue="1",
            maximumValue="9",
            outputFormat="",
            perThread=False,
            variableName="r",
            randomSeed="",
        ),
        get("/${r}"),
        loops="3",
        masks=(r"/\d$",),
    ),
    case(
        "user-parameters",
        _parameters({"who": "ada", "n": "1"}, {"who": "bob", "n": "2"}),
        get("/${who}/${n}"),
        get("/again/${who}", name="again"),
        users="3",
        loops="2",
    ),
    whole(
        "user-variables",
        variables(a="1", b="${a}2", c="${__P(given,fallback)}"),
        variables(d="${a}-${c}-${later}"),
        group(
            post("/a", inner=raw_body("${a}/${b}/${c}/${d}/${late}/${own}")),
            variables(late="x"),
            script("JSR223PreProcessor", 'vars.put("a", "9")'),
            post("/b", inner=raw_body("${a}/${b}")),
            loops="2",
        ),
    ),
    case(
        "functions",
        variables(word="abc", n="4"),
        post("/t", inner=raw_body("/sum/${__intSum(1,2,${n})}/${__longSum(5,-2)}")),
        post("/t", inner=raw_body("/case/${__changeCase(${word},UPPER)}/${__changeCase(aBc,LOWER)}")),
        post("/t", inner=raw_body("/url/${__urlencode(a b&c)}/${__urldecode(a%2Bb)}")),
        post("/t", inner=raw_body("/v/${__V(wo${unset_part}rd)}/${__V(word)}/${__V(missing)}")),
        post(
            "/t",
            inner=raw_body("/p/${__P(nothing)}/${__P(nothing,d)}/${__property(nothing)}/${__property(nothing,,e)}"),
        ),
        post("/t", inner=raw_body("/n/${__threadNum}/${__threadGroupName}/${__counter(TRUE)}/${__counter(FALSE)}")),
        post("/t", inner=raw_body("/c/${__counter(TRUE,c)}/${c}")),
        post("/t", inner=raw_body("/comma/${__changeCase(a\\,b,LOWER)}/\\${word}")),
        post("/t", inner=raw_body("/digest/${__digest(MD5,abc,,,)}/${__digest(SHA-256,abc,,,)}")),
        post("/t", inner=raw_body("/g/${__groovy(1 + 2)}/${__groovy(vars.get('word').length())}/${__jexl3(2 * 3)}")),
        post("/t", inner=raw_body("/html/${__escapeHtml(a<b)}/${__unescapeHtml(a&amp;lt;b)}".replace("&amp;", "&"))),
        post("/t", inner=raw_body("/plan/${__TestPlanName}")),
        post("/t", inner=raw_body("/r/${__Random(5,5)}/${__RandomString(3,a)}")),
        post("/t", inner=raw_body("/unknown/${nope}/${}/$word/${ word }")),
        loops="2",
    ),
    case(
        "functions-of-texts",
        post("/t", inner=raw_body("/u/${__unescape(a\\tb\\u0041\\x)}/${__char(65,0x42,103)}")),
        post("/t", inner=raw_body("/p/${__property(nothing,p,d)}/${p}")),
        post("/t", inner=raw_body("/d/${__isPropDefined(port)}/${__isPropDefined(nothing)}")),
    ),
    case(
        "functions-of-lists",
        variables(word="a||c|", one="x"),
        post("/t", inner=raw_body("/s/${__split(${word},w,|)}/${w}/${w_n}/${w_1}${w_2}${w_3}${w_4}/${w_5}")),
        post("/t", inner=raw_body("/s/${__split(${one},w)}/${w_n}/${w_1}/${w_2}"), name="named"),
        post("/t", inner=raw_body("/n/${__samplerName()}"), name="own name"),
        headers(X_Name="${__samplerName()}"),
        get("/h/${__samplerName(n)}/${n}", name="twice"),
    ),
    case(
        "functions-of-chance",
        get("/a/${__Random(1,6)}"),
        get("/b/${__RandomString(4,xy)}"),
        get("/c/${__UUID}"),
        get("/d/${__time}"),
        get("/e/${__time(/1000)}"),
        get("/f/${__time(yyyy)}"),
        masks=(
            r"(?<=/a/)[1-6]$",
            r"(?<=/b/)[xy]{4}$",
            r"(?<=/c/)[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$",
            r"(?<=/d/)\d{13}$",
            r"(?<=/e/)\d{10}$",
            r"(?<=/f/)20\d\d$",
        ),
    ),
    case(
        "csv-read",
        get("/${__CSVRead(r.csv,0)}/${__CSVRead(r.csv,1)}"),
        get("/again/${__CSVRead(r.csv,0)}${__CSVRead(r.csv,next)}"),
        get("/then/${__CSVRead(r.csv,0)}"),
        loops="2",
        files={"r.csv": "a,1\nb,2\nc,3\n"},
    ),
)
