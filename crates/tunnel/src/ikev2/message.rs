//! Messages and payloads as bytes (RFC 7296, section 3). Reading borrows and is bounded by the message's length; a
//! length that lies is an error. What payloads mean is the other modules' matter.

/// Length of the header of a message, bytes.
pub const HEADER_BYTES: usize = 28;
/// Length of a payload's generic header, bytes.
pub const PAYLOAD_HEADER_BYTES: usize = 4;
/// The largest number of payloads of one message that is read; real ones have fewer than 30.
pub const MAX_PAYLOADS: usize = 100;
/// Flag: the sender is the original initiator of the IKE SA.
pub const FLAG_INITIATOR: u8 = 0x08;
/// Flag: the message is a response.
pub const FLAG_RESPONSE: u8 = 0x20;
const VERSION_2_0: u8 = 0x20;
const CRITICAL: u8 = 0x80;

/// Types of payloads.
#[allow(missing_docs)]
pub mod payload {
    pub const NONE: u8 = 0;
    pub const SA: u8 = 33;
    pub const KE: u8 = 34;
    pub const ID_I: u8 = 35;
    pub const ID_R: u8 = 36;
    pub const CERT: u8 = 37;
    pub const CERTREQ: u8 = 38;
    pub const AUTH: u8 = 39;
    pub const NONCE: u8 = 40;
    pub const NOTIFY: u8 = 41;
    pub const DELETE: u8 = 42;
    pub const VENDOR: u8 = 43;
    pub const TS_I: u8 = 44;
    pub const TS_R: u8 = 45;
    pub const SK: u8 = 46;
    pub const CP: u8 = 47;
    pub const EAP: u8 = 48;
    pub const SKF: u8 = 53;
}

/// Types of exchanges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ExchangeType {
    /// The first exchange: algorithms, key exchange, nonces.
    SaInit = 34,
    /// Authentication, and the first child SA.
    Auth = 35,
    /// Further child SAs, and new keys.
    CreateChildSa = 36,
    /// Deletions, errors, and whether the peer is alive.
    Informational = 37,
    /// Further key exchanges before authentication (RFC 9242).
    Intermediate = 43,
}

impl ExchangeType {
    /// The exchange with this number.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        [Self::SaInit, Self::Auth, Self::CreateChildSa, Self::Informational, Self::Intermediate]
            .into_iter()
            .find(|exchange| *exchange as u8 == number)
    }
}

/// Why a message cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// A length reaches past the end, or the message is too short.
    #[error("a length does not fit the message")]
    Length,
    /// Not version 2.x.
    #[error("the message is not of IKEv2")]
    Version,
    /// More than [`MAX_PAYLOADS`].
    #[error("the message has too many payloads")]
    TooManyPayloads,
    /// A payload contradicts itself or the protocol.
    #[error("a payload is malformed")]
    Malformed,
    /// An unknown payload that must be understood.
    #[error("an unknown payload of type {0} is critical")]
    Critical(u8),
}

/// The header of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// SPI of the original initiator of the IKE SA.
    pub spi_i: u64,
    /// SPI of the original responder; 0 before it is known.
    pub spi_r: u64,
    /// Type of the first payload.
    pub next: u8,
    /// Number of the exchange.
    pub exchange: u8,
    /// [`FLAG_INITIATOR`], [`FLAG_RESPONSE`].
    pub flags: u8,
    /// The number of a request and its response.
    pub message_id: u32,
}

impl Header {
    /// Reads the header of a whole message; its length has to be the datagram's.
    ///
    /// # Errors
    /// The version is not 2, or the length differs.
    pub fn parse(message: &[u8]) -> Result<Self, MessageError> {
        let (header, _) = message.split_first_chunk::<HEADER_BYTES>().ok_or(MessageError::Length)?;
        if header[17] >> 4 != VERSION_2_0 >> 4 {
            return Err(MessageError::Version);
        }
        if u32::from_be_bytes(chunk(header, 24)) as usize != message.len() {
            return Err(MessageError::Length);
        }
        Ok(Self {
            spi_i: u64::from_be_bytes(chunk(header, 0)),
            spi_r: u64::from_be_bytes(chunk(header, 8)),
            next: header[16],
            exchange: header[18],
            flags: header[19],
            message_id: u32::from_be_bytes(chunk(header, 20)),
        })
    }

