//! Where requests come from: a set of requests that take turns, or a script that makes each one and may look at its response.

use std::net::SocketAddr;

use super::capture::Capture;
use crate::Picker;

/// A script that makes requests, as far as connections know it. Errors are its own messages.
pub trait Script {
    /// How many requests it makes at a time; they are sent in one piece.
    fn batch(&self) -> u32;

    /// Whether it looks at responses.
    fn wants_responses(&self) -> bool;

    /// Where its thread's connections go, where that is not the load's server.
    fn address(&self) -> Option<SocketAddr>;

    /// Whether it has ended its thread.
    fn has_stopped(&self) -> bool;

    /// Fill an empty `out` with the next request, or batch.
    ///
    /// # Errors
    /// Why there is none.
    fn request(&mut self, out: &mut Vec<u8>) -> Result<(), String>;

    /// How long to wait before the next request, ms.
    ///
    /// # Errors
    /// Why that is not known.
    fn delay_ms(&mut self) -> Result<u64, String>;

    /// Look at a response.
    ///
    /// # Errors
    /// Why it cannot.
    fn on_response(&mut self, status: u16, response: &Capture) -> Result<(), String>;
}

/// Where requests come from.
pub enum Source<S> {
    /// The set of requests, in turn.
    Fixed(Picker),
    /// A script.
    Script(Box<S>),
}

impl<S: Script> Source<S> {
    /// How many requests are sent in one piece.
    #[must_use]
    pub fn batch(&self) -> u32 {
        match self {
            Source::Fixed(_) => 1,
            Source::Script(script) => script.batch(),
        }
    }

    /// Whether header fields and bodies of responses are wanted.
    pub(super) fn wants_responses(&self) -> bool {
        matches!(self, Source::Script(script) if script.wants_responses())
    }

    /// Where this thread's connections go, where that is not the load's server.
    pub(super) fn address(&self) -> Option<SocketAddr> {
        match self {
            Source::Fixed(_) => None,
            Source::Script(script) => script.address(),
        }
    }
}
