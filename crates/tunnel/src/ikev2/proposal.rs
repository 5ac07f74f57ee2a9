//! Security association payloads (RFC 7296, section 3.3): proposals of transforms as bytes, what may be offered, and
//! whether an answer chose from it. Reads the names that swanctl.conf uses (`aes128gcm16-prfsha256-x25519`).

use super::dh::Group;
use super::message::MessageError;
use super::prf::Prf;
use crate::esp::cipher::{CipherSuite, Encryption, Integrity};

/// Protocol of a proposal: an IKE SA.
pub const PROTOCOL_IKE: u8 = 1;
/// Protocol of a proposal: a child SA with ESP.
pub const PROTOCOL_ESP: u8 = 3;
const TYPE_ENCRYPTION: u8 = 1;
const TYPE_PRF: u8 = 2;
const TYPE_INTEGRITY: u8 = 3;
const TYPE_GROUP: u8 = 4;
const TYPE_ESN: u8 = 5;
/// Attribute: key length in bits, as a value of two bytes.
const ATTRIBUTE_KEY_BITS: u16 = 0x8000 | 14;
/// The largest number of transforms of one proposal that is read.
const MAX_TRANSFORMS: usize = 64;
/// The largest number of proposals of one payload that is read.
const MAX_PROPOSALS: usize = 32;

/// One transform of a proposal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transform {
    /// Encryption, function, integrity, group or sequence numbers.
    pub kind: u8,
    /// The algorithm.
    pub id: u16,
    /// Key length, bits, for encryptions that have several.
    pub key_bits: Option<u16>,
}

/// One proposal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// Its number, from 1.
    pub number: u8,
    /// [`PROTOCOL_IKE`] or [`PROTOCOL_ESP`].
    pub protocol: u8,
    /// The sender's SPI; empty in a first exchange.
    pub spi: Vec<u8>,
    /// Its transforms; several of one type are alternatives.
    pub transforms: Vec<Transform>,
}

/// What was agreed on for an IKE SA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IkeSuite {
    /// Encryption and integrity of its messages.
    pub cipher: CipherSuite,
    /// The function that keys are derived by.
    pub prf: Prf,
    /// The group of the key exchange.
    pub group: Group,
}

/// What was agreed on for a child SA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EspSuite {
    /// Encryption and integrity of its packets.
    pub cipher: CipherSuite,
    /// Whether sequence numbers have 64 bits.
    pub has_esn: bool,
    /// The group of a key exchange of its own; `None` without one.
    pub group: Option<Group>,
}

/// Algorithms that are offered together; each list is in the order of preference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Encryptions: either AEADs only, or none.
    pub encryptions: Vec<Encryption>,
    /// Integrity algorithms; empty exactly with AEADs.
    pub integrities: Vec<Integrity>,
    /// Functions; empty for ESP.
    pub prfs: Vec<Prf>,
    /// Groups; for ESP, those of later rekeyings.
    pub groups: Vec<Group>,
    /// Sequence numbers for ESP: `false` for 32 bits, `true` for 64.
    pub esn: Vec<bool>,
}

impl Offer {
    /// Reads an IKE proposal such as `aes128gcm16-prfsha256-x25519` or `aes256-sha256-ecp256`.
    ///
    /// # Errors
    /// One line: the keyword that is not supported, or the kind of algorithm that is missing.
    pub fn parse_ike(text: &str) -> Result<Self, String> {
        let mut offer = Self::parse(text)?;
        if offer.prfs.is_empty() {
            // swanctl.conf(5): without a function, that of the integrity algorithm is used.
            offer.prfs = offer.integrities.iter().map(|integrity| prf_of(*integrity)).collect();
        }
        if offer.prfs.is_empty() {
            return Err(format!("proposal {text:?}: an AEAD needs a pseudorandom function, such as prfsha256"));
        }
        if offer.groups.is_empty() {
            return Err(format!("proposal {text:?}: a key exchange is missing, such as x25519"));
        }
        offer.esn.clear();
        Ok(offer)
    }

