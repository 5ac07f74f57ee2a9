//! The data channel: seals IP packets and opens sealed ones. Owns one side's state of one negotiated key, from its
//! ciphers to its replay window. Authenticates a packet before it uses it, numbers every packet, refuses replays, and
//! stops when its numbers are used up. Packets are built in the output buffer and opened in place.

mod aead;
mod cbc;
mod cipher;
mod compress;
mod epoch;
mod error;
mod limits;
mod lzo;
mod replay;
#[cfg(test)]
mod tests;

use self::aead::Aead;
use self::cbc::Cbc;
use self::epoch::Epoch;
use super::digest::Digest;
use super::keys::KeyMaterial;
use super::packet::{Header, Opcode};
use super::role::Role;

pub use self::cipher::DataCipher;
pub use self::compress::Framing;
pub use self::error::DataError;

/// Width of the replay window, in packet numbers, for a transport that may reorder packets.
pub const REPLAY_WINDOW: u32 = 64;
/// Default maximum packet size of a tunnel: `tun-mtu-max`, bytes.
pub const LARGEST_PAYLOAD: usize = 1600;

/// Maximum overhead of the longest payload, so that a sealed packet fits the length field of TCP framing.
const LONGEST_OVERHEAD: usize = 4 + Digest::LONGEST + cbc::BLOCK + cbc::PACKET_ID + 2 + cbc::BLOCK;
const LONGEST_PAYLOAD: usize = 65_535 - LONGEST_OVERHEAD;

/// The negotiated options of a data channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataOptions {
    /// The cipher.
    pub cipher: DataCipher,
    /// The HMAC's digest, for CBC only; without one, packets are not authenticated (`auth none`).
    pub digest: Option<Digest>,
    /// The peer id, 24 bits. With it packets are sent as `DATA_V2`, without it as `DATA_V1`; both are accepted.
    pub peer_id: Option<u32>,
    /// Whether the packet format of 2.7 is used; with an AEAD only.
    pub epoch: bool,
    /// Compression framing of payloads.
    pub framing: Framing,
    /// How many packet numbers back a late packet is accepted, over UDP and TCP alike; with 0 each number must follow
    /// the previous one.
    pub replay_window: u32,
    /// Maximum packet size of the tunnel, bytes; a larger decompressed packet is refused.
    pub largest_payload: usize,
}

impl DataOptions {
    /// `cipher` with the defaults for everything else.
    #[must_use]
    pub fn new(cipher: DataCipher) -> Self {
        Self {
            cipher,
            digest: Some(Digest::default()),
            peer_id: None,
            epoch: false,
            framing: Framing::None,
            replay_window: REPLAY_WINDOW,
            largest_payload: LARGEST_PAYLOAD,
        }
    }
}

/// The traffic of a channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Packets sealed.
    pub sealed_packets: u64,
    /// Payload bytes sealed.
    pub sealed_bytes: u64,
    /// Packets that were authentic and new.
    pub opened_packets: u64,
    /// Payload bytes opened.
    pub opened_bytes: u64,
}

/// One side's state of one key.
pub struct DataChannel {
    protection: Protection,
    /// The first bytes of every sent packet, 1 or 4.
    header: [u8; 4],
    header_len: usize,
    key_id: u8,
    options: DataOptions,
    usage: Usage,
    decompressed: Vec<u8>,
}

enum Protection {
    Aead(Box<Aead>),
    Epoch(Box<Epoch>),
    Cbc(Box<Cbc>),
}

impl DataChannel {
    /// Creates the channel of `keys` for `role`; `key_id` (0 to 7) distinguishes its packets from those of other
    /// keys.
    ///
    /// # Errors
    /// The options do not fit together.
    pub fn new(keys: &KeyMaterial, role: Role, key_id: u8, options: &DataOptions) -> Result<Self, DataError> {
        let (sending, receiving) = (keys.sending(role), keys.receiving(role));
        let DataOptions { cipher, digest, replay_window, .. } = *options;
        let protection = if options.epoch {
            Protection::Epoch(Box::new(Epoch::new(cipher, sending, receiving, replay_window)?))
        } else if cipher.is_aead() {
            Protection::Aead(Box::new(Aead::new(cipher, sending, receiving, replay_window)?))
        } else {
            Protection::Cbc(Box::new(Cbc::new(cipher, digest, sending, receiving, replay_window)?))
        };
        let (opcode, header_len) = match options.peer_id {
            Some(_) => (Opcode::DataV2, 4),
            None => (Opcode::DataV1, 1),
        };
        let mut header = options.peer_id.unwrap_or(0).to_be_bytes();
        header[0] = Header { opcode, key_id }.byte();
        Ok(Self {
            protection,
            header,
            header_len,
            key_id,
            options: *options,
            usage: Usage::default(),
            decompressed: Vec::new(),
        })
    }

