//! Samples, tags, and the instants that figures count from.

use leadline_wire::scenario::LabelKind;
use serde_json::json;

use super::*;

fn named(name: &str, mut node: Json) -> Json {
    node["label"] = json!(name);
    node
}

fn transaction(name: &str, hides: bool, nodes: Json) -> Json {
    named(
        name,
        json!({"action": {"kind": "transaction", "includes_waits": true, "hides_requests": hides, "nodes": nodes}}),
    )
}

/// Names of the samples in their order.
fn names(run: &Run) -> Vec<&str> {
    let batch = &run.samples[0];
    batch.name.iter().map(|place| batch.names[*place as usize].name.as_str()).collect()
}

#[test]
fn each_request_and_transaction_is_a_sample() {
    let flow = json!([transaction("shop", false, json!([named("a", get("/a")), wait(5), named("bad", get("/bad"))]))]);
    let run = run(plan(once(), flow), |got| {
        (!got.url.ends_with("bad")).then(|| Response { status: 200, head: "", body: String::new(), after_ms: 3 })
    });
    assert_eq!(names(&run), ["a", "bad", "shop"]);
    let batch = &run.samples[0];
    assert_eq!((batch.names[0].kind, batch.names[0].population.as_str()), (LabelKind::Request, "users"));
    assert_eq!((&batch.user[..], &batch.due_ns[..]), (&[1, 1, 1][..], &[0, 8 * MS, 0][..]));
    assert_eq!(batch.elapsed_ns, [3 * MS, MS, 9 * MS]);
    assert_eq!(
        (&batch.before_sent_ns, &batch.first_byte_ns),
        (&vec![Some(0), Some(0), None], &vec![Some(3 * MS), None, None])
    );
    assert_eq!(batch.status, [Some(200), None, None]);
    assert_eq!((&batch.sent_bytes, &batch.received_bytes), (&vec![100, 100, 200], &vec![200, 0, 200]));
    assert_eq!((&batch.group_active, &batch.all_active), (&vec![1; 3], &vec![1; 3]));
    assert_eq!(batch.urls, [Some("http://a.test/a".to_owned()), Some("http://a.test/bad".to_owned()), None]);
    let failed: Vec<(u32, &str)> = batch.failures.iter().map(|one| (one.row, one.cause.as_str())).collect();
    assert_eq!(failed, [(1, "reset"), (2, "request_failed")]);
    let shop = batch.transactions[0];
    assert_eq!((shop.row, shop.waits_ns, shop.requests, shop.failed), (2, 5 * MS, 2, 1));
}

#[test]
fn transaction_hides_what_is_in_it() {
    let inner = transaction("inner", false, json!([named("b", get("/b"))]));
    let flow = json!([
        transaction("outer", true, json!([named("a", get("/a")), inner])),
        named("a", get("/a")),
        named("c", get("/c"))
    ]);
    let run = run(plan(once(), flow), |_| Some(ok("")));
    assert_eq!(names(&run), ["outer", "a", "c"]);
    assert_eq!(run.samples[0].transactions[0].requests, 2);
    let ended: Vec<u64> = run.figures.labels.iter().map(|label| label.ended).collect();
    assert_eq!(ended, [1, 2, 1, 1, 1]);
}

#[test]
fn labels_have_their_tags_and_say_whether_they_are_hidden() {
    let mut tagged = named("a", get("/a"));
    tagged["tags"] = json!({"kind": "api", "team": "x"});
    let mut hiding = transaction("t", true, json!([named("b", get("/b")), tagged.clone()]));
    hiding["tags"] = json!({"kind": "page"});
    let mut plan = plan(once(), json!([hiding, named("b", get("/b")), tagged]));
    plan["populations"][0]["tags"] = json!({"all": "1"});
    let plan: ScenarioPlan = serde_json::from_value(plan).unwrap();
    let program = compile(&plan, 1, 0).unwrap();
    let labels: Vec<(&str, String, bool)> = program
        .labels
        .iter()
        .map(|label| (&*label.name, serde_json::to_string(&label.tags).unwrap(), label.is_hidden))
        .collect();
    let row = |name, tags: &str, is_hidden| (name, tags.to_owned(), is_hidden);
    assert_eq!(
        labels,
        [
            row("t", r#"{"all":"1","kind":"page"}"#, false),
            row("b", r#"{"all":"1","kind":"page"}"#, true),
            // In the transaction and outside of it: the innermost tags are the same.
            row("a", r#"{"all":"1","kind":"api","team":"x"}"#, false),
            row("b", r#"{"all":"1"}"#, false),
        ]
    );
}

#[test]
fn secrets_are_hidden_in_samples() {
    let set = json!({"action": {"kind": "set", "variable": "token", "value": lit("s3cret")}});
    let mut plan = plan(once(), json!([set, get(json!(["/x?t=", var("token")]))]));
    plan["masked"] = json!(["token"]);
    let run = run(plan, |_| Some(Response { status: 500, ..ok("") }));
    assert_eq!(run.samples[0].urls, [Some("http://a.test/x?t=***".to_owned())]);
    assert_eq!(run.samples[0].failures[0].message, "500 http://a.test/x?t=***");
}

#[test]
fn batches_are_bounded() {
    let times = json!({"kind": "loop", "rule": {"kind": "count", "times": lit(4500)}, "nodes": [get("/a")]});
    let run = run(plan(once(), json!([{ "action": times }])), |_| Some(ok("")));
    let rows: Vec<(usize, usize)> = run.samples.iter().map(|batch| (batch.name.len(), batch.names.len())).collect();
    assert_eq!(rows, [(2000, 1), (2000, 1), (500, 1)]);
}

#[test]
fn first_request_of_a_late_iteration_counts_from_due() {
    // One user for two iterations that are due at once: the second one begins when the first one has ended.
    let arrivals = json!({"model": "schedule", "due_us": [0, 1000], "users_at_start": 1, "users_most": 2});
    let mut plan = plan(arrivals, json!([transaction("t", false, json!([get("/a"), get("/b")]))]));
    plan["populations"][0]["before"] = json!([wait(10)]);
    let run = run(plan, |_| Some(Response { after_ms: 2, ..ok("") }));
    let batch = &run.samples[0];
    let of = |name: &str| {
        let row = |row: &usize| batch.names[batch.name[*row] as usize].name == name;
        let mut found: Vec<_> =
            (0..batch.name.len()).filter(row).map(|row| (batch.due_ns[row], batch.elapsed_ns[row])).collect();
        found.sort_unstable();
        found
    };
    assert_eq!(of("GET /a"), [(0, 12 * MS), (MS, 12 * MS)]);
    assert_eq!(of("GET /b"), [(12 * MS, 2 * MS), (13 * MS, 2 * MS)]);
    assert_eq!(of("t"), [(0, 14 * MS), (MS, 14 * MS)]);
}
