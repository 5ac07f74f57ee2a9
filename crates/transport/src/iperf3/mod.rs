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
mod cookie;
mod datagram;
mod errors;
mod login;
mod message;
mod parameters;
mod results;
mod server;
mod state;

pub use client::{Iperf3Client, Iperf3ClientEvent};
pub use cookie::{begins_cookie, Cookie, COOKIE_ALPHABET, COOKIE_BYTES};
pub use datagram::{completed, is_hello, DatagramHeader, HELLO, HELLO_ANSWER};
pub use errors::{meaning, ErrorNumber};
pub use login::{token, Iperf3Gate, LoginError, LoginRefusal};
pub use message::Iperf3Error;
pub use parameters::{Iperf3Parameters, Iperf3Protocol, MOST_OMITTED_SECONDS};
pub use results::{stream_id, Iperf3Results, Iperf3ServerOutput, Iperf3StreamResult};
pub use server::{Iperf3Server, Iperf3ServerEvent};
pub use state::State;
