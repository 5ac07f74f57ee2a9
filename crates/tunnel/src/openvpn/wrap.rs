//! The protection of control packets: none, an HMAC (`tls-auth`), or encryption (`tls-crypt`, with one key for all
//! clients or, in version 2, one per client). Owns the protection, packet numbers and the replay window; `packet` has
//! the content. All sessions of a profile share the keys; a session needs a few words.

use std::fmt;
use std::sync::Arc;

use super::digest::Digest;
use super::packet::{Header, PacketError, SessionId, HEAD_LEN};
use super::role::Role;

mod auth;
mod crypt;
mod crypt_v2;
mod error;
mod packet_id;
mod static_key;
#[cfg(test)]
mod tests;

pub use auth::AuthKeys;
pub use crypt::CryptKeys;
pub use crypt_v2::{ClientKey, ServerKey, Unwrapped, LONGEST_WRAPPED_KEY};
pub use error::WrapError;
use packet_id::{PacketId, ReplayWindow};
pub use static_key::{KeyDirection, KeyError, StaticKey};

/// Start of a `tls-crypt-v2` client's packet ids: the first byte announces early negotiation.
const EARLY_NEGOTIATION: u32 = 0x0f00_0000;

/// The TLS exporter label of the 256 bytes for `Wrap::dynamic`; without context.
pub const DYNAMIC_LABEL: &[u8] = b"EXPORTER-OpenVPN-dynamic-tls-crypt";

/// The keys that protect control packets; cheap to clone.
#[derive(Clone, Default)]
pub enum WrapKeys {
    /// No protection.
    #[default]
    None,
    /// `tls-auth`.
    Auth(Arc<AuthKeys>),
    /// `tls-crypt`; also a server that knows the key of its `tls-crypt-v2` client, and a dynamic key.
    Crypt(Arc<CryptKeys>),
    /// `tls-crypt-v2`, the client's end.
    CryptV2(Arc<ClientKey>),
    /// `tls-crypt-v2`, the server's end before it knows its client's key.
    CryptV2Server(Arc<ServerKey>),
}

impl WrapKeys {
    /// Keys of `tls-auth`: `direction` is this end's own; the other end has the opposite one, or both have none.
    #[must_use]
    pub fn auth(key: &StaticKey, direction: Option<KeyDirection>, digest: Digest) -> Self {
        Self::Auth(Arc::new(AuthKeys::new(key, direction, digest)))
    }

    /// Keys of `tls-crypt`.
    #[must_use]
    pub fn crypt(key: &StaticKey, role: Role) -> Self {
        Self::Crypt(Arc::new(CryptKeys::new(key.clone(), role)))
    }

    /// Keys of `tls-crypt-v2` for a client, from the text of its file.
    ///
    /// # Errors
    /// The file is invalid.
    pub fn crypt_v2(client_key_pem: &str) -> Result<Self, KeyError> {
        ClientKey::parse(client_key_pem).map(|key| Self::CryptV2(Arc::new(key)))
    }

    /// Keys of `tls-crypt-v2` for a server, from the text of its file.
    ///
    /// # Errors
    /// The file is invalid.
    pub fn crypt_v2_server(server_key_pem: &str) -> Result<Self, KeyError> {
        ServerKey::parse(server_key_pem).map(|key| Self::CryptV2Server(Arc::new(key)))
    }

    /// Whether a client with these keys begins with `HardResetClientV3`.
    #[must_use]
    pub fn is_crypt_v2(&self) -> bool {
        matches!(self, Self::CryptV2(_) | Self::CryptV2Server(_))
    }

    /// Length of the wrapped key that a client with these keys sends, at most `LONGEST_WRAPPED_KEY`.
    #[must_use]
    pub fn wrapped_key_bytes(&self) -> Option<usize> {
        match self {
            Self::CryptV2(client) => Some(client.wrapped.len()),
            _ => None,
        }
    }

    fn base(&self) -> Option<&StaticKey> {
        match self {
            Self::None | Self::CryptV2Server(_) => None,
            Self::Auth(keys) => Some(&keys.base),
            Self::Crypt(keys) => Some(&keys.base),
            Self::CryptV2(client) => Some(&client.keys.base),
        }
    }
}

impl fmt::Debug for WrapKeys {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::None => "None",
            Self::Auth(_) => "Auth(..)",
            Self::Crypt(_) => "Crypt(..)",
            Self::CryptV2(_) => "CryptV2(..)",
            Self::CryptV2Server(_) => "CryptV2Server(..)",
        })
    }
}

/// The protection of one session's packets.
#[derive(Clone, Debug)]
pub struct Wrap {
    keys: WrapKeys,
    /// The id of the last sealed packet; its time is that of the first.
    sent: Option<PacketId>,
    window: ReplayWindow,
}

/// A packet without its protection.
#[derive(Debug, PartialEq, Eq)]
pub struct Opened<'p> {
    /// Kind and key id.
    pub header: Header,
    /// The sender's session.
    pub session: SessionId,
    /// The content for `ControlBody::parse`.
    pub body: &'p [u8],
}

impl Wrap {
    /// Creates the protection of a new session.
    #[must_use]
    pub fn new(keys: WrapKeys) -> Self {
        Self { keys, sent: None, window: ReplayWindow::default() }
    }

