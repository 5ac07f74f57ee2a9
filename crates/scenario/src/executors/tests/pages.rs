//! Resources of pages, the users' caches, selectors, reason phrases, and users of several threads that meet.

use serde_json::json;

use super::*;

fn request(path: &str, fields: Json) -> Json {
    let mut request = get(path);
    for (name, value) in fields.as_object().unwrap() {
        request["action"][name] = value.clone();
    }
    request
}

fn html(body: &str, after_ms: u64) -> Response {
    Response { head: "Content-Type: text/html; charset=utf-8\n", after_ms, ..ok(body) }
}

const PAGE: &str = "<link rel=stylesheet href=/a.css><img src=/b.png><img src=/c.png><script src=/d.js></script>";

fn serve(got: &Got) -> Option<Response> {
    let path = got.url.trim_start_matches("http://a.test");
    match path {
        "/page" => Some(html(PAGE, 5)),
        "/c.png" => Some(Response { after_ms: 20, ..ok("") }),
        _ => Some(Response { after_ms: 10, ..ok("") }),
    }
}

#[test]
fn page_ends_with_its_resources() {
    let flow = json!([request("/page", json!({"embedded": {"at_once": 2}})), get("/next")]);
    let run = run(plan(once(), flow), serve);
    assert_eq!(run.targets(), ["/page", "/a.css", "/b.png", "/c.png", "/d.js", "/next"]);
    assert_eq!(run.times(), [0, 5, 5, 15, 15, 35]);
    let label = &run.figures.labels[0];
    assert_eq!((label.ended, label.failed, label.resources), (1, 0, 4));
    assert_eq!((label.sent_bytes, label.received_bytes), (500, 1000));
    let sample = &run.samples[0];
    assert_eq!((sample.name.len(), sample.elapsed_ns[0], sample.first_byte_ns[0]), (2, 35 * MS, Some(5 * MS)));
    assert!(run.got[1].text.starts_with("GET /a.css HTTP/1.1\r\nHost: a.test\r\n"));
}

#[test]
fn resources_have_the_fields_of_their_page() {
    let fields = json!([{"name": ["X-Count"], "value": [op("counter", json!([]))]}]);
    let run =
        run(plan(once(), json!([request("/page", json!({"embedded": {"at_once": 2}, "headers": fields}))])), serve);
    assert_eq!(run.got.len(), 5);
    assert!(run.got.iter().all(|got| got.text.contains("X-Count: 1\r\n")));
}

#[test]
fn page_whose_resource_is_missing_fails() {
    let flow = json!([
        request("/page", json!({"embedded": {"at_once": 6, "pattern": ".*png"}})),
        request("/plain", json!({"embedded": {"at_once": 6}})),
    ]);
    let run = run(plan(once(), flow), |got| match got.url.as_str() {
        "http://a.test/b.png" => Some(Response { status: 404, ..ok("") }),
        "http://a.test/c.png" => None,
        "http://a.test/plain" => Some(ok(PAGE)),
        _ => serve(got),
    });
    assert_eq!(run.targets(), ["/page", "/b.png", "/c.png", "/plain"], "a page without the type HTML has no resources");
    let page = &run.figures.labels[0];
    assert_eq!((page.ended, page.failed, page.resources), (1, 1, 2));
    assert_eq!(page.errors["resource_failed"], 1);
    assert_eq!(page.examples["resource_failed"], "http://a.test/b.png: status 404");
    assert_eq!(run.figures.populations[0].iterations.failed, 1);
}

#[test]
fn page_that_is_interrupted_is_one_request() {
    let mut plan = plan(once(), json!([request("/page", json!({"embedded": {"at_once": 2}}))]));
    plan["populations"][0]["end"] = json!({"kind": "request", "grace_ms": 0});
    let run = run_threads(plan, 1, 8, serve);
    let page = &run.figures.labels[0];
    assert_eq!((page.ended, page.interrupted), (0, 1));
}

#[test]
fn fresh_response_is_no_request_and_a_stale_one_is_asked_for_again() {
    let cached = || request("/x", json!({"uses_cache": true}));
    let flow = json!([cached(), cached(), wait(3000), cached(), get("/x"), cached()]);
    let run = run(plan(once(), flow), |got| {
        let is_known = got.text.contains("If-None-Match: \"v1\"\r\n");
        let head = if is_known { "Cache-Control: max-age=60\n" } else { "Cache-Control: max-age=2\nETag: \"v1\"\n" };
        Some(Response { status: if is_known { 304 } else { 200 }, head, ..ok("") })
    });
    let asked: Vec<bool> = run.got.iter().map(|got| got.text.contains("If-None-Match")).collect();
    assert_eq!(asked, [false, true, false]);
    let label = &run.figures.labels[0];
    assert_eq!((label.ended, label.failed, label.cached), (3, 0, 2));
}

