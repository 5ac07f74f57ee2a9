//! The types of WireGuard's messages (the paper, section 5.4): their first byte.

/// The first message of a handshake.
pub const INITIATION: u8 = 1;
/// The answer to it.
pub const RESPONSE: u8 = 2;
/// The answer of a gateway under load.
pub const COOKIE: u8 = 3;
/// Data, or an empty keepalive.
pub const DATA: u8 = 4;
