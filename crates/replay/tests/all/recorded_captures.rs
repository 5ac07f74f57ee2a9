//! Real captures: curl against a small server, on the loopback interface (`loopback.pcapng`, Ethernet) and at the same time
//! on the interface "any" (`any.pcapng`, Linux cooked).

use leadline_replay::packets::{PacketSource, ReassemblyOptions};
use leadline_replay::{Cause, Recorded, Source};

use crate::packets::text;

fn check(file: &[u8]) {
    let mut source = PacketSource::open(file, ReassemblyOptions::default()).expect("it is a capture");
    let requests: Vec<Recorded> = std::iter::from_fn(|| source.next().expect("it can be read")).collect();
    let lines: Vec<String> = requests
        .iter()
        .map(|one| {
            let answer = &one.answer;
            let body = answer.body.as_deref().map_or("?".to_owned(), |body| format!("{}", body.len()));
            let sent = one.body.as_deref().map_or(0, <[u8]>::len);
            format!("{} {} {sent} -> {} {body}", text(&one.method), text(&one.target), answer.status.unwrap_or(0))
        })
        .collect();
    assert_eq!(
        lines,
        [
            "GET /one?x=1 0 -> 200 13",
            "GET /two 0 -> 200 8000",
            "HEAD /head 0 -> 200 0",
            "POST /echo 9 -> 200 9",
            "POST /large 3000 -> 200 3000",
            "POST /chunked 5 -> 200 5",
            "GET /empty 0 -> 204 0",
            "GET /until-close 0 -> 200 11",
        ]
    );
    let sessions: Vec<u64> = requests.iter().map(|one| one.session).collect();
    assert!(sessions[0] == sessions[1] && sessions[1] != sessions[2]);
    assert!(requests.iter().all(|one| one.answer.latency_ns.is_some_and(|ns| ns < 1_000_000_000)));
    assert_eq!(source.causes().iter().collect::<Vec<_>>(), [(Cause::Tls, 1)]);
    assert_eq!((source.counts().gaps, source.counts().differing), (0, 0));
}

#[test]
fn curl_on_the_loopback_interface_is_read() {
    check(include_bytes!("../data/loopback.pcapng"));
}

#[test]
fn curl_on_any_interface_is_read() {
    check(include_bytes!("../data/any.pcapng"));
}