    /// Reads an ESP proposal such as `aes128gcm16`, `aes256-sha256-x25519-esn`.
    ///
    /// # Errors
    /// One line: the keyword that is not supported, or the kind of algorithm that is missing.
    pub fn parse_esp(text: &str) -> Result<Self, String> {
        let mut offer = Self::parse(text)?;
        offer.prfs.clear();
        if offer.esn.is_empty() {
            offer.esn.push(false);
        }
        Ok(offer)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let mut offer = Self { encryptions: vec![], integrities: vec![], prfs: vec![], groups: vec![], esn: vec![] };
        for word in text.split('-') {
            offer.add(&word.to_ascii_lowercase()).map_err(|()| {
                format!("proposal {text:?}: {word:?} is not supported; supported are {}", KEYWORDS.join(", "))
            })?;
        }
        let aeads = offer.encryptions.iter().filter(|encryption| encryption.is_aead()).count();
        if offer.encryptions.is_empty() {
            return Err(format!("proposal {text:?}: an encryption is missing, such as aes128gcm16"));
        }
        if aeads != 0 && aeads != offer.encryptions.len() {
            return Err(format!("proposal {text:?}: AEADs and other encryptions need proposals of their own"));
        }
        if aeads == 0 && offer.integrities.is_empty() {
            return Err(format!("proposal {text:?}: an integrity algorithm is missing, such as sha256"));
        }
        if aeads != 0 && !offer.integrities.is_empty() {
            // swanctl.conf(5): with an AEAD, an integrity keyword names the function.
            let prfs = offer.integrities.drain(..).map(prf_of).collect();
            offer.prfs = if offer.prfs.is_empty() { prfs } else { offer.prfs };
        }
        Ok(offer)
    }

    fn add(&mut self, word: &str) -> Result<(), ()> {
        match word {
            "aes128gcm16" | "aes128gcm128" | "aes128gcm" => self.encryptions.push(Encryption::AesGcm16(128)),
            "aes192gcm16" | "aes192gcm128" | "aes192gcm" => self.encryptions.push(Encryption::AesGcm16(192)),
            "aes256gcm16" | "aes256gcm128" | "aes256gcm" => self.encryptions.push(Encryption::AesGcm16(256)),
            "aes128" | "aes" => self.encryptions.push(Encryption::AesCbc(128)),
            "aes192" => self.encryptions.push(Encryption::AesCbc(192)),
            "aes256" => self.encryptions.push(Encryption::AesCbc(256)),
            "chacha20poly1305" => self.encryptions.push(Encryption::ChaCha20Poly1305),
            "sha256" | "sha2_256" => self.integrities.push(Integrity::Sha256),
            "sha384" | "sha2_384" => self.integrities.push(Integrity::Sha384),
            "sha512" | "sha2_512" => self.integrities.push(Integrity::Sha512),
            "prfsha256" => self.prfs.push(Prf::HmacSha256),
            "prfsha384" => self.prfs.push(Prf::HmacSha384),
            "prfsha512" => self.prfs.push(Prf::HmacSha512),
            "esn" => self.esn.push(true),
            "noesn" => self.esn.push(false),
            _ => self.groups.push(Group::from_keyword(word).ok_or(())?),
        }
        Ok(())
    }

    /// The proposal of a first or a new IKE SA; `spi` is empty for a first one.
    #[must_use]
    pub fn ike_proposal(&self, number: u8, spi: &[u8]) -> Proposal {
        let mut transforms = self.cipher_transforms();
        transforms.extend(self.prfs.iter().map(|prf| plain(TYPE_PRF, prf_number(*prf))));
        transforms.extend(self.groups.iter().map(|group| plain(TYPE_GROUP, group.number())));
        Proposal { number, protocol: PROTOCOL_IKE, spi: spi.to_vec(), transforms }
    }

    /// The proposal of a child SA, without its groups in an exchange that has no key exchange for it.
    #[must_use]
    pub fn esp_proposal(&self, number: u8, spi: u32, has_groups: bool) -> Proposal {
        let mut transforms = self.cipher_transforms();
        if has_groups {
            transforms.extend(self.groups.iter().map(|group| plain(TYPE_GROUP, group.number())));
        }
        transforms.extend(self.esn.iter().map(|is_extended| plain(TYPE_ESN, u16::from(*is_extended))));
        Proposal { number, protocol: PROTOCOL_ESP, spi: spi.to_be_bytes().to_vec(), transforms }
    }

