//! How requests end, other than by an ordinary response.

use super::*;

#[test]
fn each_time_limit_has_its_cause() {
    let mut bench = Bench::new(4, 6);
    bench.world.dials = VecDeque::from([Ok(client::Opening::Resolving)]);
    for number in 1..=4 {
        let mut send = request(number, number, "a.test");
        send.outgoing.url.is_https = number == 3;
        bench.send(send);
    }
    bench.input(2, Input::Connected);
    bench.input(3, Input::Connected);
    assert_eq!(bench.connections.deadline_ns(), Some(100 * MS));
    bench.after(100 * MS - 1);
    assert_eq!(bench.world.causes(), []);
    bench.after(1);
    bench.after(100 * MS);
    let expected = [(1, "dns_timeout"), (2, "connect_timeout"), (3, "tls_timeout"), (4, "response_timeout")];
    assert_eq!(bench.world.causes(), numbered(&expected));
    let End::Failed { detail, timed_out, opening, .. } = &bench.world.ends[&4][0] else { panic!("no failure") };
    assert_eq!((detail.as_str(), *timed_out), ("a.test did not answer within 200 ms", true));
    assert_eq!(*opening, Some(Opening::default()));
    let End::Failed { timed_out, opening, .. } = &bench.world.ends[&3][0] else { panic!("no failure") };
    assert_eq!((*timed_out, *opening), (false, None), "its connection was not opened");
    assert_eq!((bench.connections.open(), bench.connections.deadline_ns()), (0, None));
}

#[test]
fn request_may_have_its_own_time_limits() {
    let mut bench = Bench::new(4, 6);
    bench.send(Send { connect_timeout_ns: Some(MS), ..request(1, 1, "a.test") });
    bench.send(Send { response_timeout_ns: Some(2 * MS), ..request(2, 2, "a.test") });
    bench.input(1, Input::Connected);
    bench.after(MS);
    assert_eq!(bench.world.causes(), numbered(&[(1, "connect_timeout")]));
    bench.after(MS);
    assert_eq!(bench.world.causes().len(), 2);
}

#[test]
fn idle_connection_has_no_time_limit() {
    let mut bench = Bench::new(4, 6);
    bench.answer_first(1, 1, 0);
    bench.after(1000 * MS);
    assert_eq!((bench.connections.open(), bench.connections.deadline_ns()), (1, None));
}

/// Closes a kept connection while its second request is outstanding, after some bytes.
fn close_kept(is_idempotent: bool, bytes: &[u8]) -> Bench {
    let mut bench = Bench::new(4, 6);
    bench.answer_first(1, 1, 0);
    let mut send = request(1, 2, "a.test");
    send.outgoing.is_idempotent = is_idempotent;
    bench.send(send);
    bench.receive(0, bytes);
    bench.input(0, Input::Ended(Ok(())));
    bench
}

#[test]
fn idempotent_request_is_repeated_when_its_kept_connection_was_closed() {
    let mut bench = close_kept(true, b"");
    assert_eq!(bench.world.opened, [0, 0]);
    bench.input(0, Input::Connected);
    bench.receive(0, OK);
    assert_eq!(bench.world.causes(), numbered(&[(1, "200"), (2, "200")]));
    let counts = &bench.connections.tally().counts;
    assert_eq!((counts.repeated, counts.requests_due), (Some(1), 2));
    for bench in [close_kept(false, b""), close_kept(true, b"HTTP")] {
        assert_eq!(bench.world.causes()[1..], numbered(&[(2, "closed_early")]));
        assert_eq!((bench.connections.tally().counts.repeated, bench.connections.open()), (None, 0));
    }
}

#[test]
fn request_on_a_new_connection_is_not_repeated() {
    let mut bench = Bench::new(4, 6);
    bench.request(1, 1);
    bench.input(0, Input::Connected);
    bench.input(0, Input::Ended(Ok(())));
    assert_eq!(bench.world.causes(), numbered(&[(1, "closed_early")]));
}

#[test]
fn early_response_closes_its_connection() {
    let mut bench = Bench::new(4, 6);
    bench.world.takes = VecDeque::from([Ok(1)]);
    bench.answer_first(1, 1, 0);
    assert_eq!((bench.world.causes(), bench.connections.open()), (numbered(&[(1, "200")]), 0));
    assert_eq!(bench.world.counted[..2], [1, 1], "the request counts as sent");
}

#[test]
fn rest_of_a_request_is_sent_later_and_may_be_taken_back() {
    let mut bench = Bench::new(4, 6);
    bench.world.takes = VecDeque::from([Ok(1)]);
    bench.request(1, 1);
    bench.input(0, Input::Connected);
    assert_eq!(bench.world.counted[..2], [1, 0]);
    bench.input(0, Input::Sent(1));
    assert_eq!(bench.world.counted[..2], [2, 1]);
    bench.input(0, Input::NotSent { missing: 1, failure: failure("reset") });
    assert_eq!((&bench.world.counted[..2], bench.world.causes()), (&[1, 0][..], Vec::new()));
    bench.input(0, Input::Ended(Ok(())));
    assert_eq!(bench.world.causes(), numbered(&[(1, "reset")]), "why sending failed, not that the stream ended");
}

