//! Each node of a flow.

use serde_json::json;

use super::*;
use crate::users::Users as _;

fn targets(flow: Json) -> Vec<String> {
    run(plan(once(), flow), |_| Some(ok(""))).targets()
}

fn node(action: Json) -> Json {
    json!({ "action": action })
}

#[test]
fn sequence_and_waits_take_their_time() {
    let flow =
        json!([get("/a"), wait(50), node(json!({"kind": "sequence", "nodes": [get("/b"), wait(10)]})), get("/c")]);
    let run = run(plan(once(), flow), |_| Some(ok("")));
    assert_eq!(run.targets(), ["/a", "/b", "/c"]);
    assert_eq!(run.times(), [0, 51, 62]);
}

#[test]
fn loops_count_and_stop() {
    let item = get(json!(["/", var("i")]));
    let count =
        node(json!({"kind": "loop", "rule": {"kind": "count", "times": lit(3)}, "counter": "i", "nodes": [item]}));
    assert_eq!(targets(json!([count])), ["/0", "/1", "/2"]);
    let each = json!({"kind": "each", "variable": "i", "values": [["x"], ["y"]]});
    assert_eq!(targets(json!([node(json!({"kind": "loop", "rule": each, "nodes": [item]}))])), ["/x", "/y"]);
    let condition = op("less", json!([var("n"), lit(2)]));
    let set = |value: Json| node(json!({"kind": "set", "variable": "n", "value": value}));
    let add = set(op("add", json!([var("n"), lit(1)])));
    let body = json!([get(json!(["/", var("n")])), add]);
    let rule = json!({"kind": "while", "condition": condition});
    let flow = json!([set(lit(0)), node(json!({"kind": "loop", "rule": rule, "nodes": body}))]);
    assert_eq!(targets(flow), ["/0", "/1"]);
    let rule = json!({"kind": "while", "condition": lit(false), "checks_after": true});
    assert_eq!(targets(json!([node(json!({"kind": "loop", "rule": rule, "nodes": [get("/once")]}))])), ["/once"]);
    let rule = json!({"kind": "time", "duration_ms": lit(25)});
    let timed = node(json!({"kind": "loop", "rule": rule, "nodes": [get("/t"), wait(9)]}));
    assert_eq!(targets(json!([timed])).len(), 3);
}

#[test]
fn numbered_variables_are_passed_through() {
    let set = |name: &str, value: &str| node(json!({"kind": "set", "variable": name, "value": lit(value)}));
    let rule = json!({"kind": "each_variable", "variable": "i", "prefix": ["id_"]});
    let each = node(json!({"kind": "loop", "rule": rule, "nodes": [get(json!(["/", var("i")]))]}));
    assert_eq!(targets(json!([set("id_1", "a"), set("id_2", "b"), set("id_4", "d"), each])), ["/a", "/b"]);
}

#[test]
fn choices_take_their_branch() {
    let flow = json!([
        node(json!({"kind": "if", "condition": lit(true), "nodes": [get("/yes")], "otherwise": [get("/no")]})),
        node(json!({"kind": "if", "condition": lit(""), "nodes": [get("/yes")], "otherwise": [get("/no")]})),
        node(json!({"kind": "switch", "value": ["b"], "cases": [
            {"value": "a", "nodes": [get("/a")]}, {"value": "b", "nodes": [get("/b")]}], "otherwise": [get("/c")]})),
        node(json!({"kind": "switch", "value": ["x"], "cases": [{"value": "a", "nodes": [get("/a")]}],
            "otherwise": [get("/c")]})),
    ]);
    assert_eq!(targets(flow), ["/yes", "/no", "/b", "/c"]);
}

fn passes(times: u64, node: &Json) -> Vec<String> {
    let rule = json!({"kind": "count", "times": lit(times)});
    targets(json!([{"action": {"kind": "loop", "rule": rule, "nodes": [node]}}]))
}

