//! HTTP and TLS from a hostile peer: the machines give the same results wherever bytes are split, with or without a
//! sink, within their limits.

use std::sync::OnceLock;

use leadline_http::{
    Batch, Behaviour, ClientConnection, End, Malformed, RequestEvent, RequestParser, Responder, Response,
    ResponseParser, ServerConnection, Setup, Sink, Url,
};
use leadline_tls::{ClientTls, ServerTls, TlsClient, TlsOptions, TlsServer, TlsVersion, PENDING_LIMIT_BYTES};

/// A function of random bytes that must not panic.
pub type Target = fn(&[u8]);

/// The targets by name.
pub const TARGETS: [(&str, Target); 3] = [("http_response", response), ("http_request", request), ("http_tls", tls)];

/// Responses: the first byte selects the size of pieces and the request.
pub fn response(data: &[u8]) {
    let Some((&choice, stream)) = data.split_first() else { return };
    let (answers_head, size) = (choice & 1 != 0, usize::from(choice >> 1) + 1);
    let whole = responses(stream, stream.len().max(1), answers_head, &mut ());
    assert_eq!(responses(stream, size, answers_head, &mut ()), whole);
    let mut recorder = Recorder::default();
    assert_eq!(responses(stream, size, answers_head, &mut recorder), whole);
    let reported_bytes: u64 = whole.0.iter().map(|response| response.body_bytes).sum();
    let tail = matches!(whole.1, Ok(End::Clean | End::Response(_)));
    assert!(if tail { recorder.body_bytes == reported_bytes } else { recorder.body_bytes >= reported_bytes });
    client(stream, size);
}

/// Parses all responses of a stream in pieces of one size; returns them and the meaning of its end.
fn responses(
    stream: &[u8],
    size: usize,
    answers_head: bool,
    sink: &mut impl Sink,
) -> (Vec<Response>, Result<End, Malformed>) {
    let mut parser = ResponseParser::new(answers_head);
    let mut parsed = Vec::new();
    for mut piece in stream.chunks(size) {
        while !piece.is_empty() {
            match parser.feed_into(piece, sink) {
                Ok(fed) => {
                    assert!(fed.response.is_some() || fed.consumed == piece.len());
                    parsed.extend(fed.response);
                    piece = &piece[fed.consumed..];
                }
                Err(cause) => {
                    assert_eq!(parser.feed(b"HTTP/1.1 204 x\r\n\r\n"), Err(cause));
                    return (parsed, Err(cause));
                }
            }
        }
    }
    let end = parser.finish();
    if let End::Response(response) = end {
        parsed.push(response);
    }
    (parsed, Ok(end))
}

#[derive(Default)]
struct Recorder {
    body_bytes: u64,
}

impl Sink for Recorder {
    fn status(&mut self, status: u16) {
        assert!((100..1000).contains(&status));
    }

    fn field(&mut self, name: &[u8], value: &[u8]) {
        let odd = |byte: &u8| matches!(byte, b'\r' | b'\n' | 0);
        assert!(!name.iter().chain(value).any(odd));
        if name.eq_ignore_ascii_case(b"location") {
            let _ = std::str::from_utf8(value).map(Url::parse);
        }
    }

    fn body(&mut self, bytes: &[u8]) {
        assert!(!bytes.is_empty());
        self.body_bytes += bytes.len() as u64;
    }
}

/// Runs a connection that waits for three responses.
fn client(stream: &[u8], size: usize) {
    let mut connection = ClientConnection::default();
    connection.opened();
    connection.begin(0, 0, Batch { bytes: 30, requests: 3, expects_no_body: false });
    connection.sent(30);
    'all: for (mut piece, now_ns) in stream.chunks(size).zip(1..) {
        while !piece.is_empty() {
            let Ok((used, _)) = connection.receive(piece, now_ns, &mut ()) else { break 'all };
            assert!(used > 0);
            piece = &piece[used..];
        }
    }
    connection.ended(1 << 40);
    assert!(!connection.is_idle());
}