    fn cipher_transforms(&self) -> Vec<Transform> {
        let encryptions = self.encryptions.iter().map(|encryption| encryption_transform(*encryption));
        let integrities = self.integrities.iter().map(|one| plain(TYPE_INTEGRITY, integrity_number(*one)));
        encryptions.chain(integrities).collect()
    }
}

const KEYWORDS: [&str; 13] = [
    "aes128gcm16",
    "aes256gcm16",
    "chacha20poly1305",
    "aes128",
    "aes256",
    "sha256",
    "sha384",
    "sha512",
    "prfsha256",
    "x25519",
    "ecp256",
    "ecp384",
    "modp2048",
];

impl Proposal {
    /// Whether each of `chosen`'s transforms is offered, one of each type that is offered (RFC 7296, section 3.3.6).
    #[must_use]
    pub fn contains(&self, chosen: &Self) -> bool {
        let kinds = |proposal: &Self| {
            let mut kinds: Vec<u8> = proposal.transforms.iter().map(|transform| transform.kind).collect();
            kinds.sort_unstable();
            kinds
        };
        let mut offered = kinds(self);
        offered.dedup();
        self.protocol == chosen.protocol
            && offered == kinds(chosen)
            && chosen.transforms.iter().all(|transform| self.transforms.contains(transform))
    }

    /// Keeps the first transform of each type that `wanted` accepts; `None` unless every type of either end has one.
    #[must_use]
    pub fn choose(&self, wanted: &Self) -> Option<Self> {
        let mut chosen = Self { transforms: Vec::new(), ..self.clone() };
        for kind in TYPE_ENCRYPTION..=TYPE_ESN {
            let is_offered = self.transforms.iter().any(|transform| transform.kind == kind);
            let mut acceptable = wanted.transforms.iter().filter(|transform| transform.kind == kind).peekable();
            let is_wanted = acceptable.peek().is_some();
            match acceptable.find(|transform| self.transforms.contains(transform)) {
                Some(transform) => chosen.transforms.push(*transform),
                None if is_offered || is_wanted => return None,
                None => {}
            }
        }
        Some(chosen)
    }

    /// The IKE suite, if each type has exactly one supported transform.
    #[must_use]
    pub fn ike_suite(&self) -> Option<IkeSuite> {
        let prf = match self.only(TYPE_PRF)?.id {
            5 => Prf::HmacSha256,
            6 => Prf::HmacSha384,
            7 => Prf::HmacSha512,
            _ => return None,
        };
        Some(IkeSuite { cipher: self.cipher()?, prf, group: Group::from_number(self.only(TYPE_GROUP)?.id)? })
    }

    /// The ESP suite, if each type has exactly one supported transform.
    #[must_use]
    pub fn esp_suite(&self) -> Option<EspSuite> {
        let has_group = self.transforms.iter().any(|transform| transform.kind == TYPE_GROUP);
        let group = if has_group { Some(Group::from_number(self.only(TYPE_GROUP)?.id)?) } else { None };
        let has_esn = match self.only(TYPE_ESN)?.id {
            0 => false,
            1 => true,
            _ => return None,
        };
        Some(EspSuite { cipher: self.cipher()?, has_esn, group })
    }

    /// The SPI as the number that ESP uses.
    #[must_use]
    pub fn esp_spi(&self) -> Option<u32> {
        Some(u32::from_be_bytes(self.spi.as_slice().try_into().ok()?))
    }

    /// The SPI as the number that a rekeyed IKE SA uses.
    #[must_use]
    pub fn ike_spi(&self) -> Option<u64> {
        Some(u64::from_be_bytes(self.spi.as_slice().try_into().ok()?))
    }

    fn only(&self, kind: u8) -> Option<Transform> {
        let mut of_kind = self.transforms.iter().filter(|transform| transform.kind == kind);
        let only = of_kind.next()?;
        of_kind.next().is_none().then_some(*only)
    }

    fn cipher(&self) -> Option<CipherSuite> {
        let encryption = self.only(TYPE_ENCRYPTION)?;
        let encryption = match (encryption.id, encryption.key_bits) {
            (20, Some(bits @ (128 | 192 | 256))) => Encryption::AesGcm16(bits),
            (12, Some(bits @ (128 | 192 | 256))) => Encryption::AesCbc(bits),
            (28, None) => Encryption::ChaCha20Poly1305,
            _ => return None,
        };
        let integrity = match self.only(TYPE_INTEGRITY).map(|transform| transform.id) {
            None | Some(0) => None,
            Some(12) => Some(Integrity::Sha256),
            Some(13) => Some(Integrity::Sha384),
            Some(14) => Some(Integrity::Sha512),
            Some(_) => return None,
        };
        (encryption.is_aead() == integrity.is_none()).then_some(CipherSuite { encryption, integrity })
    }
}