#[test]
fn quotas_are_exact() {
    let percent = node(json!({"kind": "percent", "percent": lit(25), "is_per_user": true, "nodes": [get("/p")]}));
    assert_eq!(passes(100, &percent).len(), 25);
    let times = node(json!({"kind": "times", "times": lit(3), "is_per_user": false, "nodes": [get("/t")]}));
    assert_eq!(passes(10, &times).len(), 3);
    let first = node(json!({"kind": "once", "nodes": [get("/o")]}));
    assert_eq!(passes(10, &first).len(), 1);
    let branch = |path: &str, weight: f64| json!({"weight": weight, "nodes": [get(path)]});
    let interleave = node(json!({"kind": "interleave", "branches": [branch("/a", 1.0), branch("/b", 1.0)]}));
    assert_eq!(passes(3, &interleave), ["/a", "/b", "/a"]);
    let shuffle =
        node(json!({"kind": "shuffle", "branches": [branch("/a", 1.0), branch("/b", 1.0), branch("/c", 1.0)]}));
    let mut all = passes(2, &shuffle);
    all[..3].sort();
    all[3..].sort();
    assert_eq!(all, ["/a", "/b", "/c", "/a", "/b", "/c"]);
    let weighted = node(json!({"kind": "weighted", "branches": [branch("/a", 3.0), branch("/b", 1.0)]}));
    let first = passes(2000, &weighted).iter().filter(|target| *target == "/a").count();
    assert!((1400..1600).contains(&first), "{first}");
}

#[test]
fn parallel_requests_overlap_up_to_their_limit() {
    let nodes = json!([get("/1"), get("/2"), get("/3"), get("/4")]);
    let parallel =
        |at_once: Json| json!([node(json!({"kind": "parallel", "at_once": at_once, "nodes": nodes})), get("/5")]);
    let times = |at_once: Json| run(plan(once(), parallel(at_once)), |_| Some(ok(""))).times();
    assert_eq!(times(Json::Null), [0, 0, 0, 0, 1]);
    assert_eq!(times(json!(2)), [0, 0, 1, 1, 2]);
}

#[test]
fn transactions_have_their_own_time() {
    let transaction = |waits: bool| {
        json!({"label": format!("t{waits}"), "action":
        {"kind": "transaction", "includes_waits": waits, "nodes": [get("/a"), wait(100), get("/bad")]}})
    };
    let run = run(plan(once(), json!([transaction(true), transaction(false)])), |got| {
        Some(Response { status: if got.url.ends_with("/bad") { 500 } else { 200 }, ..ok("") })
    });
    let label = |name: &str| {
        let names = ["ttrue", "GET /a", "GET /bad", "tfalse"];
        &run.figures.labels[names.iter().position(|own| *own == name).unwrap()]
    };
    for (name, ms) in [("ttrue", 102), ("tfalse", 2)] {
        let own = label(name);
        assert_eq!((own.ended, own.failed, own.errors["request_failed"]), (1, 1, 1), "{name}");
        let latency = own.histograms[0][0].as_ref().unwrap().quantile_ns(1.0).unwrap();
        assert!(latency.abs_diff(ms * MS) < MS, "{name}: {latency}");
    }
    assert_eq!(label("GET /bad").errors["status_500"], 2);
    assert_eq!(run.figures.populations[0].iterations.failed, 1);
}

#[test]
fn control_ends_what_it_names() {
    let control = |what: &str| node(json!({"kind": "control", "control": what}));
    let counted =
        |nodes: Json| node(json!({"kind": "loop", "rule": {"kind": "count", "times": lit(2)}, "nodes": nodes}));
    let twice = json!({"model": "users", "initial": 1, "first": "at_start", "iterations": 2});
    let all = |nodes: Json| run(plan(twice.clone(), nodes), |_| Some(ok(""))).targets();
    let flow = |what: &str| json!([counted(json!([get("/a"), control(what), get("/b")])), get("/c")]);
    assert_eq!(all(flow("next_pass")), ["/a", "/a", "/c", "/a", "/a", "/c"]);
    assert_eq!(all(flow("break_loop")), ["/a", "/c", "/a", "/c"]);
    assert_eq!(all(flow("next_iteration")), ["/a", "/a"]);
    assert_eq!(all(flow("stop_user")), ["/a"]);
    assert_eq!(all(flow("stop_test_now")), ["/a"]);
    assert_eq!(all(json!([get("/a"), control("stop_test"), get("/b")])), ["/a", "/b"]);
}

#[test]
fn pacing_and_throughput_keep_their_intervals() {
    let waits = |wait: Json| {
        json!([{"action": {"kind": "loop", "rule": {"kind": "count", "times": lit(3)},
        "nodes": [{"action": {"kind": "wait", "wait": wait}}, get("/a")]}}])
    };
    let times = |wait: Json| run(plan(once(), waits(wait)), |_| Some(ok(""))).times();
    assert_eq!(times(json!({"kind": "pacing", "ms": lit(100)})), [100, 200, 300]);
    assert_eq!(times(json!({"kind": "throughput", "per_minute": lit(600), "scope": "user"})), [0, 100, 200]);
    let two = json!({"model": "users", "initial": 2, "first": "at_start", "iterations": 1});
    let shared = json!({"kind": "throughput", "per_minute": lit(600), "scope": "population"});
    assert_eq!(run(plan(two, waits(shared)), |_| Some(ok(""))).times(), [0, 100, 200, 300, 400, 500]);
}

