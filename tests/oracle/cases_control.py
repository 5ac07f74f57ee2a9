"""Test plans of one shape each: nesting, scopes, controllers, groups of users, what ends them."""

# ruff: noqa: E501 (a plan reads as a tree)

from __future__ import annotations

from oracle_elements import (
    Case,
    action,
    args,
    asserts,
    case,
    counter,
    defaults,
    get,
    if_,
    json_,
    loop,
    post,
    regex,
    rows_of,
    script,
    simple,
    timer,
    transaction,
    while_,
    whole,
)

from jmx_elements import element, group, headers, variables

_LIST_IDS = regex("id", '"id": (\\d+)', match_number="-1")
CASES: tuple[Case, ...] = (
    case(
        "nesting",
        get("/first"),
        simple("outer", get("/a"), loop("2", get("/b"), simple("inner", loop("3", get("/c")), get("/d"))), get("/e")),
        transaction("whole", get("/f"), loop("2", get("/g"), transaction("part", get("/h")))),
        users="2",
        loops="2",
    ),
    whole(
        "header-scopes",
        headers(X_A="plan", X_B="plan"),
        group(
            headers(X_B="group", X_C="group"),
            get("/a", headers(X_C="sampler", X_D="sampler")),
            simple(
                "outer",
                get("/b"),
                headers(X_D="outer"),
                simple("inner", headers(x_a="inner", X_E="inner"), get("/c", headers(X_E="sampler"))),
            ),
            get("/d"),
            # Two managers at one level, and a header that is empty.
            simple(
                "two", headers(X_F="first"), headers(X_F="second", X_G="second"), get("/e"), get("/f", headers(X_A=""))
            ),
        ),
    ),
    whole(
        "default-scopes",
        defaults(path="/from-plan", protocol="http"),
        group(
            defaults(args(("shared", "1")), path="/from-group", method="POST"),
            get("", name="no path"),
            get("/own"),
            get("own-without-slash"),
            simple(
                "deeper",
                defaults(path="", domain="", port=""),
                get("", name="still of the group"),
                get("/own", inner=args(("own", "2"))),
            ),
            get("http://127.0.0.1:${__P(port)}/absolute?x=1"),
            get("/same", inner=args(("shared", "own"))),
            get("/with-query?a=1&b=two", inner=args(("c", "3"))),
        ),
    ),
    case(
        "loops",
        loop("0", get("/never")),
        loop("${two}", get("/twice/${__jm__named__idx}"), name="named"),
        loop("", get("/empty")),
        variables(two="2"),
        loop(
            "3",
            get("/outer"),
            loop("2", get("/inner/${__jm__outer__idx}-${__jm__inner__idx}"), name="inner"),
            name="outer",
        ),
    ),
    case(
        "while",
        counter("n", end="100"),
        while_(
            '${__jexl3("${m}" != "3")}',
            element("CounterConfig", "m", CounterConfig__name="m", CounterConfig__start="1", CounterConfig__incr="1"),
            get("/count/${m}"),
        ),
        while_(
            "${__groovy(vars.get('stop') != 'yes')}",
            get("/until/${__jm__again__idx}", script("JSR223PostProcessor", "vars.put('stop', 'yes')")),
            name="again",
        ),
        while_("${never_set}", get("/literal"), action(5)),
        get("/status/500"),
        while_("", get("/blank"), get("/status/503")),
        while_("LAST", get("/last"), get("/status/404")),
        get("/end"),
    ),
    case(
        "if",
        variables(yes="true", no="false", one="1", word="abc"),
        if_("${yes}", get("/a")),
        if_("${no}", get("/b")),
        if_("${unset}", get("/c")),
        if_("TRUE", get("/d")),
        if_('${__jexl3("${word}" == "abc" && ${one} < 2)}', get("/e")),
        if_('${__groovy(vars.get("word").startsWith("ab"))}', get("/f")),
        if_('${__groovy("${word}" != "abc" || vars.get("one").toInteger() > 0)}', get("/g")),
        if_('"${word}" == "abc"', get("/h"), expression=False),
        if_("${one} > 1", get("/i"), expression=False),
        if_("${JMeterThread.last_sample_ok}", get("/status/500"), get("/j"), all_=True),
        if_("${JMeterThread.last_sample_ok}", get("/k")),
        get("/status/404"),
        if_("${JMeterThread.last_sample_ok}", get("/l")),
        loops="2",
    ),
    case(
        "switch",
        *(
            element(
                "SwitchController",
                f"by {value}",
                get("/0"),
                simple("two", get("/1a"), get("/1b")),
                get("/2", name="third"),
                get("/d", name="default"),
                SwitchController__value=value,
            )
            for value in ("0", "1", "2", "third", "TWO", "9", "nothing", "", "${unset}")
        ),
        element("SwitchController", "without default", get("/x", name="x"), SwitchController__value="y"),
    ),
    case(
        "interleave",
        element(
            "InterleaveControl",
            "plain",
            get("/a"),
            simple("pair", get("/b1"), get("/b2")),
            get("/c"),
            InterleaveControl__style="0",
        ),
        element(
            "InterleaveControl",
            "blocks",
            get("/d"),
            simple("pair", get("/e1"), get("/e2")),
            InterleaveControl__style="1",
        ),
        loops="6",
    ),
    case(
        "random-controller",
        element("RandomController", "one of", get("/a"), get("/a"), InterleaveControl__style="0"),
        get("/b"),
        loops="5",
    ),
    case(
        "random-order",
        element("RandomOrderController", "shuffled", get("/a"), simple("pair", get("/b"), get("/c")), get("/d")),
        get("/end"),
        ordered=False,
        loops="3",
    ),
    case(
        "once-only",
        element("OnceOnlyController", "once", get("/login")),
        loop(
            "2",
            element("OnceOnlyController", "once inside", get("/once")),
            get("/each"),
            simple("deep", element("OnceOnlyController", "once deep", get("/deep"))),
        ),
        loops="3",
        users="2",
    ),
    case(
        "throughput-controller",
        *(
            element(
                "ThroughputController",
                f"{style} {value}",
                get(f"/{style}/{value}"),
                ThroughputController__style=style,
                ThroughputController__perThread=each,
                ThroughputController__maxThroughput=value,
                ThroughputController__percentThroughput=value,
            )
            for style, value, each in (
                ("0", "2", True),
                ("0", "3", False),
                ("1", "50", True),
                ("1", "33.3", False),
                ("1", "10", True),
                ("1", "0", True),
                ("1", "100", True),
            )
        ),
        loops="7",
    ),
    case(
        "for-each",
        get("/list", _LIST_IDS),
        element(
            "ForeachController",
            "ids",
            get("/id/${one}/${__jm__ids__idx}"),
            ForeachController__inputVal="id",
            ForeachController__returnVal="one",
            ForeachController__useSeparator=True,
        ),
        element(
            "ForeachController",
            "part",
            get("/part/${one}"),
            ForeachController__inputVal="id",
            ForeachController__returnVal="one",
            ForeachController__useSeparator=True,
            ForeachController__startIndex="1",
            ForeachController__endIndex="2",
        ),
        element(
            "ForeachController",
            "plain",
            get("/plain/${two}"),
            ForeachController__inputVal="p",
            ForeachController__returnVal="two",
            ForeachController__useSeparator=False,
        ),
        element(
            "ForeachController",
            "none",
            get("/never"),
            ForeachController__inputVal="nothing",
            ForeachController__returnVal="three",
            ForeachController__useSeparator=True,
        ),
        get("/after/${one}"),
        variables(p1="x", p2="y", p4="z"),
        loops="2",
    ),
    case(
        "transactions",
        transaction("plain", get("/a"), get("/status/500")),
        transaction("parent", get("/b"), get("/c"), parent=True),
        transaction("parent fails", get("/d"), get("/status/404"), parent=True),
        transaction("outer", transaction("inner", get("/e")), get("/f")),
        transaction("outer parent", transaction("inner parent", get("/g"), parent=True), get("/h"), parent=True),
        if_("false", transaction("never", get("/i"))),
        loops="2",
    ),
    case(
        "transactions-as-parents",
        transaction("two", get("/a"), get("/b"), parent=True),
        transaction("fails", get("/c"), get("/status/500"), parent=True),
        transaction("with a loop", loop("2", get("/d")), get("/e"), parent=True),
    ),
    whole(
        "modules",
        element(
            "TestFragmentController",
            "fragment",
            simple("steps", get("/m1"), headers(X_M="fragment"), get("/m2")),
            enabled=True,
        ),
        group(
            headers(X_Here="caller"),
            element(
                "ModuleController",
                "call",
                inner='<collectionProp name="ModuleController.node_path"><stringProp name="1">Test Plan</stringProp><stringProp name="2">plan</stringProp><stringProp name="3">fragment</stringProp><stringProp name="4">steps</stringProp></collectionProp>',
            ),
            get("/own"),
            element("IncludeController", "include", IncludeController__includepath="included.jmx"),
        ),
        files={
            "included.jmx": '<?xml version="1.0" encoding="UTF-8"?>\n<jmeterTestPlan version="1.2"><hashTree>'
            + element("TestFragmentController", "part", get("/included"), simple("deep", get("/included/deep")))
            + "</hashTree></jmeterTestPlan>"
        },
    ),
    whole(
        "disabled",
        headers(X_A="plan"),
        group(
            get("/a", headers(X_A="off").replace('enabled="true"', 'enabled="false"')),
            element("GenericController", "off", get("/b"), enabled=False),
            get("/c", enabled=False),
            loop("2", get("/d")),
        ),
        group(get("/never"), name="off").replace('testname="off" enabled="true"', 'testname="off" enabled="false"'),
    ),
    whole(
        "groups-in-turn",
        group(get("/first-1"), get("/first-2"), name="first"),
        group(get("/second"), name="second", loops="2"),
        group(get("/teardown"), name="down", kind="PostThreadGroup"),
        group(get("/setup"), name="up", kind="SetupThreadGroup"),
        plan_values={"TestPlan__serialize_threadgroups": True},
    ),
    whole(
        "setup-shares-properties",
        group(
            post(
                "/login",
                json_("token", "$.token"),
                script("JSR223PostProcessor", 'props.put("shared", vars.get("token"))'),
            ),
            name="up",
            kind="SetupThreadGroup",
        ),
        group(get("/use/${__P(shared)}"), name="main"),
    ),
    *(
        whole(
            f"on-error-{action_}",
            group(
                # Another user is at a slow request when the test stops: JMeter stops from a thread of its own.
                *([if_("${__jexl3(${__threadNum} == 2)}", get("/slow/x"))] if action_ == "stoptest" else []),
                get("/a"),
                get("/status/500"),
                get("/b"),
                ThreadGroup__num_threads="2" if action_ == "stoptest" else "1",
                loops="2",
                name="first",
                ThreadGroup__on_sample_error=action_,
            ),
            group(get("/down"), name="down", kind="PostThreadGroup"),
            plan_values={
                "TestPlan__serialize_threadgroups": True,
                "TestPlan__tearDown_on_shutdown": action_ != "stoptestnow",
            },
        )
        for action_ in ("continue", "startnextloop", "stopthread", "stoptest", "stoptestnow")
    ),
    case(
        "flow-actions",
        counter("n"),
        get("/pass/${n}"),
        loop(
            "3",
            counter("i"),
            get("/loop/${i}"),
            if_('${__groovy(vars.get("i") == "2")}', action(5)),
            get("/not/${i}"),
            name="broken",
        ),
        loop(
            "3",
            counter("j"),
            if_('${__groovy(vars.get("j").toInteger() % 2 == 0)}', action(4)),
            get("/odd/${j}"),
            name="continued",
        ),
        if_('${__groovy(vars.get("n") == "2")}', action(3)),
        get("/end/${n}"),
        if_('${__groovy(vars.get("n") == "3")}', action(0)),
        get("/tail/${n}"),
        action(1, 0, "5"),
        loops="4",
    ),
    case(
        "critical-section",
        element(
            "CriticalSectionController",
            "one at a time",
            get("/a"),
            get("/b"),
            CriticalSectionController__lockName="lock",
        ),
        users="2",
    ),
    case(
        "runtime",
        element("RunTime", "one second", get("/a", timer("100")), RunTime__seconds="1"),
        get("/end"),
        counts="labels",
        ordered=False,
    ),
    case(
        "ramp-and-delay",
        get("/a"),
        users="3",
        ramp="1",
        loops="2",
        group_values={"ThreadGroup__scheduler": True, "ThreadGroup__duration": "60", "ThreadGroup__delay": "1"},
    ),
    case(
        "scheduler-ends",
        get("/a"),
        get("/b", timer("60000")),
        get("/c"),
        loops="-1",
        # Longer than any process stalls: the first request is sent.
        group_values={"ThreadGroup__scheduler": True, "ThreadGroup__duration": "4"},
    ),
    case(
        "new-user-each-iteration",
        element("CookieManager", "cookies"),
        get("/a?n=${n}"),
        post("/login"),
        get("/b"),
        counter("n"),
        loops="2",
        group_values={"ThreadGroup__same_user_on_next_iteration": False},
    ),
    case(
        "processors-order",
        script("JSR223PreProcessor", 'vars.put("trail", "${__V(trail)}" + "outer-")'),
        simple(
            "inner",
            script("JSR223PreProcessor", 'vars.put("order", vars.get("order") + "b")'),
            get(
                "/x/${order}",
                script("JSR223PreProcessor", 'vars.put("order", vars.get("order") + "c")'),
                script("JSR223PostProcessor", 'vars.put("order", vars.get("order") + "e")'),
            ),
            script("JSR223PostProcessor", 'vars.put("order", vars.get("order") + "d")'),
            get("/y/${order}"),
        ),
        variables(order="a", trail="t"),
    ),
    case(
        "samplers-of-scripts",
        script("JSR223Sampler", "vars.put('a', 'one')\nint n = 2 + 3\nvars.put('n', n.toString())", name="sets"),
        get("/a/${a}/${n}"),
        element("DebugSampler", "debug", gui="TestBeanGUI", displayJMeterVariables=True),
    ),
    case(
        "samplers-that-fail-or-hide",
        script("JSR223Sampler", "vars.put('a', 'x')\nSampleResult.setIgnore()", name="hidden"),
        transaction("around", script("JSR223Sampler", "log.info('x')", name="logs"), get("/a/${a}")),
        script("JSR223Listener", "vars.put('seen', prev.getResponseCode())", name="listens"),
        get("/seen/${seen}"),
        get("/again/${seen}"),
        loops="2",
    ),
    case(
        "assertion-in-scope",
        asserts(16, "ok", name="all"),
        get("/a"),
        simple("inner", asserts(16, "nothing", name="fails"), get("/b"), get("/page")),
        transaction("of transaction", get("/c")),
    ),
    case(
        "data-per-controller",
        rows_of("outer.csv", "o"),
        loop("2", rows_of("inner.csv", "i"), get("/${o}/${i}")),
        get("/end/${o}/${i}"),
        loops="3",
        files={"outer.csv": "o1\no2\n", "inner.csv": "i1\ni2\ni3\n"},
    ),
)
