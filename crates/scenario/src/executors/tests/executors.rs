//! k6's executors: iterations begin when real k6 began them, which `tests/oracle/executors.json` has, and as many are
//! completed, interrupted and dropped. `tests/oracle/test_k6_oracle.py` records it, and checks the loads.

use serde_json::{json, Value as Json};

use super::*;

const ANSWERS: &str = include_str!("../../../../../tests/oracle/executors.json");
/// How much later k6 begins an iteration than its schedule says, ms: at most this, and this for each sleep of the same
/// user before, which k6 makes longer.
const K6_TIMER_MS: u64 = 30;
const K6_SLEEP_MS: u64 = 5;

#[test]
fn iterations_begin_and_end_as_those_of_k6() {
    let answers: BTreeMap<String, Json> = serde_json::from_str(ANSWERS).unwrap();
    assert!(answers.len() >= 15, "{} loads", answers.len());
    answers.iter().for_each(|(name, answer)| compare(answer, name));
}

fn compare(answer: &Json, name: &str) {
    let mut population = answer["population"].clone();
    population["flow"] = json!([get("/a")]);
    let delay_ms = population["start_delay_ms"].as_u64().unwrap();
    let iteration_ms = answer["iteration_ms"].as_u64().unwrap();
    let plan = json!({"name": name, "populations": [population]});
    let found = run(plan, |_| Some(Response { after_ms: iteration_ms, ..ok("") }));
    let iterations = &found.figures.populations[0].iterations;
    let counts = ["completed", "interrupted", "dropped"].map(|count| answer[count].as_u64().unwrap());
    assert_eq!([iterations.completed, iterations.interrupted, iterations.dropped], counts, "{name}");
    let begun_ms: Vec<u64> = answer["begun_ms"].as_array().unwrap().iter().map(|at| at.as_u64().unwrap()).collect();
    let ours_ms: Vec<u64> = found.times().iter().map(|at_ms| at_ms - delay_ms).collect();
    let late_ms = |at_ms: u64| K6_TIMER_MS + at_ms / iteration_ms * K6_SLEEP_MS;
    let agree = |(ours, theirs): (&u64, &u64)| *theirs + 1 >= *ours && *theirs <= ours + late_ms(*ours);
    assert_eq!(ours_ms.len(), begun_ms.len(), "{name}");
    assert!(ours_ms.iter().zip(&begun_ms).all(agree), "{name}: {ours_ms:?}, k6 {begun_ms:?}");
}
