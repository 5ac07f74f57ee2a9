//! Loads from one agent to another: both sides' sums agree, numbers are exact, a stop gives complete figures, and a
//! server that disconnects or sends garbage is a named failure.

use std::io::Write;
use std::net::TcpListener;

use crate::support::{rr, sum, target, target_of, tcp, udp, until, Agent};
use leadline_wire::{Blame, Direction, FlowReport, Outcome};
use serde_json::{json, Value};

const HOSTS: [&str; 2] = ["127.0.0.1", "::1"];

fn pair() -> (Agent, Agent, u16) {
    let (mut server, client) = (Agent::start(), Agent::start());
    let port = server.serve();
    (server, client, port)
}

fn count(outcome: &Outcome, metric: &str) -> u64 {
    outcome.histograms.iter().filter(|histogram| histogram.metric == metric).map(|histogram| histogram.count).sum()
}

/// Whether the machine ran the threads of all flows within their time.
fn all_sent(outcome: &Outcome) -> bool {
    outcome.flows.iter().all(|flow| flow.sent_bytes > Some(0))
}

fn whole(outcome: &Outcome, flows: usize) {
    assert!(outcome.errors.is_empty(), "{outcome:?}");
    assert_eq!(outcome.flows.len(), flows);
    let receiver = outcome.receiver.as_ref().unwrap();
    for load in [&outcome.generator, receiver] {
        assert!(load.wall_s > 0.0 && !load.threads.is_empty());
        assert!(load.threads.iter().all(|thread| thread.user_s + thread.system_s <= thread.wall_s + 0.05), "{load:?}");
    }
    for flow in &outcome.flows {
        assert!(flow.start_ns.unwrap() >= flow.due_ns.saturating_sub(1_000_000), "{flow:?}");
        assert!(flow.end_ns.unwrap() >= flow.start_ns.unwrap());
        assert!(flow.local.is_some() && flow.remote.is_some());
    }
}

#[test]
fn tcp_in_each_direction_over_both_families() {
    let (_server, mut client, port) = pair();
    for host in HOSTS {
        for (direction, flows) in [("up", 3), ("down", 3), ("both", 6)] {
            let changes = json!({"direction": direction, "flows": 3, "threads": 2, "duration_ms": 50_000});
            client.begin("load", &tcp(&target(host, port), &changes));
            client.all_moving(flows);
            client.send(&json!({"type": "stop", "trial": "t", "task": null}));
            let outcome = client.finished("load");
            whole(&outcome, flows);
            for flow in &outcome.flows {
                assert!(flow.sent_bytes > Some(0));
                assert_eq!(flow.sent_bytes, flow.received_bytes, "{flow:?}");
            }
        }
    }
}

#[test]
fn paced_tcp_keeps_its_rate_and_reports_lateness() {
    let (_server, mut client, port) = pair();
    let changes = json!({"direction": "both", "flows": 2, "rate_bps": 4_000_000, "block_bytes": 1000,
        "duration_ms": 1000});
    let outcome = until("all flows to send within their time", || {
        let outcome = client.run(&tcp(&target("127.0.0.1", port), &changes));
        for flow in &outcome.flows {
            // Half a million bytes a second in blocks of a thousand; never one block too many.
            assert!(flow.sent_bytes <= Some(500_000), "{flow:?}");
            assert_eq!(flow.sent_bytes, flow.received_bytes);
        }
        all_sent(&outcome).then_some(outcome)
    });
    whole(&outcome, 4);
    assert!(outcome.generator.late_p99_us.is_some() && outcome.receiver.unwrap().late_p99_us.is_some());
}

