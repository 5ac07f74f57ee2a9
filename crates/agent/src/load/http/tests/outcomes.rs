//! What requests are counted as, against servers on loopback: rates of scripts that send several requests at once, answers
//! that are longer than they say, chains of redirects.

use std::sync::Mutex;

use leadline_wire::HttpScript;

use super::*;

on_both_engines!(
    a_rate_counts_requests_and_not_the_pieces_that_they_leave_in,
    an_answer_longer_than_its_content_length_fails_its_request,
    a_chain_of_redirects_goes_on_from_its_last_request,
);

fn a_rate_counts_requests_and_not_the_pieces_that_they_leave_in(engine: Engine) {
    let (address, signal) = responder();
    let five = "function request() return string.rep(wrk.format('GET', '/'), 5) end";
    let script = HttpScript { name: "five.lua".to_owned(), source: five.to_owned(), args: Vec::new() };
    let half = |per_s| RateStage { from_per_s: per_s, to_per_s: per_s, duration_ms: 500 };
    for (rate, due) in [(rate(100.0), 100), (vec![half(20.0), half(100.0)], 60)] {
        let spec = HttpSpec { script: Some(script.clone()), rate, duration_ms: 1000, ..spec(address, None) };
        let outcome = run(engine, spec);
        assert_eq!(outcome.counts["requests_due"], due);
        assert_accounted(&outcome);
    }
    signal.stop();
}

fn an_answer_longer_than_its_content_length_fails_its_request(engine: Engine) {
    let babbles = server(|mut socket| {
        read_request(&mut socket);
        let _ = socket.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok and more");
        let _ = socket.read(&mut [0]);
    });
    let outcome = run(engine, spec(babbles, Some(9)));
    assert_eq!(outcome.errors, BTreeMap::from([("malformed_unsolicited_bytes".to_owned(), 9)]));
    assert_eq!((outcome.counts["responses"], outcome.counts["requests_sent"]), (0, 9));
    assert_accounted(&outcome);
}

fn a_chain_of_redirects_goes_on_from_its_last_request(engine: Engine) {
    // Each path says how often it was asked for, with which method and body.
    let heard: Arc<Mutex<BTreeMap<String, u64>>> = Arc::default();
    let hear = Arc::clone(&heard);
    let (listener, address) = listener();
    std::thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            let hear = Arc::clone(&hear);
            std::thread::spawn(move || answer_chain(socket, &hear));
        }
    });
    let post = HttpRequest {
        method: "POST".to_owned(),
        body_base64: Some(BASE64_STANDARD.encode("body")),
        ..request(address, "/form")
    };
    for (first, chain) in [
        (request(address, "/a/b"), ["GET /a/b -", "GET /x/y/ -", "GET /x/y/z -"]),
        (post, ["POST /form body", "GET /done/ -", "GET /done/z -"]),
    ] {
        heard.lock().unwrap().clear();
        let outcome = run(engine, HttpSpec { requests: vec![first], redirects: 5, ..spec(address, Some(20)) });
        assert_eq!((outcome.counts["responses"], outcome.counts["status_2xx"]), (20, 20));
        assert_eq!((outcome.counts["requests_sent"], outcome.counts["redirects"]), (20, 40));
        assert_eq!(*heard.lock().unwrap(), chain.map(|what| (what.to_owned(), 20)).into());
        assert_accounted(&outcome);
    }
}

fn answer_chain(mut socket: TcpStream, heard: &Mutex<BTreeMap<String, u64>>) {
    let mut input = Vec::new();
    let mut piece = [0; 4096];
    while let Ok(read @ 1..) = socket.read(&mut piece) {
        input.extend_from_slice(&piece[..read]);
        // A request of this test comes in one piece, as it is short; its body ends it.
        let text = String::from_utf8(std::mem::take(&mut input)).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let (method, target) = (head.split(' ').next().unwrap(), head.split(' ').nth(1).unwrap());
        let body = if body.is_empty() { "-" } else { body };
        *heard.lock().unwrap().entry(format!("{method} {target} {body}")).or_insert(0) += 1;
        let (status, location) = match target {
            "/a/b" => (302, "/x/y/"),
            "/form" => (303, "/done/"),
            "/done/" => (307, "z"),
            "/x/y/" => (302, "z"),
            _ => (200, ""),
        };
        let answer = format!("HTTP/1.1 {status} X\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n");
        if socket.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}
