//! The contract over stdio: the first lines, the responses to commands, and that no line ends the agent.

use crate::support::{self, process, rr, target, tcp, udp, Agent};
use leadline_wire::{Event, LINE_LIMIT_BYTES};
use serde_json::json;

#[test]
fn hello_comes_first_and_a_heartbeat_each_second() {
    let mut agent = Agent::start_without_reader();
    let first = agent.next("hello");
    let Event::Hello { pid, capabilities, .. } = first else { panic!("{first:?}") };
    assert_eq!(pid, agent.pid());
    assert!(!capabilities.is_empty());
    let mut beats = Vec::new();
    while beats.len() < 3 {
        if let Event::Heartbeat { t_ns } = agent.next("a heartbeat") {
            beats.push(t_ns);
        }
    }
    assert!(beats.is_sorted());
}

#[test]
fn an_invalid_command_is_refused_by_name() {
    let mut agent = Agent::start();
    let wrong: [&[u8]; 8] = [
        b"\n",
        b"garbage\n",
        b"{}\n",
        b"[1, 2]\n",
        b"\xff\xfe\x00\n",
        b"{\"type\": \"fly\"}\n",
        b"{\"type\": \"clock\", \"id\": 1, \"surprise\": true}\n",
        b"{\"type\": \"clock\", \"id\": -1}\n",
    ];
    for line in wrong {
        agent.write(line);
        assert_eq!(agent.failure().code, "bad_command", "{line:?}");
    }
    agent.write(&[b"[".repeat(100_000), b"\n".to_vec()].concat());
    assert_eq!(agent.failure().code, "bad_command");
    agent.clock_works();
}

#[test]
fn a_line_over_the_limit_is_refused_entirely() {
    let mut agent = Agent::start();
    agent.write(&vec![b'x'; LINE_LIMIT_BYTES + 5]);
    // The rest of that line must not count as a command.
    agent.write(b"{\"type\": \"shutdown\"}\n");
    assert_eq!(agent.failure().code, "line_too_long");
    agent.clock_works();
}

#[test]
fn specifications_that_make_no_sense_fail_by_name() {
    let mut agent = Agent::start();
    let here = target("127.0.0.1", 1);
    let cases = [
        (tcp(&here, &json!({"flows": 0})), "bad_spec"),
        (tcp(&here, &json!({"rate_bps": 0})), "bad_rate"),
        (tcp(&here, &json!({"bind": "nowhere"})), "bad_address"),
        (tcp(&here, &json!({})), "connection_refused"),
        (udp(&here, &json!({"datagram_bytes": 15})), "bad_size"),
        (udp(&here, &json!({"rate_pps": 0.0})), "bad_rate"),
        (rr(&here, &json!({"timeout_ms": 0})), "bad_spec"),
        (rr(&here, &json!({"protocol": "udp", "request_bytes": 1})), "bad_size"),
        (rr(&target("no-such-host.invalid", 1), &json!({})), "unknown_host"),
        (process(&[], &json!({})), "bad_spec"),
        (process(&["/no/such/program"], &json!({})), "not_found"),
        (process(&["true"], &json!({"log": "/no/such/folder/log"})), "not_found"),
    ];
    for (workload, code) in cases {
        agent.prepare("task", &workload);
        assert_eq!(agent.failure().code, code, "{workload}");
    }
    agent.clock_works();
}

#[test]
fn a_task_name_is_taken_while_its_task_lives() {
    let mut agent = Agent::start();
    agent.serve();
    agent.prepare("serve", &process(&["true"], &json!({})));
    assert_eq!(agent.failure().code, "task_exists");
    // Neither is an error: a task may just have ended by itself.
    agent.send(&json!({"type": "start", "trial": "unknown", "at_ns": 0}));
    agent.send(&json!({"type": "stop", "trial": "unknown", "task": null}));
    agent.clock_works();
}

#[test]
fn a_taken_port_is_named_and_a_stopped_servers_is_free() {
    let mut agent = Agent::start();
    // No other program uses this address, so that the port stays free once it is released.
    let at = |port: u16| {
        json!({"kind": "serve", "bind": ["127.0.7.7"], "port": port, "http_port": null, "https_port": null,
            "answer": support::answer(), "longest_ms": 1, "most_flows": 1})
    };
    agent.prepare("serve", &at(0));
    let port = agent.prepared("serve").1.unwrap();
    agent.prepare("other", &at(port));
    assert_eq!(agent.failure().code, "address_in_use");
    agent.send(&json!({"type": "stop", "trial": "t", "task": "serve"}));
    support::until("the port", || std::net::TcpListener::bind(("127.0.7.7", port)).ok());
}