#[test]
fn users_meet_at_a_rendezvous() {
    let meet = json!({"kind": "rendezvous", "users": lit(3), "timeout_ms": lit(0)});
    let flow = json!([
        {"action": {"kind": "wait", "wait": {"kind": "constant", "ms": op("multiply", json!([{"op": "user_number"}, lit(10)]))}}},
        {"action": {"kind": "wait", "wait": meet}}, get("/a")]);
    let three = json!({"model": "users", "initial": 3, "first": "at_start", "iterations": 1});
    assert_eq!(run(plan(three, flow), |_| Some(ok(""))).times(), [30, 30, 30]);
}

#[test]
fn feeders_give_rows_and_end() {
    let feeder = |order: &str, share: &str, end: Json| {
        json!([{"name": "f", "columns": ["id"],
        "rows": [["a"], ["b"], ["c"]], "share": share, "order": order, "at_end": end}])
    };
    let flow = json!([node(json!({"kind": "feed", "feeder": "f"})), get(json!(["/", var("id")]))]);
    let fed = |order: &str, share: &str, end: Json, users: u32| {
        let arrivals = json!({"model": "users", "initial": users, "first": "at_start", "iterations": 2});
        let mut plan = plan(arrivals, flow.clone());
        plan["feeders"] = feeder(order, share, end);
        let mut targets = run(plan, |_| Some(ok(""))).targets();
        targets.sort();
        targets
    };
    let recycle = json!({"kind": "recycle"});
    assert_eq!(fed("sequential", "test", recycle.clone(), 2), ["/a", "/a", "/b", "/c"]);
    assert_eq!(fed("sequential", "user", recycle.clone(), 2), ["/a", "/a", "/b", "/b"]);
    assert_eq!(fed("sequential", "test", json!({"kind": "stop_user"}), 2), ["/a", "/b", "/c"]);
    assert_eq!(fed("shuffled", "test", json!({"kind": "stop_test"}), 2), ["/a", "/b", "/c"]);
    assert_eq!(fed("unique", "test", json!({"kind": "stop_user"}), 2), ["/a", "/b", "/c"]);
    assert_eq!(fed("sequential", "population", json!({"kind": "text", "text": "eof"}), 2), ["/a", "/b", "/c", "/eof"]);
    assert_eq!(fed("random", "test", recycle, 2).len(), 4);
}

#[test]
fn unique_rows_are_taken_once_by_users_of_all_groups_and_threads() {
    let rows: Vec<Json> = (0..100).map(|row| json!([row.to_string()])).collect();
    let flow = json!([node(json!({"kind": "feed", "feeder": "f"})), get(json!(["/", var("id")]))]);
    let open = |most: Json| {
        json!({"model": "open", "stages": [{"from_per_s": 200.0, "to_per_s": 200.0, "duration_ms": 200}],
            "spacing": "even", "first": "at_start", "users_at_start": 2, "users_most": most})
    };
    let closed = json!({"model": "users", "initial": 5, "first": "at_start", "iterations": 8});
    // Both groups together want 80 rows.
    for (first, second, new_user) in [
        (closed.clone(), closed.clone(), false),
        (closed.clone(), open(Json::Null), false),
        (open(Json::Null), open(json!(3)), false),
        (open(json!(5)), open(json!(5)), true),
        (closed.clone(), closed, true),
    ] {
        let mut plan = plan(first, flow.clone());
        let mut other = plan["populations"][0].clone();
        (other["name"], other["arrivals"]) = (json!("others"), second);
        plan["populations"].as_array_mut().unwrap().push(other);
        for population in plan["populations"].as_array_mut().unwrap() {
            population["new_user_each_iteration"] = json!(new_user);
        }
        plan["feeders"] = json!([{"name": "f", "columns": ["id"], "rows": rows, "share": "test", "order": "unique",
            "at_end": {"kind": "stop_user"}}]);
        let mut targets = run_threads(plan, 3, 60_000, |_| Some(ok(""))).targets();
        let count = targets.len();
        targets.sort();
        targets.dedup();
        assert_eq!((targets.len(), count), (80, 80), "each row once");
    }
}

