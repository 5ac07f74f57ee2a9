//! One key state: a reset, TLS inside of reliable packets, the exchange of key methods, and the messages after it. The same
//! at both ends. Owns no wrap and no session: those outlive a renegotiation.

use leadline_tls::TlsFailure;

use super::message::control::ControlMessage;
use super::message::key_method::KeyMethod;
use super::packet::{Acks, ControlBody, Opcode, SessionId};
use super::reliable::{Accepted, Reliable};
use super::side::Side;
use super::tls::TlsLine;

/// TLS bytes in one packet. With the longest wrap, four acknowledgements and the headers of IPv6 this stays within 1,280
/// bytes, which every path carries whole.
const CHUNK: usize = 1_100;

/// TLS bytes in the packet that carries a wrapped key too.
const CHUNK_BESIDE_KEY: usize = 600;

/// The longest message that is waited for: what OpenVPN itself can send in one, with room.
const LONGEST_MESSAGE: usize = 70_000;

/// What a step forward brought.
#[derive(Debug)]
pub enum Advance {
    /// The other end's reset came, and ours was acknowledged: TLS begins.
    Opened,
    /// TLS's handshake is done.
    Secured,
    /// The other end's half of the keys.
    Keys(Box<KeyMethod>),
    /// A message after the keys.
    Message(ControlMessage),
}

/// Why a negotiation cannot go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Broken {
    /// TLS failed, here or there.
    Tls(TlsFailure),
    /// What came inside of TLS is no message.
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
    /// The number in the packets' first bytes, 0 to 7.
    pub key_id: u8,
    /// When it began, ns.
    pub since_ns: u64,
    side: Side,
    stage: Stage,
    reliable: Reliable,
    tls: TlsLine,
    plain: Vec<u8>,
    chunk: Vec<u8>,
    heard: bool,
    peer_reset: bool,
    /// Whether TLS's first packet repeats the wrapped key.
    wrapped_key_again: bool,
    broken: Option<Broken>,
}

impl Negotiation {
    /// Begin with a reset of this kind.
    pub fn new(side: Side, key_id: u8, reset: Opcode, tls: TlsLine, now_ns: u64) -> Self {
        let mut reliable = Reliable::new();
        reliable.send(now_ns, reset, &[]);
        Self {
            key_id,
            since_ns: now_ns,
            side,
            stage: Stage::Opening,
            reliable,
            tls,
            plain: Vec::new(),
            chunk: Vec::new(),
            heard: false,
            peer_reset: false,
            wrapped_key_again: false,
            broken: None,
        }
    }

    /// Take a control packet's content.
    pub fn receive(&mut self, now_ns: u64, opcode: Opcode, body: &ControlBody<'_>) {
        self.heard = true;
        self.reliable.acknowledged(now_ns, &body.acks);
        let Some(id) = body.id else { return };
        if self.reliable.received(id, opcode, body.payload) != Accepted::New {
            return;
        }
        while let Some((opcode, payload)) = self.reliable.next_in_order() {
            if opcode.is_reset() {
                self.peer_reset = true;
                if self.side == Side::Client {
                    self.wrapped_key_again |= super::wrap::crypt_v2::wants_wrapped_key(&payload);
                }
            } else if self.broken.is_none() {
                if let Err(failure) = self.tls.receive(&payload, &mut self.plain) {
                    self.broken = Some(Broken::Tls(failure));
                }
            }
        }
    }

