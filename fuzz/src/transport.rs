//! The session protocol and its datagrams from a hostile peer: refused or parsed; whatever is parsed can be encoded
//! again.

use leadline_transport::iperf3::{
    completed, Cookie, DatagramHeader, Iperf3Client, Iperf3Parameters, Iperf3Server, Iperf3ServerEvent, COOKIE_BYTES,
};
use leadline_transport::{
    encode_frame, AddressCheck, ClientSession, Credentials, DatagramFormat, DatagramReceiver, FrameDecoder, FromClient,
    FromServer, Header, HelloAnswer, Hex32, Open, Opening, OpeningEvent, SharedKey, Work, HEADER_BYTES,
};
use leadline_wire::{Direction, StreamOptions};

/// A function of random bytes that must not panic.
pub type Target = fn(&[u8]);

/// The targets by name.
pub const TARGETS: [(&str, Target); 4] = [
    ("transport_session", session),
    ("transport_opening", opening),
    ("transport_datagram", datagram),
    ("transport_iperf3", iperf3),
];

/// A control connection, as read by the server and by the client: the first byte selects the size of pieces.
pub fn session(data: &[u8]) {
    let Some((&size, stream)) = data.split_first() else { return };
    let size = usize::from(size) + 1;
    let (mut server, mut client) = (FrameDecoder::with_limit(4096), FrameDecoder::default());
    let (mut from_client, mut from_server) = (Ok(None), Ok(None));
    let mut machines = [Some(opened(None)), Some(opened(Some(Credentials { key: key(), nonce: Hex32([1; 32]) })))];
    let mut now_ns = 0;
    for piece in stream.chunks(size) {
        if from_client.is_ok() {
            server.feed(piece);
            from_client = server.next_message::<FromClient>();
            while let Ok(Some(message)) = from_client {
                let again = encode_frame(&message).expect("a parsed message can be encoded");
                let mut decoder = FrameDecoder::default();
                decoder.feed(&again);
                assert_eq!(decoder.next_message().expect("the encoded message can be parsed"), Some(message));
                from_client = server.next_message();
            }
        }
        now_ns += 1 << 40;
        for machine in &mut machines {
            let Some(session) = machine else { continue };
            session.receive(piece);
            let mut event = session.next_event(now_ns);
            while let Ok(Some(_)) = event {
                event = session.next_event(now_ns);
            }
            assert!(session.output().len() < 4096, "its output is bounded");
            if event.is_err() {
                *machine = None;
            }
        }
        if from_server.is_ok() {
            client.feed(piece);
            from_server = client.next_message::<FromServer>();
            while let Ok(Some(message)) = from_server {
                encode_frame(&message).expect("a parsed message can be encoded");
                from_server = client.next_message();
            }
        }
    }
}

/// A control connection at a server with a key and at one without, until the session is granted or refused: the first
/// byte selects the size of pieces.
pub fn opening(data: &[u8]) {
    let Some((&size, stream)) = data.split_first() else { return };
    for key in [None, Some(key())] {
        let has_key = key.is_some();
        let mut machine = Opening::new(key, Hex32([2; 32]));
        let mut answers = 0;
        'talk: for piece in stream.chunks(usize::from(size) + 1) {
            machine.receive(piece);
            while let Ok(Some(event)) = machine.next_event() {
                match event {
                    OpeningEvent::Answer(_) => answers += 1,
                    OpeningEvent::Refuse(_) => break 'talk,
                    OpeningEvent::Request(request) => {
                        assert!(!has_key, "a proof cannot be guessed");
                        encode_frame(&request.accept(7, Some("clock"))).expect("the message can be encoded");
                        break 'talk;
                    }
                }
            }
        }
        assert!(answers <= u32::from(has_key), "it sends one challenge, and only if it has a key");
    }
}

fn key() -> SharedKey {
    SharedKey::new(b"a key").expect("the key is neither empty nor too long")
}

/// A session that has been requested.
fn opened(credentials: Option<Credentials>) -> ClientSession {
    let open = Open {
        work: Work::Tcp { block_bytes: 1, rate_bps: None, options: StreamOptions::DEFAULT },
        flows: 1,
        threads: 1,
        direction: Direction::Up,
        duration_ms: 1,
        congestion: None,
        interval_ms: 100,
        takes_turns: false,
        datagrams: leadline_transport::DatagramOptions::default(),
    };
    ClientSession::new(open, credentials).expect("the request is short")
}

