//! Requests, extractors, checks, cookies, redirects and what is refused.

use serde_json::json;

use super::*;

fn request(fields: Json) -> Json {
    let mut request = json!({"kind": "request", "method": ["GET"], "host": ["a.test"], "path": ["/"]});
    for (name, value) in fields.as_object().unwrap() {
        request[name] = value.clone();
    }
    json!({ "action": request })
}

fn extractor(variable: &str, find: Json, pick: Json, on_miss: Json) -> Json {
    json!({"variable": variable, "subject": {"kind": "body"}, "find": find, "pick": pick, "on_miss": on_miss})
}

fn extracted(find: Json, pick: Json, body: &'static str) -> String {
    let extract = extractor("x", find, pick, json!({"kind": "default", "text": ["none"]}));
    let flow = json!([request(json!({"extractors": [extract]})), get(json!(["/", var("x")]))]);
    run(plan(once(), flow), |_| Some(Response { head: "X-Id: 7\nX-Id: 8\n", ..ok(body) })).targets()[1].clone()
}

#[test]
fn request_has_its_parts() {
    let flow = json!([request(json!({
        "method": ["POST"], "port": ["8080"], "path": ["/a b?x=1"],
        "query": [{"name": ["q"], "value": ["ä&"]}, {"name": ["flag"]}],
        "headers": [{"name": ["X-User"], "value": [{"op": "user_number"}]}],
        "basic_credentials": {"user": ["u"], "password": ["p"]},
        "body": {"kind": "form", "parameters": [{"name": ["k"], "value": ["v w"]}]}, "closes_connection": true,
    }))]);
    let run = run(plan(once(), flow), |_| Some(ok("")));
    assert_eq!(
        run.got[0].text,
        "POST /a%20b?x=1&q=%C3%A4%26&flag HTTP/1.1\r\nHost: a.test:8080\r\nX-User: 1\r\n\
         Content-Type: application/x-www-form-urlencoded\r\nAuthorization: Basic dTpw\r\nConnection: close\r\n\
         Content-Length: 5\r\n\r\nk=v+w"
    );
}

#[test]
fn absolute_path_replaces_the_host_and_files_are_sent() {
    let parts = json!([{"name": ["f"], "file": "a.bin", "file_name": ["a.bin"], "content_type": ["text/plain"]}, {"name": ["t"], "text": ["x"]}]);
    let mut plan = plan(
        once(),
        json!([
            request(json!({"path": ["https://b.test/x"]})),
            request(json!({"method": ["PUT"], "body": {"kind": "file", "file": "a.bin"}})),
            request(json!({"method": ["POST"], "body": {"kind": "multipart", "parts": parts}})),
        ]),
    );
    plan["files"] = json!([{"name": "a.bin", "content_base64": "aGk="}]);
    let run = run(plan, |_| Some(ok("")));
    assert_eq!(run.got[0].url, "https://b.test/x");
    assert!(run.got[1].text.ends_with("Content-Length: 2\r\n\r\nhi"));
    assert!(run.got[2].text.contains("name=\"f\"; filename=\"a.bin\"\r\nContent-Type: text/plain\r\n\r\nhi\r\n--"));
    assert!(run.got[2].text.contains("name=\"t\"\r\n\r\nx\r\n--"));
}

#[test]
fn tls_may_be_used_unless_every_url_is_plain_http() {
    let may_use_tls = |fields: &Json, targets: Json| {
        let mut plan = plan(once(), json!([request(fields.clone())]));
        plan["targets"] = targets;
        compile(&serde_json::from_value(plan).unwrap(), 1, 0).unwrap().may_use_tls()
    };
    for fields in [json!({}), json!({"scheme": ["http"]}), json!({"path": ["/", var("x")]})] {
        assert!(!may_use_tls(&fields, json!([])), "{fields}");
    }
    for fields in [
        json!({"scheme": ["https"]}),
        json!({"scheme": [var("x")]}),
        json!({"path": ["https://b.test/"]}),
        json!({"path": [var("x")]}),
        json!({"redirects": 1}),
        json!({"embedded": {"at_once": 2}}),
    ] {
        assert!(may_use_tls(&fields, json!([])), "{fields}");
        assert!(!may_use_tls(&fields, json!(["http://a.test"])), "{fields}");
    }
}