#[test]
fn udp_in_each_direction_over_both_families() {
    // A sender that changes its CPU can overtake its own datagrams, which wait in a queue of its earlier CPU.
    assert!((0..1024).any(|cpu| leadline_sys::usage::pin_to(cpu).is_ok()));
    let (_server, mut client, port) = pair();
    for host in HOSTS {
        for (direction, flows) in [("up", 3), ("down", 3), ("both", 6)] {
            let changes =
                json!({"direction": direction, "flows": 3, "threads": 2, "number": 300, "duration_ms": 50_000});
            let outcome = client.run(&udp(&target(host, port), &changes));
            whole(&outcome, flows);
            for flow in &outcome.flows {
                let (sent, received) = (flow.sent_units.unwrap(), flow.received_units.unwrap());
                assert_eq!(sent, 300, "{flow:?}");
                assert_eq!(flow.lost, Some(sent - received));
                assert_eq!((flow.sent_bytes, flow.received_bytes), (Some(sent * 200), Some(received * 200)));
                assert_eq!((flow.duplicates, flow.reordered), (Some(0), Some(0)));
                assert!(flow.jitter_us.is_some());
            }
            let receiver = outcome.receiver.as_ref().unwrap();
            assert_eq!(outcome.generator.late_p99_us.is_some(), direction != "down");
            assert_eq!(receiver.late_p99_us.is_some(), direction != "up");
            let up = |flow: &FlowReport| if flow.direction == Direction::Up { flow.sent_units.unwrap() } else { 0 };
            assert_eq!(count(&outcome, "late"), sum(&outcome, up));
            assert_eq!(outcome.counts["unsent"], 0);
        }
    }
}

#[test]
fn udp_ends_at_its_number_paced_or_not() {
    let (_server, mut client, port) = pair();
    for (rate, direction) in [(json!(null), "up"), (json!(null), "down"), (json!(5000.0), "both")] {
        let changes =
            json!({"number": 777, "rate_pps": rate, "direction": direction, "duration_ms": 50_000, "flows": 2});
        let outcome = client.run(&udp(&target("::1", port), &changes));
        for flow in &outcome.flows {
            assert_eq!(flow.sent_units, Some(777));
            assert_eq!(flow.received_units.unwrap() + flow.lost.unwrap(), 777);
        }
    }
}

#[test]
fn datagrams_beyond_capacity_are_unsent_and_not_late() {
    let (_server, mut client, port) = pair();
    let changes = json!({"rate_pps": 20e6, "flows": 2, "duration_ms": 300});
    let outcome = client.run(&udp(&target("127.0.0.1", port), &changes));
    assert_eq!(sum(&outcome, |flow| flow.sent_units.unwrap()) + outcome.counts["unsent"], 2 * 6_000_000);
    assert!(outcome.counts["unsent"] > 0);
    // If a flow continued until its backlog was sent, nothing would be unsent.
    assert_eq!(outcome.flows.len(), 2);
}

#[test]
fn rr_over_both_protocols_and_families_counts_each_transaction() {
    let (_server, mut client, port) = pair();
    for host in HOSTS {
        for protocol in ["tcp", "udp"] {
            let changes =
                json!({"protocol": protocol, "flows": 3, "threads": 2, "number": 1000, "duration_ms": 50_000});
            let outcome = client.run(&rr(&target(host, port), &changes));
            whole(&outcome, 3);
            assert_eq!(sum(&outcome, |flow| flow.sent_units.unwrap()), 1000);
            assert_eq!(count(&outcome, "latency"), 1000);
        }
    }
}

#[test]
fn rr_messages_larger_than_the_socket_buffer() {
    let (_server, mut client, port) = pair();
    let size = 9 << 20;
    let changes =
        json!({"request_bytes": size, "response_bytes": size, "number": 6, "flows": 2, "duration_ms": 50_000});
    let outcome = client.run(&rr(&target("127.0.0.1", port), &changes));
    whole(&outcome, 2);
    assert_eq!(count(&outcome, "latency"), 6);
    assert_eq!(sum(&outcome, |flow| flow.sent_bytes.unwrap()), 6 * size);
}

fn loads(port: u16) -> Vec<Value> {
    let target = target("127.0.0.1", port);
    let long = |more: Value| {
        let mut changes = json!({"duration_ms": 50_000, "flows": 2});
        changes.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        changes
    };
    vec![
        tcp(&target, &long(json!({"direction": "both"}))),
        udp(&target, &long(json!({"direction": "both"}))),
        rr(&target, &long(json!({}))),
        rr(&target, &long(json!({"protocol": "udp"}))),
    ]
}