    /// Writes the header of a message of `length` bytes.
    pub fn write(&self, length: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.spi_i.to_be_bytes());
        out.extend_from_slice(&self.spi_r.to_be_bytes());
        out.extend_from_slice(&[self.next, VERSION_2_0, self.exchange, self.flags]);
        out.extend_from_slice(&self.message_id.to_be_bytes());
        out.extend_from_slice(&(length as u32).to_be_bytes());
    }

    /// Whether the message is a response.
    #[must_use]
    pub fn is_response(&self) -> bool {
        self.flags & FLAG_RESPONSE != 0
    }

    /// Whether its sender is the original initiator of the IKE SA.
    #[must_use]
    pub fn is_from_initiator(&self) -> bool {
        self.flags & FLAG_INITIATOR != 0
    }
}

/// Copies `N` bytes at `at`; the caller has checked the length.
fn chunk<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    *bytes[at..].first_chunk().expect("the length is checked")
}

/// One payload of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payload<'m> {
    /// Its type.
    pub kind: u8,
    /// Whether a receiver that does not know the type has to refuse the message.
    pub is_critical: bool,
    /// The bytes after the generic header.
    pub body: &'m [u8],
}

/// The payloads of a chain, in order.
#[derive(Clone)]
pub struct Payloads<'m> {
    next: u8,
    rest: &'m [u8],
    read: usize,
}

impl<'m> Payloads<'m> {
    /// The chain whose first payload has the type `first`.
    #[must_use]
    pub fn new(first: u8, chain: &'m [u8]) -> Self {
        Self { next: first, rest: chain, read: 0 }
    }

    fn read(&mut self) -> Result<Payload<'m>, MessageError> {
        if self.read == MAX_PAYLOADS {
            return Err(MessageError::TooManyPayloads);
        }
        self.read += 1;
        let header = self.rest.first_chunk::<PAYLOAD_HEADER_BYTES>().ok_or(MessageError::Length)?;
        let length = usize::from(u16::from_be_bytes([header[2], header[3]]));
        let whole = self.rest.get(..length).ok_or(MessageError::Length)?;
        let body = whole.get(PAYLOAD_HEADER_BYTES..).ok_or(MessageError::Length)?;
        let payload = Payload { kind: self.next, is_critical: header[1] & CRITICAL != 0, body };
        // RFC 7296, section 3.14: SK is the last payload; its next-payload field is that of the first one inside.
        self.next = if matches!(payload.kind, payload::SK | payload::SKF) { payload::NONE } else { header[0] };
        self.rest = &self.rest[length..];
        Ok(payload)
    }
}

impl<'m> Iterator for Payloads<'m> {
    type Item = Result<Payload<'m>, MessageError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.next == payload::NONE {
            // Bytes after the last payload belong to nothing.
            let rest = std::mem::take(&mut self.rest);
            return (!rest.is_empty()).then_some(Err(MessageError::Length));
        }
        let read = self.read();
        if read.is_err() {
            (self.next, self.rest) = (payload::NONE, &[]);
        }
        Some(read)
    }
}

/// Reads a whole chain.
///
/// # Errors
/// A length lies, or an unknown payload is critical.
pub fn read_payloads(first: u8, chain: &[u8]) -> Result<Vec<Payload<'_>>, MessageError> {
    let mut payloads = Vec::new();
    for payload in Payloads::new(first, chain) {
        let payload = payload?;
        let is_known = (payload::SA..=payload::EAP).contains(&payload.kind) || payload.kind == payload::SKF;
        if payload.is_critical && !is_known {
            return Err(MessageError::Critical(payload.kind));
        }
        payloads.push(payload);
    }
    Ok(payloads)
}

/// The first payload of a type.
#[must_use]
pub fn find_payload<'m>(payloads: &[Payload<'m>], kind: u8) -> Option<&'m [u8]> {
    payloads.iter().find(|payload| payload.kind == kind).map(|payload| payload.body)
}

/// A chain of payloads that is being written.
#[derive(Clone, Default)]
pub struct PayloadWriter {
    first: u8,
    bytes: Vec<u8>,
    /// Where the last payload begins.
    last: usize,
}

impl PayloadWriter {
    /// An empty chain.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a payload whose body `write` appends to the buffer.
    pub fn push_with(&mut self, kind: u8, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len();
        if start == 0 {
            self.first = kind;
        } else {
            self.bytes[self.last] = kind;
        }
        self.bytes.extend_from_slice(&[payload::NONE, 0, 0, 0]);
        write(&mut self.bytes);
        let length = u16::try_from(self.bytes.len() - start).expect("our own payloads are short");
        self.bytes[start + 2..start + 4].copy_from_slice(&length.to_be_bytes());
        self.last = start;
    }