#[test]
fn unique_rows_of_an_open_model_end() {
    let flow = json!([node(json!({"kind": "feed", "feeder": "f"})), get(json!(["/", var("id")]))]);
    let fed = |end: &str| {
        let mut plan = plan(
            json!({"model": "open", "stages": [{"from_per_s": 100.0, "to_per_s": 100.0, "duration_ms": 50}],
                "spacing": "even", "first": "at_start", "users_at_start": 1, "users_most": null}),
            flow.clone(),
        );
        plan["feeders"] = json!([{"name": "f", "columns": ["id"], "rows": [["a"], ["b"], ["c"]], "share": "test",
            "order": "unique", "at_end": {"kind": end}}]);
        run(plan, |_| Some(ok(""))).targets()
    };
    assert_eq!(fed("recycle"), ["/a", "/b", "/c", "/a", "/b"]);
    assert_eq!(fed("stop_user"), ["/a", "/b", "/c"]);
}

#[test]
fn text_that_doubles_ends_the_iteration_at_the_bound() {
    let doubled = |value: Json| {
        let set = node(json!({"kind": "set", "variable": "x", "value": value}));
        let times = json!({"kind": "count", "times": lit(60)});
        let first = node(json!({"kind": "set", "variable": "x", "value": lit("%&")}));
        let run =
            run(plan(once(), json!([first, node(json!({"kind": "loop", "rule": times, "nodes": [set]}))])), |_| None);
        assert_eq!(run.figures.populations[0].iterations.failed, 1);
        run.figures.faults["text_too_long"]
    };
    assert_eq!(doubled(op("join", json!([var("x"), var("x")]))), 1);
    assert_eq!(doubled(op("base64_encode", json!([var("x")]))), 1);
}

#[test]
fn script_reads_and_sets_variables() {
    let script = node(json!({"kind": "script", "lua": "set('x', (get('x') or 0) + user * 10)"}));
    assert_eq!(targets(json!([script, script, get(json!(["/", var("x")]))])), ["/20"]);
    let by_name = node(json!({"kind": "script", "lua": "vars.y = (vars.y or 1) + 1; vars.x = nil"}));
    assert_eq!(targets(json!([by_name, by_name, get(json!(["/", var("y")]))])), ["/3"]);
    for (text, message) in [("error('no')", "[string \"script 1\"]:1: no"), ("fail('too few')", "too few")] {
        let wrong = node(json!({"kind": "script", "lua": text}));
        let run = run(plan(once(), json!([wrong, get("/a")])), |_| Some(ok("")));
        assert_eq!((run.got.len(), run.figures.faults["script_error"]), (0, 1));
        assert_eq!(run.figures.fault_examples["script_error"], message);
    }
}

#[test]
fn endless_flow_without_requests_lets_others_run_and_ends_with_the_test() {
    let rule = json!({"kind": "forever"});
    let flow = json!([get("/a"), node(json!({"kind": "loop", "rule": rule, "nodes": []}))]);
    let mut plan = plan(json!({"model": "users", "initial": 2, "first": "at_start"}), flow);
    plan["populations"][0]["end"] = json!({"kind": "request", "grace_ms": 0});
    // A turn of an endless loop advances this clock by a nanosecond, so the test is short.
    let plan: ScenarioPlan = serde_json::from_value(plan).unwrap();
    let program = Arc::new(compile(&plan, 1, 0).unwrap());
    let shared = Arc::new(Shared::new(&program, 1));
    let limits = Limits { at_ns: 0, duration_ns: 10, warmup_ns: 0 };
    let share = ThreadShare { index: 0, threads: 1 };
    let mut machine = VirtualUsers::new(program, shared, Tools::new(0), share, limits);
    let mut sent = 0;
    for now_ns in 0..20 {
        machine.run(now_ns);
        while let Some(effect) = machine.effect() {
            if let Effect::Send(send) = effect {
                sent += 1;
                let end = ExchangeEnd {
                    status: 200,
                    reason: "Fine",
                    head: "",
                    body: b"",
                    body_bytes: 0,
                    sent_ns: now_ns,
                    first_ns: now_ns,
                    done_ns: now_ns,
                    sent_bytes: 0,
                    received_bytes: 0,
                    opening: None,
                };
                machine.answered(send.user, send.exchange, &end, now_ns);
            }
        }
    }
    assert!(machine.is_done() && sent == 2);
    assert_eq!(machine.figures().populations[0].iterations.interrupted, 2);
}
