//! Tests that the parsers give the same result wherever bytes are split, and that no input of a peer makes them panic
//! or exceed their limits.

use leadline_http::{
    Batch, Behaviour, ClientConnection, End, Malformed, RequestEvent, RequestParser, RequestTemplate, Responder,
    Response, ResponseParser, ServerConnection, Setup, Sink, Url,
};
use proptest::prelude::*;

/// Splits `bytes` into pieces of the sizes in `cuts`.
fn pieces<'b>(bytes: &'b [u8], cuts: &[usize]) -> Vec<&'b [u8]> {
    let mut rest = bytes;
    let mut pieces = Vec::new();
    for cut in cuts {
        let (piece, after) = rest.split_at((*cut).min(rest.len()));
        pieces.push(piece);
        rest = after;
    }
    pieces.push(rest);
    pieces
}

/// Parses all responses of a stream, and its end.
fn responses(stream: &[u8], cuts: &[usize]) -> (Vec<Response>, Result<End, Malformed>) {
    let mut parser = ResponseParser::new(false);
    let mut parsed = Vec::new();
    for piece in pieces(stream, cuts) {
        let mut rest = piece;
        while !rest.is_empty() {
            match parser.feed(rest) {
                Ok(fed) => {
                    assert!(
                        fed.response.is_some() || fed.consumed == rest.len(),
                        "all bytes are consumed unless a response is complete"
                    );
                    rest = &rest[fed.consumed..];
                    parsed.extend(fed.response);
                }
                Err(cause) => return (parsed, Err(cause)),
            }
        }
    }
    (parsed, Ok(parser.finish()))
}

/// Parses all requests of a stream.
fn requests(stream: &[u8], cuts: &[usize]) -> (Vec<RequestEvent>, Result<(), Malformed>) {
    let mut parser = RequestParser::default();
    let mut parsed = Vec::new();
    for piece in pieces(stream, cuts) {
        let mut rest = piece;
        while !rest.is_empty() {
            match parser.feed(rest) {
                Ok(fed) => {
                    assert!(fed.event.is_some() || fed.consumed == rest.len());
                    rest = &rest[fed.consumed..];
                    parsed.extend(fed.event);
                }
                Err(cause) => return (parsed, Err(cause)),
            }
        }
    }
    (parsed, Ok(()))
}

fn fields() -> impl Strategy<Value = String> {
    proptest::collection::vec("[A-Za-z-]{1,12}: [ -~]{0,30}\r\n", 0..4)
        .prop_map(|lines| lines.into_iter().filter(|line| !line.starts_with(['C', 'c', 'T', 't'])).collect())
}

prop_compose! {
    fn sized()(status in 200u16..204, body in proptest::collection::vec(any::<u8>(), 0..200), fields in fields()) -> Vec<u8> {
        let mut bytes = format!("HTTP/1.1 {status} X\r\n{fields}Content-Length: {}\r\n\r\n", body.len()).into_bytes();
        bytes.extend_from_slice(&body);
        bytes
    }
}

prop_compose! {
    fn chunked()(
        chunks in proptest::collection::vec((proptest::collection::vec(any::<u8>(), 1..60), "(;[a-z]{1,5}=\"[a-z ]{0,5}\")?"), 0..5),
        fields in fields(),
        trailers in fields(),
    ) -> Vec<u8> {
        let mut bytes = format!("HTTP/1.1 200 OK\r\n{fields}Transfer-Encoding: chunked\r\n\r\n").into_bytes();
        for (data, extension) in chunks {
            bytes.extend_from_slice(format!("{:x}{extension}\r\n", data.len()).as_bytes());
            bytes.extend_from_slice(&data);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes.extend_from_slice(format!("0\r\n{trailers}\r\n").as_bytes());
        bytes
    }
}

fn bodiless() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        Just(b"HTTP/1.1 204 No Content\r\n\r\n".to_vec()),
        Just(b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n".to_vec()),
        Just(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n".to_vec()),
    ]
}

fn one_response() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![sized(), chunked(), bodiless()]
}

/// Parts of real messages in any order, which reach deeper than random bytes.
fn shuffled() -> impl Strategy<Value = Vec<u8>> {
    let part = prop_oneof![
        Just(&b"HTTP/1.1 200 OK\r\n"[..]),
        Just(&b"GET / HTTP/1.1\r\n"[..]),
        Just(&b"Host: a\r\n"[..]),
        Just(&b"Content-Length: "[..]),
        Just(&b"Transfer-Encoding: chunked\r\n"[..]),
        Just(&b"Connection: close\r\n"[..]),
        Just(&b"\r\n"[..]),
        Just(&b"\n"[..]),
        Just(&b"\r"[..]),
        Just(&b"5"[..]),
        Just(&b"ffffffffffffffff"[..]),
        Just(&b";"[..]),
        Just(&b"0\r\n\r\n"[..]),
        Just(&b" "[..]),
        Just(&b"\0"[..]),
    ];
    prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..300),
        proptest::collection::vec(part, 0..30).prop_map(|parts| parts.concat()),
    ]
}

