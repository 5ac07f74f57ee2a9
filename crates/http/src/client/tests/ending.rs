//! Tests of what is counted at the end of a load, and of requests that are due while connections are busy.

use super::world::{Accept, Asked, Sending};
use super::*;

/// More bytes than any test sends.
const ALL_BYTES: usize = 1 << 20;

fn open_loop() -> Settings {
    Settings { is_open_loop: true, ..settings() }
}

#[test]
fn a_server_that_falls_silent_does_not_shorten_the_load() {
    let server = |asked: &Asked<'_>| if asked.number < 3 { vec![Reaction::says(MS, OK)] } else { Vec::new() };
    let closed = Load::new(settings(), 2, World::new(server)).run(None, 4 * SECOND);
    assert_eq!(closed.counts(), [8, 8, 6, 2, 0, 0]);
    let open = Load::new(open_loop(), 2, World::new(server)).run_at_rate(1000.0, None, 4 * SECOND);
    assert_eq!(open.counts(), [4000, 8, 6, 2, 3992, 0]);
    for ended in [closed, open] {
        let tally = &ended.tally;
        assert_eq!(tally.end_ns, Some(START_NS + 4 * SECOND), "it retried until the end");
        assert_eq!((tally.unanswered_long, ended.world.kept), (2, 2));
        // Only responses have a latency; of every other request the age is recorded.
        assert_eq!((ended.values(Metric::Latency).len(), ended.values(Metric::Service).len()), (6, 6));
        assert_eq!(ended.values(Metric::LatencyCensored).len() as u64, 2 + tally.unsent);
        assert_eq!(ended.values(Metric::ServiceCensored).len(), 2);
        // All connections were busy, so the generator is not the reason for unsent requests.
        assert_eq!(tally.unsent_while_busy, tally.unsent);
    }
}

#[test]
fn what_waits_for_a_connection_is_not_late() {
    // All requests but the first are due before the first response.
    let server = |asked: &Asked<'_>| vec![Reaction::says(if asked.total == 0 { 2 * SECOND } else { MS }, OK)];
    let ended = Load::new(open_loop(), 1, World::new(server)).run_at_rate(1000.0, Some(100), 10 * SECOND);
    assert_eq!(ended.counts(), [100, 100, 100, 0, 0, 0]);
    assert_eq!(ended.tally.due_while_busy, 99);
    assert_eq!(ended.values(Metric::Late), [0; 100]);
    assert_eq!(ended.values(Metric::Latency)[1], 2 * SECOND, "due at 1 ms, sent at 2 s, answered 1 ms later");
}

#[test]
fn what_was_due_and_never_sent_is_unsent() {
    let silent = World::new(|_| Vec::new());
    let ended = Load::new(open_loop(), 1, silent).run_at_rate(1e6, Some(1000), MS);
    assert_eq!(ended.counts(), [1000, 1, 0, 1, 999, 0]);
}

#[test]
fn a_paced_number_of_requests_takes_up_as_many_gaps() {
    let ended = Load::new(open_loop(), 1, says(OK)).run_at_rate(100.0, Some(5), SECOND);
    assert_eq!(ended.counts(), [5, 5, 5, 0, 0, 0]);
    assert_eq!(ended.tally.end_ns, Some(START_NS + 50 * MS), "five gaps of 10 ms");
}

#[test]
fn what_fell_due_in_the_last_wait_is_sent_unless_the_server_has_all_connections() {
    // The second request is due a quarter of a microsecond before the end, and the wait ends after it.
    for (world, counts) in [(says(OK), [2, 2, 1, 1, 0, 0]), (World::new(|_| Vec::new()), [2, 1, 0, 1, 1, 0])] {
        let mut load = Load::new(open_loop(), 1, world);
        let stage = Stage { from_per_s: 20.0001, to_per_s: 20.0001, duration_ns: SECOND };
        let stages = Stages::new([stage]).unwrap();
        let share = ThreadShare { index: 0, threads: 1, batch: 1 };
        load.open();
        load.pool.begin(Schedule::Open(OpenLoop::new(stages, START_NS, 50 * MS, None, share)));
        load.turn_until(START_NS + 49 * MS, |_| false);
        load.world.now_ns = START_NS + 51 * MS;
        assert_eq!(load.finish(START_NS + 50 * MS).counts(), counts);
    }
}

#[test]
fn requests_that_the_kernel_has_at_the_end_are_sent_and_unanswered() {
    let silent = |sending| World { sending, ..World::new(|_| Vec::new()) };
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
    let world = World { accept: Box::new(accept), ..says(OK) };
    let ended = Load::new(once, 1, world).run(None, 500 * MS);
    assert_eq!(ended.counts(), [2, 1, 1, 0, 1, 0]);
    assert_eq!(ended.tally.unsent_while_busy, 1);
    assert_eq!(ended.values(Metric::LatencyCensored), [499 * MS], "since the response before it");
}

#[test]
fn a_load_that_is_over_before_a_request_falls_due_has_counted_nothing() {
    let mut load = Load::new(settings(), 4, says(OK));
    load.open();
    let share = ThreadShare { index: 0, threads: 1, batch: 1 };
    load.pool.begin(Schedule::Closed(ClosedLoop::new(2 * START_NS, SECOND, None, share)));
    let ended = load.finish(START_NS);
    assert_eq!(ended.counts(), [0; 6]);
    assert_eq!((ended.tally.connections_opened, ended.tally.connections_down), (4, 0));
}

#[test]
fn a_rate_counts_requests_whatever_leaves_in_one_piece() {
    let load = Load::scripted(open_loop(), TestScript::gets(5), says(OK));
    let ended = load.run_at_rate(100.0, None, SECOND);
    assert_eq!(ended.counts(), [100, 100, 100, 0, 0, 0]);
}
