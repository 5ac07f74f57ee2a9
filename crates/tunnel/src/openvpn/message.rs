//! What the two ends say to each other inside of TLS: the key exchange (`key_method`, `peer_info`, `occ`) and the strings after
//! it (`control`, `push`). Owns parsing and writing; every length is bounded. It decides nothing: see `client` and `server`.

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

/// A message that is not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// Longer than anything sensible.
    #[error("{what} of {bytes} bytes, at most {most} are taken")]
    TooLong {
        /// The part of the message.
        what: &'static str,
        /// Its length, bytes.
        bytes: usize,
        /// The limit, bytes.
        most: usize,
    },
    /// More options than are kept.
    #[error("more than {most} pushed options")]
    TooMany {
        /// The limit.
        most: usize,
    },
    /// A key exchange of another kind.
    #[error("key method {0}, only 2 is known")]
    KeyMethod(u8),
    /// Bytes that are no text.
    #[error("{0} with bytes that are no text")]
    NotText(&'static str),
    /// An update of what cannot be updated, by its name: the real client gives the tunnel up, too.
    #[error("pushed update of `{0}`, which cannot be updated")]
    NotUpdatable(String),
}
