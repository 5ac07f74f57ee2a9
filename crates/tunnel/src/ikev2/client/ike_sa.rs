//! One IKE SA: its keys, the window of one request each way, retransmission and the cached response (RFC 7296,
//! sections 2.1 to 2.3), fragments; and what its requests are for. What the messages say is the other modules' matter.

use std::collections::VecDeque;

use crate::esp::cipher::{BadKey, PacketCipher};
use crate::ikev2::config::Retransmission;
use crate::ikev2::dh::{Group, KeyPair};
use crate::ikev2::fragments::Reassembly;
use crate::ikev2::keys::IkeKeys;
use crate::ikev2::message::{ExchangeType, Header, MessageError, PayloadWriter, FLAG_INITIATOR, FLAG_RESPONSE};
use crate::ikev2::proposal::IkeSuite;
use crate::ikev2::protected;
use crate::ikev2::secret_bytes::SecretBytes;

/// Length of the nonces of this end, bytes: at least half the output of each function (RFC 7296, section 2.10).
pub(super) const NONCE_BYTES: usize = 32;

/// An IKE SA.
pub(super) struct IkeSa {
    pub spi_i: u64,
    pub spi_r: u64,
    /// Whether this end began the exchange that created it.
    pub is_initiator: bool,
    pub suite: IkeSuite,
    pub sk_d: SecretBytes,
    sealing: PacketCipher,
    opening: PacketCipher,
    next_id: u32,
    pub outstanding: Option<Outstanding>,
    peer_next_id: u32,
    /// Its request is being answered, while another SA takes its place.
    pub is_answering: bool,
    /// The last response, for repetitions of its request.
    answered: Vec<Vec<u8>>,
    reassembly: Option<Box<Reassembly>>,
    /// The largest IP packet of a message; `None` without fragmentation.
    fragment_bytes: Option<usize>,
    pub tasks: VecDeque<Task>,
    /// When it is rekeyed, ns.
    pub rekey_ns: Option<u64>,
    /// When it is forgotten, ns: it has been replaced or deleted, and only answers repetitions.
    pub end_ns: Option<u64>,
}

/// A request without a response yet.
pub(super) struct Outstanding {
    pub exchange: ExchangeType,
    pub message_id: u32,
    /// The same bytes each time (RFC 7296, section 2.1).
    datagrams: Vec<Vec<u8>>,
    pub purpose: Purpose,
    repeats: u32,
    pub due_ns: u64,
}

/// An authentic message.
pub(super) enum Incoming {
    /// A request that has to be answered by [`IkeSa::respond`].
    Request { exchange: u8, first_payload: u8, chain: Vec<u8> },
    /// The response to the outstanding request.
    Response { purpose: Purpose, first_payload: u8, chain: Vec<u8> },
    /// A repeated request: the response is sent again.
    Repeated,
    /// A repeated response, or a part of a message.
    Nothing,
}

/// A request that waits for its turn in the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Task {
    /// Ask whether the peer is alive.
    Probe,
    /// Delete the child SA that receives by this SPI.
    DeleteChild(u32),
    /// Replace the child SA that receives by this SPI, with a key exchange in this group.
    RekeyChild(u32, Option<Group>),
    /// Replace the IKE SA.
    RekeyIke(Group),
    /// Delete the IKE SA.
    DeleteIke,
}

/// What an outstanding request is for.
pub(super) enum Purpose {
    Authenticate,
    Probe,
    DeleteChild(u32),
    DeleteIke,
    RekeyChild(Box<PendingChild>),
    RekeyIke(Box<PendingIke>),
}

/// A child SA that is being negotiated by this end.
pub(super) struct PendingChild {
    /// The SPI that the replaced child SA receives by.
    pub replaces: u32,
    /// The SPI that the new one receives by.
    pub spi: u32,
    pub nonce: [u8; NONCE_BYTES],
    pub key_pair: Option<KeyPair>,
    /// The peer replaced the same child SA meanwhile.
    pub collision: Option<ChildCollision>,
}

/// What the peer's exchange for the same child SA made.
pub(super) struct ChildCollision {
    /// The SPI that its child SA receives by.
    pub spi: u32,
    pub lowest_nonce: Vec<u8>,
}

/// An IKE SA that is being negotiated by this end.
pub(super) struct PendingIke {
    pub spi: u64,
    pub nonce: [u8; NONCE_BYTES],
    pub key_pair: KeyPair,
    /// The peer replaced the same IKE SA meanwhile.
    pub collision: Option<IkeCollision>,
}

/// What the peer's exchange for the same IKE SA made.
pub(super) struct IkeCollision {
    pub sa: Box<IkeSa>,
    pub lowest_nonce: Vec<u8>,
}

