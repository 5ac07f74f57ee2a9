//! Tests of scripts that correspond to the nine examples of wrk, with a load in memory.

use crate::common::{address, loaded, origin, respond, sorted, try_load};
use leadline_stats::Histogram;
use leadline_wrk_lua::Summary;

#[test]
fn addresses_are_distributed_over_threads() {
    let load = try_load(include_str!("../scripts/pick_address.lua"), &[], &origin(), 3).unwrap();
    let dealt: Vec<_> = load.threads.iter().map(|thread| thread.address().unwrap()).collect();
    let (first, second) = (address("192.0.2.2:8080"), address("[2001:db8::1]:8080"));
    assert_eq!(dealt, [first, second, first]);
    let expected = "this thread talks to 192.0.2.2:8080\nthis thread talks to 2001:db8::1:8080\n\
                this thread talks to 192.0.2.2:8080\n";
    assert_eq!(load.printed(), expected);
    let calls = load.network.calls.lock().unwrap();
    assert!(calls.contains(&"lookup shop.test 8080".to_owned()), "{calls:?}");
}

#[test]
fn key_from_a_response_is_used_in_later_requests() {
    let mut load = loaded(include_str!("../scripts/login_first.lua"));
    assert!(load.threads[0].has_response() && load.threads[0].constant().is_none());
    assert_eq!(load.request(), "GET /login HTTP/1.1\r\nHost: shop.test:8080\r\n\r\n");
    respond(&mut load.threads[0], 401, &[(b"X-Key", b"wrong")], b"").unwrap();
    assert_eq!(load.request(), "GET /login HTTP/1.1\r\nHost: shop.test:8080\r\n\r\n");
    respond(&mut load.threads[0], 200, &[(b"Server", b"s"), (b"X-Key", b"k1")], b"hello").unwrap();
    respond(&mut load.threads[0], 200, &[(b"X-Key", b"k2")], b"hello").unwrap();
    assert_eq!(sorted(&load.request())[..3], ["GET /inside HTTP/1.1", "Host: shop.test:8080", "X-Key: k1"]);
}

#[test]
fn requests_can_change_each_time() {
    let mut load = try_load(include_str!("../scripts/count_up.lua"), &[], &origin(), 2).unwrap();
    // Thread 1 was called once more at the start, as in wrk.
    for number in 1..1000 {
        let head = format!("GET /item/{number} HTTP/1.1");
        assert_eq!(
            sorted(&load.request())[..3],
            [head, "Host: shop.test:8080".to_owned(), format!("X-Number: {number}")]
        );
    }
    let second = crate::common::try_request(&mut load.threads[1]).unwrap();
    assert!(second.starts_with("GET /item/0 HTTP/1.1\r\n"), "{second}");
}

#[test]
fn each_request_waits_for_its_delay() {
    let mut load = loaded(include_str!("../scripts/think_time.lua"));
    let thread = &mut load.threads[0];
    assert!(thread.has_delay() && !thread.has_response());
    assert!(thread.constant().is_some(), "the request itself is constant");
    let delays: Vec<u64> = (0..500).map(|_| thread.delay_ms().unwrap()).collect();
    assert!(delays.iter().all(|delay| (5..=25).contains(delay)), "{delays:?}");
    assert!(delays.contains(&5) && delays.contains(&25), "{delays:?}");
}

#[test]
fn several_requests_in_one_string_are_counted() {
    let mut load = loaded(include_str!("../scripts/three_at_once.lua"));
    assert_eq!(load.threads[0].batch(), 3);
    let request = load.request();
    assert_eq!(request.matches(" HTTP/1.1\r\n").count(), 3);
    assert!(request.ends_with("\r\n\r\nx=3"), "{request}");
}

#[test]
fn fields_alone_make_a_constant_request() {
    let load = try_load(include_str!("../scripts/send_form.lua"), &[], &origin(), 2).unwrap();
    for thread in &load.threads {
        let request = String::from_utf8(thread.constant().unwrap().to_vec()).unwrap();
        let lines = [
            "POST /list?page=1 HTTP/1.1",
            "Content-Length: 18",
            "Content-Type: application/x-www-form-urlencoded",
            "Host: shop.test:8080",
            "",
            "name=lead&depth=40",
        ];
        assert_eq!(sorted(&request), lines);
        assert!(!thread.has_response() && !thread.has_delay() && thread.batch() == 1);
    }
}

#[test]
fn done_reports_percentiles() {
    let mut load = loaded(include_str!("../scripts/tell_latency.lua"));
    assert!(load.main.has_done());
    let mut latency = Histogram::new();
    for us in 1..=1000 {
        latency.record(us * 1000);
    }
    let summary = Summary { requests: 1000, ..Summary::default() };
    load.main.done(&summary, &latency, &Histogram::new()).unwrap();
    assert_eq!(load.printed(), "50% 501 us\n90% 901 us\n99.9% 1000 us\n1000 requests\n");
}

#[test]
fn main_state_and_threads_exchange_values() {
    let mut load = try_load(include_str!("../scripts/name_threads.lua"), &[], &origin(), 2).unwrap();
    assert_eq!(load.printed(), "thread 1 is up\nthread 2 is up\n");
    let whole = "GET /list?page=1 HTTP/1.1\r\nHost: shop.test:8080\r\n\r\n";
    for _ in 0..3 {
        assert_eq!(load.request(), whole);
    }
    respond(&mut load.threads[1], 200, &[], b"").unwrap();
    load.threads.clear();
    load.main.done(&Summary::default(), &Histogram::new(), &Histogram::new()).unwrap();
    // The first request of thread 1 is the one that determined the kind of script.
    assert_eq!(load.printed(), "thread 1: 4 sent, 0 seen\nthread 2: 0 sent, 1 seen\n");
}

#[test]
fn a_thread_stops_itself() {
    let mut load = try_load(include_str!("../scripts/stop_early.lua"), &[], &origin(), 2).unwrap();
    for _ in 0..4 {
        respond(&mut load.threads[0], 200, &[], b"").unwrap();
        assert!(!load.threads[0].stopped());
    }
    respond(&mut load.threads[0], 200, &[], b"").unwrap();
    assert!(load.threads[0].stopped() && !load.threads[1].stopped());
}
