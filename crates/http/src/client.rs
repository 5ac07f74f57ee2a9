//! The client's side of a load as a machine: one thread's HTTP/1.1 connections. Owns each connection's life (name, TCP, proxy,
//! TLS, requests, redirects, time limits, its end, the next attempt), which connection sends the request that is due, and
//! the fate of each request: response, failure, unanswered or unsent (docs/decisions/0008-censored-latency.md).
//! Given an [`Input`] and its time it acts through [`Effects`]. The caller owns sockets, polling, the clock, names and
//! histograms. Start with [`ConnectionPool`].

mod capture;
mod connection;
mod effects;
mod ending;
mod exchange;
mod opening;
mod pool;
mod redirect;
mod sending;
mod settings;
mod shared;
mod source;
mod tally;
#[cfg(test)]
mod tests;

pub use self::capture::Capture;
pub use self::effects::{Attempt, Detached, Effects, Failure, Input, Metric, Opening, SocketUse};
pub use self::pool::ConnectionPool;
pub use self::settings::{RequestSource, Settings};
pub use self::source::{Script, Source};
pub use self::tally::{Tally, STATUS_CLASSES};
