//! How many connections there are, who makes room, and who waits.

use super::*;

#[test]
fn requests_beyond_a_users_limit_wait_in_their_order() {
    let mut bench = Bench::new(4, 2);
    (1..=5).for_each(|number| bench.request(1, number));
    assert_eq!(bench.world.opened, [0, 1]);
    bench.input(0, Input::Connected);
    bench.input(1, Input::Connected);
    for slot in [1, 0, 0, 1, 0] {
        bench.receive(slot, OK);
    }
    assert_eq!(bench.world.sent, [(0, 1), (1, 2), (1, 3), (0, 4), (0, 5)]);
    assert_eq!(bench.world.ends.len(), 5);
    assert_eq!(bench.connections.tally().counts.connections_opened, 2);
}

#[test]
fn longest_idle_connection_makes_room() {
    let mut bench = Bench::new(3, 6);
    for user in 0..3 {
        bench.now_ns += 1;
        bench.answer_first(user, user, user);
    }
    bench.request(0, 10);
    bench.now_ns += 1;
    bench.receive(0, OK);
    bench.request(9, 11);
    assert_eq!(bench.world.opened, [0, 1, 2, 1], "that of user 1 has been idle for the longest time");
    bench.request(8, 12);
    assert_eq!(bench.world.opened[4..], [2]);
    bench.request(0, 13);
    assert_eq!(bench.world.sent.last(), Some(&(0, 13)), "that of user 0 is still open");
}

#[test]
fn own_idle_connection_to_another_origin_makes_room_first() {
    let mut bench = Bench::new(2, 6);
    bench.answer_first(1, 1, 0);
    bench.now_ns += 1;
    bench.answer_first(2, 2, 1);
    bench.send(request(2, 3, "b.test"));
    assert_eq!(bench.world.opened, [0, 1, 1]);
}

#[test]
fn requests_without_a_vacant_connection_wait_in_their_order() {
    let mut bench = Bench::new(1, 6);
    (1..=4).for_each(|user| bench.request(user, user));
    assert_eq!(bench.connections.open(), 1);
    for _ in 0..4 {
        bench.input(0, Input::Connected);
        bench.receive(0, OK);
    }
    assert_eq!(bench.world.sent, [(0, 1), (0, 2), (0, 3), (0, 4)]);
}

#[test]
fn user_has_the_first_use_of_its_connection() {
    let mut bench = Bench::new(1, 6);
    bench.request(1, 1);
    bench.request(2, 2);
    bench.input(0, Input::Connected);
    bench.world.received = OK.to_vec();
    bench.connections.handle(0, 0, Input::Received, &mut bench.world);
    bench.request(1, 3);
    assert!(bench.connections.make_room(0, &mut bench.world));
    assert_eq!(bench.world.sent, [(0, 1), (0, 3)]);
    bench.receive(0, OK);
    bench.input(0, Input::Connected);
    assert_eq!(bench.world.sent[2..], [(0, 2)]);
    bench.receive(0, OK);
    assert!(!bench.connections.make_room(0, &mut bench.world), "nothing waits");
}

#[test]
fn failures_at_once_of_many_waiting_requests_need_no_deep_stack() {
    const MANY: u32 = 200_000;
    for users in [1, MANY] {
        let mut bench = Bench::new(1, 1);
        (0..MANY).for_each(|number| bench.request(number % users, number));
        bench.world.dials = (1..MANY).map(|_| Err(failure("unreachable"))).collect();
        bench.input(0, Input::Connected);
        bench.world.received = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n".to_vec();
        bench.input(0, Input::Received);
        assert_eq!((bench.world.ends.len(), bench.connections.open()), (MANY as usize, 0));
        assert!(bench.world.ends.values().all(|ends| ends.len() == 1));
    }
}

#[test]
fn closing_idle_connections_keeps_those_in_use() {
    let mut bench = Bench::new(2, 6);
    bench.answer_first(1, 1, 0);
    bench.request(1, 2);
    bench.request(1, 3);
    bench.input(1, Input::Connected);
    bench.receive(1, OK);
    bench.request(2, 4);
    bench.connections.close_idle(1, 0, &mut bench.world);
    assert_eq!(bench.world.open.keys().collect::<Vec<_>>(), [&0, &1], "request 4 made room for itself");
    bench.receive(0, OK);
    bench.connections.close_idle(1, 0, &mut bench.world);
    assert_eq!(bench.world.open.keys().collect::<Vec<_>>(), [&1]);
}

#[test]
fn limit_that_passes_costs_no_look_at_other_connections() {
    const CONNECTIONS: usize = 10_000;
    let mut bench = Bench::new(CONNECTIONS, 6);
    for user in 0..CONNECTIONS as u32 {
        bench.now_ns += 1;
        bench.request(user, user);
    }
    bench.after(100 * MS - CONNECTIONS as u64 + 1);
    assert_eq!(bench.world.causes(), numbered(&[(0, "connect_timeout")]));
    assert_eq!(bench.connections.deadlines.taken, 1);
    bench.after(3);
    assert_eq!((bench.world.ends.len(), bench.connections.deadlines.taken), (4, 4));
}

#[test]
fn connection_in_use_has_one_limit_in_the_queue() {
    let mut bench = Bench::new(1, 6);
    bench.answer_first(1, 0, 0);
    for number in 1..1000 {
        bench.after(MS);
        bench.request(1, number);
        bench.receive(0, OK);
    }
    // That of connecting, and one for each 200 ms of responses.
    assert!(bench.connections.deadlines.taken <= 6, "{}", bench.connections.deadlines.taken);
    bench.request(1, 1000);
    bench.after(200 * MS - 1);
    assert_eq!(bench.world.ends.len(), 1000, "it is not over");
    bench.after(1);
    assert_eq!(bench.world.causes().last(), Some(&(1000, "response_timeout".to_owned())));
}

#[test]
fn earlier_limit_of_a_later_request_counts() {
    let mut bench = Bench::new(1, 6);
    bench.answer_first(1, 0, 0);
    let mut short = request(1, 1, "a.test");
    short.response_timeout_ns = Some(MS);
    bench.send(short);
    assert_eq!(bench.connections.deadline_ns(), Some(MS));
    bench.after(MS);
    assert_eq!(bench.world.causes().last(), Some(&(1, "response_timeout".to_owned())));
}
