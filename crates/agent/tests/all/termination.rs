//! The agent's end: soon, whatever it is doing, and with every process that it started.

use std::io::Write;
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::support::{gone, process, rr, target, target_of, tcp, until, Agent};
use leadline_wire::Event;
use serde_json::json;

/// The promised time is 3 s; the rest is for a busy machine. Loads, starts and children last longer.
const SOON: Duration = Duration::from_secs(45);
/// A connection attempt that is waited for takes 10 s.
const BEFORE_A_TIMEOUT: Duration = Duration::from_secs(9);

fn ends_soon(agent: &mut Agent) {
    ends_within(SOON, agent);
}

fn ends_within(limit: Duration, agent: &mut Agent) {
    agent.hang_up();
    let (status, took) = agent.ended();
    assert_eq!(status.code(), Some(0));
    assert!(took < limit, "{took:?}");
}

/// A process that ignores SIGTERM, with a child of its own and one in another session.
const STUBBORN: &str = "trap '' TERM; sleep 1000 & echo pid $!; setsid sleep 1000 & echo pid $!; echo ready; \
    while :; do sleep 1000; done";

/// Starts it; returns all process ids.
fn stubborn(agent: &mut Agent) -> Vec<u32> {
    agent.prepare("stubborn", &process(&["sh", "-c", STUBBORN], &json!({})));
    let mut pids = vec![agent.prepared("stubborn").0.unwrap()];
    agent.wait("its children", |event| match event {
        Event::Output { line, .. } => {
            pids.extend(line.strip_prefix("pid ").and_then(|pid| pid.parse::<u32>().ok()));
            (line == "ready").then_some(())
        }
        _ => None,
    });
    assert_eq!(pids.len(), 3);
    assert!(pids.iter().all(|pid| !gone(*pid)));
    pids
}

#[test]
fn an_idle_agent_ends_with_its_input() {
    ends_soon(&mut Agent::start());
}

/// 20 ticks of silence take a second.
const SHORT_TICKS: (&str, &str) = ("LEADLINE_PEER_PATIENCE_MS", "50");

fn with_short_ticks() -> Agent {
    Agent::spawn(Command::new(env!("CARGO_BIN_EXE_leadline-agent")).env(SHORT_TICKS.0, SHORT_TICKS.1))
}

#[test]
fn ends_with_all_its_processes_when_the_controller_falls_silent() {
    let mut agent = with_short_ticks();
    agent.send(&json!({"type": "heartbeat"}));
    let pids = stubborn(&mut agent);
    // Its stdin stays open, as where the network is cut.
    // In order or, as its short ticks leave less time than such processes take, at once.
    agent.ended();
    until("its processes' end", || pids.iter().all(|pid| gone(*pid)).then_some(()));
}

#[test]
fn ends_when_the_controller_falls_silent_and_takes_no_events() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_leadline-agent"))
        .env(SHORT_TICKS.0, SHORT_TICKS.1)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut commands = "{\"type\": \"heartbeat\"}\n".to_owned();
    // Fewer bytes than a pipe holds ask for more than one holds: the agent's writer waits.
    for id in 0..1500 {
        commands += &format!("{{\"type\":\"inspect\",\"id\":{id}}}\n");
    }
    let stdin = child.stdin.as_mut().unwrap();
    stdin.write_all(commands.as_bytes()).unwrap();
    let status = until("its end", || child.try_wait().unwrap());
    assert_eq!(status.code(), Some(1));
}

#[test]
fn waits_for_commands_of_a_controller_that_sends_no_heartbeat() {
    let mut agent = with_short_ticks();
    let mut beats = 0;
    // They take three seconds, which are 60 ticks.
    agent.wait("heartbeats", |event| {
        beats += u32::from(matches!(event, Event::Heartbeat { .. }));
        (beats == 4).then_some(())
    });
    ends_soon(&mut agent);
}

#[test]
fn ends_during_a_load_on_either_side() {
    let (mut server, mut client) = (Agent::start(), Agent::start());
    let target = target("127.0.0.1", server.serve());
    client.begin("tcp", &tcp(&target, &json!({"duration_ms": 50_000, "direction": "both"})));
    client.moving();
    ends_soon(&mut client);
    let mut client = Agent::start();
    client.begin("rr", &rr(&target, &json!({"duration_ms": 50_000})));
    client.moving();
    ends_soon(&mut server);
    assert!(!client.failure().code.is_empty());
}

#[test]
fn ends_before_a_distant_start() {
    let (mut server, mut client) = (Agent::start(), Agent::start());
    let target = target("127.0.0.1", server.serve());
    client.prepare("tcp", &tcp(&target, &json!({})));
    client.prepared("tcp");
    let far_ns = leadline_sys::clock::monotonic_ns() + 100_000_000_000;
    client.send(&json!({"type": "start", "trial": "t", "at_ns": far_ns}));
    client.wait("started", |event| matches!(event, Event::Started { .. }).then_some(()));
    ends_soon(&mut client);
}

#[test]
fn ends_with_children_that_ignore_signals() {
    let mut agent = Agent::start();
    let pids = stubborn(&mut agent);
    ends_soon(&mut agent);
    // None of them outlives the agent, not even for a moment: it has waited for them before it ended.
    assert_eq!(pids.iter().filter(|pid| !gone(**pid)).count(), 0);
}

#[test]
fn ends_when_its_output_is_closed() {
    // A reader that disappears: the agent notices with its next heartbeat.
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_leadline-agent"))
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let status = until("its end", || child.try_wait().unwrap());
    assert_eq!(status.code(), Some(1));
}

#[test]
fn killed_outright_its_children_die() {
    let mut agent = Agent::start();
    let pids = stubborn(&mut agent);
    agent.kill();
    until("the child's end", || gone(pids[0]).then_some(()));
    // After a kill, only the kernel's namespaces can end grandchildren; here the test does it.
    let its_group = format!("-{}", pids[0]);
    for target in [its_group, pids[2].to_string()] {
        let _ = std::process::Command::new("kill").args(["-9", "--", &target]).status();
    }
}

#[test]
fn ends_while_a_server_delays_preparation() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut agent = Agent::start();
    agent.prepare("tcp", &tcp(&target_of(silent.local_addr().unwrap()), &json!({})));
    let _connection = silent.accept().unwrap();
    ends_within(BEFORE_A_TIMEOUT, &mut agent);
}

#[test]
fn ends_during_an_unanswered_connect() {
    let full = TcpListener::bind("127.0.0.1:0").unwrap();
    // Shortens the queue, which the standard library cannot do.
    socket2::SockRef::from(&full).listen(0).unwrap();
    let address = full.local_addr().unwrap();
    let mut queue = Vec::new();
    while let Ok(connection) = std::net::TcpStream::connect_timeout(&address, Duration::from_millis(300)) {
        queue.push(connection);
        assert!(queue.len() < 100);
    }
    let mut agent = Agent::start();
    agent.prepare("tcp", &tcp(&target_of(address), &json!({})));
    agent.clock_works();
    ends_within(BEFORE_A_TIMEOUT, &mut agent);
}