#[test]
fn response_that_came_before_a_failed_send_counts() {
    let mut bench = Bench::new(4, 6);
    bench.world.takes = VecDeque::from([Err(failure("reset"))]);
    bench.answer_first(1, 1, 0);
    bench.world.takes = VecDeque::from([Err(failure("no_buffer_space"))]);
    bench.request(1, 2);
    bench.input(0, Input::Connected);
    assert_eq!(bench.world.causes(), numbered(&[(1, "200"), (2, "no_buffer_space")]));
}

#[test]
fn end_of_the_stream_may_be_the_end_of_the_response() {
    let mut bench = Bench::new(4, 6);
    for (number, is_https) in [(1, false), (2, true), (3, true)] {
        let mut send = request(1, number, "a.test");
        send.outgoing.url.is_https = is_https;
        bench.send(send);
        bench.input(0, Input::Connected);
        bench.secure(0);
        bench.receive(0, b"HTTP/1.1 200 OK\r\n\r\nall");
        if number == 3 {
            // A server that announces the end ends the response before the connection ends.
            bench.world.servers.get_mut(&0).unwrap().close();
            bench.secure(0);
        }
        bench.input(0, Input::Ended(Ok(())));
    }
    assert_eq!(bench.world.causes(), numbered(&[(1, "200"), (2, "tls_truncated"), (3, "200")]));
    assert_eq!(bench.connections.open(), 0);
}

#[test]
fn damaged_responses_fail_by_their_cause() {
    let mut bench = Bench::new(4, 6);
    let twice = [OK, OK].concat();
    for (number, bytes) in [(1, &b"SMTP\r\n"[..]), (2, &twice)] {
        bench.request(1, number);
        bench.input(0, Input::Connected);
        bench.receive(0, bytes);
    }
    for (number, is_secured) in [(3, false), (6, true)] {
        let mut send = request(1, number, "a.test");
        send.outgoing.url.is_https = true;
        bench.send(send);
        bench.input(0, Input::Connected);
        if is_secured {
            bench.secure(0);
        }
        bench.receive_raw(0, b"HTTP/1.1 200 OK\r\n\r\n".to_vec());
    }
    bench.request(1, 4);
    bench.input(0, Input::Ended(Err(failure("refused"))));
    let causes = bench.world.causes();
    assert!(causes[..2].iter().all(|(_, cause)| cause.starts_with("malformed_")), "{causes:?}");
    assert_eq!(causes[2..], numbered(&[(3, "tls_malformed"), (4, "refused"), (6, "tls_malformed")]));
    bench.answer_first(1, 5, 0);
    bench.receive(0, OK);
    assert_eq!(bench.connections.open(), 0, "bytes without a request end an idle connection");
    assert_eq!(bench.world.ends[&5].len(), 1);
}

#[test]
fn cancelled_requests_are_counted_with_their_ages() {
    let mut bench = Bench::new(2, 1);
    bench.request(1, 1);
    bench.input(0, Input::Connected);
    bench.world.handed_over_ns = Some(0);
    bench.connections.note_handed_over(&bench.world);
    bench.request(1, 2);
    bench.request(2, 3);
    bench.now_ns = 1_500 * MS;
    bench.request(1, 4);
    bench.send(request(1, 5, "b.test"));
    bench.connections.cancel(1, bench.now_ns, &mut bench.world);
    let given_up = |latency_ns, service_ns| [End::GivenUp { latency_ns: Some(latency_ns), service_ns }];
    assert_eq!(bench.world.ends[&1], given_up(bench.now_ns, Some(bench.now_ns)));
    assert_eq!(bench.world.ends[&2], given_up(bench.now_ns, None));
    assert_eq!(
        (&bench.world.ends[&4], &bench.world.ends[&5]),
        (&given_up(0, None).to_vec(), &given_up(0, None).to_vec())
    );
    let counts = &bench.connections.tally().counts;
    assert_eq!((counts.unsent, counts.unanswered, counts.unanswered_over_1s), (3, 1, 1));
    assert_eq!((bench.world.kept, bench.connections.open()), (1, 1));
    assert!(!bench.world.ends.contains_key(&3), "another user's");
}

#[test]
fn end_of_the_test_keeps_the_sockets_of_outstanding_requests() {
    let mut bench = Bench::new(4, 1);
    bench.answer_first(1, 1, 0);
    for user in 2..=4 {
        bench.request(user, user);
    }
    bench.world.takes = VecDeque::from([Ok(2), Ok(1)]);
    bench.input(1, Input::Connected);
    bench.input(2, Input::Connected);
    bench.request(5, 5);
    bench.request(6, 6);
    bench.request(2, 7);
    bench.connections.finish(0, &mut bench.world);
    assert_eq!((bench.world.kept, bench.world.open.len(), bench.connections.open()), (1, 0, 0));
    let counts = &bench.connections.tally().counts;
    assert_eq!((counts.unanswered, counts.unsent), (1, 5));
    assert_eq!(bench.world.ends.len(), 7);
}
