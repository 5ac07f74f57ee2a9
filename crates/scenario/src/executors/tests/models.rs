//! Load models: when users and iterations begin and end, and what is counted.

use serde_json::json;

use super::*;
use crate::users::Users as _;

fn model(arrivals: Json, response_ms: u64) -> Run {
    run(plan(arrivals, json!([get("/a")])), move |_| Some(Response { after_ms: response_ms, ..ok("") }))
}

fn open(per_s: f64, duration_ms: u64, at_start: u32, most: Json) -> Json {
    json!({"model": "open", "stages": [{"from_per_s": per_s, "to_per_s": per_s, "duration_ms": duration_ms}],
        "spacing": "even", "first": "at_start", "users_at_start": at_start, "users_most": most})
}

#[test]
fn constant_users_repeat_until_their_time_is_over() {
    let run = model(json!({"model": "users", "initial": 2, "first": "at_start", "duration_ms": 100}), 30);
    assert_eq!(run.times(), [0, 0, 30, 30, 60, 60, 90, 90]);
    let iterations = &run.figures.populations[0].iterations;
    assert_eq!((iterations.due, iterations.completed, run.end_ms), (8, 8, 120));
}

#[test]
fn each_user_does_its_iterations_and_shared_ones_are_divided() {
    let run = model(json!({"model": "users", "initial": 3, "first": "at_start", "iterations": 2}), 10);
    assert_eq!(run.got.len(), 6);
    let run = model(json!({"model": "shared_iterations", "users": 3, "iterations": 10}), 10);
    assert_eq!((run.got.len(), run.figures.populations[0].iterations.completed), (10, 10));
}

#[test]
fn iterations_in_progress_are_interrupted_after_their_grace() {
    let mut plan =
        plan(json!({"model": "users", "initial": 1, "first": "at_start", "duration_ms": 100}), json!([get("/a")]));
    plan["populations"][0]["end"] = json!({"kind": "iteration", "grace_ms": 50});
    let run = run(plan, |_| Some(Response { after_ms: 1000, ..ok("") }));
    let iterations = &run.figures.populations[0].iterations;
    assert_eq!((iterations.interrupted, run.figures.labels[0].interrupted, run.end_ms), (1, 1, 150));
}

#[test]
fn population_tries_until_its_time_is_over_though_the_server_is_silent() {
    let tried_until_ms = |mut arrivals: Json, limit: Json, test_ms: u64| {
        limit.as_object().unwrap().iter().for_each(|(name, value)| arrivals[name] = value.clone());
        let mut plan = plan(arrivals, json!([get("/a")]));
        plan["populations"][0]["end"] = json!({"kind": "iteration", "grace_ms": 50});
        let mut requests = 0;
        let run = run_threads(plan, 1, test_ms, |_| {
            requests += 1;
            Some(Response { after_ms: if requests <= 3 { 10 } else { 1_000_000 }, ..ok("") })
        });
        run.tried_until_ms
    };
    let user = || json!({"model": "users", "initial": 1, "first": "at_start"});
    assert_eq!(tried_until_ms(user(), json!({"duration_ms": 100}), 60_000), Some(100));
    assert_eq!(tried_until_ms(open(50.0, 100, 2, json!(2)), json!({}), 60_000), Some(100));
    assert_eq!(tried_until_ms(user(), json!({"iterations": 4}), 200), Some(200), "the time of the test");
    // What has had all of its answers ends with the last one.
    assert_eq!(tried_until_ms(user(), json!({"iterations": 3, "duration_ms": 100}), 60_000), None);
}

#[test]
fn population_tries_no_longer_after_a_stop() {
    let mut plan =
        plan(json!({"model": "users", "initial": 2, "first": "at_start", "duration_ms": 1000}), json!([get("/a")]));
    plan["populations"][0]["on_error"] = json!("stop_test");
    let mut requests = 0;
    let run = run(plan, |_| {
        requests += 1;
        (requests > 1).then(|| Response { after_ms: 300, ..ok("") })
    });
    assert_eq!((run.tried_until_ms, run.end_ms), (Some(1), 300));
}