#[test]
fn extractors_find_values() {
    let first = json!({"kind": "number", "number": lit(1)});
    let regex = |pattern: &str| json!({"kind": "regex", "pattern": [pattern]});
    assert_eq!(extracted(regex("id=(\\d+)"), first.clone(), "id=1 id=22"), "/1");
    assert_eq!(extracted(regex("id=(\\d+)"), json!({"kind": "last"}), "id=1 id=22"), "/22");
    assert_eq!(extracted(regex("id=\\d+"), json!({"kind": "count"}), "id=1 id=22"), "/2");
    assert_eq!(extracted(regex("nothing"), first.clone(), "id=1"), "/none");
    let output = json!({"kind": "regex", "pattern": ["(a)(b)"], "output": [2, "-", 1, "-", 0]});
    assert_eq!(extracted(output, first.clone(), "ab"), "/b-a-ab");
    assert_eq!(extracted(json!({"kind": "json_path", "path": ["$.a[1]"]}), first.clone(), r#"{"a":[1,"z"]}"#), "/z");
    assert_eq!(
        extracted(json!({"kind": "boundary", "left": ["<b>"], "right": ["</b>"]}), first.clone(), "<b>q</b>"),
        "/q"
    );
    assert_eq!(extracted(json!({"kind": "header", "name": ["x-id"]}), json!({"kind": "last"}), ""), "/8");
    assert_eq!(extracted(json!({"kind": "whole"}), first, "all"), "/all");
}

#[test]
fn all_matches_are_numbered_and_shorter_lists_forget() {
    let all =
        extractor("x", json!({"kind": "regex", "pattern": ["\\d"]}), json!({"kind": "all"}), json!({"kind": "keep"}));
    let read = json!([{"op": "variable", "name": "x_matchNr", "value": "?"}, "-", {"op": "variable", "name": "x_2", "value": "gone"}]);
    let path = json!(["/", read[0], "-", read[2]]);
    let once_more = json!([
        request(json!({"extractors": [all]})),
        get(path.clone()),
        request(json!({"path": ["/short"], "extractors": [all]})),
        get(path)
    ]);
    let run = run(plan(once(), once_more), |got| Some(ok(if got.url.ends_with("/short") { "7" } else { "123" })));
    assert_eq!(run.targets(), ["/", "/3-2", "/short", "/1-gone"]);
}

#[test]
fn misses_are_counted_and_may_fail() {
    let miss =
        extractor("x", json!({"kind": "regex", "pattern": ["y"]}), json!({"kind": "last"}), json!({"kind": "fail"}));
    let run = run(plan(once(), json!([request(json!({"extractors": [miss]})), get(json!(["/", var("x")]))])), |_| {
        Some(ok(""))
    });
    let labels = &run.figures.labels;
    assert_eq!((labels[0].errors["extraction_failed"], labels[0].misses["x"]), (1, 1));
    assert_eq!((labels[1].errors["undefined_variable"], run.got.len()), (1, 1));
}

#[test]
fn checks_fail_requests_or_are_counted() {
    let check = |tests: Json, more: Json| {
        let mut check = json!({"subject": {"kind": "body"}, "tests": tests, "severity": "count"});
        for (name, value) in more.as_object().unwrap() {
            check[name] = value.clone();
        }
        check
    };
    let passed = |tests: Json, more: Json| {
        let flow = json!([request(json!({"checks": [check(tests, more)]}))]);
        let run = run(plan(once(), flow), |_| Some(Response { after_ms: 20, ..ok(r#"{"a": [1, "two"], "n": null}"#) }));
        assert_eq!(run.figures.labels[0].failed, 0);
        run.figures.labels[0].checks[0] == (1, 0)
    };
    let none = || json!({});
    assert!(passed(json!([{"kind": "contains", "text": ["two"]}]), none()));
    assert!(!passed(json!([{"kind": "contains", "text": ["two"]}]), json!({"is_negated": true})));
    assert!(passed(
        json!([{"kind": "contains", "text": ["x"]}, {"kind": "finds", "pattern": ["t.o"]}]),
        json!({"any": true})
    ));
    assert!(!passed(json!([{"kind": "matches", "pattern": ["t.o"]}]), none()));
    assert!(passed(json!([{"kind": "equals", "text": ["200"]}]), json!({"subject": {"kind": "status"}})));
    assert!(passed(json!([{"kind": "json", "path": ["$.a[1]"], "equals": ["two"]}]), none()));
    assert!(passed(json!([{"kind": "json", "path": ["$.n"], "is_null": true}]), none()));
    assert!(!passed(json!([{"kind": "json", "path": ["$.x"]}]), none()));
    assert!(passed(json!([{"kind": "size", "at_least": 5, "at_most": 50}]), none()));
    assert!(passed(json!([{"kind": "duration", "at_most_ms": lit(20)}]), none()));
    assert!(!passed(json!([{"kind": "duration", "at_most_ms": lit(19)}]), none()));
    assert!(passed(json!([{"kind": "status", "ranges": [{"from": 200, "to": 200}]}]), none()));
    assert!(passed(
        json!([{"kind": "condition", "condition": op("equal", json!([{"op": "last_status"}, lit(200)]))}]),
        none()
    ));
    let failing = check(json!([{"kind": "contains", "text": ["x"]}]), json!({"severity": "fail", "message": ["no x"]}));
    let run = run(plan(once(), json!([request(json!({"checks": [failing]}))])), |_| Some(ok("")));
    let label = &run.figures.labels[0];
    assert_eq!(
        (label.errors["check_failed"], label.examples["check_failed"].as_str(), label.checks[0]),
        (1, "no x", (0, 1))
    );
}

#[test]
fn cookies_and_redirects_are_followed() {
    let flow = json!([
        request(
            json!({"method": ["POST"], "path": ["/login"], "redirects": 3, "uses_cookies": true, "body": {"kind": "text", "text": ["x"]}})
        ),
        request(json!({"path": ["/in"], "uses_cookies": true})),
    ]);
    let run = run(plan(once(), flow), |got| {
        Some(if got.url.ends_with("/login") {
            Response { status: 302, head: "Location: home?x#y\nSet-Cookie: sid=5; Path=/\n", ..ok("") }
        } else {
            ok("")
        })
    });
    assert_eq!(run.targets(), ["/login", "/home?x", "/in"]);
    assert!(run.got[1].text.starts_with("GET /home?x HTTP/1.1\r\n") && run.got[1].text.contains("Cookie: sid=5\r\n"));
    let label = &run.figures.labels[0];
    assert_eq!((label.ended, label.redirects, label.sent_bytes, label.received_bytes), (1, 1, 200, 400));
    let latency = label.histograms[0][0].as_ref().unwrap().quantile_ns(1.0).unwrap();
    assert!(latency >= 2 * MS, "both exchanges count: {latency}");
}

/// Each request of a chain of redirects, by its path.
fn chain(request: Json, serve: impl Fn(&str) -> (u16, &'static str)) -> Run {
    run(plan(once(), json!([request, get(json!(["/", op("counter", json!([]))]))])), move |got| {
        let (status, head) = serve(&got.url);
        Some(Response { status, head, ..ok("") })
    })
}

#[test]
fn redirect_sends_what_was_made_and_evaluates_nothing_again() {
    let body = json!({"kind": "text", "text": [{"op": "uuid"}]});
    let counted = json!([{"name": ["X-Count"], "value": [op("counter", json!([]))]}, {"name": ["Content-Type"], "value": ["a/b"]}]);
    let post = request(json!({"method": ["POST"], "path": ["/a"], "redirects": 5, "headers": counted, "body": body}));
    let run = chain(post, |url| match url {
        "http://a.test/a" => (307, "Location: /b\n"),
        "http://a.test/b" => (308, "Location: /c\n"),
        "http://a.test/c" => (302, "Location: /d\n"),
        "http://a.test/d" => (307, "Location: /e\n"),
        _ => (200, ""),
    });
    assert_eq!(run.targets(), ["/a", "/b", "/c", "/d", "/e", "/2"]);
    let sent = |place: usize| run.got[place].text.split_once(' ').unwrap().1.split_once(' ').unwrap().1.to_owned();
    assert_eq!((sent(0), sent(0)), (sent(1), sent(2)), "the same fields and body");
    let last = "GET /e HTTP/1.1\r\nHost: a.test\r\nX-Count: 1\r\n\r\n";
    assert_eq!(run.got[4].text, last, "a redirect of a GET stays one");
}

#[test]
fn redirect_to_another_origin_gets_no_credentials() {
    let fields = json!([{"name": ["Cookie"], "value": ["k=1"]}, {"name": ["X-A"], "value": ["1"]}]);
    let own = json!({"path": ["/a"], "redirects": 5, "headers": fields, "basic_credentials": {"user": ["u"], "password": ["p"]}});
    for elsewhere in ["http://b.test/x", "http://a.test:81/x", "https://a.test/x"] {
        let location: &'static str = format!("Location: {elsewhere}\n").leak();
        let run = chain(request(own.clone()), |url| match url {
            "http://a.test/a" => (302, "Location: /b\n"),
            "http://a.test/b" => (302, location),
            _ => (200, ""),
        });
        let has = |place: usize, field: &str| run.got[place].text.contains(field);
        assert!(has(1, "Authorization: Basic dTpw\r\n") && has(1, "Cookie: k=1\r\n"));
        assert!(!has(2, "Authorization") && !has(2, "Cookie") && has(2, "X-A: 1\r\n"), "{}", run.got[2].text);
        let mut jmeters = own.clone();
        jmeters["keeps_headers_elsewhere"] = json!(true);
        let run = chain(request(jmeters), |url| if url == "http://a.test/a" { (302, location) } else { (200, "") });
        assert!(run.got[0].text.contains("Authorization") && !run.got[1].text.contains("Authorization"));
        assert!(run.got[1].text.contains("Cookie: k=1\r\n"));
    }
}

#[test]
fn redirect_to_a_target_that_is_not_allowed_fails() {
    let mut plan = plan(once(), json!([request(json!({"path": ["/a"], "redirects": 5}))]));
    plan["targets"] = json!(["http://a.test"]);
    let run = run(plan, |_| Some(Response { status: 302, head: "Location: http://b.test/\n", ..ok("") }));
    let label = &run.figures.labels[0];
    assert_eq!((run.got.len(), label.ended, label.failed, label.errors["target_not_allowed"]), (1, 1, 1, 1));
    assert_eq!(label.examples["target_not_allowed"], "http://b.test is none of the plan's targets");
}

#[test]
fn cookie_with_a_line_break_is_refused() {
    let set = json!({"action": {"kind": "set_cookie", "name": ["k"], "value": ["1\r\nX-Evil: 1"], "domain": ["a.test"], "path": ["/"]}});
    let run = run(plan(once(), json!([set, request(json!({"uses_cookies": true}))])), |_| Some(ok("")));
    assert_eq!((run.got.len(), run.figures.populations[0].iterations.failed), (0, 1));
    assert_eq!(run.figures.faults["bad_request"], 1);
}

#[test]
fn requests_stay_in_the_targets_and_well_formed() {
    let mut all = plan(
        once(),
        json!([
            get("/a"),
            request(json!({"host": ["b.test"]})),
            request(json!({"headers": [{"name": ["X"], "value": [lit("a\r\nb")]}]})),
            request(json!({"host": ["a b"]}))
        ]),
    );
    all["targets"] = json!(["http://a.test"]);
    let run = run(all, |_| Some(ok("")));
    assert_eq!(run.targets(), ["/a"]);
    let causes: Vec<&str> =
        run.figures.labels.iter().flat_map(|label| label.errors.keys().map(AsRef::as_ref)).collect();
    assert_eq!(causes, ["bad_request", "bad_url", "target_not_allowed"]);
}

#[test]
fn expressions_have_their_values() {
    let value = |expression: Json| {
        let flow =
            json!([{"action": {"kind": "set", "variable": "x", "value": expression}}, get(json!(["/", var("x")]))]);
        run(plan(once(), flow), |_| Some(ok(""))).targets().first().map(|target| target[1..].to_owned())
    };
    let text = |expression: Json| value(expression).unwrap();
    for (expression, expected) in [
        (op("add", json!([lit("2"), lit(3)])), "5"),
        (op("divide", json!([lit(7), lit(2)])), "3.5"),
        (op("divide", json!([lit(8), lit(2)])), "4"),
        (op("modulo", json!([lit(-7), lit(3)])), "-1"),
        (op("round", json!([lit(2.345), lit(2)])), "2.35"),
        (op("substring", json!([lit("abcdef"), lit(1), lit(3)])), "bc"),
        (op("group", json!([lit("id=42"), lit("id=(\\d+)")])), "42"),
        (op("split_part", json!([lit("a,b,c"), lit(","), lit(1)])), "b"),
        (op("replace_pattern", json!([lit("a1b2"), lit("\\d"), lit("-")])), "a-b-"),
        (op("sha256", json!([lit("")])), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
        (op("md5", json!([lit("")])), "d41d8cd98f00b204e9800998ecf8427e"),
        (op("base64_decode", json!([op("base64_encode", json!([lit("hi")]))])), "hi"),
        (op("html_unescape", json!([lit("&amp;&#65;&x")])), "&A&x"),
        (op("date", json!([lit("yyyy-MM-dd"), lit(86_400_000)])), "2015-10-22"),
        (json!({"op": "time_s"}), "1445412480"),
        (op("if", json!([op("and", json!([lit(true), lit(0)])), lit("y"), lit("n")])), "n"),
        (json!({"op": "population"}), "users"),
        (op("json_value", json!([lit("{\"a\":1}"), lit("$.a")])), "1"),
        (op("index_of", json!([lit("äb"), lit("b")])), "1"),
        (json!({"op": "counter", "name": "c", "arguments": [lit(5), lit(2), lit(9)]}), "5"),
    ] {
        assert_eq!(text(expression.clone()), expected, "{expression}");
    }
    let uuid = text(json!({"op": "uuid"}));
    assert!(uuid.len() == 36 && &uuid[14..15] == "4", "{uuid}");
    assert_eq!(text(op("random_text", json!([lit(8)]))).len(), 8);
    assert_eq!(value(op("to_integer", json!([lit("x")]))), None);
    assert_eq!(value(op("divide", json!([lit(1), lit(0)]))), None);
}

#[test]
fn what_cannot_be_executed_is_refused_by_name_and_place() {
    let refused = |flow: Json| {
        let plan: ScenarioPlan = serde_json::from_value(plan(once(), flow)).unwrap();
        compile(&plan, 1, 0).unwrap_err().to_string()
    };
    let opaque = json!([{"source": {"file": "a.jmx", "line": 7}, "action": {"kind": "opaque", "what": "JSR223Sampler", "text": ""}}]);
    assert_eq!(refused(opaque), "a.jmx:7: JSR223Sampler cannot be executed");
    for (fields, part) in [
        (json!({"embedded": {"at_once": 6, "pattern": "("}}), "regular expression"),
        (
            json!({"extractors": [extractor("x", json!({"kind": "css", "selector": ["a:hover"]}), json!({"kind": "last"}), json!({"kind": "keep"}))]}),
            "`:hover` cannot be executed",
        ),
        (
            json!({"extractors": [extractor("x", json!({"kind": "xpath", "path": ["//a"]}), json!({"kind": "last"}), json!({"kind": "keep"}))]}),
            "XPath cannot be executed",
        ),
        (json!({"body": {"kind": "file", "file": "x"}}), "no file `x`"),
        (
            json!({"extractors": [extractor("x", json!({"kind": "regex", "pattern": ["("]}), json!({"kind": "last"}), json!({"kind": "keep"}))]}),
            "regular expression",
        ),
        (
            json!({"extractors": [extractor("x", json!({"kind": "json_path", "path": ["$["]}), json!({"kind": "last"}), json!({"kind": "keep"}))]}),
            "JSONPath",
        ),
    ] {
        let message = refused(json!([request(fields)]));
        assert!(message.contains(part), "{message}");
    }
    let mut deep = get("/");
    for _ in 0..45 {
        deep = json!({"action": {"kind": "sequence", "nodes": [deep]}});
    }
    assert!(refused(json!([deep])).contains("deep"));
    assert!(refused(json!([{"action": {"kind": "feed", "feeder": "none"}}])).contains("`none`"));
}

/// A node that cannot be executed.
fn opaque(line: usize) -> Json {
    json!({"source": {"file": "a.jmx", "line": line}, "action": {"kind": "opaque", "what": "Script", "text": ""}})
}

fn refused(flow: Json) -> Vec<String> {
    let plan: ScenarioPlan = serde_json::from_value(plan(once(), flow)).unwrap();
    compile(&plan, 1, 0).unwrap_err().to_string().lines().map(str::to_owned).collect()
}

#[test]
fn all_parts_that_cannot_be_executed_are_named() {
    let find = |pattern: &str| {
        extractor("x", json!({"kind": "regex", "pattern": [pattern]}), json!({"kind": "last"}), json!({"kind": "keep"}))
    };
    let mut broken = request(json!({"extractors": [find("("), find("fine"), find("[")]}));
    broken["source"] = json!({"file": "a.jmx", "line": 5});
    let inner = json!({"label": "inner", "action": {"kind": "transaction", "includes_waits": false, "hides_requests": false, "nodes": [opaque(2), get("/"), opaque(3)]}});
    let together = json!({"action": {"kind": "parallel", "nodes": [broken, get("/")]}});
    let lines = refused(json!([inner, together, opaque(9)]));
    let places: Vec<&str> = lines.iter().map(|line| line.split(": ").next().unwrap()).collect();
    assert_eq!(places, ["a.jmx:2", "a.jmx:3", "a.jmx:5", "a.jmx:5", "a.jmx:9"], "{lines:?}");
}

#[test]
fn script_that_is_not_lua_is_refused() {
    let script = |lua: &str| json!({"source": {"file": "a.jmx", "line": 4}, "action": {"kind": "script", "lua": lua}});
    let lines = refused(json!([script("vars.a = 1"), script("local a = 1\nx = = 2")]));
    assert_eq!(lines, ["a.jmx:4: this is not Lua: line:2: unexpected symbol near '='"]);
}

#[test]
fn plan_is_refused_with_a_hundred_parts_at_most() {
    let lines = refused((1..=300).map(opaque).collect());
    assert_eq!((lines.len(), lines[99].split(": ").next().unwrap()), (100, "a.jmx:100"));
}

#[test]
fn messages_of_failures_hide_masked_variables() {
    let extract = extractor(
        "token",
        json!({"kind": "regex", "pattern": ["t=(.+)"]}),
        json!({"kind": "number", "number": lit(1)}),
        json!({"kind": "keep"}),
    );
    let mut plan = plan(
        once(),
        json!([
            request(json!({"extractors": [extract]})),
            request(
                json!({"query": [{"name": ["t"], "value": [var("token")]}, {"name": ["p"], "value": [var("password")]}]})
            ),
        ]),
    );
    plan["variables"] = json!([{"name": "password", "value": ["top"]}]);
    plan["masked"] = json!(["token", "password"]);
    let mut run =
        run(plan, |got| Some(Response { status: if got.url.contains('?') { 500 } else { 200 }, ..ok("t=a b&c") }));
    let examples = run.figures.labels.remove(0).examples;
    assert_eq!(examples["status_500"], "500 http://a.test/?t=***&p=***");
}

#[test]
fn body_in_an_unknown_compression_fails_its_request_by_name() {
    let check =
        json!({"subject": {"kind": "body"}, "tests": [{"kind": "contains", "text": ["x"]}], "severity": "fail"});
    let flow = json!([request(json!({"checks": [check]}))]);
    let run = run(plan(once(), flow), |_| Some(Response { head: "Content-Encoding: br\n", ..ok("x") }));
    assert_eq!(run.figures.labels[0].examples["unknown_encoding"], "a body in br; gzip and deflate can be read");
}
