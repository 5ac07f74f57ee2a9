//! Notify and delete payloads (RFC 7296, sections 3.10, 3.11), and the numbers of notifications.

use super::message::{payload, PayloadWriter};

/// Numbers of notifications: errors below 16384, status from there.
#[allow(missing_docs)]
pub mod kind {
    pub const UNSUPPORTED_CRITICAL_PAYLOAD: u16 = 1;
    pub const INVALID_SYNTAX: u16 = 7;
    pub const INVALID_SPI: u16 = 11;
    pub const NO_PROPOSAL_CHOSEN: u16 = 14;
    pub const INVALID_KE_PAYLOAD: u16 = 17;
    pub const AUTHENTICATION_FAILED: u16 = 24;
    pub const NO_ADDITIONAL_SAS: u16 = 35;
    pub const INTERNAL_ADDRESS_FAILURE: u16 = 36;
    pub const FAILED_CP_REQUIRED: u16 = 37;
    pub const TS_UNACCEPTABLE: u16 = 38;
    pub const TEMPORARY_FAILURE: u16 = 43;
    pub const CHILD_SA_NOT_FOUND: u16 = 44;
    pub const INITIAL_CONTACT: u16 = 16384;
    pub const NAT_DETECTION_SOURCE: u16 = 16388;
    pub const NAT_DETECTION_DESTINATION: u16 = 16389;
    pub const COOKIE: u16 = 16390;
    pub const USE_TRANSPORT_MODE: u16 = 16391;
    pub const REKEY_SA: u16 = 16393;
    pub const ESP_TFC_PADDING_NOT_SUPPORTED: u16 = 16394;
    pub const MOBIKE_SUPPORTED: u16 = 16396;
    pub const UPDATE_SA_ADDRESSES: u16 = 16400;
    pub const COOKIE2: u16 = 16401;
    pub const REDIRECT: u16 = 16407;
    pub const EAP_ONLY_AUTHENTICATION: u16 = 16417;
    pub const FRAGMENTATION_SUPPORTED: u16 = 16430;
    pub const SIGNATURE_HASH_ALGORITHMS: u16 = 16431;
}

/// The first number that is a status and no error.
pub const FIRST_STATUS: u16 = 16384;

/// A notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notify<'m> {
    /// The protocol of its SPI, or 0.
    pub protocol: u8,
    /// The SPI that it concerns; may be empty.
    pub spi: &'m [u8],
    /// What it says, see [`kind`].
    pub kind: u16,
    /// Its data.
    pub data: &'m [u8],
}

impl<'m> Notify<'m> {
    /// Reads the body of a notify payload; `None` if a length lies.
    #[must_use]
    pub fn parse(body: &'m [u8]) -> Option<Self> {
        let (header, rest) = body.split_first_chunk::<4>()?;
        let (spi, data) = rest.split_at_checked(usize::from(header[1]))?;
        Some(Self { protocol: header[0], spi, kind: u16::from_be_bytes([header[2], header[3]]), data })
    }

    /// A notification about no SA.
    #[must_use]
    pub fn new(kind: u16, data: &'m [u8]) -> Self {
        Self { protocol: 0, spi: &[], kind, data }
    }

    /// Appends it to a chain.
    pub fn push_to(&self, chain: &mut PayloadWriter) {
        chain.push_with(payload::NOTIFY, |out| {
            out.extend_from_slice(&[self.protocol, self.spi.len() as u8]);
            out.extend_from_slice(&self.kind.to_be_bytes());
            out.extend_from_slice(self.spi);
            out.extend_from_slice(self.data);
        });
    }

    /// Whether it is an error.
    #[must_use]
    pub fn is_error(&self) -> bool {
        self.kind < FIRST_STATUS
    }
}

/// Which SAs a peer deletes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delete {
    /// The IKE SA that carries the message.
    Ike,
    /// Child SAs, by the SPIs of the packets that the sender receives.
    Esp(Vec<u32>),
    /// SAs of another protocol, of which there are none.
    Other,
}

impl Delete {
    /// Reads the body of a delete payload; `None` if a length lies.
    #[must_use]
    pub fn parse(body: &[u8]) -> Option<Self> {
        let (&[protocol, size, high, low], spis) = body.split_first_chunk::<4>()?;
        let count = usize::from(u16::from_be_bytes([high, low]));
        if usize::from(size) * count != spis.len() {
            return None;
        }
        match (protocol, size) {
            (1, 0) => Some(Self::Ike),
            (3, 4) => {
                let spis = spis.chunks_exact(4).map(|spi| u32::from_be_bytes([spi[0], spi[1], spi[2], spi[3]]));
                Some(Self::Esp(spis.collect()))
            }
            (1 | 3, _) => None,
            _ => Some(Self::Other),
        }
    }

    /// Appends it to a chain.
    pub fn push_to(&self, chain: &mut PayloadWriter) {
        chain.push_with(payload::DELETE, |out| match self {
            Self::Ike | Self::Other => out.extend_from_slice(&[1, 0, 0, 0]),
            Self::Esp(spis) => {
                out.extend_from_slice(&[3, 4]);
                out.extend_from_slice(&(spis.len() as u16).to_be_bytes());
                spis.iter().for_each(|spi| out.extend_from_slice(&spi.to_be_bytes()));
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::message::{find_payload, read_payloads};
    use super::*;

    #[test]
    fn notifications_and_deletions_survive_writing_and_reading() {
        let mut chain = PayloadWriter::new();
        let notify = Notify { protocol: 3, spi: &[1, 2, 3, 4], kind: kind::REKEY_SA, data: b"data" };
        notify.push_to(&mut chain);
        Delete::Esp(vec![256, u32::MAX]).push_to(&mut chain);
        let payloads = read_payloads(chain.first(), chain.bytes()).expect("payloads");
        assert_eq!(find_payload(&payloads, payload::NOTIFY).and_then(Notify::parse), Some(notify));
        let delete = find_payload(&payloads, payload::DELETE).and_then(Delete::parse);
        assert_eq!(delete, Some(Delete::Esp(vec![256, u32::MAX])));
        assert_eq!(Delete::parse(&[1, 0, 0, 0]), Some(Delete::Ike));
        for lying in
            [&[3, 4, 0, 2, 1, 1, 1, 1][..], &[3, 4, 0xFF, 0xFF], &[3, 2, 0, 1, 1, 1], &[1, 8, 0, 0], &[3, 4, 0]]
        {
            assert_eq!(Delete::parse(lying), None);
        }
        assert_eq!(Notify::parse(&[0, 5, 0, 1, 1]), None);
    }
}
