//! Tests of hostile or broken peers: each case has a stable error name, holds no more memory than the limit of a
//! head, and does not allocate per byte or per message. The heap usage is counted, not estimated.

use allocation_counter::{measure, AllocationInfo};
use leadline_http::{
    End, Malformed, RequestEvent, RequestParser, Response, ResponseParser, HEAD_LIMIT_BYTES, INTERIM_LIMIT,
};

/// Length of an endless stream, bytes.
const ENDLESS_BYTES: usize = 6 << 20;

/// Maximum memory held: an unfinished head while its buffer doubles.
const HELD_LIMIT_BYTES: u64 = 3 * HEAD_LIMIT_BYTES as u64;

/// Sizes of the pieces in which bytes arrive.
const PIECES: [usize; 4] = [1, 7, 1448, 65_536];

/// Feeds `start`, then `part` repeatedly up to [`ENDLESS_BYTES`], in pieces; returns the result, the number of bytes
/// fed, and the heap usage.
fn endless(start: &str, part: &str, piece: usize) -> (Result<Option<Response>, Malformed>, usize, AllocationInfo) {
    // The stream repeats with the least common multiple of part and piece, so feeding needs no copies.
    let block: Vec<u8> = part.bytes().cycle().take(part.len() * piece.div_ceil(part.len()).max(64)).collect();
    let mut parser = ResponseParser::new(false);
    let (mut ended, mut fed_bytes) = (Ok(None), 0);
    let heap = measure(|| {
        let first = start.as_bytes().chunks(piece);
        for bytes in first.chain(block.chunks(piece).cycle()) {
            match parser.feed(bytes) {
                Ok(fed) if fed.response.is_none() => assert_eq!(fed.consumed, bytes.len()),
                Ok(fed) => ended = Ok(fed.response),
                Err(cause) => ended = Err(cause),
            }
            fed_bytes += bytes.len();
            if ended != Ok(None) || fed_bytes >= ENDLESS_BYTES {
                break;
            }
        }
    });
    (ended, fed_bytes, heap)
}

#[test]
fn endless_input_is_refused_early_and_bounded() {
    let ok = "HTTP/1.1 200 OK\r\n";
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let long_value = format!("{ok}X: ");
    let last_chunk = format!("{chunked}0\r\n");
    let interim = "HTTP/1.1 100 Continue\r\n\r\n";
    let interim_bytes = interim.len() * (usize::from(INTERIM_LIMIT) + 1);
    let cases = [
        ("a status line", "HTTP/1.1 200 ", "x", Malformed::HeadTooLong, HEAD_LIMIT_BYTES),
        ("a field", long_value.as_str(), "y", Malformed::HeadTooLong, HEAD_LIMIT_BYTES),
        ("fields", ok, "X-Header: some value\r\n", Malformed::HeadTooLong, HEAD_LIMIT_BYTES),
        ("a chunk's line", chunked, "0", Malformed::ChunkLineTooLong, 4096 + chunked.len()),
        ("a chunk's extension", chunked, "1;ext=abcdefgh", Malformed::ChunkLineTooLong, 4096 + chunked.len()),
        ("trailers", &last_chunk, "T: railer\r\n", Malformed::TrailerTooLong, HEAD_LIMIT_BYTES + last_chunk.len()),
        ("a trailer", &last_chunk, "T", Malformed::TrailerTooLong, HEAD_LIMIT_BYTES + last_chunk.len()),
        ("interim responses", "", interim, Malformed::TooManyInterim, interim_bytes),
    ];
    for (what, start, part, cause, limit_bytes) in cases {
        for piece in PIECES {
            let (ended, fed_bytes, heap) = endless(start, part, piece);
            assert_eq!(ended, Err(cause), "{what} in pieces of {piece}");
            assert!(fed_bytes <= limit_bytes + piece + start.len(), "{what}: detected after {fed_bytes} bytes");
            assert!(heap.bytes_max <= HELD_LIMIT_BYTES, "{what} in pieces of {piece}: {heap:?}");
        }
    }
}

#[test]
fn a_header_of_a_megabyte_is_refused() {
    let text = format!("HTTP/1.1 200 OK\r\nX: {}\r\nContent-Length: 0\r\n\r\n", "y".repeat(1 << 20));
    for piece in PIECES {
        let mut parser = ResponseParser::new(false);
        let mut ended = Ok(());
        let heap = measure(|| ended = text.as_bytes().chunks(piece).try_for_each(|bytes| parser.feed(bytes).map(drop)));
        assert_eq!(ended, Err(Malformed::HeadTooLong));
        assert!(heap.bytes_max <= HELD_LIMIT_BYTES, "{heap:?}");
    }
}

#[test]
fn endless_bodies_are_counted_and_not_stored() {
    let bodies = [
        ("HTTP/1.1 200 OK\r\n\r\n", "any bytes at all"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551615\r\n\r\n", "any bytes at all"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "5;a=b\r\nhello\r\n"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n", "any bytes at all"),
    ];
    for (start, part) in bodies {
        for piece in [7_usize, 1448, 65_536] {
            let (ended, fed_bytes, heap) = endless(start, part, piece);
            assert_eq!(ended, Ok(None));
            assert!(fed_bytes >= ENDLESS_BYTES);
            assert!(heap.bytes_total <= 4096, "{start:?} in pieces of {piece}: {heap:?}");
        }
    }
}

