//! System errors as the failures that connections count. Owns their names.

use std::io;

use leadline_http::client::Failure;
use leadline_sys::reason::reason;

/// Returns a system error as the failure that a connection counts.
#[cold]
pub fn failure(error: io::Error) -> Failure {
    Failure { name: failure_name(&error), detail: reason(&error) }
}

/// Returns why there is no connection to a server.
pub fn connect_failure(error: &io::Error, to: &impl std::fmt::Display) -> Failure {
    Failure { name: failure_name(error), detail: format!("connecting to {to}: {}", reason(error)) }
}

/// Returns the name under which a system error is counted.
fn failure_name(error: &io::Error) -> &'static str {
    match crate::events::error_code(error) {
        "connection_reset" | "broken_pipe" | "connection_aborted" => "reset",
        name => name,
    }
}
