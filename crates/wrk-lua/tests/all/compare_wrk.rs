//! Runs the same scripts in wrk, if it is installed: a recording server receives the same requests from both.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::mpsc::{channel, Sender};

use crate::common::{respond, sorted, try_load, try_request};
use leadline_wrk_lua::Origin;

/// Number of requests that are answered and compared; then the server stops responding.
const COMPARED: usize = 9;

const SCRIPTS: [&str; 9] = [
    "count_up",
    "login_first",
    "name_threads",
    "pick_address",
    "send_form",
    "stop_early",
    "tell_latency",
    "think_time",
    "three_at_once",
];

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Key: k9\r\n\r\nok";

#[test]
fn wrk_sends_the_same_requests() {
    if Command::new("wrk").arg("-v").output().is_err() {
        println!("skipped: wrk is not installed");
        return;
    }
    let runs = SCRIPTS.map(|name| std::thread::spawn(move || beside(name)));
    for run in runs {
        run.join().unwrap();
    }
}

fn beside(name: &str) {
    let path = format!("{}/tests/scripts/{name}.lua", env!("CARGO_MANIFEST_DIR"));
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = server.local_addr().unwrap().port();
    let (sender, recorder) = channel();
    std::thread::spawn(move || {
        for connection in server.incoming().flatten() {
            let sender = sender.clone();
            std::thread::spawn(move || record(connection, &sender));
        }
    });
    let url = format!("http://127.0.0.1:{port}/p?q=1");
    let mut command = Command::new("wrk");
    command.args(["-t1", "-c1", "-d1s", "-H", "X-Given: yes", "-s", &path, &url, "--", "one", "two"]);
    let run = command.output().unwrap();
    let theirs: Vec<String> = recorder.try_iter().collect();
    let output = String::from_utf8_lossy(&run.stdout).into_owned();

    let ours = requests(&std::fs::read_to_string(&path).unwrap(), &url, port);
    // A script that stops early, or waits, may have sent fewer.
    assert!(!theirs.is_empty(), "{name}: wrk sent nothing: {output}");
    for (index, (theirs, ours)) in theirs.iter().zip(&ours).enumerate() {
        assert_eq!(sorted(theirs), sorted(ours), "{name}, request {index}");
    }
}

/// The requests that this crate sends for the same responses.
fn requests(source: &str, url: &str, port: u16) -> Vec<String> {
    let origin = Origin {
        url: url.to_owned(),
        host: "shop.test".to_owned(),
        path: "/p?q=1".to_owned(),
        headers: vec![("X-Given".to_owned(), "yes".to_owned()), ("Host".to_owned(), format!("127.0.0.1:{port}"))],
        ..crate::common::origin()
    };
    let mut load = try_load(source, &["one", "two"], &origin, 1).unwrap();
    let thread = &mut load.threads[0];
    let mut sent = Vec::new();
    while sent.len() < COMPARED {
        let string = match thread.constant() {
            Some(constant) => String::from_utf8(constant.to_vec()).unwrap(),
            None => try_request(thread).unwrap(),
        };
        let mut rest = string.as_bytes();
        for _ in 0..thread.batch() {
            let (request, after) = first(rest).unwrap();
            sent.push(request);
            rest = after;
            if thread.has_response() {
                respond(thread, 200, &[(b"Content-Length", b"2"), (b"X-Key", b"k9")], b"ok").unwrap();
            }
        }
    }
    sent
}

/// Answers the first requests of a connection and reports each.
fn record(mut connection: TcpStream, recorder: &Sender<String>) {
    let mut unread = Vec::new();
    let mut answered = 0;
    let mut piece = [0; 4096];
    while let Ok(size @ 1..) = connection.read(&mut piece) {
        unread.extend_from_slice(&piece[..size]);
        while let Some((request, rest)) = first(&unread) {
            unread = rest.to_vec();
            if answered == COMPARED {
                continue;
            }
            answered += 1;
            if recorder.send(request).is_err() || connection.write_all(ANSWER).is_err() {
                return;
            }
        }
    }
}

/// Splits off the first complete request.
fn first(bytes: &[u8]) -> Option<(String, &[u8])> {
    let head = bytes.windows(4).position(|end| end == b"\r\n\r\n")? + 4;
    let text = String::from_utf8(bytes[..head].to_vec()).unwrap();
    let length = text.split("\r\n").find_map(|line| line.strip_prefix("Content-Length: "));
    let end = head + length.map_or(0, |digits| digits.parse::<usize>().unwrap());
    let body = bytes.get(head..end)?;
    Some((text + std::str::from_utf8(body).unwrap(), &bytes[end..]))
}