fn plain(kind: u8, id: u16) -> Transform {
    Transform { kind, id, key_bits: None }
}

fn encryption_transform(encryption: Encryption) -> Transform {
    let (id, key_bits) = match encryption {
        Encryption::AesCbc(bits) => (12, Some(bits)),
        Encryption::AesGcm16(bits) => (20, Some(bits)),
        Encryption::ChaCha20Poly1305 => (28, None),
    };
    Transform { kind: TYPE_ENCRYPTION, id, key_bits }
}

fn integrity_number(integrity: Integrity) -> u16 {
    match integrity {
        Integrity::Sha256 => 12,
        Integrity::Sha384 => 13,
        Integrity::Sha512 => 14,
    }
}

fn prf_of(integrity: Integrity) -> Prf {
    match integrity {
        Integrity::Sha256 => Prf::HmacSha256,
        Integrity::Sha384 => Prf::HmacSha384,
        Integrity::Sha512 => Prf::HmacSha512,
    }
}

fn prf_number(prf: Prf) -> u16 {
    match prf {
        Prf::HmacSha256 => 5,
        Prf::HmacSha384 => 6,
        Prf::HmacSha512 => 7,
    }
}

/// Appends the body of an SA payload.
pub fn write_proposals(proposals: &[Proposal], out: &mut Vec<u8>) {
    for (index, proposal) in proposals.iter().enumerate() {
        let start = out.len();
        let is_last = index + 1 == proposals.len();
        out.extend_from_slice(&[if is_last { 0 } else { 2 }, 0, 0, 0, proposal.number, proposal.protocol]);
        out.extend_from_slice(&[proposal.spi.len() as u8, proposal.transforms.len() as u8]);
        out.extend_from_slice(&proposal.spi);
        for (index, transform) in proposal.transforms.iter().enumerate() {
            let more = if index + 1 == proposal.transforms.len() { 0 } else { 3 };
            let length = if transform.key_bits.is_some() { 12 } else { 8 };
            out.extend_from_slice(&[more, 0, 0, length, transform.kind, 0]);
            out.extend_from_slice(&transform.id.to_be_bytes());
            if let Some(bits) = transform.key_bits {
                out.extend_from_slice(&ATTRIBUTE_KEY_BITS.to_be_bytes());
                out.extend_from_slice(&bits.to_be_bytes());
            }
        }
        let length = (out.len() - start) as u16;
        out[start + 2..start + 4].copy_from_slice(&length.to_be_bytes());
    }
}

/// Reads the body of an SA payload.
///
/// # Errors
/// A length lies, or there are too many proposals or transforms.
pub fn read_proposals(mut body: &[u8]) -> Result<Vec<Proposal>, MessageError> {
    let mut proposals = Vec::new();
    while !body.is_empty() {
        if proposals.len() == MAX_PROPOSALS {
            return Err(MessageError::Malformed);
        }
        let header = body.first_chunk::<8>().ok_or(MessageError::Length)?;
        let length = usize::from(u16::from_be_bytes([header[2], header[3]]));
        let whole = body.get(..length).ok_or(MessageError::Length)?;
        let (spi, transforms) = whole
            .get(8..)
            .and_then(|rest| rest.split_at_checked(usize::from(header[6])))
            .ok_or(MessageError::Length)?;
        let transforms = read_transforms(transforms)?;
        if transforms.len() != usize::from(header[7]) {
            return Err(MessageError::Malformed);
        }
        proposals.push(Proposal { number: header[4], protocol: header[5], spi: spi.to_vec(), transforms });
        body = &body[length..];
    }
    Ok(proposals)
}