    /// Creates the protection of later negotiations of a session (key ids above 0) if `dyn-tls-crypt` was negotiated.
    /// `exported` comes from the first negotiation's TLS with `DYNAMIC_LABEL`, and is combined with the keys of the
    /// session, whatever their kind. A server passes the keys that its session's `Wrap` has then.
    #[must_use]
    pub fn dynamic(keys: &WrapKeys, exported: [u8; StaticKey::LEN], role: Role) -> Self {
        let exported = StaticKey::from_bytes(exported);
        let key = match keys.base() {
            Some(base) => exported.combined(base),
            None => exported,
        };
        Self::new(WrapKeys::Crypt(Arc::new(CryptKeys::new(key, role))))
    }

    /// The keys, including those that a server learned from its client.
    #[must_use]
    pub fn keys(&self) -> &WrapKeys {
        &self.keys
    }

    /// Overhead of a packet over its content, bytes.
    #[must_use]
    pub fn overhead(&self, header: Header) -> usize {
        HEAD_LEN
            + match &self.keys {
                WrapKeys::None | WrapKeys::CryptV2Server(_) => 0,
                WrapKeys::Auth(keys) => keys.overhead(),
                WrapKeys::Crypt(_) => CryptKeys::OVERHEAD,
                WrapKeys::CryptV2(client) if header.opcode.carries_wrapped_key() => {
                    CryptKeys::OVERHEAD + client.wrapped.len()
                }
                WrapKeys::CryptV2(_) => CryptKeys::OVERHEAD,
            }
    }

    /// Appends a complete packet. `unix_s` is the Unix time, s, for the first packet's id; later ones keep it.
    ///
    /// A server of `tls-crypt-v2` that does not know its client's key cannot respond: nothing is appended.
    pub fn seal(&mut self, header: Header, session: SessionId, body: &[u8], unix_s: u32, out: &mut Vec<u8>) {
        let mut head = [0; HEAD_LEN];
        head[0] = header.byte();
        head[1..].copy_from_slice(&session.0);
        match &self.keys {
            WrapKeys::None => {
                out.extend_from_slice(&head);
                out.extend_from_slice(body);
            }
            WrapKeys::Auth(keys) => {
                let id = PacketId::after(&mut self.sent, 0, unix_s);
                keys.seal(head, id, body, out);
            }
            WrapKeys::Crypt(keys) => {
                let id = PacketId::after(&mut self.sent, 0, unix_s);
                keys.seal(head, id, body, out);
            }
            WrapKeys::CryptV2(client) => {
                let id = PacketId::after(&mut self.sent, EARLY_NEGOTIATION, unix_s);
                client.keys.seal(head, id, body, out);
                if header.opcode.carries_wrapped_key() {
                    out.extend_from_slice(&client.wrapped);
                }
            }
            WrapKeys::CryptV2Server(_) => {}
        }
    }

    /// Removes a packet's protection in place. A failure changes only the packet's bytes.
    ///
    /// # Errors
    /// Not a control packet, not authentic, or repeated.
    pub fn open<'p>(&mut self, packet: &'p mut [u8]) -> Result<Opened<'p>, WrapError> {
        let (header, session) = head(packet)?;
        let mut end = packet.len();
        let mut learned = None;
        if header.opcode.carries_wrapped_key() {
            match &self.keys {
                WrapKeys::CryptV2Server(server) => {
                    let length = crypt_v2::wrapped_len(packet).ok_or(WrapError::BadWrappedKey)?;
                    end -= length;
                    let unwrapped = server.unwrap_key(&packet[end..])?;
                    learned = Some(WrapKeys::Crypt(Arc::new(CryptKeys::new(unwrapped.key, Role::Server))));
                }
                // The key is known: a repeated one is skipped.
                WrapKeys::Crypt(_) => end -= crypt_v2::wrapped_len(packet).ok_or(WrapError::BadWrappedKey)?,
                WrapKeys::None | WrapKeys::Auth(_) | WrapKeys::CryptV2(_) => return Err(WrapError::BadWrappedKey),
            }
        }
        let packet = &mut packet[..end];
        let (id, start) = match learned.as_ref().unwrap_or(&self.keys) {
            WrapKeys::None => (None, HEAD_LEN),
            WrapKeys::Auth(keys) => some_id(keys.open(packet)?),
            WrapKeys::Crypt(keys) => some_id(keys.open(packet)?),
            WrapKeys::CryptV2(client) => some_id(client.keys.open(packet)?),
            WrapKeys::CryptV2Server(_) => return Err(WrapError::NoClientKey),
        };
        if id.is_some_and(|id| !self.window.take(id)) {
            return Err(WrapError::Replayed);
        }
        if let Some(keys) = learned {
            self.keys = keys;
        }
        Ok(Opened { header, session, body: &packet[start..] })
    }
}

/// Whether a client announces early negotiation by its packet's id: `packet` is a complete `HardResetClientV3`.
#[must_use]
pub fn speaks_early_negotiation(packet: &[u8]) -> bool {
    packet.get(HEAD_LEN) == Some(&EARLY_NEGOTIATION.to_be_bytes()[0])
}

fn some_id((id, start): (PacketId, usize)) -> (Option<PacketId>, usize) {
    (Some(id), start)
}

fn head(packet: &[u8]) -> Result<(Header, SessionId), WrapError> {
    let &[byte, ref session @ ..] = packet.first_chunk::<HEAD_LEN>().ok_or(WrapError::TOO_SHORT)?;
    let header = Header::parse(byte).ok_or(WrapError::Packet(PacketError::UnknownKind(byte)))?;
    if header.opcode.is_data() {
        return Err(WrapError::Packet(PacketError::NotControl));
    }
    let session = SessionId(*session);
    if !session.is_defined() {
        return Err(WrapError::Packet(PacketError::NoSession));
    }
    Ok((header, session))
}