    /// Appends a payload.
    pub fn push(&mut self, kind: u8, body: &[u8]) {
        self.push_with(kind, |out| out.extend_from_slice(body));
    }

    /// The type of the first payload, 0 if there is none.
    #[must_use]
    pub fn first(&self) -> u8 {
        self.first
    }

    /// The chain's bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The message of `header` and this chain, not encrypted.
    #[must_use]
    pub fn into_message(self, header: Header) -> Vec<u8> {
        let length = HEADER_BYTES + self.bytes.len();
        let mut message = Vec::with_capacity(length);
        Header { next: self.first, ..header }.write(length, &mut message);
        message.extend_from_slice(&self.bytes);
        message
    }
}

/// Splits a key exchange's body into group and public value.
#[must_use]
pub fn read_key_exchange(body: &[u8]) -> Option<(u16, &[u8])> {
    let (header, public) = body.split_first_chunk::<4>()?;
    Some((u16::from_be_bytes([header[0], header[1]]), public))
}

/// Appends a key exchange.
pub fn push_key_exchange(chain: &mut PayloadWriter, group: u16, public: &[u8]) {
    chain.push_with(payload::KE, |out| {
        out.extend_from_slice(&group.to_be_bytes());
        out.extend_from_slice(&[0, 0]);
        out.extend_from_slice(public);
    });
}

/// Checks a nonce's length: 16 to 256 bytes (RFC 7296, section 3.9).
#[must_use]
pub fn is_nonce(body: &[u8]) -> bool {
    (16..=256).contains(&body.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<u8> {
        let mut chain = PayloadWriter::new();
        chain.push(payload::SA, &[1; 40]);
        push_key_exchange(&mut chain, 31, &[2; 32]);
        chain.push(payload::NONCE, &[3; 32]);
        let header = Header { spi_i: 1, spi_r: 2, next: 0, exchange: 34, flags: FLAG_INITIATOR, message_id: 7 };
        chain.into_message(header)
    }

    #[test]
    fn written_messages_are_read_back() {
        let message = sample();
        let header = Header::parse(&message).expect("a header");
        assert_eq!((header.spi_i, header.spi_r, header.message_id), (1, 2, 7));
        assert!(header.is_from_initiator() && !header.is_response());
        let payloads = read_payloads(header.next, &message[HEADER_BYTES..]).expect("payloads");
        assert_eq!(payloads.iter().map(|payload| payload.kind).collect::<Vec<_>>(), [33, 34, 40]);
        let exchange = find_payload(&payloads, payload::KE).and_then(read_key_exchange);
        assert_eq!(exchange, Some((31, &[2; 32][..])));
        assert!(!is_nonce(&[0; 15]) && is_nonce(&[0; 16]) && is_nonce(&[0; 256]) && !is_nonce(&[0; 257]));
    }

    #[test]
    fn every_lying_length_is_an_error() {
        let message = sample();
        for len in 0..message.len() {
            assert!(Header::parse(&message[..len]).is_err());
        }
        let chain = &message[HEADER_BYTES..];
        for len in 0..chain.len() {
            assert!(read_payloads(payload::SA, &chain[..len]).is_err(), "{len}");
        }
        for length in [0u16, 3, 45, 43, 0xFFFF] {
            let mut lying = chain.to_vec();
            lying[2..4].copy_from_slice(&length.to_be_bytes());
            assert!(read_payloads(payload::SA, &lying).is_err(), "{length}");
        }
    }

    #[test]
    fn unknown_payloads_are_skipped_unless_critical_and_their_number_is_bounded() {
        let mut chain = PayloadWriter::new();
        chain.push(200, b"?");
        assert_eq!(read_payloads(chain.first(), chain.bytes()).expect("skipped").len(), 1);
        let mut critical = chain.bytes().to_vec();
        critical[1] = CRITICAL;
        assert_eq!(read_payloads(200, &critical), Err(MessageError::Critical(200)));
        for _ in 0..MAX_PAYLOADS {
            chain.push(payload::VENDOR, &[]);
        }
        assert_eq!(read_payloads(chain.first(), chain.bytes()), Err(MessageError::TooManyPayloads));
    }
}