#[test]
fn network_is_reported_and_the_host_observed_until_stopped() {
    let mut agent = Agent::start();
    agent.send(&json!({"type": "inspect", "id": 5}));
    let view = agent.wait("the network", |event| match event {
        Event::Network { id: 5, view, .. } => Some(view.clone()),
        _ => None,
    });
    assert!(view.interfaces.iter().any(|interface| interface.name == "lo"));
    agent.send(&json!({"type": "observe", "trial": "t", "period_ms": 20, "machine": true}));
    let mut times = Vec::new();
    let own = agent.pid();
    while times.len() < 3 {
        let sample = agent.wait("a sample", |event| match event {
            Event::Observation(sample) => Some(sample.clone()),
            _ => None,
        });
        assert_eq!(sample.trial.as_deref(), Some("t"));
        assert!(sample.machine.is_some() && sample.processes.iter().any(|process| process.pid == own));
        times.push(sample.t_ns);
    }
    assert!(times.is_sorted());
    agent.send(&json!({"type": "observe", "trial": null, "period_ms": 0, "machine": false}));
    agent.clock_works();
    let mut samples = 0;
    for _ in 0..3 {
        agent.wait("a heartbeat", |event| {
            samples += usize::from(matches!(event, Event::Observation(_)));
            matches!(event, Event::Heartbeat { .. }).then_some(())
        });
    }
    assert!(samples <= 1, "one may have been in progress, and no more follow");
}

#[test]
fn named_processes_and_the_soaker_are_in_the_samples_while_asked_for() {
    let mut agent = Agent::start();
    let mut other = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
    let order = json!({"type": "observe", "trial": null, "period_ms": 20, "machine": true, "pids": [other.id()],
        "programs": ["leadline-agent"], "soak": true});
    agent.send(&order);
    let pids = [other.id(), agent.pid()];
    // A busy machine may leave it nothing for some time.
    agent.wait("a CPU that was left", |event| match event {
        Event::Observation(sample) => {
            let known = |pid: &u32| sample.processes.iter().filter(|process| process.pid == *pid).count() == 1;
            assert!(pids.iter().all(known), "{:?}", sample.processes);
            let soaker = sample.soaker.as_ref().expect("it was asked for");
            soaker.iter().any(|cpu| cpu.slices > 0 && cpu.fastest_ns.is_some_and(|ns| ns > 0)).then_some(())
        }
        _ => None,
    });
    agent.send(&json!({"type": "observe", "trial": "off", "period_ms": 20, "machine": false}));
    agent.wait("a sample without it", |event| match event {
        Event::Observation(sample) if sample.trial.is_some() => {
            assert!(sample.soaker.is_none() && sample.processes.iter().all(|process| process.pid != other.id()));
            Some(())
        }
        _ => None,
    });
    other.kill().unwrap();
    other.wait().unwrap();
}

#[test]
fn wake_ups_are_measured_on_request() {
    let mut agent = Agent::start();
    agent.send(&json!({"type": "wake_up", "id": 9}));
    agent.clock_works();
    agent.wait("the wake-ups", |event| matches!(event, Event::WakeUp { id: 9, .. }).then_some(()));
}

#[test]
fn a_process_reports_its_lines_and_its_exit() {
    let mut agent = Agent::start();
    let script = "echo one; echo two >&2; echo $WORD; exit 7";
    let changes = json!({"env": {"WORD": "three"}, "report": ["one", "three"]});
    agent.prepare("p", &process(&["sh", "-c", script], &changes));
    let mut lines = Vec::new();
    let (code, expected) = agent.wait("its end", |event| match event {
        Event::Output { line, .. } => {
            lines.push(line.clone());
            None
        }
        Event::Exited { code, expected, usage, .. } => {
            assert!(usage.is_some_and(|used| used.max_resident_bytes > 0));
            Some((*code, *expected))
        }
        _ => None,
    });
    lines.sort();
    assert_eq!((lines, code, expected), (vec!["one".to_owned(), "three".to_owned()], Some(7), false));

    agent.prepare("p", &process(&["sleep", "1000"], &json!({})));
    agent.prepared("p");
    agent.send(&json!({"type": "stop", "trial": "t", "task": "p"}));
    let end = agent.wait("its end", |event| match event {
        Event::Exited { signal, expected, .. } => Some((*signal, *expected)),
        _ => None,
    });
    assert_eq!(end, (Some(15), true));
}

#[test]
fn a_daemon_holding_the_pipes_does_not_delay_its_parents_exit() {
    let mut agent = Agent::start();
    let script = "setsid sleep 1000 & echo $!";
    agent.prepare("p", &process(&["sh", "-c", script], &json!({})));
    agent.wait("its end", |event| matches!(event, Event::Exited { code: Some(0), .. }).then_some(()));
    agent.hang_up();
    agent.ended();
}

#[test]
fn shutdown_ends_the_agent_in_order() {
    let mut agent = Agent::start();
    agent.serve();
    agent.send(&json!({"type": "shutdown"}));
    assert_eq!(agent.ended().0.code(), Some(0));
}