    /// The next thing that what was received has brought.
    ///
    /// # Errors
    /// Nothing more will come; an alert may still have to be sent.
    pub fn advance(&mut self) -> Result<Option<Advance>, Broken> {
        match self.stage {
            Stage::Opening if self.peer_reset && self.reset_acknowledged() => {
                self.stage = Stage::Handshaking;
                return Ok(Some(Advance::Opened));
            }
            Stage::Handshaking if !self.tls.is_handshaking() => {
                self.stage = Stage::Keys;
                return Ok(Some(Advance::Secured));
            }
            Stage::Keys => {
                let parsed = KeyMethod::parse(&self.plain, self.side.other())
                    .map_err(|error| Broken::Message(error.to_string()))?;
                if let Some((method, used)) = parsed {
                    self.take_plain(used);
                    self.stage = Stage::Open;
                    return Ok(Some(Advance::Keys(Box::new(method))));
                }
            }
            Stage::Open => {
                if let Some(end) = self.plain.iter().position(|byte| *byte == 0) {
                    let message = ControlMessage::parse(&self.plain[..end]);
                    self.take_plain(end + 1);
                    return Ok(Some(Advance::Message(message)));
                }
            }
            Stage::Opening | Stage::Handshaking => {}
        }
        if self.plain.len() > LONGEST_MESSAGE {
            return Err(Broken::Message(format!("a message goes on for more than {LONGEST_MESSAGE} bytes")));
        }
        // After all that was whole: what came before a failure counts.
        self.broken.clone().map_or(Ok(None), Err)
    }

    /// Queue plaintext inside of TLS.
    pub fn write(&mut self, plaintext: &[u8]) {
        self.tls.write(plaintext);
    }

    /// Queue a message.
    pub fn say(&mut self, message: &str) {
        let mut bytes = message.as_bytes().to_vec();
        bytes.push(0);
        self.tls.write(&bytes);
    }

    /// The next packet's opcode and content, if one is due.
    pub fn transmit(&mut self, now_ns: u64, peer: Option<SessionId>, body: &mut Vec<u8>) -> Option<Opcode> {
        while self.may_speak() && self.tls.has_output() && self.reliable.can_send() {
            let (opcode, most) = match std::mem::take(&mut self.wrapped_key_again) {
                true => (Opcode::ControlWkc, CHUNK_BESIDE_KEY),
                false => (Opcode::Control, CHUNK),
            };
            self.tls.take_output(most, &mut self.chunk);
            if self.chunk.is_empty() {
                break;
            }
            self.reliable.send(now_ns, opcode, &self.chunk);
        }
        if !self.tls.has_output() {
            self.chunk = Vec::new();
        }
        body.clear();
        // Before the other end's session is known nothing of it can be acknowledged.
        let acks = if peer.is_some() { self.reliable.acks_beside() } else { Acks::default() };
        if let Some(outgoing) = self.reliable.next_transmission(now_ns) {
            let opcode = outgoing.opcode;
            ControlBody { acks, peer, id: Some(outgoing.id), payload: outgoing.payload }.write(body);
            self.reliable.acks_sent(&acks);
            return Some(opcode);
        }
        let acks = self.reliable.take_acks();
        if acks.is_empty() || peer.is_none() {
            return None;
        }
        ControlBody { acks, peer, id: None, payload: &[] }.write(body);
        Some(Opcode::Ack)
    }

    /// When a packet has to be sent again, ns.
    pub fn deadline(&self) -> Option<u64> {
        self.reliable.deadline()
    }

    /// Packets that were sent again.
    pub fn retransmits(&self) -> u32 {
        self.reliable.retransmits()
    }

    /// Whether anything has come from the other end.
    pub fn heard(&self) -> bool {
        self.heard
    }

    /// Whether the other end's half of the keys has come.
    pub fn is_open(&self) -> bool {
        self.stage == Stage::Open
    }

    /// Whether TLS's handshake is done.
    pub fn is_secured(&self) -> bool {
        matches!(self.stage, Stage::Keys | Stage::Open)
    }

    /// Whether TLS has begun.
    pub fn is_opened(&self) -> bool {
        self.stage != Stage::Opening
    }

    /// The handshake's own TLS, for exporting keys.
    pub fn tls(&self) -> &TlsLine {
        &self.tls
    }

    /// Whether all that was queued has arrived.
    pub fn is_flushed(&self) -> bool {
        !self.tls.has_output() && self.reliable.all_acknowledged()
    }

    fn may_speak(&self) -> bool {
        self.stage != Stage::Opening
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