#[test]
fn cache_belongs_to_the_user_and_may_be_emptied() {
    let arrivals = json!({"model": "users", "initial": 2, "first": "at_start", "iterations": 2});
    let flow = json!([request("/page", json!({"uses_cache": true, "embedded": {"at_once": 6}}))]);
    let serve = |got: &Got| {
        let head = "Content-Type: text/html\nCache-Control: max-age=60\n";
        Some(Response { head, ..ok(if got.url.ends_with("/page") { PAGE } else { "" }) })
    };
    let mut plan = plan(arrivals, flow);
    assert_eq!(run(plan.clone(), serve).got.len(), 10, "each user has five responses of its own");
    plan["populations"][0]["clear_cache_each_iteration"] = json!(true);
    assert_eq!(run(plan, serve).got.len(), 20);
}

#[test]
fn selectors_and_reason_phrases_are_read() {
    let find = |attribute: &str| json!({"kind": "css", "selector": ["input[name=csrf]"], "attribute": [attribute]});
    let extract = |variable: &str, attribute| {
        json!({"variable": variable, "subject": {"kind": "body"},
        "find": find(attribute), "pick": {"kind": "number", "number": lit(1)}, "on_miss": {"kind": "fail"}})
    };
    let check = json!({"subject": {"kind": "reason"}, "severity": "fail",
        "tests": [{"kind": "equals", "text": ["Fine"]}]});
    let fields = json!({"extractors": [extract("t", "value")], "checks": [check]});
    let flow = json!([request("/form", fields), get(json!(["/", var("t")]))]);
    let run = run(plan(once(), flow), |_| Some(ok("<form><input name=csrf value='a&amp;b'></form>")));
    assert_eq!(run.targets(), ["/form", "/a&b"]);
    assert_eq!(run.figures.labels[0].failed, 0);
}

/// Each of these elements has the same long text.
#[test]
fn nested_elements_give_the_wanted_value_and_fail_together() {
    let body = format!("{}v{}", "<div>".repeat(250), " ".repeat(1 << 20));
    let run_with = |pick: Json| {
        let extract = json!({"variable": "x", "subject": {"kind": "body"},
            "find": {"kind": "css", "selector": ["div"]}, "pick": pick, "on_miss": {"kind": "fail"}});
        let flow = json!([request("/page", json!({"extractors": [extract]})), get(json!(["/", var("x")]))]);
        run(plan(once(), flow), |_| Some(ok(body.clone())))
    };
    let first = json!({"kind": "number", "number": lit(1)});
    for (pick, expected) in [(first, "/v"), (json!({"kind": "last"}), "/v"), (json!({"kind": "count"}), "/250")] {
        assert_eq!(run_with(pick).targets(), ["/page", expected]);
    }
    let run = run_with(json!({"kind": "all"}));
    assert_eq!((run.figures.labels[0].errors["selector_too_slow"], run.got.len()), (1, 1));
}

#[test]
fn users_of_all_threads_meet() {
    let arrivals = json!({"model": "users", "initial": 4, "first": "at_start", "iterations": 2});
    let meet = json!({"action": {"kind": "wait", "wait":
        {"kind": "rendezvous", "name": "m", "users": lit(4), "timeout_ms": lit(0)}}});
    let own_wait = json!({"action": {"kind": "wait", "wait":
        {"kind": "constant", "ms": {"op": "multiply", "arguments": [{"op": "user_number"}, lit(10)]}}}});
    let run = run_threads(plan(arrivals, json!([own_wait, meet, get("/x")])), 3, 60_000, |_| Some(ok("")));
    let times = run.times();
    assert_eq!(times.len(), 8);
    assert!(times[..4].iter().all(|at| (40..=42).contains(at)), "{times:?}");
    assert!(times[4..].iter().all(|at| (81..=86).contains(at)), "{times:?}");
}

#[test]
fn users_that_end_are_not_awaited_where_all_meet() {
    let arrivals = json!({"model": "users", "initial": 4, "first": "at_start", "iterations": 1});
    let meet = json!({"action": {"kind": "wait", "wait":
        {"kind": "rendezvous", "name": "m", "users": lit(0), "timeout_ms": lit(0)}}});
    let is_first = op("equal", json!([{"op": "user_number"}, lit(1)]));
    let leave = json!({"action": {"kind": "if", "condition": is_first, "nodes": [
        get("/last"), {"action": {"kind": "control", "control": "stop_user"}}]}});
    for threads in [1, 3] {
        let plan = plan(arrivals.clone(), json!([leave, meet, get("/met")]));
        let run = run_threads(plan, threads, 60_000, |_| Some(Response { after_ms: 70, ..ok("") }));
        assert_eq!(run.targets(), ["/last", "/met", "/met", "/met"], "{threads} threads");
        assert!(run.times()[1..].iter().all(|at| (70..=74).contains(at)), "{:?}", run.times());
    }
}

#[test]
fn meeting_that_takes_too_long_ends_on_all_threads() {
    let arrivals = json!({"model": "users", "initial": 3, "first": "at_start", "iterations": 1});
    let meet = json!({"action": {"kind": "wait", "wait":
        {"kind": "rendezvous", "name": "m", "users": lit(5), "timeout_ms": lit(50)}}});
    let run = run_threads(plan(arrivals, json!([meet, get("/x")])), 3, 60_000, |_| Some(ok("")));
    assert!(run.times().iter().all(|at| (50..=52).contains(at)), "{:?}", run.times());
    assert_eq!(run.got.len(), 3);
}
