//! One connection's bytes: the machine that answers, behind TLS or not. Owns what is encrypted and not yet sent, within a
//! bound; refuses to encrypt further while a peer takes nothing.

use leadline_http::{Responder, ServerConnection, Stream};
use leadline_tls::{ServerTls, TlsFailure, TlsServer};

/// Once so much ciphertext waits, bytes, no more is made.
const CIPHER_LIMIT_BYTES: usize = 64 * 1024;
/// What a TLS connection takes besides, bytes: its state and a record that is being read (RFC 8446, 5.2: 2^14 + 256 bytes).
const TLS_BYTES: usize = 20 * 1024;

/// A connection, whatever its sockets.
#[derive(Default)]
pub struct Peer {
    machine: ServerConnection,
    tls: Option<Box<Tls>>,
}

struct Tls {
    records: TlsServer,
    cipher: Vec<u8>,
    cipher_sent: usize,
    is_counted: bool,
    is_closed: bool,
    has_failed: bool,
}

impl Peer {
    /// A connection that begins with a handshake.
    ///
    /// # Errors
    /// Where the configuration cannot serve.
    pub fn over_tls(shared: &ServerTls) -> Result<Self, TlsFailure> {
        let tls = Tls {
            records: TlsServer::new(shared)?,
            cipher: Vec::new(),
            cipher_sent: 0,
            is_counted: false,
            is_closed: false,
            has_failed: false,
        };
        Ok(Self { machine: ServerConnection::default(), tls: Some(Box::new(tls)) })
    }

    /// Takes bytes that came by `now_ns`.
    #[inline]
    pub fn receive(&mut self, responder: &mut Responder, now_ns: u64, input: &[u8]) {
        match &mut self.tls {
            None => self.machine.receive(responder, now_ns, input),
            Some(tls) => {
                let machine = &mut self.machine;
                let taken = tls.records.receive_with(input, |plain| machine.receive(responder, now_ns, plain));
                tls.note(responder, taken);
                if tls.records.peer_closed() {
                    machine.end_of_input();
                }
                tls.seal(machine, responder, now_ns);
            }
        }
    }

    /// Takes the end of what the peer sends.
    pub fn end_of_input(&mut self, responder: &mut Responder) {
        self.machine.end_of_input();
        if let Some(tls) = &mut self.tls {
            // Clients that have their answers often leave without a word; only one who leaves in the handshake has failed.
            if tls.records.is_handshaking() {
                let ended = tls.records.end();
                tls.note(responder, ended);
            }
        }
    }

    /// Gives out what is due by `now_ns`.
    pub fn wake(&mut self, responder: &mut Responder, now_ns: u64) {
        self.machine.wake(responder, now_ns);
        if let Some(tls) = &mut self.tls {
            tls.seal(&mut self.machine, responder, now_ns);
        }
    }

    /// When to wake it, ns.
    #[inline]
    pub fn wake_at(&self) -> Option<u64> {
        self.machine.wake_at()
    }

    /// What to send: bytes, then what follows them.
    #[inline]
    pub fn output(&self) -> (&[u8], Stream) {
        match &self.tls {
            None => self.machine.output(),
            Some(tls) => (&tls.cipher[tls.cipher_sent..], Stream::default()),
        }
    }

    /// Takes note of bytes that the system accepted by `now_ns`.
    #[inline]
    pub fn sent(&mut self, responder: &mut Responder, now_ns: u64, bytes: usize) {
        match &mut self.tls {
            None => self.machine.sent(responder, now_ns, bytes),
            Some(tls) => {
                tls.sent(bytes);
                tls.seal(&mut self.machine, responder, now_ns);
            }
        }
    }

    /// What its buffers take, bytes; output may be held once more by what sends it.
    #[inline]
    pub fn held_bytes(&self) -> usize {
        let tls_bytes = self.tls.as_ref().map_or(0, |tls| TLS_BYTES + 2 * tls.cipher.capacity());
        2 * self.machine.held_bytes() + tls_bytes
    }

    /// What of it a connection cannot do without.
    pub fn least_bytes(&self) -> usize {
        if self.tls.is_some() {
            TLS_BYTES
        } else {
            0
        }
    }

    /// Whether there is something to send.
    #[inline]
    pub fn has_output(&self) -> bool {
        match &self.tls {
            None => self.machine.has_output(),
            Some(tls) => tls.has_output(),
        }
    }

    /// Whether reading makes sense now.
    #[inline]
    pub fn wants_input(&self) -> bool {
        self.machine.wants_input() && self.tls.as_ref().is_none_or(|tls| !tls.has_output() && !tls.has_failed)
    }

    /// Whether no more must be read, whether or not there is something to send.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.machine.is_full() || self.tls.as_ref().is_some_and(|tls| tls.cipher.len() >= CIPHER_LIMIT_BYTES)
    }

    /// Whether everything has been sent and the connection is to be closed.
    #[inline]
    pub fn is_finished(&self) -> bool {
        match &self.tls {
            None => self.machine.is_finished(),
            Some(tls) => (tls.has_failed || self.machine.is_finished()) && !tls.has_output(),
        }
    }
}

impl Tls {
    fn has_output(&self) -> bool {
        self.cipher_sent < self.cipher.len()
    }

    fn note(&mut self, responder: &Responder, outcome: Result<(), TlsFailure>) {
        if let (Err(failure), false) = (outcome, self.has_failed) {
            responder.tls_failed(failure.name);
            self.has_failed = true;
        }
        if let (false, Some(handshake)) = (self.is_counted, self.records.handshake()) {
            responder.handshake_completed(handshake.resumed);
            self.is_counted = true;
        }
    }

    /// Encrypts what the machine has to say, as far as there is room.
    fn seal(&mut self, machine: &mut ServerConnection, responder: &mut Responder, now_ns: u64) {
        while machine.has_output() && !self.has_failed && self.cipher.len() < CIPHER_LIMIT_BYTES {
            let (head, body) = machine.pieces();
            self.records.write_to(head, &mut self.cipher);
            self.records.write_to(body, &mut self.cipher);
            let bytes = head.len() + body.len();
            machine.sent(responder, now_ns, bytes);
        }
        if machine.is_finished() && !self.is_closed {
            self.records.close();
            self.is_closed = true;
        }
        self.records.take_output(&mut self.cipher);
    }

    fn sent(&mut self, bytes: usize) {
        self.cipher_sent += bytes;
        if !self.has_output() {
            self.cipher.clear();
            self.cipher.shrink_to(CIPHER_LIMIT_BYTES / 4);
            self.cipher_sent = 0;
        }
    }
}
