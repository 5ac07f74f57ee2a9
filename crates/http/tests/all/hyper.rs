//! Compares our response parser with hyper's: for whatever hyper's client accepts, ours returns the same status, body
//! length and persistence, or refuses it for a reason in the list below. hyper runs over an in-memory pipe, polled by
//! hand, without a runtime or a clock.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use leadline_http::{End, Malformed, Response, ResponseParser, INTERIM_LIMIT};
use proptest::prelude::*;
use tokio::io::{duplex, AsyncReadExt, AsyncWriteExt, DuplexStream};

/// Why ours refuses responses that hyper accepts. No server sends them on purpose.
const STRICTER: [(Malformed, &str); 8] = [
    (Malformed::StatusLine, "hyper skips empty lines in front of the status line"),
    (
        Malformed::LengthAndCoding,
        "RFC 9112, 6.3: it may be a response splitting attack and should be an error; hyper uses the coding",
    ),
    (Malformed::TransferEncoding, "RFC 9112, 6.1: chunked comes once, and last; hyper reads only the last coding"),
    (
        Malformed::TransferEncodingInHttp10,
        "hyper ignores codings of responses without a body, and refuses them elsewhere",
    ),
    (Malformed::ContentLength, "hyper ignores the length of responses without a body"),
    (Malformed::ContentLengthConflict, "hyper ignores differing lengths of responses without a body"),
    (Malformed::UnexpectedUpgrade, "hyper switches the protocol; our requests never ask for an upgrade"),
    (Malformed::TooManyInterim, "hyper has no limit of interim responses"),
];

/// A parser's result for the bytes after one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reading {
    /// A response; `persists` says whether another request may follow.
    Whole { status: u16, body_bytes: u64, persists: bool },
    /// No complete response yet.
    Unfinished,
    /// Malformed.
    Refused,
}

/// Polls until the future is ready or makes no progress: everything is in memory, so a few polls more than there are
/// layers suffice.
fn settle<T>(mut turn: impl FnMut(&mut Context<'_>) -> Poll<T>) -> Option<T> {
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..64 {
        if let Poll::Ready(value) = turn(&mut context) {
            return Some(value);
        }
    }
    None
}

/// hyper's result for `bytes` as the response to `method`; `ends` says whether the connection ends after them.
fn read_by_hyper(bytes: &[u8], method: &str, ends: bool) -> Reading {
    let (near, far) = duplex(1 << 20);
    let mut far = Some(far);
    let handshake = pin!(http1::handshake::<_, Empty<Bytes>>(TokioIo::new(near)));
    let mut handshake = handshake;
    let (mut sender, connection) = settle(|context| handshake.as_mut().poll(context))
        .expect("the handshake only sets up")
        .expect("the handshake succeeds");
    let mut connection = pin!(connection);
    let mut is_over = false;
    let request = hyper::Request::builder()
        .method(method)
        .uri("/")
        .header("host", "a")
        .body(Empty::new())
        .expect("the request is valid");
    let mut response = pin!(sender.send_request(request));
    let mut run = |context: &mut Context<'_>| is_over = is_over || connection.as_mut().poll(context).is_ready();
    let mut answer = |context: &mut Context<'_>| {
        run(context);
        response.as_mut().poll(context)
    };
    assert!(settle(&mut answer).is_none(), "no response before any bytes");
    serve(far.as_mut().expect("the pipe is open"), bytes);
    if ends {
        far = None;
    }
    let response = match settle(&mut answer) {
        None => return Reading::Unfinished,
        Some(Err(_)) => return Reading::Refused,
        Some(Ok(response)) => response,
    };
    let status = response.status().as_u16();
    let mut body = pin!(response.into_body().collect());
    let collected = settle(|context| {
        run(context);
        body.as_mut().poll(context)
    });
    let body_bytes = match collected {
        None => return Reading::Unfinished,
        Some(Err(_)) => return Reading::Refused,
        Some(Ok(body)) => body.to_bytes().len() as u64,
    };
    settle(|context| {
        run(context);
        Poll::<()>::Pending
    });
    drop(far);
    Reading::Whole { status, body_bytes, persists: !is_over && sender.is_ready() }
}

/// Reads the request from the pipe and writes `bytes`.
fn serve(far: &mut DuplexStream, bytes: &[u8]) {
    let mut request = [0; 1024];
    let mut reading = pin!(far.read(&mut request));
    let read =
        settle(|context| reading.as_mut().poll(context)).expect("the request has been sent").expect("the pipe is open");
    assert!(read > 0);
    let mut writing = pin!(far.write_all(bytes));
    settle(|context| writing.as_mut().poll(context)).expect("the pipe has room").expect("the pipe is open");
}

