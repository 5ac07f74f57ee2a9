//! Tests of what is counted at the end of a load, and of requests that are due while connections are busy.

use super::simulation::{Accept, Sending, ServerRequest};
use super::*;

/// More bytes than any test sends.
const ALL_BYTES: usize = 1 << 20;

fn open_loop() -> Settings {
    Settings { is_open_loop: true, ..settings() }
}

#[test]
fn silent_server_does_not_shorten_the_load() {
    let server =
        |request: &ServerRequest<'_>| if request.number < 3 { vec![Reaction::sends(MS, OK)] } else { Vec::new() };
    let closed = Load::new(settings(), 2, Simulation::new(server)).run(None, 4 * SECOND);
    assert_eq!(closed.counts(), [8, 8, 6, 2, 0, 0]);
    let open = Load::new(open_loop(), 2, Simulation::new(server)).run_at_rate(1000.0, None, 4 * SECOND);
    assert_eq!(open.counts(), [4000, 8, 6, 2, 3992, 0]);
    for ended in [closed, open] {
        let tally = &ended.tally;
        assert_eq!(tally.end_ns, Some(START_NS + 4 * SECOND), "it retried until the end");
        assert_eq!((tally.unanswered_long, ended.simulation.kept), (2, 2));
        // Only responses have a latency; of every other request the age is recorded.
        assert_eq!((ended.values(Metric::Latency).len(), ended.values(Metric::Service).len()), (6, 6));
        assert_eq!(ended.values(Metric::LatencyCensored).len() as u64, 2 + tally.unsent);
        assert_eq!(ended.values(Metric::ServiceCensored).len(), 2);
        // All connections were busy, so the generator is not the reason for unsent requests.
        assert_eq!(tally.unsent_while_busy, tally.unsent);
    }
}

#[test]
fn request_that_waits_for_a_connection_is_not_late() {
    // All requests but the first are due before the first response.
    let server =
        |request: &ServerRequest<'_>| vec![Reaction::sends(if request.total == 0 { 2 * SECOND } else { MS }, OK)];
    let ended = Load::new(open_loop(), 1, Simulation::new(server)).run_at_rate(1000.0, Some(100), 10 * SECOND);
    assert_eq!(ended.counts(), [100, 100, 100, 0, 0, 0]);
    assert_eq!(ended.tally.due_while_busy, 99);
    assert_eq!(ended.values(Metric::Late), [0; 100]);
    assert_eq!(ended.values(Metric::Latency)[1], 2 * SECOND, "due at 1 ms, sent at 2 s, answered 1 ms later");
}

#[test]
fn due_request_that_was_never_sent_is_unsent() {
    let silent = Simulation::new(|_| Vec::new());
    let ended = Load::new(open_loop(), 1, silent).run_at_rate(1e6, Some(1000), MS);
    assert_eq!(ended.counts(), [1000, 1, 0, 1, 999, 0]);
}

#[test]
fn n_paced_requests_last_n_gaps() {
    let ended = Load::new(open_loop(), 1, sends(OK)).run_at_rate(100.0, Some(5), SECOND);
    assert_eq!(ended.counts(), [5, 5, 5, 0, 0, 0]);
    assert_eq!(ended.tally.end_ns, Some(START_NS + 50 * MS), "five gaps of 10 ms");
}

#[test]
fn requests_due_in_the_last_wait_are_sent_unless_all_connections_are_busy() {
    // The second request is due a quarter of a microsecond before the end, and the wait ends after it.
    for (simulation, counts) in [(sends(OK), [2, 2, 1, 1, 0, 0]), (Simulation::new(|_| Vec::new()), [2, 1, 0, 1, 1, 0])]
    {
        let mut load = Load::new(open_loop(), 1, simulation);
        let stage = Stage { from_per_s: 20.0001, to_per_s: 20.0001, duration_ns: SECOND };
        let stages = Stages::new([stage]).unwrap();
        let share = ThreadShare { index: 0, threads: 1, batch: 1 };
        load.open();
        load.pool.begin(Schedule::Open(OpenLoop::new(stages, START_NS, 50 * MS, None, share)));
        load.run_until(START_NS + 49 * MS, |_| false);
        load.simulation.now_ns = START_NS + 51 * MS;
        assert_eq!(load.finish(START_NS + 50 * MS).counts(), counts);
    }
}

#[test]
fn requests_that_the_kernel_has_at_the_end_are_sent_and_unanswered() {
    let silent = |sending| Simulation { sending, ..Simulation::new(|_| Vec::new()) };
    let three = |sending| Load::scripted(settings(), TestScript::gets(3), silent(sending)).run(None, SECOND).counts();
    // The kernel has the three requests, and reports it only when the socket is detached.
    assert_eq!(three(Sending::Silent(ALL_BYTES)), [3, 3, 0, 3, 0, 0]);
    // The kernel has part of them, or nothing: an incomplete piece is unsent.
    for taken_bytes in [0, 10] {
        assert_eq!(three(Sending::Silent(taken_bytes)), [3, 0, 0, 0, 3, 0], "{taken_bytes}");
    }
    // The same holds for a request of the set.
    let one = Load::new(settings(), 1, silent(Sending::Silent(ALL_BYTES))).run(None, SECOND);
    assert_eq!(one.counts(), [1, 1, 0, 1, 0, 0]);
}

#[test]
fn a_request_that_waits_for_its_connection_to_be_opened_again_is_unsent() {
    let once = Settings { requests_per_connection: Some(1), ..settings() };
    let accept = |attempt| if attempt == 0 { Accept::Yes } else { Accept::Never };
    let simulation = Simulation { accept: Box::new(accept), ..sends(OK) };
    let ended = Load::new(once, 1, simulation).run(None, 500 * MS);
    assert_eq!(ended.counts(), [2, 1, 1, 0, 1, 0]);
    assert_eq!(ended.tally.unsent_while_busy, 1);
    assert_eq!(ended.values(Metric::LatencyCensored), [499 * MS], "counted from the previous response");
}

#[test]
fn load_that_ends_before_its_first_request_counts_nothing() {
    let mut load = Load::new(settings(), 4, sends(OK));
    load.open();
    let share = ThreadShare { index: 0, threads: 1, batch: 1 };
    load.pool.begin(Schedule::Closed(ClosedLoop::new(2 * START_NS, SECOND, None, share)));
    let ended = load.finish(START_NS);
    assert_eq!(ended.counts(), [0; 6]);
    assert_eq!((ended.tally.connections_opened, ended.tally.connections_down), (4, 0));
}

#[test]
fn rate_counts_requests_and_not_pieces() {
    let load = Load::scripted(open_loop(), TestScript::gets(5), sends(OK));
    let ended = load.run_at_rate(100.0, None, SECOND);
    assert_eq!(ended.counts(), [100, 100, 100, 0, 0, 0]);
}
