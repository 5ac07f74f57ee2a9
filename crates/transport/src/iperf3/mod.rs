//! iperf3's control protocol as machines, for both ends: a server that answers real `iperf3` clients, and a client of a
//! real `iperf3 -s`. Owns the bytes on the control connection and in the datagrams; opens no socket, reads no clock.
//!
//! One TCP control connection, which begins with the client's cookie. Then one signed byte is a state, and some states
//! are followed by a message: a length (u32, big-endian) and that many bytes of JSON.
//!
//! | Sent by | What | Then |
//! |---|---|---|
//! | client | the cookie | |
//! | server | `PARAMETERS` | the client sends its parameters as a message |
//! | server | `CREATE_STREAMS` | the client opens its flows one by one: TCP with the cookie, UDP with a hello |
//! | server | `START`, `RUNNING` | payload flows |
//! | client | `END` | |
//! | server | `RESULTS` | the client sends its results as a message, then the server |
//! | server | `DISPLAY` | the client has all figures |
//! | client | `DONE` | both close |

mod client;
mod datagram;
mod errors;
mod message;
mod parameters;
mod results;
mod server;

pub use client::{Iperf3Client, Iperf3ClientEvent};
pub use datagram::{is_hello, DatagramHeader, HELLO, HELLO_ANSWER};
pub use errors::{meaning, ErrorNumber};
pub use message::Iperf3Error;
pub use parameters::{Iperf3Parameters, Iperf3Protocol};
pub use results::{Iperf3Results, Iperf3StreamResult};
pub use server::{Iperf3Server, Iperf3ServerEvent};

/// Length of the cookie that names a test, bytes: 36 characters and a zero.
pub const COOKIE_BYTES: usize = 37;

/// The characters of a cookie.
pub const COOKIE_ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// The name of one test, which the control connection and each TCP flow begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cookie([u8; COOKIE_BYTES]);

impl Cookie {
    /// Returns the cookie in the first bytes of a connection; `None` if they are none.
    pub fn parse(bytes: &[u8; COOKIE_BYTES]) -> Option<Self> {
        let (characters, end) = bytes.split_at(COOKIE_BYTES - 1);
        (characters.iter().all(|byte| COOKIE_ALPHABET.contains(byte)) && end == [0]).then_some(Self(*bytes))
    }

    /// Returns a cookie made of random bytes.
    pub fn from_random(random: &[u8; COOKIE_BYTES - 1]) -> Self {
        let mut bytes = [0; COOKIE_BYTES];
        for (place, random) in bytes.iter_mut().zip(random) {
            *place = COOKIE_ALPHABET[usize::from(*random) % COOKIE_ALPHABET.len()];
        }
        Self(bytes)
    }

    /// The bytes that a connection begins with.
    pub fn bytes(&self) -> &[u8; COOKIE_BYTES] {
        &self.0
    }
}

/// Whether the first byte of a connection can be a cookie's.
pub fn begins_cookie(byte: u8) -> bool {
    COOKIE_ALPHABET.contains(&byte)
}

/// The number by which results name a flow, from its place in the order of opening: 1, 3, 4, 5 ...
pub fn stream_id(place: usize) -> i64 {
    let place = i64::try_from(place).unwrap_or(i64::MAX - 2);
    if place == 0 {
        1
    } else {
        place + 2
    }
}

/// A state on the control connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i8)]
pub enum State {
    /// The test is set up.
    Start = 1,
    /// Payload may flow.
    Running = 2,
    /// The client has sent or received all that it wanted.
    End = 4,
    /// The client shall send its parameters.
    Parameters = 9,
    /// The client shall open its flows.
    CreateStreams = 10,
    /// The server gives up.
    ServerTerminate = 11,
    /// The client gives up.
    ClientTerminate = 12,
    /// Both shall send their results.
    Results = 13,
    /// Both have the results.
    Display = 14,
    /// The client has finished.
    Done = 16,
    /// The server does not serve this client, most often because it is busy.
    Denied = -1,
    /// The server failed; two error numbers follow.
    ServerError = -2,
}

impl State {
    /// Returns the state of a byte; `None` for a byte that is none.
    pub fn parse(byte: u8) -> Option<Self> {
        const ALL: [State; 12] = [
            State::Start,
            State::Running,
            State::End,
            State::Parameters,
            State::CreateStreams,
            State::ServerTerminate,
            State::ClientTerminate,
            State::Results,
            State::Display,
            State::Done,
            State::Denied,
            State::ServerError,
        ];
        ALL.into_iter().find(|state| state.byte() == byte)
    }

    /// The byte on the wire.
    pub fn byte(self) -> u8 {
        (self as i8).to_be_bytes()[0]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookie_is_known_by_its_characters_and_its_end() {
        let cookie = Cookie::from_random(&std::array::from_fn(|index| index as u8 * 7));
        assert_eq!(Cookie::parse(cookie.bytes()), Some(cookie));
        let mut other = *cookie.bytes();
        other[36] = b'a';
        assert_eq!(Cookie::parse(&other), None);
        other[36] = 0;
        other[0] = b'L';
        assert_eq!(Cookie::parse(&other), None);
        assert!(!begins_cookie(crate::MAGIC[0]), "the session protocol begins otherwise");
    }

    #[test]
    fn second_flow_has_the_number_three() {
        assert_eq!([0, 1, 2, 3].map(stream_id), [1, 3, 4, 5]);
    }

    #[test]
    fn every_state_is_one_byte() {
        assert_eq!(State::ServerError.byte(), 0xfe);
        let known: Vec<u8> = (0..=255).filter(|byte| State::parse(*byte).is_some()).collect();
        assert_eq!(known, [1, 2, 4, 9, 10, 11, 12, 13, 14, 16, 0xfe, 0xff]);
    }
}
