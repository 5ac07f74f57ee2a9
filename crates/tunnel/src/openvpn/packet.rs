//! Packets of the control channel: the first byte, session ids, acknowledgements, and the content after the
//! protection (`wrap`) is removed. Owns their encoding only: it stores no state, and reads only the first byte of
//! data packets.

/// Length of a packet's first byte and session id, bytes.
pub const HEAD_LEN: usize = 1 + SessionId::LEN;

/// A packet's kind: the upper five bits of its first byte. The kinds of OpenVPN 1 (1, 2) are obsolete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Opcode {
    /// Begins the negotiation of another key within the session.
    SoftReset = 3,
    /// TLS bytes.
    Control = 4,
    /// Acknowledgements only.
    Ack = 5,
    /// Data without a peer id.
    DataV1 = 6,
    /// Begins a client's session.
    HardResetClientV2 = 7,
    /// A server's response to a client's reset.
    HardResetServerV2 = 8,
    /// Data with a peer id.
    DataV2 = 9,
    /// Begins a client's session with its wrapped key (`tls-crypt-v2`).
    HardResetClientV3 = 10,
    /// TLS bytes and the wrapped key, for a server that stored nothing of the reset.
    ControlWkc = 11,
}

impl Opcode {
    /// The kind with this number.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            3 => Self::SoftReset,
            4 => Self::Control,
            5 => Self::Ack,
            6 => Self::DataV1,
            7 => Self::HardResetClientV2,
            8 => Self::HardResetServerV2,
            9 => Self::DataV2,
            10 => Self::HardResetClientV3,
            11 => Self::ControlWkc,
            _ => return None,
        })
    }

    /// Whether the packet belongs to the data channel.
    #[must_use]
    pub fn is_data(self) -> bool {
        matches!(self, Self::DataV1 | Self::DataV2)
    }

    /// Whether the sender's wrapped key follows the packet.
    #[must_use]
    pub fn carries_wrapped_key(self) -> bool {
        matches!(self, Self::HardResetClientV3 | Self::ControlWkc)
    }
}

/// A packet's first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The packet's kind.
    pub opcode: Opcode,
    /// The number of the session's key, 0 to 7: 0 is the first, then 1 to 7 in turn.
    pub key_id: u8,
}

impl Header {
    /// Maximum key id.
    pub const KEY_ID_MAX: u8 = 7;

    /// Parses a first byte; `None` if its kind is unknown.
    #[must_use]
    pub fn parse(byte: u8) -> Option<Self> {
        Some(Self { opcode: Opcode::from_number(byte >> 3)?, key_id: byte & Self::KEY_ID_MAX })
    }

    /// The encoded byte.
    #[must_use]
    pub fn byte(self) -> u8 {
        (self.opcode as u8) << 3 | (self.key_id & Self::KEY_ID_MAX)
    }
}

/// A session id, which the sending end chooses at random; never all zeros on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SessionId(pub [u8; 8]);

impl SessionId {
    /// Length, bytes.
    pub const LEN: usize = 8;

    /// Whether the id is valid, that is, not all zeros.
    #[must_use]
    pub fn is_defined(self) -> bool {
        self.0 != [0; Self::LEN]
    }
}

/// Acknowledged packet ids, as many as a packet can hold.
#[derive(Clone, Copy, Debug, Default)]
pub struct Acks {
    ids: [u32; Self::MAX],
    count: u8,
}

impl Acks {
    /// Maximum number in one packet.
    pub const MAX: usize = 8;

    /// Adds an id unless it is present. Returns false if there is no room.
    pub fn add(&mut self, id: u32) -> bool {
        if self.as_slice().contains(&id) {
            return true;
        }
        let Some(place) = self.ids.get_mut(usize::from(self.count)) else { return false };
        *place = id;
        self.count += 1;
        true
    }

    /// The ids in order.
    #[must_use]
    pub fn as_slice(&self) -> &[u32] {
        &self.ids[..usize::from(self.count)]
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Their number.
    #[must_use]
    pub fn len(&self) -> usize {
        usize::from(self.count)
    }
}

impl PartialEq for Acks {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for Acks {}

impl FromIterator<u32> for Acks {
    /// Collects the first distinct ids, as many as fit.
    fn from_iter<I: IntoIterator<Item = u32>>(ids: I) -> Self {
        let mut acks = Self::default();
        for id in ids {
            if !acks.add(id) {
                break;
            }
        }
        acks
    }
}

/// The content of a control packet without its protection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControlBody<'a> {
    /// Acknowledged packets of the receiver.
    pub acks: Acks,
    /// The receiver's session; present if `acks` is not empty.
    pub peer: Option<SessionId>,
    /// The packet's id, counted from 0 for each key; `None` in a packet with acknowledgements only.
    pub id: Option<u32>,
    /// TLS bytes, or the payload of a reset.
    pub payload: &'a [u8],
}

impl<'a> ControlBody<'a> {
    /// Maximum number of bytes before the payload.
    pub const LONGEST_HEAD: usize = 1 + 4 * Acks::MAX + SessionId::LEN + 4;