fn cuts() -> impl Strategy<Value = Vec<usize>> {
    proptest::collection::vec(0usize..40, 0..60)
}

proptest! {
    #[test]
    fn responses_parse_alike_at_any_split(stream in proptest::collection::vec(one_response(), 1..6), cuts in cuts()) {
        let count = stream.len();
        let stream = stream.concat();
        let whole = responses(&stream, &[]);
        prop_assert_eq!(whole.0.len(), count);
        prop_assert_eq!(&whole.1, &Ok(End::Clean));
        prop_assert_eq!(responses(&stream, &cuts), whole);
    }

    /// A repeated head is recognised, a similar head is not. A sink makes the parser read each head completely, so
    /// both results must agree.
    #[test]
    fn recognised_head_equals_a_parsed_head(
        kinds in proptest::collection::vec(one_response(), 1..3),
        turns in proptest::collection::vec((any::<prop::sample::Index>(), any::<bool>(), proptest::option::of((0usize..60, any::<u8>()))), 1..12),
    ) {
        struct Reader;
        impl Sink for Reader {}
        let (mut parser, mut reader) = (ResponseParser::new(false), ResponseParser::new(false));
        for (kind, answers_head, change) in turns {
            let mut bytes = kind.get(&kinds).clone();
            if let Some((at, byte)) = change {
                let at = at % bytes.len();
                bytes[at] = byte;
            }
            parser.expect_no_body(answers_head);
            reader.expect_no_body(answers_head);
            let (known, read) = (parser.feed(&bytes), reader.feed_into(&bytes, &mut Reader));
            prop_assert_eq!(known, read);
            if !read.is_ok_and(|fed| fed.response.is_some()) {
                prop_assert_eq!(parser.finish(), reader.finish());
                parser.reset();
                reader.reset();
            }
        }
    }

    #[test]
    fn garbage_parses_alike_at_any_split(stream in shuffled(), cuts in cuts()) {
        prop_assert_eq!(responses(&stream, &cuts), responses(&stream, &[]));
        prop_assert_eq!(requests(&stream, &cuts), requests(&stream, &[]));
    }

    #[test]
    fn a_client_connection_survives_garbage(stream in shuffled(), cuts in cuts()) {
        let batch = Batch { bytes: 30, requests: 3, expects_no_body: false };
        let mut connection = ClientConnection::default();
        connection.opened();
        connection.begin(0, 0, batch);
        connection.sent(batch.bytes);
        'all: for piece in pieces(&stream, &cuts) {
            let mut at = 0;
            while at < piece.len() {
                let Ok((used, _)) = connection.receive(&piece[at..], 1, &mut ()) else { break 'all };
                prop_assert!(used > 0);
                at += used;
            }
        }
        connection.ended(2);
        prop_assert!(!connection.is_idle());
    }

    #[test]
    fn a_server_connection_survives_garbage(stream in shuffled(), cuts in cuts()) {
        let mut responder = responder();
        let mut server = ServerConnection::default();
        for piece in pieces(&stream, &cuts) {
            server.receive(&mut responder, 0, piece);
            prop_assert!(server.output().0.len() <= 32 * 1024);
        }
        while server.has_output() {
            let (head, body) = server.pieces();
            let bytes = head.len() + body.len();
            server.sent(&mut responder, 0, bytes);
        }
        server.end_of_input();
        prop_assert!(server.is_finished());
    }

    /// Every request of a client is answered once with the requested size, wherever reads and writes are split in
    /// either direction, and the server's counters agree.
    #[test]
    fn requests_and_responses_are_counted_alike(
        sizes in proptest::collection::vec(prop_oneof![0u64..40, 4000u64..4200, 60_000u64..200_000], 1..12),
        read_cuts in cuts(),
        write_limit in 1usize..50_000,
    ) {
        let mut responder = responder();
        let mut server = ServerConnection::default();
        let mut stream = Vec::new();
        for size in &sizes {
            let url = Url::parse(&format!("http://a/?size={size}")).unwrap();
            stream.extend_from_slice(RequestTemplate::new("GET", &url, [], None).unwrap().bytes());
        }
        let mut answers = Vec::new();
        let mut parser = ResponseParser::new(false);
        for piece in pieces(&stream, &read_cuts) {
            server.receive(&mut responder, 0, piece);
            while server.has_output() {
                let (head, body) = server.pieces();
                let out = [head, body].concat();
                let out = &out[..out.len().min(write_limit)];
                let mut rest = out;
                while !rest.is_empty() {
                    let fed = parser.feed(rest).unwrap();
                    answers.extend(fed.response);
                    rest = &rest[fed.consumed..];
                }
                let bytes = out.len();
                server.sent(&mut responder, 0, bytes);
            }
        }
        prop_assert!(server.wants_input());
        prop_assert_eq!(answers.iter().map(|answer| answer.body_bytes).collect::<Vec<_>>(), sizes.clone());
        prop_assert!(answers.iter().all(|answer| answer.status == 200 && answer.keep_alive));
        prop_assert_eq!(responder.requests(), sizes.len() as u64);
    }
}

