//! The strings after the key exchange inside TLS, each terminated by NUL. Owns their names; `push` parses pushed
//! options.

use std::fmt;

use super::MessageError;

/// Maximum length of a string: OpenVPN's buffer has 2,048 bytes, and it sends at most 1,024.
pub const LONGEST_CONTROL: usize = 16 * 1024;

/// A control message.
#[derive(Clone, PartialEq, Eq)]
pub enum ControlMessage {
    /// The client requests its options.
    PushRequest,
    /// Pushed options, separated by commas.
    PushReply(String),
    /// Changes of options, separated by commas.
    PushUpdate(String),
    /// The server refuses the client.
    AuthFailed {
        /// The server's reason.
        reason: Option<String>,
        /// Whether the failure is temporary.
        temporary: bool,
        /// Delay before the next attempt, seconds.
        backoff_s: Option<u32>,
    },
    /// The server defers its decision.
    AuthPending {
        /// Maximum time until the decision, seconds.
        timeout_s: Option<u32>,
    },
    /// The client has to reconnect.
    Restart {
        /// The server's reason, after flags in brackets.
        reason: Option<String>,
        /// Whether to use the next remote.
        next: bool,
    },
    /// The client has to stop.
    Halt {
        /// The server's reason.
        reason: Option<String>,
    },
    /// The other end disconnects.
    Exit,
    /// A message for the user.
    Info(String),
    /// Any other string.
    Other(String),
}

impl fmt::Debug for ControlMessage {
    /// Does not print options, because they may include a token.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PushRequest => formatter.write_str("PushRequest"),
            Self::PushReply(text) => write!(formatter, "PushReply({} bytes)", text.len()),
            Self::PushUpdate(text) => write!(formatter, "PushUpdate({} bytes)", text.len()),
            Self::AuthFailed { reason, temporary, backoff_s } => {
                write!(formatter, "AuthFailed({reason:?}, temporary: {temporary}, backoff_s: {backoff_s:?})")
            }
            Self::AuthPending { timeout_s } => write!(formatter, "AuthPending({timeout_s:?})"),
            Self::Restart { reason, next } => write!(formatter, "Restart({reason:?}, next: {next})"),
            Self::Halt { reason } => write!(formatter, "Halt({reason:?})"),
            Self::Exit => formatter.write_str("Exit"),
            Self::Info(text) => write!(formatter, "Info({text:?})"),
            Self::Other(text) => write!(formatter, "Other({text:?})"),
        }
    }
}

/// Splits off the first complete string of the received bytes, without its NUL; returns it with the number of bytes
/// to drop, or `None` if it is incomplete.
///
/// # Errors
/// The string is too long.
pub fn next_message(bytes: &[u8]) -> Result<Option<(&[u8], usize)>, MessageError> {
    let most = LONGEST_CONTROL;
    match bytes.iter().take(most + 1).position(|byte| *byte == 0) {
        Some(length) => Ok(Some((&bytes[..length], length + 1))),
        None if bytes.len() > most => Err(MessageError::TooLong { what: "control message", bytes: bytes.len(), most }),
        None => Ok(None),
    }
}

impl ControlMessage {
    /// Parses a string with or without its NUL. OpenVPN ignores unprintable strings, and callers should do the same
    /// after an error.
    ///
    /// # Errors
    /// The string is too long or unprintable.
    pub fn parse(bytes: &[u8]) -> Result<Self, MessageError> {
        if bytes.len() > LONGEST_CONTROL {
            return Err(MessageError::TooLong { what: "control message", bytes: bytes.len(), most: LONGEST_CONTROL });
        }
        let bytes = bytes.strip_suffix(&[0]).unwrap_or(bytes);
        let text = std::str::from_utf8(bytes).map_err(|_| MessageError::NotText("control message"))?;
        // Scripts that create such messages often add a line end.
        let text = text.trim_end_matches(['\r', '\n']);
        if text.chars().any(char::is_control) {
            return Err(MessageError::NotText("control message"));
        }
        Ok(Self::from_text(text))
    }