#[test]
fn interrupted_transaction_has_its_age_in_place_of_a_latency() {
    let nodes = json!([get("/a"), wait(1000), get("/b")]);
    let flow = json!([{"label": "t", "action": {"kind": "transaction", "includes_waits": true, "nodes": nodes}}]);
    let mut plan = plan(json!({"model": "users", "initial": 1, "first": "at_start", "duration_ms": 100}), flow);
    plan["populations"][0]["end"] = json!({"kind": "request", "grace_ms": 1000});
    let run = run(plan, |_| Some(ok("")));
    let transaction = &run.figures.labels[0];
    assert_eq!((transaction.ended, transaction.interrupted), (0, 1));
    assert!(transaction.histograms[0][0].is_none());
    let age_ns = transaction.histograms[0][4].as_ref().unwrap().quantile_ns(1.0).unwrap();
    assert!(age_ns.abs_diff(100 * MS) < MS, "{age_ns}");
}

#[test]
fn jmeters_scheduler_ends_users_between_requests() {
    let flow = json!([get("/a"), wait(1000), get("/b")]);
    let mut plan = plan(json!({"model": "users", "initial": 1, "first": "at_start", "duration_ms": 100}), flow);
    plan["populations"][0]["end"] = json!({"kind": "request", "grace_ms": 1000});
    let run = run(plan, |_| Some(ok("")));
    assert_eq!((run.targets(), run.end_ms), (vec!["/a".to_owned()], 100));
    assert_eq!(run.figures.populations[0].iterations.interrupted, 1);
}

#[test]
fn ramp_begins_and_ends_users() {
    let arrivals = json!({"model": "users", "initial": 0, "first": "after_interval", "duration_ms": 600, "stages":
        [{"users": 2, "duration_ms": 200}, {"users": 2, "duration_ms": 100}, {"users": 0, "duration_ms": 200}]});
    let run = model(arrivals, 1000);
    assert_eq!(run.times(), [100, 200]);
    let iterations = &run.figures.populations[0].iterations;
    assert_eq!((iterations.interrupted, run.end_ms), (2, 500));
}

#[test]
fn timer_of_a_user_that_was_interrupted_does_not_wake_its_successor() {
    let stages = json!([{"users": 0, "duration_ms": 100}, {"users": 1, "duration_ms": 100}]);
    let arrivals =
        json!({"model": "users", "initial": 1, "first": "after_interval", "stages": stages, "duration_ms": 2000});
    let run = run(plan(arrivals, json!([wait(1000), get("/a")])), |_| Some(ok("")));
    assert_eq!(run.times(), [1200, 2201]);
}

#[test]
fn users_that_end_by_the_ten_thousand_are_forgotten_one_by_one() {
    let run = model(json!({"model": "users", "initial": 50_000, "first": "at_start", "iterations": 1}), 1);
    assert_eq!((run.got.len(), run.figures.populations[0].users), (50_000, 0));
    let run =
        model(json!({"model": "schedule", "due_us": vec![0; 50_000], "users_at_start": 0, "users_most": null}), 1);
    assert_eq!((run.figures.populations[0].users_begun, run.figures.populations[0].users), (50_000, 0));
}

#[test]
fn user_that_is_no_longer_wanted_may_finish_its_request() {
    let run_with = |flow: Json, grace_ms: u64| {
        let arrivals = json!({"model": "users", "initial": 1, "first": "after_interval", "duration_ms": 900, "stages":
            [{"users": 1, "duration_ms": 100}, {"users": 0, "duration_ms": 0}, {"users": 0, "duration_ms": 800}],
            "ramp_down_ms": grace_ms, "ramp_down_after_request": true});
        run(plan(arrivals, flow), |_| Some(Response { after_ms: 300, ..ok("") }))
    };
    let two = json!([get("/a"), get("/b")]);
    let counts = |run: &Run| {
        let label = &run.figures.labels[0];
        (run.targets().len(), label.ended, label.interrupted, run.end_ms)
    };
    assert_eq!(counts(&run_with(two.clone(), 60_000)), (1, 1, 0, 300), "the running request is awaited");
    assert_eq!(counts(&run_with(two, 50)), (1, 0, 1, 150), "for its grace at most");
    let waits = run_with(json!([wait(500), get("/a")]), 60_000);
    assert_eq!((waits.got.len(), waits.end_ms), (0, 100), "a wait ends at once");
}