fn read_transforms(mut bytes: &[u8]) -> Result<Vec<Transform>, MessageError> {
    let mut transforms = Vec::new();
    while !bytes.is_empty() {
        if transforms.len() == MAX_TRANSFORMS {
            return Err(MessageError::Malformed);
        }
        let header = bytes.first_chunk::<8>().ok_or(MessageError::Length)?;
        let length = usize::from(u16::from_be_bytes([header[2], header[3]]));
        let attributes = bytes.get(..length).and_then(|whole| whole.get(8..)).ok_or(MessageError::Length)?;
        let id = u16::from_be_bytes([header[6], header[7]]);
        transforms.push(Transform { kind: header[4], id, key_bits: read_key_bits(attributes)? });
        bytes = &bytes[length..];
    }
    Ok(transforms)
}

fn read_key_bits(mut attributes: &[u8]) -> Result<Option<u16>, MessageError> {
    let mut key_bits = None;
    while !attributes.is_empty() {
        let header = attributes.first_chunk::<4>().ok_or(MessageError::Length)?;
        let (kind, value) = (u16::from_be_bytes([header[0], header[1]]), u16::from_be_bytes([header[2], header[3]]));
        let length = if kind & 0x8000 != 0 { 4 } else { 4 + usize::from(value) };
        if kind == ATTRIBUTE_KEY_BITS {
            key_bits = Some(value);
        }
        attributes = attributes.get(length..).ok_or(MessageError::Length)?;
    }
    Ok(key_bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    const IKE: &str = "aes256-aes128-sha256-sha384-x25519-ecp256";

    #[test]
    fn proposals_survive_writing_and_reading_and_lying_lengths_are_errors() {
        let ike = Offer::parse_ike(IKE).expect("an offer").ike_proposal(1, &[7; 8]);
        let esp = Offer::parse_esp("chacha20poly1305-x25519-esn-noesn").expect("an offer").esp_proposal(2, 9, true);
        let mut body = Vec::new();
        write_proposals(std::slice::from_ref(&ike), &mut body);
        let first = body.len();
        body.clear();
        write_proposals(&[ike.clone(), esp.clone()], &mut body);
        assert_eq!(read_proposals(&body), Ok(vec![ike.clone(), esp.clone()]));
        for len in 1..body.len() {
            let is_border = len == first;
            assert_eq!(read_proposals(&body[..len]).is_ok(), is_border, "{len}");
        }
        body[3] = body[3].wrapping_add(1);
        assert!(read_proposals(&body).is_err());
        assert_eq!((ike.ike_spi(), esp.esp_spi(), esp.ike_spi()), (Some(0x0707_0707_0707_0707), Some(9), None));
    }

    #[test]
    fn answers_choose_one_offered_transform_of_each_type() {
        let offered = Offer::parse_ike(IKE).expect("an offer").ike_proposal(1, &[]);
        let chosen = Offer::parse_ike("aes128-sha256-x25519").expect("an offer").ike_proposal(1, &[]);
        assert!(offered.contains(&chosen) && !chosen.contains(&offered));
        assert_eq!(offered.choose(&chosen).and_then(|one| one.ike_suite()), chosen.ike_suite());
        let suite = chosen.ike_suite().expect("a suite");
        assert_eq!((suite.prf, suite.group), (Prf::HmacSha256, Group::X25519));
        assert_eq!(suite.cipher.encryption, Encryption::AesCbc(128));
        for other in
            ["aes192-sha256-x25519", "aes128-sha512-x25519", "aes128-sha256-ecp384", "aes128gcm16-prfsha256-x25519"]
        {
            let other = Offer::parse_ike(other).expect("an offer").ike_proposal(1, &[]);
            assert!(!offered.contains(&other));
            assert_eq!(offered.choose(&other), None);
        }
        assert_eq!(offered.ike_suite(), None, "several transforms of a type are no choice");
        let mut without = chosen;
        without.transforms.pop();
        assert!(!offered.contains(&without));
    }

    #[test]
    fn keywords_that_are_not_supported_are_named() {
        for (text, named) in [
            ("3des-sha256-x25519", "3des"),
            ("aes128-sha1-x25519", "sha1"),
            ("aes128-sha256-modp1024", "modp1024"),
            ("aes128gcm16-x25519", "prfsha256"),
            ("aes128-x25519", "integrity"),
            ("aes128gcm16-prfsha256", "key exchange"),
            ("sha256-x25519", "encryption"),
            ("aes128gcm16-aes128-sha256-x25519", "of their own"),
        ] {
            let error = Offer::parse_ike(text).expect_err(text);
            assert!(error.contains(named) && error.contains(text), "{error}");
        }
    }
}