/// Our parser's result for the same bytes.
fn read_by_us(bytes: &[u8], method: &str, ends: bool) -> Result<Reading, Malformed> {
    let mut parser = ResponseParser::new(method == "HEAD");
    let fed = parser.feed(bytes)?;
    let whole = |response: Response, persists| Reading::Whole {
        status: response.status,
        body_bytes: response.body_bytes,
        persists,
    };
    if let Some(response) = fed.response {
        // With bytes after it, it is unknown which request they answer.
        return Ok(whole(response, response.keep_alive && fed.consumed == bytes.len() && !ends));
    }
    Ok(match parser.finish() {
        End::Response(response) if ends => whole(response, false),
        _ if ends => Reading::Refused,
        _ => Reading::Unfinished,
    })
}

fn compare(bytes: &[u8], method: &str) -> Result<(), TestCaseError> {
    for ends in [false, true] {
        let theirs = read_by_hyper(bytes, method, ends);
        let text = || format!("{method}, ends: {ends}: {:?}", String::from_utf8_lossy(bytes));
        match (theirs, read_by_us(bytes, method, ends)) {
            (Reading::Whole { .. }, Ok(ours)) => prop_assert_eq!(ours, theirs, "{}", text()),
            (Reading::Whole { .. }, Err(cause)) => {
                prop_assert!(STRICTER.iter().any(|(known, _)| *known == cause), "{cause:?}: {}", text());
            }
            (Reading::Unfinished | Reading::Refused, _) => {}
        }
    }
    Ok(())
}

/// One of these texts; a text that occurs more often is more likely.
fn one_of(texts: &'static [&'static str]) -> impl Strategy<Value = &'static str> {
    proptest::sample::select(texts)
}

fn field() -> impl Strategy<Value = String> {
    let length = prop_oneof![
        (0u64..30).prop_map(|length| length.to_string()),
        Just("5, 5".to_owned()),
        Just("5,6".to_owned()),
        Just("+5".to_owned()),
        Just("".to_owned()),
        Just("18446744073709551616".to_owned()),
    ];
    let coding = one_of(&[
        "chunked",
        "chunked",
        "chunked",
        "Chunked",
        "gzip, chunked",
        "gzip",
        "chunked, gzip",
        "identity",
        "chunked,chunked",
    ]);
    let options = one_of(&["close", "keep-alive", "Keep-Alive", "x, close", "keep-alive, close", "CLOSE", ""]);
    prop_oneof![
        3 => length.prop_map(|length| format!("Content-Length: {length}")),
        2 => coding.prop_map(|coding| format!("Transfer-Encoding: {coding}")),
        2 => options.prop_map(|options| format!("Connection:{options}")),
        3 => "[A-Za-z0-9!#$%&'*+.^_`|~-]{1,12}:[ \t]?[ -~]{0,20}",
        1 => Just("X:a\r\n b".to_owned()),
    ]
}

fn body() -> impl Strategy<Value = String> {
    let chunk = ("[a-z]{1,20}", "(;[a-z]{1,4}(=(\"[a-z ]{0,4}\"|[a-z]{1,3}))?)?", any::<bool>()).prop_map(
        |(data, extension, upper)| {
            let size = if upper { format!("{:X}", data.len()) } else { format!("{:x}", data.len()) };
            format!("{size}{extension}\r\n{data}\r\n")
        },
    );
    let trailers = proptest::collection::vec("[A-Za-z-]{1,9}: [ -~]{0,9}\r\n", 0..3).prop_map(|lines| lines.concat());
    let chunked = (proptest::collection::vec(chunk, 0..4), trailers)
        .prop_map(|(chunks, trailers)| chunks.concat() + "0\r\n" + &trailers + "\r\n");
    prop_oneof!["[a-z]{0,30}", chunked]
}

fn head() -> impl Strategy<Value = String> {
    let special = proptest::sample::select(vec![200u16, 200, 101, 204, 304, 205]);
    let status = prop_oneof![special, 100u16..600, 0u16..1000];
    let version = one_of(&["HTTP/1.1", "HTTP/1.1", "HTTP/1.1", "HTTP/1.0", "HTTP/1.0", "HTTP/1.2", "HTTP/2.0"]);
    let reason = one_of(&[" OK", "", " ", " Not quite, sir"]);
    let end = one_of(&["\r\n", "\r\n", "\r\n", "\n"]);
    (version, status, reason, proptest::collection::vec(field(), 0..5), end).prop_map(
        |(version, status, reason, fields, end)| {
            let mut text = format!("{version} {status:03}{reason}{end}");
            for field in fields {
                text.push_str(&field);
                text.push_str(end);
            }
            text + end
        },
    )
}

/// A plausible response, framed by its fields.
fn sensible() -> impl Strategy<Value = String> {
    let plain = |fields: String, body: String| format!("{fields}Content-Length: {}\r\n\r\n{body}", body.len());
    let fields = proptest::collection::vec("[A-Za-z]{1,3}-[A-Za-z-]{1,12}: [ -~]{0,20}\r\n", 0..5)
        .prop_map(|lines| lines.concat());
    let options = one_of(&["", "", "Connection: close\r\n", "Connection: keep-alive\r\n"]);
    let interim = one_of(&["", "", "HTTP/1.1 100 Continue\r\n\r\n", "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"]);
    (interim, 200u16..600, 0..2u8, options, fields, body(), any::<bool>()).prop_map(
        move |(interim, status, minor, options, fields, body, until_close)| {
            let start = format!("{interim}HTTP/1.{minor} {status} Fine\r\n{options}");
            let rest = if body.ends_with("0\r\n\r\n") && minor == 1 {
                format!("{fields}Transfer-Encoding: chunked\r\n\r\n{body}")
            } else if until_close {
                format!("{fields}\r\n{body}")
            } else {
                plain(fields, body)
            };
            start + &rest
        },
    )
}

