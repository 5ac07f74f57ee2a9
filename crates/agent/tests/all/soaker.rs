//! The soaker's process: what it counts, what it leaves to the agent, and its end.

use std::fs;
use std::process::{Command, Stdio};
use std::thread::available_parallelism;

use crate::support::{gone, until, Agent};
use leadline_wire::{Event, SoakerSample};
use serde_json::json;

fn observe(agent: &mut Agent, soak: bool) {
    agent.send(&json!({"type": "observe", "trial": null, "period_ms": 20, "machine": false, "soak": soak}));
}

/// Waits until something was left of each CPU; a busy machine may leave nothing for some time.
fn soaked(agent: &mut Agent) -> Vec<SoakerSample> {
    agent.wait("something left of each CPU", |event| match event {
        Event::Observation(sample) => {
            let counted = |rows: &Vec<SoakerSample>| rows.iter().all(|row| row.slices > 0);
            sample.soaker.clone().filter(counted)
        }
        _ => None,
    })
}

/// The running child of the agent; it has no other.
fn soaker_of(agent: &Agent) -> u32 {
    let tasks = fs::read_dir(format!("/proc/{}/task", agent.pid())).unwrap();
    let lists = tasks.map(|task| fs::read_to_string(task.unwrap().path().join("children")).unwrap());
    let all = lists.collect::<String>();
    let children: Vec<u32> =
        all.split_ascii_whitespace().map(|pid| pid.parse().unwrap()).filter(|pid| !gone(*pid)).collect();
    assert_eq!(children.len(), 1, "{all}");
    children[0]
}

/// The weight of a process's session, as a nice value; `None` if it has no group of its own: the session that the machine
/// began with has none, and no session has one if the kernel does not group processes by session.
fn session_nice(pid: u32) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/autogroup")).ok()?;
    text.split_whitespace().last().map(str::to_owned)
}

#[test]
fn every_allowed_cpu_is_counted() {
    let mut agent = Agent::start();
    observe(&mut agent, true);
    let rows = soaked(&mut agent);
    assert_eq!(rows.len(), available_parallelism().unwrap().get());
    assert!(rows.is_sorted_by_key(|row| row.cpu));
    assert!(rows.iter().all(|row| row.fastest_ns.is_some_and(|ns| ns > 0) && row.cpu_s.is_some_and(|s| s > 0.0)));
}

/// With the soaker's weight, the agent's own threads would wait for seconds on a busy machine, until it is given up.
#[test]
fn only_the_soaker_has_the_least_weight() {
    let mut agent = Agent::start();
    let before = session_nice(agent.pid());
    observe(&mut agent, true);
    soaked(&mut agent);
    let soaker = soaker_of(&agent);
    assert_eq!(session_nice(agent.pid()), before);
    let groups_sessions = fs::exists("/proc/self/autogroup").unwrap();
    assert_eq!(session_nice(soaker), groups_sessions.then(|| "19".to_owned()));
}

#[test]
fn ends_with_its_order_and_with_the_agent() {
    let mut agent = Agent::start();
    observe(&mut agent, true);
    soaked(&mut agent);
    let first = soaker_of(&agent);
    observe(&mut agent, false);
    until("the end of the soaker", || gone(first).then_some(()));
    // Samples of the first one may not have been read yet.
    agent.wait("a sample without a soaker", |event| match event {
        Event::Observation(sample) => sample.soaker.is_none().then_some(()),
        _ => None,
    });
    observe(&mut agent, true);
    soaked(&mut agent);
    let second = soaker_of(&agent);
    agent.hang_up();
    assert_eq!(agent.ended().0.code(), Some(0));
    until("the end of the soaker", || gone(second).then_some(()));
}

#[test]
fn refuses_another_stdin_in_one_line() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leadline-agent"));
    let ended = command.arg("soaker").stdin(Stdio::null()).output().unwrap();
    assert_eq!((ended.status.code(), ended.stdout), (Some(2), Vec::new()));
    assert_eq!(String::from_utf8(ended.stderr).unwrap().lines().count(), 1);
}