#[test]
fn regular_responses_allocate_nothing_after_the_first() {
    let responses = [
        "HTTP/1.1 200 OK\r\nDate: today\r\nContent-Length: 5\r\n\r\nhello",
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    ];
    for piece in PIECES {
        let mut parser = ResponseParser::new(false);
        let mut turn = || {
            let mut count = 0;
            for response in responses {
                for bytes in response.as_bytes().chunks(piece) {
                    count += u32::from(parser.feed(bytes).unwrap().response.is_some());
                }
            }
            count
        };
        assert_eq!(turn(), 2);
        let mut count = 0;
        let heap = measure(|| count = (0..1000).map(|_| turn()).sum());
        assert_eq!((count, heap.count_total), (2000, 0), "in pieces of {piece}");
    }
}

#[test]
fn truncated_response_is_reported_as_early() {
    let responses = [
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\nT: x\r\n\r\n",
        "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
        "HTTP/1.0 304 Not Modified\n\n",
    ];
    for text in responses {
        for cut in 0..text.len() {
            let mut parser = ResponseParser::new(false);
            let fed = parser.feed(&text.as_bytes()[..cut]).unwrap();
            assert_eq!((fed.response, fed.consumed), (None, cut), "{:?}", &text[..cut]);
            assert_eq!(parser.finish(), if cut == 0 { End::Clean } else { End::Early }, "{:?}", &text[..cut]);
        }
        let fed = ResponseParser::new(false).feed(text.as_bytes()).unwrap();
        assert!(fed.response.is_some() && fed.consumed == text.len());
    }
}

#[test]
fn wrong_lengths_are_malformed() {
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let cases = [
        ("4\r\nhello\r\n0\r\n\r\n", Malformed::ChunkEnd),
        ("6\r\nhello\r\n0\r\n\r\n", Malformed::ChunkEnd),
        ("5\r\nhello0\r\n\r\n", Malformed::ChunkEnd),
        ("hello\r\n", Malformed::ChunkSize),
        ("-5\r\nhello\r\n", Malformed::ChunkSize),
        ("10000000000000005\r\nhello\r\n", Malformed::ChunkSize),
        ("\r\n5\r\nhello\r\n", Malformed::ChunkSize),
    ];
    for (body, cause) in cases {
        let text = format!("{head}{body}");
        for piece in PIECES {
            let mut parser = ResponseParser::new(false);
            let ended = text.as_bytes().chunks(piece).try_for_each(|bytes| parser.feed(bytes).map(drop));
            assert_eq!(ended, Err(cause), "{body:?} in pieces of {piece}");
        }
    }
}

#[test]
fn a_body_ends_at_its_content_length_and_the_rest_is_malformed() {
    let text = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello, world\r\n";
    let mut parser = ResponseParser::new(false);
    let fed = parser.feed(text).unwrap();
    let response = fed.response.unwrap();
    assert_eq!((response.body_bytes, &text[fed.consumed..]), (5, &b", world\r\n"[..]));
    assert_eq!(parser.feed(&text[fed.consumed..]), Err(Malformed::StatusLine));
}

#[test]
fn pipelined_responses_are_parsed_one_by_one() {
    let text = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhelloHTTP/1.1 204 No\r\n\r\nHTTP/1.1 404 No\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    let mut parser = ResponseParser::new(false);
    let (mut rest, mut statuses) = (text.as_bytes(), Vec::new());
    while !rest.is_empty() {
        let fed = parser.feed(rest).unwrap();
        statuses.push(fed.response.map(|response| response.status));
        rest = &rest[fed.consumed..];
    }
    assert_eq!(statuses, [Some(200), Some(204), Some(404)]);
    assert_eq!(parser.finish(), End::Clean);
}

/// The server's parser: the same limits, and a body is counted.
#[test]
fn hostile_requests_are_named_and_use_bounded_memory() {
    let cases = [
        ("GET /", "x", Err(Malformed::HeadTooLong)),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: ", "y", Err(Malformed::HeadTooLong)),
        ("GET / HTTP/1.1\r\nHost: a\r\n", "X: y\r\n", Err(Malformed::HeadTooLong)),
        ("", "\r\n", Err(Malformed::HeadTooLong)),
        ("PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", "5\r\nhello\r\n", Ok(None)),
        (
            "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n",
            "T: x\r\n",
            Err(Malformed::TrailerTooLong),
        ),
        ("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 18446744073709551615\r\n\r\n", "abc", Ok(None)),
    ];
    for (start, part, expected) in cases {
        for piece in [7_usize, 1448, 65_536] {
            let block = part.repeat(piece.div_ceil(part.len()) * 8);
            let mut parser = RequestParser::default();
            let mut ended: Result<Option<RequestEvent>, _> = Ok(None);
            let heap = measure(|| {
                let mut left = ENDLESS_BYTES;
                let stream = start.as_bytes().chunks(piece).chain(block.as_bytes().chunks(piece).cycle());
                for bytes in stream {
                    ended = parser.feed(bytes).map(|fed| fed.event);
                    left = left.saturating_sub(bytes.len());
                    if ended != Ok(None) || left == 0 {
                        break;
                    }
                }
            });
            assert_eq!(ended, expected, "{start:?} in pieces of {piece}");
            // The target is stored beside the unfinished line of the head.
            assert!(heap.bytes_max <= HELD_LIMIT_BYTES + HEAD_LIMIT_BYTES as u64, "{start:?}: {heap:?}");
        }
    }
}
