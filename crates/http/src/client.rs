//! The client side of a load as a state machine: the HTTP/1.1 connections of one thread. Owns each connection's life
//! (name lookup, TCP, proxy, TLS, requests, redirects, time limits, end, next attempt), which connection sends the
//! request that is due, and the outcome of each request: response, failure, unanswered or unsent
//! (docs/decisions/0008-censored-latencies.md). The machine receives an [`Input`] with its time and acts through
//! [`Effects`]. The caller owns sockets, polling, the clock, name resolution and histograms. Start with
//! [`ConnectionPool`].

mod capture;
mod channel;
mod connection;
mod dial;
mod effects;
mod exchange;
mod load_end;
mod opening;
mod pool;
mod redirect;
mod sending;
mod session;
mod settings;
mod shared;
mod source;
mod tally;
#[cfg(test)]
mod tests;

pub use self::capture::Capture;
pub use self::channel::{Buffers, Channel, Unsealed};
pub use self::dial::{DialPlan, DialStep};
pub use self::effects::{Attempt, Detached, Effects, Failure, Input, Metric, Opening, SocketUse, Wire};
pub use self::pool::ConnectionPool;
pub use self::session::{Sent, Session};
pub use self::settings::{RequestSource, Settings};
pub use self::source::{Script, Source};
pub use self::tally::{Tally, STATUS_CLASSES};
pub use leadline_tls::ClientTls;