/// Datagrams, each after a byte with its length.
pub fn datagram(data: &[u8]) {
    let mut receiver = DatagramReceiver::new(DatagramFormat::Session(7), 1, HEADER_BYTES + 8);
    let others = [DatagramFormat::Short(7), iperf3_format(true), iperf3_format(false)];
    let mut others = others.map(|format| (DatagramReceiver::new(format, 1, HEADER_BYTES + 8), 0));
    let check = AddressCheck::new(b"a secret").expect("the secret is valid");
    let client = std::net::SocketAddr::from(([192, 0, 2, 1], 1000));
    let (mut rest, mut now_ns, mut handed_in) = (data, 0u64, 0u64);
    while let Some((&length, after)) = rest.split_first() {
        let (datagram, after) = after.split_at(after.len().min(usize::from(length)));
        rest = after;
        now_ns += u64::from(length);
        let was_new = receiver.handle(now_ns, datagram);
        handed_in += u64::from(was_new);
        for (other, handed_in) in &mut others {
            *handed_in += u64::from(other.handle(now_ns, datagram));
        }
        if let Ok(header) = Header::parse(datagram) {
            let mut again = [0; HEADER_BYTES];
            header.write(&mut again);
            assert_eq!(Header::parse(&again), Ok(header));
            if let HelloAnswer::Challenge(answer) = check.handle_hello(&header, client) {
                let returned = Header { sequence: answer.sequence, ..header };
                assert_eq!(check.handle_hello(&returned, client), HelloAnswer::Proven);
            }
        } else {
            assert!(!was_new);
        }
    }
    for (receiver, handed_in) in std::iter::once((receiver, handed_in)).chain(others) {
        assert_eq!(receiver.bytes(), handed_in * (HEADER_BYTES as u64 + 8));
        receiver.report(None);
    }
}

fn iperf3_format(wide: bool) -> DatagramFormat {
    DatagramFormat::Iperf3 { wide }
}

/// iperf3's control connection, as read by a server and by a client, and what its flows begin with: the first byte selects
/// the size of pieces.
pub fn iperf3(data: &[u8]) {
    let Some((&size, stream)) = data.split_first() else { return };
    let (mut server, _) = Iperf3Server::new();
    let mut client = Iperf3Client::default();
    let (mut of_server, mut of_client) = (Ok(None), Ok(None));
    for piece in stream.chunks(usize::from(size) + 1) {
        if of_server.is_ok() {
            server.receive(piece);
            of_server = server.next_event();
            while let Ok(Some(event)) = of_server {
                if let Iperf3ServerEvent::Parameters(asked) = event {
                    hold_parameters(&asked);
                }
                of_server = server.next_event();
            }
        }
        if of_client.is_ok() {
            client.receive(piece);
            of_client = client.next_event();
            while let Ok(Some(_)) = of_client {
                of_client = client.next_event();
            }
        }
    }
    client.closed();
    if let Some(cookie) = stream.first_chunk::<COOKIE_BYTES>().and_then(Cookie::parse) {
        assert_eq!(Cookie::parse(cookie.bytes()), Some(cookie));
    }
    let near = u64::from(size) << 28;
    for wide in [false, true] {
        if let Some(header) = DatagramHeader::parse(wide, stream, near) {
            assert!(wide || completed(header.number as u32, near) == header.number);
            let mut again = [0; 16];
            header.write(wide, &mut again);
            assert_eq!(DatagramHeader::parse(wide, &again, near).map(|read| read.number), Some(header.number));
        }
    }
}

/// Parameters inside of their ranges: they can be sent again, and what is made of them is bounded.
fn hold_parameters(asked: &Iperf3Parameters) {
    assert!((1..=128).contains(&asked.flows()) && asked.block_bytes() <= 1 << 20);
    assert!(asked.length_ns().is_none_or(|length_ns| length_ns <= 87_000_000_000_000));
    let (mut server, _) = Iperf3Server::new();
    server.receive(&asked.encode());
    match server.next_event() {
        Ok(Some(Iperf3ServerEvent::Parameters(again))) => assert_eq!(*again, *asked),
        // Escaped text may be longer than the limit allows.
        Err(_) => {}
        other => panic!("sent again, the parameters are {other:?}"),
    }
}