impl IkeSa {
    pub fn new(
        suite: IkeSuite,
        keys: IkeKeys,
        (spi_i, spi_r): (u64, u64),
        is_initiator: bool,
        fragment_bytes: Option<usize>,
    ) -> Result<Self, BadKey> {
        let (sealing, opening) = keys.ciphers(&suite, is_initiator)?;
        Ok(Self {
            spi_i,
            spi_r,
            is_initiator,
            suite,
            sk_d: keys.sk_d,
            sealing,
            opening,
            next_id: 0,
            outstanding: None,
            peer_next_id: 0,
            is_answering: false,
            answered: Vec::new(),
            reassembly: None,
            fragment_bytes,
            tasks: VecDeque::new(),
            rekey_ns: None,
            end_ns: None,
        })
    }

    /// Skips the message id of SA_INIT, which was not encrypted.
    pub fn skip_first_id(&mut self) {
        self.next_id = 1;
    }

    /// The SPI that this end chose.
    pub fn local_spi(&self) -> u64 {
        if self.is_initiator {
            self.spi_i
        } else {
            self.spi_r
        }
    }

    pub fn fragment_bytes(&self) -> Option<usize> {
        self.fragment_bytes
    }

    /// Begins an exchange; the window is one request, so that there is none outstanding.
    pub fn request(
        &mut self,
        exchange: ExchangeType,
        chain: &PayloadWriter,
        purpose: Purpose,
        due_ns: u64,
    ) -> Result<&[Vec<u8>], MessageError> {
        let datagrams = self.seal(exchange as u8, self.next_id, 0, chain)?;
        let message_id = self.next_id;
        self.next_id = self.next_id.wrapping_add(1);
        let made = Outstanding { exchange, message_id, datagrams, purpose, repeats: 0, due_ns };
        Ok(&self.outstanding.insert(made).datagrams)
    }

    /// Answers the request that `receive` returned last.
    pub fn respond(&mut self, exchange: u8, chain: &PayloadWriter) -> Result<&[Vec<u8>], MessageError> {
        self.is_answering = false;
        self.answered = self.seal(exchange, self.peer_next_id, FLAG_RESPONSE, chain)?;
        self.peer_next_id = self.peer_next_id.wrapping_add(1);
        Ok(&self.answered)
    }

    /// The response to the last request, for its repetition.
    pub fn last_response(&self) -> &[Vec<u8>] {
        &self.answered
    }

    /// Counts a repetition of the outstanding request; returns its bytes, or `None` after the last one.
    pub fn repeat(&mut self, now_ns: u64, retransmission: &Retransmission) -> Option<&[Vec<u8>]> {
        let outstanding = self.outstanding.as_mut()?;
        if outstanding.repeats == retransmission.tries {
            return None;
        }
        outstanding.repeats += 1;
        outstanding.due_ns = now_ns.saturating_add(retransmission.wait_ns(outstanding.repeats));
        Some(&outstanding.datagrams)
    }

    /// Opens a message of this SA in place.
    pub fn receive(&mut self, header: &Header, message: &mut [u8]) -> Result<Incoming, MessageError> {
        let is_response = header.is_response();
        if header.is_from_initiator() == self.is_initiator {
            return Err(MessageError::Malformed);
        }
        let is_expected = match &self.outstanding {
            Some(request) if is_response => {
                request.message_id == header.message_id && request.exchange as u8 == header.exchange
            }
            None if is_response => false,
            _ => header.message_id == self.peer_next_id,
        };
        let is_repeated = !is_response && header.message_id.wrapping_add(1) == self.peer_next_id;
        if !is_expected && !is_repeated {
            return Ok(Incoming::Nothing);
        }
        let unsealed = protected::open(&self.opening, message)?;
        if is_repeated {
            // RFC 7383, section 2.6.1: of a repeated message in fragments, only the first one is answered.
            let is_first = unsealed.fragment.is_none_or(|(number, _)| number == 1);
            return Ok(if is_first { Incoming::Repeated } else { Incoming::Nothing });
        }
        let (first_payload, chain) = match unsealed.fragment {
            None => (unsealed.first_payload, unsealed.content.to_vec()),
            Some(numbers) => {
                let reassembly = self.reassembly.get_or_insert_default();
                let of = (header.message_id, is_response);
                match reassembly.push(of, numbers, unsealed.first_payload, unsealed.content) {
                    None => return Ok(Incoming::Nothing),
                    Some(whole) => whole,
                }
            }
        };
        self.reassembly = None;
        if !is_response {
            return Ok(Incoming::Request { exchange: header.exchange, first_payload, chain });
        }
        let request = self.outstanding.take().ok_or(MessageError::Malformed)?;
        Ok(Incoming::Response { purpose: request.purpose, first_payload, chain })
    }

    fn seal(
        &mut self,
        exchange: u8,
        message_id: u32,
        response: u8,
        chain: &PayloadWriter,
    ) -> Result<Vec<Vec<u8>>, MessageError> {
        let flags = response | if self.is_initiator { FLAG_INITIATOR } else { 0 };
        let header = Header { spi_i: self.spi_i, spi_r: self.spi_r, next: 0, exchange, flags, message_id };
        protected::seal(&mut self.sealing, header, chain.first(), chain.bytes(), self.fragment_bytes)
    }
}
