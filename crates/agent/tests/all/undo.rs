//! What was registered to undo changes runs when the agent ends, for whatever reason, and not before.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::support::{gone, process, until, Agent};
use leadline_wire::Event;
use serde_json::{json, Value};

/// A file to which commands write their names, one per line.
struct Log(PathBuf);

impl Log {
    fn new(name: &str) -> Self {
        let file = std::env::temp_dir().join(format!("leadline-undo-{name}-{}", std::process::id()));
        let _ = fs::remove_file(&file);
        Self(file)
    }

    fn read(&self) -> String {
        fs::read_to_string(&self.0).unwrap_or_default()
    }

    fn writes(&self, name: &str) -> Value {
        let script = "echo \"$1\" >> \"$2\"";
        json!({"kind": "undo", "argv": ["sh", "-c", script, "sh", name, self.0], "within_ms": 10_000})
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn register(agent: &mut Agent, names: &[&str], log: &Log) {
    for name in names {
        agent.prepare(name, &log.writes(name));
        agent.prepared(name);
    }
}

#[test]
fn commands_run_newest_first_at_the_end_of_stdin() {
    let log = Log::new("order");
    let mut agent = Agent::start();
    register(&mut agent, &["one", "two", "three"], &log);
    agent.send(&json!({"type": "stop", "trial": "t", "task": "two"}));
    agent.send(&json!({"type": "stop", "trial": "t", "task": null}));
    agent.clock_works();
    assert_eq!(log.read(), "");
    agent.hang_up();
    assert_eq!(agent.ended().0.code(), Some(0));
    // The agent has waited for them.
    assert_eq!(log.read(), "three\none\n");
}

#[test]
fn commands_run_after_the_processes_have_ended() {
    let log = Log::new("processes");
    let mut agent = Agent::start();
    let script = "pid=$1; kill -0 $pid 2>/dev/null && echo running >> \"$2\" || echo ended >> \"$2\"";
    agent.prepare("child", &process(&["sh", "-c", "trap '' TERM; while :; do sleep 1000; done"], &json!({})));
    let pid = agent.prepared("child").0.unwrap();
    let argv = json!(["sh", "-c", script, "sh", pid.to_string(), log.0]);
    agent.prepare("undo", &json!({"kind": "undo", "argv": argv, "within_ms": 10_000}));
    agent.prepared("undo");
    agent.send(&json!({"type": "shutdown"}));
    assert_eq!(agent.ended().0.code(), Some(0));
    assert_eq!(log.read(), "ended\n");
}

#[test]
fn commands_run_when_the_agent_is_killed() {
    let log = Log::new("killed");
    let mut agent = Agent::start();
    register(&mut agent, &["one", "two"], &log);
    agent.kill();
    until("the commands", || (log.read() == "two\none\n").then_some(()));
}

#[test]
fn commands_run_when_the_controller_falls_silent() {
    let log = Log::new("silent");
    let mut agent =
        Agent::spawn(Command::new(env!("CARGO_BIN_EXE_leadline-agent")).env("LEADLINE_PEER_PATIENCE_MS", "50"));
    register(&mut agent, &["one"], &log);
    agent.send(&json!({"type": "heartbeat"}));
    agent.ended();
    until("the command", || (log.read() == "one\n").then_some(()));
}

#[test]
fn command_without_an_end_keeps_no_other_from_running() {
    let log = Log::new("endless");
    let mut agent = Agent::start();
    register(&mut agent, &["one"], &log);
    let script = "echo $$ >> \"$1\"; sleep 1000 & wait";
    agent.prepare("endless", &json!({"kind": "undo", "argv": ["sh", "-c", script, "sh", log.0], "within_ms": 200}));
    agent.prepared("endless");
    agent.prepare("absent", &json!({"kind": "undo", "argv": ["/nonexistent"], "within_ms": 200}));
    agent.prepared("absent");
    agent.hang_up();
    assert_eq!(agent.ended().0.code(), Some(0));
    let text = log.read();
    let (pid, rest) = text.split_once('\n').unwrap();
    assert_eq!(rest, "one\n");
    assert!(gone(pid.parse().unwrap()));
}

#[test]
fn unusable_registrations_are_refused() {
    let log = Log::new("refused");
    let mut agent = Agent::start();
    register(&mut agent, &["one"], &log);
    for (workload, code) in [
        (log.writes("one"), "task_exists"),
        (json!({"kind": "undo", "argv": [], "within_ms": 1}), "bad_spec"),
        (json!({"kind": "undo", "argv": ["true"], "within_ms": 60_001}), "bad_spec"),
    ] {
        agent.prepare("one", &workload);
        let found = agent.wait("the refusal", |event| match event {
            Event::Failed { error, .. } => Some(error.code.clone()),
            _ => None,
        });
        assert_eq!(found, code);
    }
    agent.hang_up();
    agent.ended();
    assert_eq!(log.read(), "one\n");
}
