//! Waits of users: mean and spread of many draws are those of the distribution.

use serde_json::json;

use super::*;

const USERS: u64 = 100;
const EACH: u64 = 100;

/// Returns how long all users waited, ms.
fn drawn(rule: Json) -> Vec<f64> {
    let nodes = json!([{"action": {"kind": "wait", "wait": rule}}, get("/a")]);
    let flow = json!([{"label": "t", "action": {"kind": "transaction", "includes_waits": true, "nodes": nodes}}]);
    let arrivals = json!({"model": "users", "initial": USERS, "first": "at_start", "iterations": EACH});
    let run = run_threads(plan(arrivals, flow), 2, 3_600_000, |_| Some(ok("")));
    let rows = run.samples.iter().flat_map(|batch| &batch.transactions);
    let waits: Vec<f64> = rows.map(|row| row.waits_ns as f64 / MS as f64).collect();
    assert_eq!(waits.len() as u64, USERS * EACH);
    waits
}

/// Asserts mean and standard deviation, to five standard errors.
fn has(waits: &[f64], mean: f64, deviation: f64) {
    let count = waits.len() as f64;
    let own = waits.iter().sum::<f64>() / count;
    let spread = (waits.iter().map(|wait| (wait - own).powi(2)).sum::<f64>() / count).sqrt();
    let error = 5.0 * deviation / count.sqrt() + 1e-6;
    assert!((own - mean).abs() <= error, "mean {own} in place of {mean}");
    // The error of a deviation is at most that of an exponential distribution.
    assert!((spread - deviation).abs() <= error * 2f64.sqrt(), "deviation {spread} in place of {deviation}");
}

#[test]
fn constant_and_uniform_waits_have_their_mean_and_spread() {
    has(&drawn(json!({"kind": "constant", "ms": lit(50)})), 50.0, 0.0);
    let waits = drawn(json!({"kind": "uniform", "from_ms": lit(10), "to_ms": lit(30)}));
    has(&waits, 20.0, 20.0 / 12f64.sqrt());
    assert!(waits.iter().all(|wait| (10.0..30.0).contains(wait)));
}

#[test]
fn normal_waits_fold_at_zero() {
    let normal =
        |mean| json!({"kind": "normal", "mean_ms": lit(mean), "deviation_ms": lit(20), "negative": "absolute"});
    has(&drawn(normal(200)), 200.0, 20.0);
    let share = 2.0 / std::f64::consts::PI;
    has(&drawn(normal(0)), 20.0 * share.sqrt(), 20.0 * (1.0 - share).sqrt());
}

#[test]
fn poisson_waits_are_whole_milliseconds_above_their_offset() {
    for (lambda, offset) in [(0.5, 0.0), (5.0, 300.0), (100.0, 300.0), (150.5, 0.0), (300.0, 100.0), (5000.0, 0.0)] {
        let waits = drawn(json!({"kind": "poisson", "offset_ms": lit(offset), "lambda_ms": lit(lambda)}));
        has(&waits, offset + lambda, f64::sqrt(lambda));
        assert!(waits.iter().all(|wait| *wait >= offset && (wait - wait.round()).abs() < 1e-6));
    }
}

#[test]
fn throughput_follows_its_stages_and_ends_with_them() {
    // 0 to 10 a second in 10 s, for all users together, then none.
    let stages = json!([{"per_minute": 600.0, "duration_ms": 10_000}, {"per_minute": 0.0, "duration_ms": 0}]);
    let rule = json!({"kind": "throughput", "name": "r", "per_minute": lit(0), "stages": stages, "scope": "test"});
    let flow = json!([{"action": {"kind": "wait", "wait": rule}}, get("/a")]);
    let mut plan = plan(json!({"model": "users", "initial": 20, "first": "at_start", "duration_ms": 20_000}), flow);
    plan["populations"][0]["end"] = json!({"kind": "request", "grace_ms": 1000});
    let run = run_threads(plan, 2, 60_000, |_| Some(ok("")));
    let mut times = run.times();
    times.sort_unstable();
    let due: Vec<u64> = (0..50).map(|n| (f64::from(2 * n).sqrt() * 1e3) as u64).collect();
    // Instants are sums of whole ns, and may be one short of a whole ms.
    assert!(times.iter().zip(&due).all(|(at_ms, due_ms)| at_ms.abs_diff(*due_ms) <= 1), "{times:?}");
    assert_eq!((times.len(), run.end_ms), (50, 20_000));
}

#[test]
fn exponential_waits_have_a_spread_of_their_mean() {
    let waits = drawn(json!({"kind": "exponential", "mean_ms": lit(40)}));
    has(&waits, 40.0, 40.0);
    let longer = waits.iter().filter(|wait| **wait > 40.0).count() as f64 / waits.len() as f64;
    assert!((longer - f64::exp(-1.0)).abs() < 0.025, "{longer}");
}
