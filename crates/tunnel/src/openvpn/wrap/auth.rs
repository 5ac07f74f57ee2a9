//! `tls-auth`: unencrypted control packets, each authenticated by an HMAC. Owns the HMAC's place and input: op |
//! session | HMAC | id | time | rest on the wire, but id | time | op | session | rest for the HMAC. `wrap` detects
//! replays.

use aws_lc_rs::{constant_time, hmac};

use super::super::digest::Digest;
use super::super::packet::HEAD_LEN;
use super::error::WrapError;
use super::packet_id::PacketId;
use super::static_key::{KeyDirection, StaticKey};

/// The keys of both directions.
pub struct AuthKeys {
    digest: Digest,
    send: hmac::Key,
    receive: hmac::Key,
    /// The key with which dynamic keys are combined.
    pub(super) base: StaticKey,
}

impl AuthKeys {
    /// Without a direction, both ends use the first key in both directions.
    pub(super) fn new(key: &StaticKey, direction: Option<KeyDirection>, digest: Digest) -> Self {
        let (send, receive) = match direction {
            None => (0, 0),
            Some(KeyDirection::Normal) => (0, 1),
            Some(KeyDirection::Inverse) => (1, 0),
        };
        let hmac_key = |index| digest.key(key.pair(index).hmac);
        Self { digest, send: hmac_key(send), receive: hmac_key(receive), base: key.clone() }
    }

    /// Overhead of a packet, bytes.
    pub(super) fn overhead(&self) -> usize {
        self.digest.len() + PacketId::LEN
    }

    pub(super) fn seal(&self, head: [u8; HEAD_LEN], id: PacketId, body: &[u8], out: &mut Vec<u8>) {
        let id = id.bytes();
        out.extend_from_slice(&head);
        out.extend_from_slice(tag(&self.send, &id, &head, body).as_ref());
        out.extend_from_slice(&id);
        out.extend_from_slice(body);
    }

    /// Returns the packet's id, and the offset of its content.
    pub(super) fn open(&self, packet: &[u8]) -> Result<(PacketId, usize), WrapError> {
        let (head, rest) = packet.split_first_chunk::<HEAD_LEN>().ok_or(WrapError::TOO_SHORT)?;
        let (received_tag, rest) = rest.split_at_checked(self.digest.len()).ok_or(WrapError::TOO_SHORT)?;
        let (id, body) = rest.split_first_chunk::<{ PacketId::LEN }>().ok_or(WrapError::TOO_SHORT)?;
        constant_time::verify_slices_are_equal(tag(&self.receive, id, head, body).as_ref(), received_tag)
            .map_err(|_| WrapError::Unauthentic)?;
        Ok((PacketId::from_bytes(*id), packet.len() - body.len()))
    }
}

fn tag(key: &hmac::Key, id: &[u8], head: &[u8], body: &[u8]) -> hmac::Tag {
    let mut context = hmac::Context::with_key(key);
    context.update(id);
    context.update(head);
    context.update(body);
    context.sign()
}
