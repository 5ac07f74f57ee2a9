//! TCP and UDP measurement, and an emulated link, without sockets: the session protocol between a load's client and
//! its server, the header of every datagram, the receiver's accounting, the request-response machine, and what a link
//! does to frames. Each receives bytes and a time.
//!
//! A session on one TCP control connection (a magic line, then frames of length and JSON): client `open` -> with a
//! key: server `challenge`, client `prove` -> server `accepted` (a token) or `refused` -> clock queries -> the client
//! opens its data flows, each introduced by a `Header` with the token -> server `ready` -> client `begin` (a time on
//! the server's clock) -> server `progress` every interval -> client `end` (what it sent) -> server `report` ->
//! close. Either side may close at any time.

mod address;
mod client;
mod datagram;
pub mod emulator;
mod frame;
pub mod iperf3;
mod key;
mod opening;
mod receiver;
mod request_response;
mod session;
mod sizes;

pub use address::{AddressCheck, HelloAnswer};
pub use client::{ClientSession, ClockDifference, Credentials, SessionError, SessionEvent};
pub use datagram::{DatagramFormat, Header, HeaderError, HeaderKind, HEADER_BYTES, SHORT_HEADER_BYTES};
pub use frame::{encode_frame, FrameDecoder, FrameError, FRAME_LIMIT_BYTES, MAGIC};
pub use key::{clock_fingerprint, Hex32, KeyError, SharedKey, Transcript, LONGEST_KEY_BYTES};
pub use opening::{Opening, OpeningError, OpeningEvent, SessionRequest};
pub use receiver::DatagramReceiver;
pub use request_response::{Answer, Requester, RequesterLimits, Schedule, Step, Transaction, Unsent};
pub use session::{DatagramOptions, FromClient, FromServer, Open, Refusal, SideReport, Work};
pub use sizes::{DatagramSizes, LONGEST_ROUND, MOST_SIZES};