fn responder() -> Responder {
    let setup = Setup { behaviour: Behaviour::default(), stalls: None, started_ns: 0, engine: String::new() };
    Responder::group(1, setup).remove(0)
}

/// Sends one stream of requests and returns everything that the server sent.
fn exchange(responder: &mut Responder, request: &str) -> (String, bool) {
    let mut server = ServerConnection::default();
    server.receive(responder, 0, request.as_bytes());
    let mut sent = Vec::new();
    while server.has_output() {
        let (head, body) = server.pieces();
        sent.extend_from_slice(head);
        sent.extend_from_slice(body);
        let bytes = head.len() + body.len();
        server.sent(responder, 0, bytes);
    }
    (String::from_utf8(sent).expect("answers are ASCII"), server.is_finished())
}

#[test]
fn responder_answers_each_kind_of_request() {
    let mut responder = responder();
    responder.accepted();
    let (answer, finished) = exchange(&mut responder, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nby the mark\n") && !finished);
    let (answer, finished) = exchange(&mut responder, "GET /?size=3 HTTP/1.0\r\n\r\n");
    assert!(answer.contains("Connection: close\r\n") && answer.ends_with("\r\n\r\nby ") && finished);
    let (answer, finished) = exchange(&mut responder, "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    assert!(answer.contains("Connection: keep-alive\r\n") && !finished);
    let (answer, _) = exchange(&mut responder, "HEAD /?size=99 HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(answer.contains("Content-Length: 99\r\n") && answer.ends_with("\r\n\r\n"));
    let (answer, finished) = exchange(&mut responder, "GET /_leadline/x HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 404 Not Found\r\n") && !finished);
    let (answer, finished) = exchange(&mut responder, "GET /?size=x HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\n");
    assert!(answer.starts_with("HTTP/1.1 400 Bad Request\r\n") && answer.matches("HTTP/1.1").count() == 1 && finished);
    let (answer, finished) = exchange(&mut responder, "GET / HTTP/1.1\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 400 Bad Request\r\n") && answer.contains("no Host field") && finished);
    let waiting = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n";
    let (answer, _) = exchange(&mut responder, waiting);
    assert_eq!(answer, "HTTP/1.1 100 Continue\r\n\r\n");

    let (answer, _) = exchange(&mut responder, "GET /_leadline/stats HTTP/1.1\r\nHost: a\r\n\r\n");
    let stats = answer.split("\r\n\r\n").nth(1).unwrap();
    assert!(stats.starts_with("{\"requests\":5,\"own_requests\":2,\"bytes_received\":"), "{stats}");
    for field in ["\"connections\":1,", "\"status_2xx\":4,", "\"status_4xx\":3,", "\"malformed\":1,"] {
        assert!(stats.contains(field), "{field} in {stats}");
    }
}

#[test]
fn peer_that_does_not_read_is_throttled() {
    let mut responder = responder();
    let mut server = ServerConnection::default();
    let many = "GET /?size=4096 HTTP/1.1\r\nHost: a\r\n\r\n".repeat(1000);
    server.receive(&mut responder, 0, many.as_bytes());
    assert!(!server.wants_input(), "reading stops until responses are sent");
    assert!(server.output().0.len() < 32 * 1024);
    let mut rounds = 0;
    while server.has_output() {
        let bytes = server.output().0.len();
        server.sent(&mut responder, 0, bytes);
        rounds += 1;
    }
    assert!(rounds > 100 && server.wants_input());
    assert_eq!(responder.requests(), 1000);
}
