//! The source of requests: a fixed set, or a script that makes each request and may read its response.

use std::net::SocketAddr;

use super::capture::Capture;
use crate::Picker;

/// A script that makes requests. Its errors are messages of the script.
pub trait Script {
    /// Number of requests per call; they are sent in one piece.
    fn batch(&self) -> u32;

    /// Whether the script reads responses.
    fn wants_responses(&self) -> bool;

    /// The address of its thread's connections; `None` means the load's server.
    fn address(&self) -> Option<SocketAddr>;

    /// Whether the script has stopped its thread.
    fn has_stopped(&self) -> bool;

    /// Appends the next request or batch to an empty `out`.
    ///
    /// # Errors
    /// Why there is no request.
    fn request(&mut self, out: &mut Vec<u8>) -> Result<(), String>;

    /// Returns the delay before the next request, ms.
    ///
    /// # Errors
    /// Why the script failed.
    fn delay_ms(&mut self) -> Result<u64, String>;

    /// Passes a response to the script.
    ///
    /// # Errors
    /// Why the script failed.
    fn on_response(&mut self, status: u16, response: &Capture) -> Result<(), String>;
}

/// A source of requests.
pub enum Source<S> {
    /// The fixed set, in turn.
    Fixed(Picker),
    /// A script.
    Script(Box<S>),
}

impl<S: Script> Source<S> {
    /// Number of requests in one piece.
    #[must_use]
    pub fn batch(&self) -> u32 {
        match self {
            Source::Fixed(_) => 1,
            Source::Script(script) => script.batch(),
        }
    }

    /// Whether the source needs header fields and bodies of responses.
    pub(super) fn wants_responses(&self) -> bool {
        matches!(self, Source::Script(script) if script.wants_responses())
    }

    /// The address of this thread's connections; `None` means the load's server.
    pub(super) fn address(&self) -> Option<SocketAddr> {
        match self {
            Source::Fixed(_) => None,
            Source::Script(script) => script.address(),
        }
    }
}