    fn from_text(text: &str) -> Self {
        // OpenVPN compares prefixes in this order; text after a name without a comma is ignored.
        let after =
            |name: &str| text.strip_prefix(name).map(|rest| rest.strip_prefix(',').filter(|rest| !rest.is_empty()));
        let owned = |text: Option<&str>| text.map(str::to_owned);
        if let Some(reason) = after("AUTH_FAILED") {
            auth_failed(reason)
        } else if text.starts_with("PUSH_") {
            push(text)
        } else if let Some(reason) = after("RESTART") {
            let flags = reason.and_then(|reason| reason.strip_prefix('[')?.split(']').next()).unwrap_or_default();
            Self::Restart { next: flags.contains('N'), reason: owned(reason) }
        } else if let Some(reason) = after("HALT") {
            Self::Halt { reason: owned(reason) }
        } else if let Some(info) = after("INFO_PRE").or_else(|| after("INFO")) {
            Self::Info(owned(info).unwrap_or_default())
        } else if let Some(keywords) = after("AUTH_PENDING") {
            let timeout = |word: &str| read_leading_number(word.strip_prefix("timeout ")?);
            // The last one counts.
            Self::AuthPending { timeout_s: keywords.and_then(|words| words.split(',').filter_map(timeout).next_back()) }
        } else if text.starts_with("EXIT") {
            Self::Exit
        } else {
            Self::Other(text.to_owned())
        }
    }

    /// Appends the message as it is sent, with its NUL.
    pub fn write(&self, out: &mut Vec<u8>) {
        let with = |name: &str, rest: Option<&str>| match rest {
            Some(rest) if !rest.is_empty() => format!("{name},{rest}"),
            _ => name.to_owned(),
        };
        let text = match self {
            Self::PushRequest => "PUSH_REQUEST".to_owned(),
            Self::PushReply(options) => with("PUSH_REPLY", Some(options)),
            Self::PushUpdate(options) => with("PUSH_UPDATE", Some(options)),
            Self::AuthFailed { reason, temporary: false, .. } => with("AUTH_FAILED", reason.as_deref()),
            Self::AuthFailed { reason, temporary: true, backoff_s } => {
                let flags = backoff_s.map(|seconds| format!("[backoff {seconds}]")).unwrap_or_default();
                let reason = reason.as_ref().map(|reason| format!(":{reason}")).unwrap_or_default();
                format!("AUTH_FAILED,TEMP{flags}{reason}")
            }
            Self::AuthPending { timeout_s: None } => "AUTH_PENDING".to_owned(),
            Self::AuthPending { timeout_s: Some(seconds) } => format!("AUTH_PENDING,timeout {seconds}"),
            Self::Restart { reason, .. } => with("RESTART", reason.as_deref()),
            Self::Halt { reason } => with("HALT", reason.as_deref()),
            Self::Exit => "EXIT".to_owned(),
            Self::Info(info) => with("INFO", Some(info)),
            Self::Other(text) => text.clone(),
        };
        out.extend_from_slice(text.as_bytes());
        out.push(0);
    }
}

fn push(text: &str) -> ControlMessage {
    let options = |name: &str| match text.strip_prefix(name)? {
        "" => Some(String::new()),
        rest => rest.strip_prefix(',').map(str::to_owned),
    };
    if text.starts_with("PUSH_REQUEST") {
        ControlMessage::PushRequest
    } else if let Some(options) = options("PUSH_REPLY") {
        ControlMessage::PushReply(options)
    } else if let Some(options) = options("PUSH_UPDATE") {
        ControlMessage::PushUpdate(options)
    } else {
        ControlMessage::Other(text.to_owned())
    }
}

/// Parses the reason: `TEMP[backoff 42,advance no]:Try later` is temporary; any other text is the reason itself.
fn auth_failed(reason: Option<&str>) -> ControlMessage {
    let Some(temporary) = reason.and_then(|reason| reason.strip_prefix("TEMP")) else {
        return ControlMessage::AuthFailed { reason: reason.map(str::to_owned), temporary: false, backoff_s: None };
    };
    let (flags, message) = temporary.strip_prefix('[').and_then(|rest| rest.split_once(']')).unwrap_or(("", temporary));
    let message = message.strip_prefix(':').unwrap_or(message);
    ControlMessage::AuthFailed {
        reason: (!message.is_empty()).then(|| message.to_owned()),
        temporary: true,
        backoff_s: flags.split(',').find_map(|flag| read_leading_number(flag.strip_prefix("backoff ")?)),
    }
}

/// The number at the beginning of a text, as C's `scanf` parses it.
fn read_leading_number(text: &str) -> Option<u32> {
    let text = text.trim_start();
    let digits = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    text[..digits].parse().ok()
}
