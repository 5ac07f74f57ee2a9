//! The session protocol and its datagrams from a hostile peer: refused or understood, and what is understood can be said again.

use leadline_transport::{
    encode_frame, ClientSession, DatagramReceiver, FrameDecoder, FromClient, FromServer, Header, Open, Work,
    HEADER_BYTES,
};
use leadline_wire::Direction;

/// What is handed random bytes, and must not panic.
pub type Target = fn(&[u8]);

/// The targets by their names.
pub const TARGETS: [(&str, Target); 2] = [("transport_session", session), ("transport_datagram", datagram)];

/// A control connection, as the server reads it and as the client does: the first byte says how the rest is cut.
pub fn session(data: &[u8]) {
    let Some((&size, stream)) = data.split_first() else { return };
    let size = usize::from(size) + 1;
    let (mut server, mut client) = (FrameDecoder::with_limit(4096), FrameDecoder::default());
    let (mut asked, mut told) = (Ok(None), Ok(None));
    let mut machine = Some(opened());
    let mut now_ns = 0;
    for piece in stream.chunks(size) {
        if asked.is_ok() {
            server.feed(piece);
            asked = server.next_message::<FromClient>();
            while let Ok(Some(message)) = asked {
                let again = encode_frame(&message).expect("what was read can be written");
                let mut decoder = FrameDecoder::default();
                decoder.feed(&again);
                assert_eq!(decoder.next_message().expect("and read again"), Some(message));
                asked = server.next_message();
            }
        }
        if let Some(session) = &mut machine {
            session.receive(piece);
            now_ns += 1 << 40;
            let mut event = session.next_event(now_ns);
            while let Ok(Some(_)) = event {
                event = session.next_event(now_ns);
            }
            assert!(session.output().len() < 4096, "it says little, whatever it hears");
            if event.is_err() {
                machine = None;
            }
        }
        if told.is_ok() {
            client.feed(piece);
            told = client.next_message::<FromServer>();
            while let Ok(Some(message)) = told {
                encode_frame(&message).expect("what was read can be written");
                told = client.next_message();
            }
        }
    }
}

/// A session that has been asked for.
fn opened() -> ClientSession {
    let open = Open {
        work: Work::Tcp { block_bytes: 1, rate_bps: None },
        flows: 1,
        threads: 1,
        direction: Direction::Up,
        duration_ms: 1,
        congestion: None,
        interval_ms: 100,
        takes_turns: false,
    };
    ClientSession::new(open).expect("the request is short")
}

/// Datagrams, each behind a byte that is its length.
pub fn datagram(data: &[u8]) {
    let mut receiver = DatagramReceiver::new(7, 1, HEADER_BYTES + 8);
    let (mut rest, mut now_ns, mut handed_in) = (data, 0u64, 0u64);
    while let Some((&length, after)) = rest.split_first() {
        let (datagram, after) = after.split_at(after.len().min(usize::from(length)));
        rest = after;
        now_ns += u64::from(length);
        let was_new = receiver.handle(now_ns, datagram);
        handed_in += u64::from(was_new);
        if let Ok(header) = Header::parse(datagram) {
            let mut again = [0; HEADER_BYTES];
            header.write(&mut again);
            assert_eq!(Header::parse(&again), Ok(header));
        } else {
            assert!(!was_new);
        }
    }
    assert_eq!(receiver.bytes(), handed_in * (HEADER_BYTES as u64 + 8));
}