#[test]
fn user_that_is_no_longer_wanted_may_finish_its_iteration() {
    let run_with = |grace_ms: u64| {
        let arrivals = json!({"model": "users", "initial": 1, "first": "after_interval", "duration_ms": 900, "stages":
            [{"users": 0, "duration_ms": 100}, {"users": 0, "duration_ms": 800}], "ramp_down_ms": grace_ms});
        let run = run(plan(arrivals, json!([get("/a"), wait(100), get("/b")])), |_| {
            Some(Response { after_ms: 300, ..ok("") })
        });
        let iterations = &run.figures.populations[0].iterations;
        (iterations.completed, iterations.interrupted, run.targets().len(), run.end_ms)
    };
    assert_eq!(run_with(30_000), (1, 0, 2, 700));
    assert_eq!(run_with(500), (0, 1, 2, 600), "for its grace at most");
    assert_eq!(run_with(0), (0, 1, 1, 100), "k6 with gracefulRampDown 0");
}

#[test]
fn open_model_drops_iterations_without_a_free_user() {
    let run = model(open(100.0, 100, 2, json!(2)), 25);
    let iterations = &run.figures.populations[0].iterations;
    assert_eq!((iterations.due, iterations.begun, iterations.dropped), (10, 7, 3));
    assert_eq!(run.times(), [0, 10, 30, 40, 60, 70, 90]);
}

#[test]
fn open_model_without_a_limit_makes_users() {
    let run = model(open(100.0, 100, 0, Json::Null), 1000);
    let population = &run.figures.populations[0];
    assert_eq!((population.iterations.begun, population.users_begun, population.iterations.dropped), (10, 10, 0));
    assert_eq!(run.times(), [0, 10, 20, 30, 40, 50, 60, 70, 80, 90]);
}

#[test]
fn iterations_that_are_far_behind_do_not_begin() {
    let plan: ScenarioPlan =
        serde_json::from_value(plan(open(10_000.0, 1000, 0, Json::Null), json!([get("/a")]))).unwrap();
    let program = Arc::new(compile(&plan, 1, 0).unwrap());
    let limits = Limits { at_ns: 0, duration_ns: 60_000 * MS, warmup_ns: 0 };
    let share = ThreadShare { index: 0, threads: 1 };
    let mut machine =
        VirtualUsers::new(Arc::clone(&program), Arc::new(Shared::new(&program, 1)), Tools::new(0), share, limits);
    // Each turn takes 200 ms, as where ports run short.
    let mut now_ns = 0;
    while machine.figures().populations[0].iterations.not_begun == 0 {
        assert!(machine.run(now_ns).unwrap() <= now_ns.max(1000 * MS), "at {now_ns}");
        now_ns += 200 * MS;
    }
    let iterations = &machine.figures().populations[0].iterations;
    assert_eq!(now_ns, 2_200 * MS);
    assert_eq!((iterations.due, iterations.begun + iterations.not_begun), (10_000, 10_000));
    assert!((3_000..6_000).contains(&iterations.begun), "{} begun", iterations.begun);
}

#[test]
fn many_iterations_that_are_due_at_once_all_begin() {
    let run = model(json!({"model": "schedule", "due_us": vec![0; 2000], "users_at_start": 1, "users_most": null}), 1);
    assert_eq!(run.times(), vec![0; 2000]);
}

#[test]
fn threads_share_iterations_and_users() {
    for threads in [1, 2, 3] {
        let plan = plan(open(1000.0, 100, 0, Json::Null), json!([get("/a")]));
        let run = run_threads(plan, threads, 60_000, |_| Some(ok("")));
        let mut times = run.times();
        times.sort_unstable();
        assert_eq!(times, (0..100).collect::<Vec<u64>>(), "{threads} threads");
    }
    let seven = json!({"model": "users", "initial": 7, "first": "at_start", "iterations": 2});
    assert_eq!(run_threads(plan(seven, json!([get("/a")])), 3, 60_000, |_| Some(ok(""))).got.len(), 14);
}

#[test]
fn schedule_is_kept() {
    let run = model(
        json!({"model": "schedule", "due_us": [0, 5000, 5000, 30000], "users_at_start": 1, "users_most": null}),
        1,
    );
    assert_eq!(run.times(), [0, 5, 5, 30]);
}

