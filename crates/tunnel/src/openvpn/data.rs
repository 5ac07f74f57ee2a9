//! The data channel: IP packets in, sealed ones out, and the other way round. Owns one negotiated key's state, from its ciphers
//! to its replay window, for one side. It proves before it believes, numbers every packet, refuses replays, and seals nothing
//! once its numbers have run out. Packets are built where they are sent from and opened where they lie.

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

/// Replay window of a transport that may reorder packets: numbers.
pub const REPLAY_WINDOW: u32 = 64;
/// What a tunnel's packets are at most unless the profile or the server says otherwise: `tun-mtu-max`, bytes.
pub const LARGEST_PAYLOAD: usize = 1600;

/// A sealed packet fits the length that TCP puts before it: whatever is added to the longest payload.
const LONGEST_OVERHEAD: usize = 4 + Digest::LONGEST + cbc::BLOCK + cbc::PACKET_ID + 2 + cbc::BLOCK;
const LONGEST_PAYLOAD: usize = 65_535 - LONGEST_OVERHEAD;

/// What both sides agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataOptions {
    /// The cipher.
    pub cipher: DataCipher,
    /// The HMAC's digest, which counts with CBC only; absent, packets prove nothing (`auth none`).
    pub digest: Option<Digest>,
    /// The client's number, 24 bits: packets are sent as `DATA_V2`; without one as `DATA_V1`. Both are taken.
    pub peer_id: Option<u32>,
    /// The packet format of 2.7; with an AEAD only.
    pub epoch: bool,
    /// How payloads are marked as compressed or not.
    pub framing: Framing,
    /// How many packet numbers back a late packet is taken, over UDP and TCP alike; with 0 each number must follow the one
    /// before.
    pub replay_window: u32,
    /// The tunnel's largest packet, bytes: what decompresses to more is refused.
    pub largest_payload: usize,
}

impl DataOptions {
    /// `cipher` with everything else as it is unless a profile or a server says otherwise.
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

/// What a channel has carried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Packets sealed.
    pub sealed_packets: u64,
    /// Bytes of their payloads.
    pub sealed_bytes: u64,
    /// Packets that proved themselves and were new.
    pub opened_packets: u64,
    /// Bytes of their payloads.
    pub opened_bytes: u64,
}

/// One side's state of one key.
pub struct DataChannel {
    protection: Protection,
    /// What every sent packet begins with, 1 or 4 bytes.
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
    /// The channel of `keys` as `role` sees it; `key_id` (0 to 7) tells its packets from those of other keys.
    ///
    /// # Errors
    /// The options do not go together.
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

    /// Append `payload` as one packet, without TCP's length. Nothing is allocated where `out` has room.
    ///
    /// # Errors
    /// `Size`, or `Exhausted` once no number is left; `out` is as it was.
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

    /// The payload of a packet, in place; where it had been compressed, from a buffer of the channel's own.
    ///
    /// # Errors
    /// The packet proves nothing, is a replay, or is not framed as agreed; what it held is then lost.
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

    /// What it has carried.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.usage
    }

    /// Whether new keys are due: numbers are running out, or the keys have protected as much as is safe.
    #[must_use]
    pub fn exhausted(&self) -> bool {
        match &self.protection {
            Protection::Aead(aead) => aead.exhausted(),
            Protection::Epoch(epoch) => epoch.exhausted(),
            Protection::Cbc(cbc) => cbc.exhausted(),
        }
    }

    /// Bytes that a packet has besides its payload: with CBC at most, for its padding depends on the payload.
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

    /// Bytes of the packet's header, where it is one of this key.
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
