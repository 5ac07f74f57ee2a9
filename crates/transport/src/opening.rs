//! The server's end of a control connection until a client has requested a session and proven the key: a state
//! machine that receives bytes and returns responses. The agent decides whether to grant the session. A client
//! without the key receives only the refusal.
//!
//! | Stage     | message of the client | key here | next stage                         |
//! |-----------|-----------------------|----------|------------------------------------|
//! | asked     | `open` without nonce  | no       | a request                          |
//! | asked     | `open` with a nonce   | no       | refused: `no_key`                  |
//! | asked     | `open` without nonce  | yes      | refused: `key_required`            |
//! | asked     | `open` with a nonce   | yes      | challenged, with a nonce           |
//! | challenged| `prove`, right        | yes      | a request                          |
//! | challenged| `prove`, wrong        | yes      | refused: `wrong_key`               |
//! | any       | anything else         |          | an error                           |

use crate::frame::{FrameDecoder, FrameError};
use crate::key::{clock_fingerprint, Hex32, SharedKey, Transcript};
use crate::session::{FromClient, FromServer, Open, Refusal};

/// Maximum length of a message before a session is granted, bytes.
const REQUEST_BYTES: usize = 4096;

/// The opening of one control connection.
#[derive(Debug)]
pub struct Opening {
    decoder: FrameDecoder,
    key: Option<SharedKey>,
    nonce: Hex32,
    requested: Option<(Open, Transcript)>,
}

/// An event of the opening.
#[derive(Debug)]
pub enum OpeningEvent {
    /// Send this message; more events follow.
    Answer(FromServer),
    /// Send this refusal and close the connection.
    Refuse(Refusal),
    /// A client that is allowed to has requested a session.
    Request(Box<SessionRequest>),
}

/// Why a client's messages are invalid.
#[derive(Debug, thiserror::Error)]
pub enum OpeningError {
    /// Not a valid frame.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// A message that is not allowed at this stage.
    #[error("unexpected message")]
    OutOfTurn,
}

/// A request for a session; its client has proven the key, if there is one.
#[derive(Debug)]
pub struct SessionRequest {
    /// The requested session.
    pub open: Open,
    /// The decoder, with the bytes after the request.
    pub decoder: FrameDecoder,
    shown: Option<(SharedKey, Transcript)>,
}

impl Opening {
    /// Creates the opening of a connection whose magic line has been read; with a key, the nonce must be fresh.
    pub fn new(key: Option<SharedKey>, nonce: Hex32) -> Self {
        Self { decoder: FrameDecoder::with_limit(REQUEST_BYTES), key, nonce, requested: None }
    }

    /// Takes received bytes; call `next_event` afterwards until it returns `None`.
    pub fn receive(&mut self, bytes: &[u8]) {
        self.decoder.feed(bytes);
    }

    /// Returns the next event. After a refusal or a request there are no more.
    ///
    /// # Errors
    /// Why the connection is unusable.
    pub fn next_event(&mut self) -> Result<Option<OpeningEvent>, OpeningError> {
        let Some(frame) = self.decoder.next_frame()? else { return Ok(None) };
        let message = serde_json::from_slice(&frame).map_err(FrameError::from)?;
        let event = match (message, self.requested.take(), &self.key) {
            (FromClient::Open { open, nonce: None }, None, None) => self.request(*open, None),
            (FromClient::Open { nonce: Some(_), .. }, None, None) => {
                refuse("no_key", "this responder has no key; start it with --key-file, or omit --key-file here")
            }
            (FromClient::Open { nonce: None, .. }, None, Some(_)) => {
                refuse("key_required", "this responder asks for its key: set --key-file")
            }
            (FromClient::Open { open, nonce: Some(client) }, None, Some(_)) => {
                self.requested = Some((*open, Transcript { client, server: self.nonce, request: frame }));
                OpeningEvent::Answer(FromServer::Challenge { nonce: self.nonce })
            }
            (FromClient::Prove { proof }, Some((open, transcript)), Some(key)) => {
                if key.is_client(&transcript, proof) {
                    let shown = Some((key.clone(), transcript));
                    self.request(open, shown)
                } else {
                    refuse("wrong_key", "the key is not this responder's")
                }
            }
            _ => return Err(OpeningError::OutOfTurn),
        };
        Ok(Some(event))
    }

    fn request(&mut self, open: Open, shown: Option<(SharedKey, Transcript)>) -> OpeningEvent {
        let decoder = std::mem::take(&mut self.decoder);
        OpeningEvent::Request(Box::new(SessionRequest { open, decoder, shown }))
    }
}

impl SessionRequest {
    /// Returns the message that grants the session with this token; `clock` identifies the server's monotonic clock, if
    /// it is known.
    pub fn accept(&self, token: u64, clock: Option<&str>) -> FromServer {
        let proof = self.shown.as_ref().map(|(key, transcript)| key.server_proof(transcript, token));
        FromServer::Accepted { token, proof, clock: clock.map(|clock| clock_fingerprint(clock, token)) }
    }
}

fn refuse(code: &str, message: &str) -> OpeningEvent {
    OpeningEvent::Refuse(Refusal { code: code.to_owned(), message: message.to_owned() })
}

#[cfg(test)]
mod tests {
    use leadline_wire::Direction;

    use super::*;
    use crate::client::{ClientSession, Credentials, SessionError};
    use crate::frame::{encode_frame, MAGIC};
    use crate::session::{DatagramOptions, Work};

    const SERVER: Hex32 = Hex32([2; 32]);

