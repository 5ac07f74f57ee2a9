//! What sockets report, as the inputs of their connections.

use leadline_http::client::Input;

use super::failure::failure;
use super::io_backend::Completion;

/// Returns what a client's socket reports as an input of its connection.
#[inline]
pub fn input(completion: Completion) -> Option<Input> {
    Some(match completion {
        Completion::Received => Input::Received,
        Completion::Sent(bytes) => Input::Sent(bytes),
        Completion::Writable => Input::Connected,
        Completion::Ended(outcome) => Input::Ended(outcome.map_err(failure)),
        Completion::NotSent(missing, error) => Input::NotSent { missing, failure: failure(error) },
        Completion::Accepted(_) => return None,
    })
}
