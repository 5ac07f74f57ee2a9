//! The agent's output: one JSON line per event, complete or not at all, from any thread.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leadline_sys::reason::reason;
use leadline_wire::{Blame, ErrorReport, Event};

/// How long the ending agent waits for killed descendants.
pub const LAST_PATIENCE: Duration = Duration::from_millis(500);

/// The output of events. Clones share it.
#[derive(Clone)]
pub struct Events {
    output: Arc<Mutex<Box<dyn Write + Send>>>,
}

impl Events {
    /// Returns an output on stdout.
    pub fn on_stdout() -> Self {
        Self::to(Box::new(io::stdout()))
    }

    /// Returns an output to any writer.
    pub fn to(output: Box<dyn Write + Send>) -> Self {
        Self { output: Arc::new(Mutex::new(output)) }
    }

    /// Sends an event. If the output is closed, the control plane is gone: the agent ends with all processes that it
    /// started, as at the end of its stdin.
    pub fn send(&self, event: &Event) {
        let mut line = event.to_json();
        line.push(b'\n');
        let mut output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        if output.write_all(&line).and_then(|()| output.flush()).is_err() {
            leadline_sys::process::kill_descendants(LAST_PATIENCE);
            std::process::exit(1);
        }
    }
}

/// Returns an error of the operating system: what was tried, and the system's reason.
pub fn system_error(doing: &str, error: &io::Error) -> ErrorReport {
    ErrorReport {
        blame: Blame::System,
        code: error_code(error).to_owned(),
        message: format!("{doing}: {}", reason(error)),
    }
}

/// Returns an error of the request.
pub fn input_error(code: &str, message: impl Into<String>) -> ErrorReport {
    ErrorReport { blame: Blame::Input, code: code.to_owned(), message: message.into() }
}

/// Returns an error of the other end: it broke the protocol, refused or disconnected. Its message may repeat what the
/// other end sent.
pub fn peer_error(code: &str, message: impl Into<String>) -> ErrorReport {
    ErrorReport { blame: Blame::Peer, code: one_line(code), message: one_line(&message.into()) }
}

/// The maximum length of a text of the other end, bytes.
const PEER_TEXT_BYTES: usize = 500;

/// Returns a text of the other end as one short line: neither a line end nor a terminal's control sequence is left.
pub fn one_line(text: &str) -> String {
    let end = (0..=text.len().min(PEER_TEXT_BYTES)).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    text[..end].chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}

/// Returns a stable name for an error of the operating system.
pub fn error_code(error: &io::Error) -> &'static str {
    use io::ErrorKind as Kind;
    match error.kind() {
        Kind::AddrInUse => "address_in_use",
        Kind::AddrNotAvailable => "address_not_available",
        Kind::ConnectionRefused => "connection_refused",
        Kind::ConnectionReset => "connection_reset",
        Kind::ConnectionAborted => "connection_aborted",
        Kind::BrokenPipe => "broken_pipe",
        Kind::HostUnreachable => "host_unreachable",
        Kind::NetworkUnreachable => "network_unreachable",
        Kind::NetworkDown => "network_down",
        Kind::TimedOut | Kind::WouldBlock => "timeout",
        Kind::UnexpectedEof => "closed_early",
        Kind::NotFound => "not_found",
        Kind::PermissionDenied => "permission_denied",
        Kind::InvalidInput => "invalid_input",
        _ => match error.raw_os_error() {
            Some(libc::EMSGSIZE) => "message_too_long",
            Some(libc::EMFILE | libc::ENFILE) => "too_many_open_files",
            Some(libc::ENOBUFS) => "no_buffer_space",
            _ => "system_error",
        },
    }
}