    fn open() -> Open {
        Open {
            // The rate has no exact binary fraction: the proof has to cover the request exactly as it was sent.
            work: Work::Udp { datagram_bytes: 100, rate_pps: Some(1e5 / 3.0), number: None },
            flows: 1,
            threads: 1,
            direction: Direction::Up,
            duration_ms: 1000,
            congestion: None,
            interval_ms: 100,
            takes_turns: false,
            datagrams: DatagramOptions::default(),
        }
    }

    fn key(text: &str) -> SharedKey {
        SharedKey::new(text.as_bytes()).unwrap()
    }

    fn client(text: Option<&str>) -> ClientSession {
        let credentials = text.map(|text| Credentials { key: key(text), nonce: Hex32([1; 32]) });
        ClientSession::new(open(), credentials).unwrap()
    }

    /// Exchanges messages until the server grants or refuses, and until the client has read that.
    fn talk(mut client: ClientSession, mut server: Opening) -> (Result<(), SessionError>, Option<Refusal>) {
        server.receive(client.output().strip_prefix(MAGIC).unwrap());
        client.sent(usize::MAX);
        loop {
            let (answer, refusal) = match server.next_event().unwrap().unwrap() {
                OpeningEvent::Answer(answer) => (answer, None),
                OpeningEvent::Refuse(refusal) => (FromServer::Refused(refusal.clone()), Some(refusal)),
                OpeningEvent::Request(request) => {
                    assert_eq!(request.open, open());
                    client.receive(&encode_frame(&request.accept(9, None)).unwrap());
                    return (client.next_event(0).map(|_| ()), None);
                }
            };
            client.receive(&encode_frame(&answer).unwrap());
            let heard = client.next_event(0).map(|_| ());
            if heard.is_err() {
                return (heard, refusal);
            }
            server.receive(client.output());
            client.sent(usize::MAX);
        }
    }

    #[test]
    fn session_is_granted_if_both_have_the_same_key_or_none() {
        for both in [None, Some("the key")] {
            let (heard, refused) = talk(client(both), Opening::new(both.map(key), SERVER));
            assert!(heard.is_ok() && refused.is_none(), "{both:?}: {heard:?} {refused:?}");
        }
    }

    #[test]
    fn client_without_the_key_is_refused() {
        let cases = [
            (None, Some("right"), "key_required"),
            (Some("wrong"), Some("right"), "wrong_key"),
            (Some("right"), None, "no_key"),
        ];
        for (of_client, of_server, code) in cases {
            let (heard, refused) = talk(client(of_client), Opening::new(of_server.map(key), SERVER));
            assert_eq!(refused.unwrap().code, code);
            assert!(matches!(heard, Err(SessionError::Refused(refusal)) if refusal.code == code));
        }
    }

    #[test]
    fn recorded_proof_is_refused_in_the_next_session() {
        let mut first = Opening::new(Some(key("k")), SERVER);
        let mut honest = client(Some("k"));
        let requested = honest.output().strip_prefix(MAGIC).unwrap().to_vec();
        honest.sent(usize::MAX);
        first.receive(&requested);
        assert!(matches!(first.next_event().unwrap(), Some(OpeningEvent::Answer(_))));
        honest.receive(&encode_frame(&FromServer::Challenge { nonce: SERVER }).unwrap());
        honest.next_event(0).unwrap();
        let recorded = [requested, honest.output().to_vec()].concat();
        first.receive(honest.output());
        assert!(matches!(first.next_event().unwrap(), Some(OpeningEvent::Request(_))));

        let mut second = Opening::new(Some(key("k")), Hex32([3; 32]));
        second.receive(&recorded);
        assert!(matches!(second.next_event().unwrap(), Some(OpeningEvent::Answer(_))));
        let refused = second.next_event().unwrap();
        assert!(matches!(refused, Some(OpeningEvent::Refuse(refusal)) if refusal.code == "wrong_key"));
    }

    #[test]
    fn client_with_a_key_rejects_a_server_without_a_proof() {
        // One server grants without a challenge; the other sends a challenge and a wrong proof.
        for (asks, proof) in [(false, None), (false, Some(SERVER)), (true, None), (true, Some(SERVER))] {
            let mut client = client(Some("k"));
            client.sent(usize::MAX);
            if asks {
                client.receive(&encode_frame(&FromServer::Challenge { nonce: SERVER }).unwrap());
                assert!(client.next_event(0).unwrap().is_none());
            }
            client.receive(&encode_frame(&FromServer::Accepted { token: 9, proof, clock: None }).unwrap());
            assert!(matches!(client.next_event(0), Err(SessionError::Unproven)), "{asks} {proof:?}");
        }
    }

    #[test]
    fn unexpected_message_ends_the_connection() {
        let proof = FromClient::Prove { proof: SERVER };
        for messages in [vec![proof.clone()], vec![FromClient::Stop {}], vec![FromClient::Begin { at_ns: 0 }]] {
            for key in [None, Some(key("k"))] {
                let mut opening = Opening::new(key, SERVER);
                messages.iter().for_each(|message| opening.receive(&encode_frame(message).unwrap()));
                assert!(matches!(opening.next_event(), Err(OpeningError::OutOfTurn)), "{messages:?}");
            }
        }
        let mut opening = Opening::new(Some(key("k")), SERVER);
        let requested = encode_frame(&FromClient::Open { open: Box::new(open()), nonce: Some(SERVER) }).unwrap();
        opening.receive(&requested.repeat(2));
        assert!(opening.next_event().unwrap().is_some());
        assert!(matches!(opening.next_event(), Err(OpeningError::OutOfTurn)), "the request is repeated");
        let mut opening = Opening::new(None, SERVER);
        opening.receive(&5000u32.to_be_bytes());
        assert!(matches!(opening.next_event(), Err(OpeningError::Frame(FrameError::TooLong { .. }))));
    }
}
