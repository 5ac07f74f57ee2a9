//! One key state: a reset, TLS inside reliable packets, the exchange of key methods, and the messages after it; the
//! same for both ends. The wrapping and the session belong to the caller, because they survive a renegotiation.

use leadline_tls::TlsFailure;
use zeroize::Zeroize;

use super::message::control::{next_message, ControlMessage};
use super::message::key_method::KeyMethod;
use super::message::MessageError;
use super::packet::{early_negotiation_flags, Acks, ControlBody, Opcode, SessionId, RESEND_WRAPPED_KEY};
use super::reliable::{Accepted, Reliable, PIGGYBACKED_ACKS};
use super::role::Role;
use super::tls::{TlsLine, TlsMaker};
use super::wrap::LONGEST_WRAPPED_KEY;

/// Maximum TLS bytes in one packet, including a wrapped key. With the longest wrap, four acknowledgements and the
/// headers of IPv6 a packet has at most 1,280 bytes, which every path transports unfragmented.
const CHUNK: usize = 1_100;
const _: () = assert!(CHUNK > LONGEST_WRAPPED_KEY, "a wrapped key leaves room for TLS beside it");

/// A step of a negotiation.
#[derive(Debug)]
pub enum Advance {
    /// The other end's reset arrived, and ours was acknowledged: TLS begins.
    Opened,
    /// The TLS handshake is done.
    Secured,
    /// The other end's half of the keys arrived.
    Keys(Box<KeyMethod>),
    /// A message after the keys arrived.
    Message(ControlMessage),
}

/// Why a negotiation failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NegotiationError {
    /// TLS failed at this or the other end.
    Tls(TlsFailure),
    /// A message inside TLS is invalid.
    Message(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Opening,
    Handshaking,
    Keys,
    Open,
}

/// A key state.
pub struct Negotiation {
    /// The number in the first byte of packets, 0 to 7.
    pub key_id: u8,
    stage: Stage,
    reliable: Reliable,
    maker: TlsMaker,
    /// TLS, from the other end's reset until a retired key state has sent everything.
    tls: Option<TlsLine>,
    is_retired: bool,
    plain: Vec<u8>,
    chunk: Vec<u8>,
    has_received: bool,
    peer_reset: bool,
    has_tls_data: bool,
    /// Whether TLS's first packet repeats the wrapped key.
    wrapped_key_again: bool,
    broken: Option<NegotiationError>,
}

impl Negotiation {
    /// Begins with a reset of this kind. `first_timeout_ns` is the delay of the first retransmission.
    pub fn new(maker: TlsMaker, key_id: u8, reset: Opcode, first_timeout_ns: u64, now_ns: u64) -> Self {
        let mut reliable = Reliable::with_timeout(first_timeout_ns);
        let fits = reliable.send(now_ns, reset, &[]);
        debug_assert!(fits, "no other packet is in flight");
        Self {
            key_id,
            stage: Stage::Opening,
            reliable,
            maker,
            tls: None,
            is_retired: false,
            plain: Vec::new(),
            chunk: Vec::new(),
            has_received: false,
            peer_reset: false,
            has_tls_data: false,
            wrapped_key_again: false,
            broken: None,
        }
    }

    /// Handles the content of a control packet.
    pub fn receive(&mut self, now_ns: u64, body: &ControlBody<'_>) {
        self.has_received = true;
        self.reliable.acknowledged(now_ns, &body.acks);
        let Some(id) = body.id else { return };
        if self.is_retired {
            // Acknowledged, so that the other end stops retransmitting, but not stored, because it is not read any
            // more.
            let _ = self.reliable.received(id, &[]);
            while self.reliable.next_in_order().is_some() {}
            return;
        }
        if self.reliable.received(id, body.payload) != Accepted::New {
            return;
        }
        while let Some(payload) = self.reliable.next_in_order() {
            if !self.peer_reset {
                // The first packet of a key state is its reset.
                self.peer_reset = true;
                let flags = early_negotiation_flags(&payload).unwrap_or(0);
                self.wrapped_key_again = self.maker.role() == Role::Client && flags & RESEND_WRAPPED_KEY != 0;
            } else if self.broken.is_none() {
                self.has_tls_data = true;
                if let Err(failure) = self.take_tls(&payload) {
                    self.broken = Some(NegotiationError::Tls(failure));
                }
            }
        }
    }

    fn take_tls(&mut self, payload: &[u8]) -> Result<(), TlsFailure> {
        begun(&mut self.tls, &self.maker)?.receive(payload, &mut self.plain)
    }

    /// Retires the key state after another one has replaced it: pending data is still sent, received data is ignored.
    pub fn retire(&mut self) {
        self.is_retired = true;
        self.plain.zeroize();
        self.plain = Vec::new();
    }

    /// Returns the next step.
    ///
    /// # Errors
    /// The negotiation has failed; an alert may still have to be sent.
    pub fn advance(&mut self) -> Result<Option<Advance>, NegotiationError> {
        match self.stage {
            Stage::Opening if self.peer_reset && self.reset_acknowledged() => {
                begun(&mut self.tls, &self.maker).map_err(NegotiationError::Tls)?;
                self.stage = Stage::Handshaking;
                return Ok(Some(Advance::Opened));
            }
            Stage::Handshaking if self.tls.as_ref().is_some_and(|tls| !tls.is_handshaking()) => {
                self.stage = Stage::Keys;
                return Ok(Some(Advance::Secured));
            }
            Stage::Keys => {
                let parsed = KeyMethod::parse(&self.plain, self.maker.role().other()).map_err(malformed)?;
                if let Some((method, used)) = parsed {
                    self.take_plain(used);
                    self.stage = Stage::Open;
                    return Ok(Some(Advance::Keys(Box::new(method))));
                }
            }
            Stage::Open => {
                while let Some((bytes, used)) = next_message(&self.plain).map_err(malformed)? {
                    let message = ControlMessage::parse(bytes);
                    self.take_plain(used);
                    // Unprintable messages are ignored, as in OpenVPN.
                    if let Ok(message) = message {
                        return Ok(Some(Advance::Message(message)));
                    }
                }
            }
            Stage::Opening | Stage::Handshaking => {}
        }
        // An error is reported after all complete messages before it.
        self.broken.clone().map_or(Ok(None), Err)
    }

