//! The messages inside TLS: the key exchange (`key_method`, `peer_info`, `occ`) and the strings after it (`control`,
//! `push`). Owns their parsing and encoding, with a limit for every length. `client` and `server` decide what they
//! mean.

pub mod compression;
pub mod control;
pub mod key_method;
pub mod listed;
pub mod net;
pub mod occ;
pub mod peer_info;
pub mod push;
#[cfg(test)]
mod tests;

/// Why a message is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// A part is too long.
    #[error("{what} of {bytes} bytes, at most {most} are allowed")]
    TooLong {
        /// The part of the message.
        what: &'static str,
        /// Its length, bytes.
        bytes: usize,
        /// The limit, bytes.
        most: usize,
    },
    /// Too many options.
    #[error("more than {most} pushed options")]
    TooMany {
        /// The limit.
        most: usize,
    },
    /// An unknown method of key exchange.
    #[error("key method {0}, only 2 is supported")]
    KeyMethod(u8),
    /// Bytes that are not valid text.
    #[error("{0} with bytes that are not text")]
    NotText(&'static str),
    /// An update of an option that cannot be updated, by its name: OpenVPN's client ends the tunnel, too.
    #[error("pushed update of `{0}`, which cannot be updated")]
    NotUpdatable(String),
}