    /// Seals `payload` and appends the packet, without TCP's length. Allocates nothing if `out` has room.
    ///
    /// # Errors
    /// `Size`, or `Exhausted` when no number is left; `out` is unchanged.
    pub fn seal(&mut self, payload: &[u8], out: &mut Vec<u8>) -> Result<(), DataError> {
        if payload.is_empty() || payload.len() > LONGEST_PAYLOAD {
            return Err(DataError::Size(payload.len()));
        }
        let start = out.len();
        let sealed = self.append(payload, out, start);
        if sealed.is_err() {
            out.truncate(start);
        } else {
            self.usage.sealed_packets += 1;
            self.usage.sealed_bytes += payload.len() as u64;
        }
        sealed
    }

    /// Opens a packet in place and returns its payload; a compressed one is in a buffer of the channel.
    ///
    /// # Errors
    /// The packet is not authentic, repeated, or has another framing; its content is lost.
    pub fn open<'p>(&'p mut self, packet: &'p mut [u8]) -> Result<&'p mut [u8], DataError> {
        let header = self.header_of(packet)?;
        let (start, end) = match &mut self.protection {
            Protection::Aead(aead) => (aead.open(packet, header)?, packet.len()),
            Protection::Epoch(epoch) => epoch.open(packet, header)?,
            Protection::Cbc(cbc) => cbc.open(packet, header)?,
        };
        let framed = &mut packet[start..end];
        let payload = self.options.framing.unframe(framed, &mut self.decompressed, self.options.largest_payload)?;
        self.usage.opened_packets += 1;
        self.usage.opened_bytes += payload.len() as u64;
        Ok(payload)
    }

    /// The traffic of the channel.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.usage
    }

    /// Whether new keys are due: the numbers are running out, or the keys have protected as much as is safe.
    #[must_use]
    pub fn exhausted(&self) -> bool {
        match &self.protection {
            Protection::Aead(aead) => aead.exhausted(),
            Protection::Epoch(epoch) => epoch.exhausted(),
            Protection::Cbc(cbc) => cbc.exhausted(),
        }
    }

    /// Overhead of a packet, bytes: with CBC the maximum, because the padding depends on the payload.
    #[must_use]
    pub fn overhead(&self) -> usize {
        let protection = match &self.protection {
            Protection::Aead(_) => aead::PACKET_ID + aead::TAG,
            Protection::Epoch(_) => epoch::PACKET_ID + aead::TAG,
            Protection::Cbc(_) => self.options.digest.map_or(0, Digest::len) + cbc::BLOCK + cbc::PACKET_ID + cbc::BLOCK,
        };
        self.header_len + protection + self.options.framing.overhead()
    }

    fn append(&mut self, payload: &[u8], out: &mut Vec<u8>, start: usize) -> Result<(), DataError> {
        let framing = self.options.framing;
        let header = self.header_len;
        out.extend_from_slice(&self.header[..header]);
        match &mut self.protection {
            Protection::Aead(aead) => {
                aead.begin(out)?;
                framing.frame(payload, out);
                aead.finish(&mut out[start..], header)
            }
            Protection::Epoch(epoch) => {
                epoch.begin(out)?;
                framing.frame(payload, out);
                epoch.finish(out, start, header)
            }
            Protection::Cbc(cbc) => {
                cbc.begin(out)?;
                framing.frame(payload, out);
                cbc.finish(out, start, header)
            }
        }
    }

    /// Length of the packet's header, if it belongs to this key.
    fn header_of(&self, packet: &[u8]) -> Result<usize, DataError> {
        let first = *packet.first().ok_or(DataError::Short)?;
        let header = Header::parse(first).ok_or(DataError::Foreign)?;
        let length = match header.opcode {
            Opcode::DataV1 => 1,
            Opcode::DataV2 => 4,
            _ => return Err(DataError::Foreign),
        };
        if header.key_id != self.key_id {
            return Err(DataError::Foreign);
        }
        if packet.len() < length {
            return Err(DataError::Short);
        }
        Ok(length)
    }
}

impl std::fmt::Debug for DataChannel {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("DataChannel").field("options", &self.options).field("usage", &self.usage).finish()
    }
}