    /// Queues plaintext inside TLS, which must have begun.
    pub fn write(&mut self, plaintext: &[u8]) {
        if let Some(tls) = &mut self.tls {
            tls.write(plaintext);
        }
    }

    /// Queues a message.
    pub fn send_message(&mut self, message: &str) {
        let mut bytes = message.as_bytes().to_vec();
        bytes.push(0);
        self.write(&bytes);
    }

    /// Returns the opcode and content of the next packet, if one is due; `wrapped_key` is the length of this end's
    /// wrapped key, if any.
    pub fn transmit(
        &mut self,
        now_ns: u64,
        peer: Option<SessionId>,
        wrapped_key: Option<usize>,
        body: &mut Vec<u8>,
    ) -> Option<Opcode> {
        self.queue_tls(now_ns, wrapped_key);
        body.clear();
        if self.reliable.deadline().is_some_and(|due_ns| due_ns <= now_ns) {
            // Nothing can be acknowledged before the other end's session id is known.
            let acks = peer.map_or_else(Acks::default, |_| self.reliable.take_acks(PIGGYBACKED_ACKS));
            let outgoing = self.reliable.next_transmission(now_ns)?;
            let peer = peer.filter(|_| !acks.is_empty());
            ControlBody { acks, peer, id: Some(outgoing.id), payload: outgoing.payload }.write(body);
            return Some(outgoing.opcode);
        }
        if !self.reliable.acks_due() || peer.is_none() {
            return None;
        }
        let acks = self.reliable.take_acks(Acks::MAX);
        ControlBody { acks, peer, id: None, payload: &[] }.write(body);
        Some(Opcode::Ack)
    }

    /// When a packet has to be sent, ns: 0 if output is pending.
    pub fn deadline(&self) -> Option<u64> {
        if self.reliable.acks_due() || self.wants_to_send() {
            return Some(0);
        }
        self.reliable.deadline()
    }

    /// Number of retransmitted packets.
    pub fn retransmits(&self) -> u32 {
        self.reliable.retransmits()
    }

    /// Whether any packet of the other end has arrived.
    pub fn has_received(&self) -> bool {
        self.has_received
    }

    /// Whether the other end's half of the keys has arrived.
    pub fn is_open(&self) -> bool {
        self.stage == Stage::Open
    }

    /// Whether the TLS handshake is done.
    pub fn is_secured(&self) -> bool {
        matches!(self.stage, Stage::Keys | Stage::Open)
    }

    /// Whether any TLS bytes of the other end have arrived.
    pub fn has_tls_data(&self) -> bool {
        self.has_tls_data
    }

    /// Whether TLS has begun.
    pub fn is_opened(&self) -> bool {
        self.stage != Stage::Opening
    }

    /// Exports keying material of the handshake (RFC 5705) without a context.
    ///
    /// # Errors
    /// The handshake is not done.
    pub fn export<const N: usize>(&self, label: &[u8]) -> Result<[u8; N], TlsFailure> {
        match &self.tls {
            Some(tls) => tls.export(label),
            None => Err(TlsFailure::internal("TLS has not begun")),
        }
    }

    /// Puts TLS's output into packets, as many as may be in flight.
    fn queue_tls(&mut self, now_ns: u64, wrapped_key: Option<usize>) {
        while self.wants_to_send() {
            let Some(tls) = &mut self.tls else { break };
            let (opcode, most) = match wrapped_key.filter(|_| std::mem::take(&mut self.wrapped_key_again)) {
                Some(length) => (Opcode::ControlWkc, CHUNK - length),
                None => (Opcode::Control, CHUNK),
            };
            tls.take_output(most, &mut self.chunk);
            if self.chunk.is_empty() {
                break;
            }
            let fits = self.reliable.send(now_ns, opcode, &self.chunk);
            debug_assert!(fits, "the window has room");
        }
        if !self.has_output() {
            self.chunk = Vec::new();
            if self.is_retired && self.reliable.all_acknowledged() {
                self.tls = None;
            }
        }
    }

    fn wants_to_send(&self) -> bool {
        self.stage != Stage::Opening && self.has_output() && self.reliable.can_send()
    }

    fn has_output(&self) -> bool {
        self.tls.as_ref().is_some_and(TlsLine::has_output)
    }

    fn reset_acknowledged(&self) -> bool {
        self.reliable.all_acknowledged()
    }

    fn take_plain(&mut self, used: usize) {
        self.plain.drain(..used);
        if self.plain.is_empty() {
            // Thousands of idle clients keep no buffer.
            self.plain = Vec::new();
        }
    }
}

/// Creates TLS when the other end is known to be present, because its first message is expensive.
fn begun<'t>(tls: &'t mut Option<TlsLine>, maker: &TlsMaker) -> Result<&'t mut TlsLine, TlsFailure> {
    match tls {
        Some(line) => Ok(line),
        none => Ok(none.insert(maker.make()?)),
    }
}

#[allow(clippy::needless_pass_by_value)] // as `map_err` hands it over
fn malformed(error: MessageError) -> NegotiationError {
    NegotiationError::Message(error.to_string())
}