#[test]
fn a_stop_in_the_middle_gives_complete_figures() {
    let (_server, mut client, port) = pair();
    for load in loads(port) {
        client.begin("load", &load);
        client.all_moving(if load["kind"] == "rr" { 2 } else { 4 });
        client.send(&json!({"type": "stop", "trial": "t", "task": null}));
        let outcome = client.finished("load");
        assert!(outcome.errors.is_empty(), "{load} {outcome:?}");
        for flow in &outcome.flows {
            assert!(flow.sent_bytes > Some(0), "{load} {flow:?}");
            if load["kind"] == "tcp" {
                assert_eq!(flow.sent_bytes, flow.received_bytes);
            }
        }
        assert!(outcome.receiver.is_some());
    }
}

#[test]
fn a_server_that_vanishes_is_a_named_failure() {
    for index in 0..loads(0).len() {
        let (mut server, mut client, port) = pair();
        client.begin("load", &loads(port)[index]);
        client.moving();
        server.kill();
        let error = client.failure();
        let names = ["closed_early", "connection_reset", "broken_pipe"];
        assert!(names.contains(&error.code.as_str()), "{error:?}");
        client.clock_works();
    }
}

#[test]
fn a_stopped_server_ends_its_sessions() {
    let (mut server, mut client, port) = pair();
    client.begin("load", &loads(port)[0]);
    client.moving();
    server.send(&json!({"type": "stop", "trial": "t", "task": "serve"}));
    assert!(!client.failure().code.is_empty());
}

#[test]
fn a_protocol_violation_of_the_server_is_a_named_failure() {
    let long_frame = [0xff; 8].to_vec();
    let no_message = [&[0, 0, 0, 2][..], b"{}"].concat();
    let out_of_turn = [&[0, 0, 0, 15][..], br#"{"say":"ready"}"#].concat();
    let answers = [
        (long_frame, "protocol"),
        (no_message, "protocol"),
        (out_of_turn, "protocol"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(), "protocol"),
        (Vec::new(), "closed_early"),
    ];
    let mut client = Agent::start();
    for (answer, code) in answers {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        client.prepare("load", &tcp(&target_of(listener.local_addr().unwrap()), &json!({})));
        let (mut connection, _) = listener.accept().unwrap();
        // The client's message is read first, so that the close is not a reset.
        let mut request = [0; 64];
        let _ = std::io::Read::read(&mut connection, &mut request).unwrap();
        connection.write_all(&answer).unwrap();
        connection.shutdown(std::net::Shutdown::Write).unwrap();
        let error = client.failure();
        assert_eq!((error.blame, error.code.as_str()), (Blame::Peer, code), "{error:?}");
    }
}

#[test]
fn a_sigstop_while_waiting_for_a_server_is_survived() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut client = Agent::start();
    client.prepare("load", &tcp(&target_of(listener.local_addr().unwrap()), &json!({})));
    let (mut connection, _) = listener.accept().unwrap();
    let mut request = [0; 64];
    let _ = std::io::Read::read(&mut connection, &mut request).unwrap();
    for _ in 0..3 {
        client.until_all_threads("sleep", 'S');
        client.signal("STOP");
        client.until_all_threads("stand still", 'T');
        client.signal("CONT");
        client.clock_works();
    }
    connection.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
    assert_eq!(client.failure().code, "protocol");
}

#[test]
fn server_limits_are_refused_by_name() {
    let (mut server, mut client) = (Agent::start(), Agent::start());
    let target = target("127.0.0.1", server.serve_with(1000, 2));
    let cases = [
        (tcp(&target, &json!({"flows": 3})), "too_many_flows"),
        (tcp(&target, &json!({"duration_ms": 1001})), "too_long"),
        (tcp(&target, &json!({"interval_ms": 1})), "bad_request"),
        (tcp(&target, &json!({"block_bytes": 17 << 20})), "bad_size"),
    ];
    for (load, code) in cases {
        client.prepare("load", &load);
        let error = client.failure();
        assert_eq!((error.blame, error.code.as_str()), (Blame::Peer, code), "{error:?}");
    }
    let load = tcp(&target, &json!({"flows": 2}));
    let outcome = until("both flows to send within their time", || {
        let outcome = client.run(&load);
        all_sent(&outcome).then_some(outcome)
    });
    whole(&outcome, 2);
}