#[test]
fn phases_and_predecessors_are_awaited() {
    let population = |name: &str, phase: &str, after: Json, path: &str| {
        json!({"name": name, "phase": phase, "after": after,
        "start_delay_ms": 5, "arrivals": once(), "end": {"kind": "iteration", "grace_ms": 0}, "on_error": "continue",
        "flow": [get(path)]})
    };
    let plan = json!({"name": "phases", "populations": [
        population("last", "teardown", json!([]), "/last"), population("one", "main", json!([]), "/one"),
        population("two", "main", json!(["one"]), "/two"), population("first", "setup", json!([]), "/first")]});
    let run = run(plan, |_| Some(ok("")));
    assert_eq!(run.targets(), ["/first", "/one", "/two", "/last"]);
    assert!(run.times().windows(2).all(|pair| pair[1] - pair[0] >= 6), "{:?}", run.times());
}

#[test]
fn new_users_have_their_own_number_and_variables() {
    let set = json!({"action": {"kind": "set", "variable": "x", "value": op("add", json!([{"op": "first_of", "arguments": [var("x"), lit(0)]}, lit(1)]))}});
    let flow = json!([set, get(json!(["/", {"op": "user_number"}, "/", var("x")]))]);
    let targets = |fresh: bool| {
        let mut plan =
            plan(json!({"model": "users", "initial": 1, "first": "at_start", "iterations": 3}), flow.clone());
        plan["populations"][0]["new_user_each_iteration"] = json!(fresh);
        run(plan, |_| Some(ok(""))).targets()
    };
    assert_eq!(targets(false), ["/1/1", "/1/2", "/1/3"]);
    assert_eq!(targets(true)[0], "/1/1");
    assert!(targets(true).iter().all(|target| target.ends_with("/1")), "{:?}", targets(true));
}

#[test]
fn errors_lead_where_the_population_says() {
    let flow = json!([get("/bad"), get("/next")]);
    let count = |on_error: &str| {
        let mut plan =
            plan(json!({"model": "users", "initial": 2, "first": "at_start", "iterations": 2}), flow.clone());
        plan["populations"][0]["on_error"] = json!(on_error);
        run(plan, |got| if got.url.ends_with("bad") { None } else { Some(ok("")) }).got.len()
    };
    assert_eq!(count("continue"), 8);
    assert_eq!(count("next_iteration"), 4);
    assert_eq!(count("stop_user"), 2);
    assert_eq!(count("stop_test"), 2);
    assert_eq!(count("stop_test_now"), 2);
}

#[test]
fn teardown_runs_after_a_stop_and_can_be_stopped_itself() {
    let population = |phase: &str, flow: Json| {
        json!({"name": phase, "phase": phase, "arrivals": once(), "end": {"kind": "iteration", "grace_ms": 0},
            "on_error": "stop_test", "flow": flow})
    };
    let populations = |teardown: &str| {
        let (main, down) = (json!([get("/bad"), get("/next")]), json!([get("/down"), get("/bad"), get("/last")]));
        json!({"name": "phases", "populations": [population("main", main), population(teardown, down)]})
    };
    let targets = |plan: Json| run(plan, |got| (!got.url.ends_with("bad")).then(|| ok(""))).targets();
    assert_eq!(targets(populations("teardown")), ["/bad", "/down", "/bad"]);
    assert_eq!(targets(populations("teardown_unless_stopped")), ["/bad"]);
}

#[test]
fn user_that_is_made_for_an_iteration_misses_it_where_k6_drops_it() {
    let mut arrivals = open(10.0, 600, 1, json!(2));
    arrivals["drop_while_growing"] = json!(true);
    let run = model(arrivals, 330);
    let iterations = &run.figures.populations[0].iterations;
    assert_eq!(run.times(), [0, 200, 400]);
    assert_eq!((iterations.due, iterations.dropped), (6, 3));
}

#[test]
fn iterations_that_the_time_does_not_suffice_for_count_as_dropped_where_k6_counts_them() {
    let shared = json!({"model": "shared_iterations", "users": 3, "iterations": 30, "duration_ms": 1000});
    let each = json!({"model": "users", "initial": 3, "first": "at_start", "iterations": 9, "duration_ms": 1000});
    for (mut arrivals, undone) in [(shared, 18), (each, 15)] {
        let counts =
            |run: Run| (run.figures.populations[0].iterations.due, run.figures.populations[0].iterations.dropped);
        assert_eq!(counts(model(arrivals.clone(), 300)), (12, 0));
        arrivals["drop_undone"] = json!(true);
        assert_eq!(counts(model(arrivals, 300)), (12 + undone, undone));
    }
}