    /// Parses the bytes after a control packet's session id, without protection.
    ///
    /// # Errors
    /// It is not a control packet, it is truncated, or it has too many acknowledgements.
    pub fn parse(opcode: Opcode, bytes: &'a [u8]) -> Result<Self, PacketError> {
        if opcode.is_data() {
            return Err(PacketError::NotControl);
        }
        let (&count, mut rest) = bytes.split_first().ok_or(PacketError::TooShort)?;
        if usize::from(count) > Acks::MAX {
            return Err(PacketError::TooManyAcks(count));
        }
        let mut acks = Acks::default();
        for _ in 0..count {
            acks.add(u32::from_be_bytes(take(&mut rest)?));
        }
        let peer = if count > 0 { Some(SessionId(take(&mut rest)?)) } else { None };
        let id = if opcode == Opcode::Ack { None } else { Some(u32::from_be_bytes(take(&mut rest)?)) };
        Ok(Self { acks, peer, id, payload: rest })
    }

    /// Appends the bytes that `parse` reads.
    pub fn write(&self, out: &mut Vec<u8>) {
        debug_assert_eq!(self.peer.is_none(), self.acks.is_empty(), "acknowledgements name their session");
        out.push(self.acks.count);
        for id in self.acks.as_slice() {
            out.extend_from_slice(&id.to_be_bytes());
        }
        if let Some(peer) = self.peer.filter(|_| !self.acks.is_empty()) {
            out.extend_from_slice(&peer.0);
        }
        if let Some(id) = self.id {
            out.extend_from_slice(&id.to_be_bytes());
        }
        out.extend_from_slice(self.payload);
    }
}

/// Flag of a stateless server that requests the wrapped key again, in the first `ControlWkc`.
pub const RESEND_WRAPPED_KEY: u16 = 1;

/// The type of the flags in a reset's payload, whose entries have type, length and value.
const FLAGS_TYPE: u16 = 1;

/// Parses the flags in the payload of a server's reset. A server sends them to clients that announced early
/// negotiation; 0 if absent. Entries of unknown types are skipped.
///
/// # Errors
/// The payload is truncated, or its flags are not two bytes.
pub fn early_negotiation_flags(payload: &[u8]) -> Result<u16, PacketError> {
    let (mut rest, mut flags) = (payload, 0);
    while !rest.is_empty() {
        let kind = u16::from_be_bytes(take(&mut rest)?);
        let length = usize::from(u16::from_be_bytes(take(&mut rest)?));
        let (value, after) = rest.split_at_checked(length).ok_or(PacketError::TooShort)?;
        rest = after;
        if kind == FLAGS_TYPE {
            flags |= u16::from_be_bytes(value.try_into().map_err(|_| PacketError::BadFlags)?);
        }
    }
    Ok(flags)
}

/// Appends the payload with `flags`.
pub fn write_early_negotiation_flags(flags: u16, out: &mut Vec<u8>) {
    for number in [FLAGS_TYPE, 2, flags] {
        out.extend_from_slice(&number.to_be_bytes());
    }
}

/// Why a packet is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PacketError {
    /// The packet is truncated.
    #[error("the packet is truncated")]
    TooShort,
    /// An unknown kind.
    #[error("no packet has the first byte {0:#04x}")]
    UnknownKind(u8),
    /// A data packet instead of a control packet.
    #[error("a data packet instead of a control packet")]
    NotControl,
    /// More acknowledgements than a packet can hold.
    #[error("{0} acknowledgements, but 8 is the maximum")]
    TooManyAcks(u8),
    /// The session id is all zeros.
    #[error("the packet names no session")]
    NoSession,
    /// The flags of early negotiation are not two bytes.
    #[error("the flags of early negotiation are not two bytes")]
    BadFlags,
}

fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], PacketError> {
    let (taken, after) = rest.split_first_chunk::<N>().ok_or(PacketError::TooShort)?;
    *rest = after;
    Ok(*taken)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SERVER: SessionId = SessionId([9, 8, 7, 6, 5, 4, 3, 2]);

    fn written(body: &ControlBody<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        body.write(&mut out);
        out
    }

    #[test]
    fn header_is_one_byte() {
        for byte in 0..=u8::MAX {
            match Header::parse(byte) {
                Some(header) => assert_eq!(header.byte(), byte),
                None => assert!(!(3..=11).contains(&(byte >> 3)), "{byte:#x}"),
            }
        }
        assert_eq!(Header { opcode: Opcode::HardResetClientV2, key_id: 0 }.byte(), 0x38);
        assert_eq!(Header { opcode: Opcode::DataV2, key_id: 2 }.byte(), 0x4a);
    }

    #[test]
    fn control_bodies_match_openvpns_bytes() {
        let reset = ControlBody { acks: Acks::default(), peer: None, id: Some(0), payload: &[] };
        assert_eq!(written(&reset), [0; 5]);
        let acks: Acks = [1, 0].into_iter().collect();
        let control = ControlBody { acks, peer: Some(SERVER), id: Some(2), payload: &[22, 3, 1] };
        let bytes = [2, 0, 0, 0, 1, 0, 0, 0, 0, 9, 8, 7, 6, 5, 4, 3, 2, 0, 0, 0, 2, 22, 3, 1];
        assert_eq!(written(&control), bytes);
        assert_eq!(ControlBody::parse(Opcode::Control, &bytes), Ok(control));
        for length in 0..21 {
            assert_eq!(ControlBody::parse(Opcode::Control, &bytes[..length]), Err(PacketError::TooShort), "{length}");
        }
        let acks_alone = ControlBody::parse(Opcode::Ack, &bytes[..17]).expect("acknowledgements have no id");
        assert_eq!((acks_alone.id, acks_alone.payload), (None, &[][..]));
        assert_eq!(ControlBody::parse(Opcode::DataV1, &bytes), Err(PacketError::NotControl));
        let mut nine = vec![9];
        nine.resize(60, 1);
        assert_eq!(ControlBody::parse(Opcode::Ack, &nine), Err(PacketError::TooManyAcks(9)));
    }

    #[test]
    fn acknowledgements_are_bounded_and_unique() {
        let mut acks: Acks = [3, 3, 1, 4].into_iter().collect();
        assert_eq!(acks.as_slice(), [3, 1, 4]);
        assert!((10..15).all(|id| acks.add(id)));
        assert!(!acks.add(15) && acks.add(14) && acks.len() == Acks::MAX);
    }

    #[test]
    fn server_requests_the_wrapped_key_again() {
        let mut payload = vec![0, 9, 0, 3, 1, 2, 3];
        assert_eq!(early_negotiation_flags(&payload), Ok(0));
        write_early_negotiation_flags(RESEND_WRAPPED_KEY, &mut payload);
        assert_eq!(payload[7..], [0, 1, 0, 2, 0, 1]);
        assert_eq!(early_negotiation_flags(&payload), Ok(RESEND_WRAPPED_KEY));
        assert_eq!(early_negotiation_flags(&[]), Ok(0));
        for length in [1, 3, 4, 6, 8, 12] {
            assert_eq!(early_negotiation_flags(&payload[..length]), Err(PacketError::TooShort), "{length}");
        }
        assert_eq!(early_negotiation_flags(&[0, 1, 0, 1, 1]), Err(PacketError::BadFlags));
    }

    proptest! {
        #[test]
        fn any_control_body_round_trips(
            ids in prop::collection::vec(any::<u32>(), 0..10),
            id in any::<Option<u32>>(),
            payload in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            let acks: Acks = ids.into_iter().collect();
            let peer = (!acks.is_empty()).then_some(SERVER);
            let body = ControlBody { acks, peer, id, payload: &payload };
            let opcode = if id.is_some() { Opcode::Control } else { Opcode::Ack };
            let bytes = written(&body);
            prop_assert_eq!(ControlBody::parse(opcode, &bytes), Ok(body));
        }

        #[test]
        fn any_bytes_are_parsed_or_refused(number in 0u8..16, bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = early_negotiation_flags(&bytes);
            if let Some(body) = Opcode::from_number(number).and_then(|kind| ControlBody::parse(kind, &bytes).ok()) {
                prop_assert!(body.payload.len() < bytes.len());
            }
        }
    }
}