/// A change to bytes, at a relative position.
#[derive(Clone, Debug)]
enum Change {
    Put(f64, u8),
    Insert(f64, Vec<u8>),
    Cut(f64, usize),
    Repeat(f64, usize),
    End(f64),
}

fn change() -> impl Strategy<Value = Change> {
    let odd = prop_oneof![any::<u8>(), proptest::sample::select(b"\r\n\0 \t:;,0159afF-+HhTt".to_vec())];
    let place = 0.0f64..1.0;
    prop_oneof![
        3 => (place.clone(), odd.clone()).prop_map(|(place, byte)| Change::Put(place, byte)),
        3 => (place.clone(), proptest::collection::vec(odd, 1..3)).prop_map(|(place, bytes)| Change::Insert(place, bytes)),
        2 => (place.clone(), 1usize..4).prop_map(|(place, length)| Change::Cut(place, length)),
        1 => (place.clone(), 1usize..30).prop_map(|(place, length)| Change::Repeat(place, length)),
        1 => place.prop_map(Change::End),
    ]
}

fn changed(mut bytes: Vec<u8>, changes: Vec<Change>) -> Vec<u8> {
    for change in changes {
        let length = bytes.len();
        let place = |share: f64| (share * length as f64) as usize;
        match change {
            Change::Put(at, byte) => bytes.iter_mut().skip(place(at)).take(1).for_each(|old| *old = byte),
            Change::Insert(at, new) => drop(bytes.splice(place(at)..place(at), new)),
            Change::Cut(at, size) => drop(bytes.drain(place(at)..length.min(place(at) + size))),
            Change::Repeat(at, size) => {
                let again = bytes[place(at)..length.min(place(at) + size)].to_vec();
                bytes.splice(place(at)..place(at), again);
            }
            Change::End(at) => bytes.truncate(place(at)),
        }
    }
    bytes
}

/// Takes a few seconds.
const CASES: u32 = 600;

fn method() -> impl Strategy<Value = &'static str> {
    one_of(&["GET", "GET", "GET", "HEAD"])
}

#[test]
fn both_parsers_agree_on_simple_cases() {
    let whole = |status, body_bytes, persists| Reading::Whole { status, body_bytes, persists };
    let cases = [
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", whole(200, 2, true)),
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi", whole(200, 2, false)),
        ("HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nhi", whole(200, 2, false)),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", whole(200, 2, true)),
        ("HTTP/1.1 204 No\r\nContent-Length: 2\r\n\r\n", whole(204, 0, true)),
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi!", whole(200, 2, false)),
        ("HTTP/1.1 200 OK\r\n\r\nhi", Reading::Unfinished),
        ("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nhi", Reading::Unfinished),
    ];
    for (text, expected) in cases {
        assert_eq!(read_by_hyper(text.as_bytes(), "GET", false), expected, "{text:?}");
        assert_eq!(read_by_us(text.as_bytes(), "GET", false), Ok(expected), "{text:?}");
    }
    let until_close = b"HTTP/1.1 200 OK\r\n\r\nhi";
    assert_eq!(read_by_hyper(until_close, "GET", true), whole(200, 2, false));
    assert_eq!(read_by_us(until_close, "GET", true), Ok(whole(200, 2, false)));
}

#[test]
fn every_listed_difference_exists() {
    let interim = "HTTP/1.1 100 Continue\r\n\r\n".repeat(usize::from(INTERIM_LIMIT) + 1);
    let cases = [
        "\r\nHTTP/1.1 204 No\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.0 204 No\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 204 No\r\nContent-Length: x\r\n\r\n",
        "HTTP/1.1 204 No\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        "HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
        &(interim + "HTTP/1.1 204 No\r\n\r\n"),
    ];
    for ((cause, why), text) in STRICTER.into_iter().zip(cases) {
        assert_eq!(read_by_us(text.as_bytes(), "GET", false), Err(cause), "{why}");
        assert!(matches!(read_by_hyper(text.as_bytes(), "GET", false), Reading::Whole { .. }), "{why}: {text:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn plausible_responses_are_parsed_alike(text in sensible(), method in method()) {
        compare(text.as_bytes(), method)?;
    }

    #[test]
    fn unusual_responses_are_parsed_alike(head in head(), body in body(), method in method()) {
        compare((head + &body).as_bytes(), method)?;
    }

    #[test]
    fn mutated_responses_are_parsed_alike(text in sensible(), changes in proptest::collection::vec(change(), 1..4), method in method()) {
        compare(&changed(text.into_bytes(), changes), method)?;
    }
}