/// Requests: the first byte selects the size of pieces.
pub fn request(data: &[u8]) {
    let Some((&size, stream)) = data.split_first() else { return };
    let size = usize::from(size) + 1;
    assert_eq!(requests(stream, size), requests(stream, stream.len().max(1)));
    let setup = Setup { behaviour: Behaviour::default(), stalls: None, started_ns: 0, engine: String::new() };
    let mut responder = Responder::group(1, setup).remove(0);
    let mut server = ServerConnection::default();
    let mut pieces = stream.chunks(size);
    let (mut now_ns, mut sent_bytes) = (0, 0);
    // A query may request a gigabyte; a part of it tests the same.
    while sent_bytes < 1 << 22 {
        if server.has_output() {
            let (head, body) = server.pieces();
            assert!(head.len() < 64 * 1024);
            let bytes = head.len() + body.len();
            assert!(bytes > 0, "output that exists can be sent");
            sent_bytes += bytes;
            server.sent(&mut responder, now_ns, bytes);
        } else if let Some(piece) = server.wants_input().then(|| pieces.next()).flatten() {
            now_ns += 1;
            server.receive(&mut responder, now_ns, piece);
        } else if let Some(at_ns) = server.wake_at() {
            now_ns = now_ns.max(at_ns);
            server.wake(&mut responder, now_ns);
        } else {
            server.end_of_input();
            assert!(server.is_finished(), "all work is done");
            break;
        }
    }
}

/// Parses all requests of a stream in pieces of one size; returns them and the error.
fn requests(stream: &[u8], size: usize) -> (Vec<RequestEvent>, Option<Malformed>) {
    let mut parser = RequestParser::default();
    let mut parsed = Vec::new();
    for mut piece in stream.chunks(size) {
        while !piece.is_empty() {
            match parser.feed(piece) {
                Ok(fed) => {
                    assert!(fed.event.is_some() || fed.consumed == piece.len());
                    parsed.extend(fed.event);
                    piece = &piece[fed.consumed..];
                }
                Err(cause) => return (parsed, Some(cause)),
            }
        }
    }
    (parsed, None)
}

/// Random bytes instead of TLS: each side refuses them or waits, within its limits.
pub fn tls(data: &[u8]) {
    let Some((&size, stream)) = data.split_first() else { return };
    let (client, server) = ends();
    let mut client = TlsClient::new(client).expect("the options are valid");
    let mut server = TlsServer::new(server).expect("the options are valid");
    let (mut plaintext, mut output) = ([0; 1024], Vec::new());
    for piece in stream.chunks(usize::from(size) + 1) {
        output.clear();
        let client_accepts = client.receive(piece).is_ok();
        while client.read(&mut plaintext).is_ok_and(|bytes| bytes > 0) {}
        client.take_output(&mut output);
        let server_accepts = server.receive(piece).is_ok();
        while server.read(&mut plaintext).is_ok_and(|bytes| bytes > 0) {}
        server.take_output(&mut output);
        assert!(client.held_bytes() <= 2 * PENDING_LIMIT_BYTES && server.held_bytes() <= 2 * PENDING_LIMIT_BYTES);
        assert!(client.is_handshaking() || !client_accepts, "no handshake ends without the keys");
        if !client_accepts && !server_accepts {
            break;
        }
    }
}

fn ends() -> &'static (ClientTls, ServerTls) {
    static ENDS: OnceLock<(ClientTls, ServerTls)> = OnceLock::new();
    ENDS.get_or_init(|| {
        let (server, certificate_pem) = ServerTls::self_signed(&[]).expect("a certificate can be created");
        let client = ClientTls::new(&TlsOptions {
            verify: true,
            ca_pem: Some(&certificate_pem),
            identity: None,
            oldest: TlsVersion::V1_2,
            newest: TlsVersion::V1_3,
            cipher_suites: &[],
            alpn: &[],
            server_name: "localhost",
            resumption: true,
            connections: 1,
            early_data: true,
        });
        (client.expect("the options are valid"), server)
    })
}
