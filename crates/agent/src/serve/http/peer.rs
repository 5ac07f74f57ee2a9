//! The bytes of one connection: the machine that answers, with or without TLS. Owns the encrypted bytes that are not
//! sent yet, within a limit; stops encrypting while a peer reads nothing.

use leadline_http::{Responder, ServerConnection, Stream};
use leadline_tls::{ServerTls, TlsFailure, TlsServer};

/// While this much ciphertext waits, bytes, no more is made.
const CIPHER_LIMIT_BYTES: usize = 64 * 1024;
/// The memory of a TLS connection apart from its ciphertext, bytes: its state and a record that is being read (RFC
/// 8446, 5.2: 2^14 + 256 bytes).
const TLS_BYTES: usize = 20 * 1024;

/// A connection, whatever its socket.
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
    /// Returns a connection that begins with a handshake.
    ///
    /// # Errors
    ///
    /// If the configuration cannot serve.
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

    /// Takes bytes that were received by `now_ns`.
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

    /// Takes the end of the peer's data.
    pub fn end_of_input(&mut self, responder: &mut Responder) {
        self.machine.end_of_input();
        if let Some(tls) = &mut self.tls {
            // Clients that have their responses often close without close_notify; only a close in the handshake is a
            // failure.
            if tls.records.is_handshaking() {
                let ended = tls.records.end();
                tls.note(responder, ended);
            }
        }
    }

    /// Releases the responses that are due by `now_ns`.
    pub fn wake(&mut self, responder: &mut Responder, now_ns: u64) {
        self.machine.wake(responder, now_ns);
        if let Some(tls) = &mut self.tls {
            tls.seal(&mut self.machine, responder, now_ns);
        }
    }

    /// When the next response is due, ns.
    #[inline]
    pub fn wake_at(&self) -> Option<u64> {
        self.machine.wake_at()
    }

    /// The output: bytes, then the stream that follows them.
    #[inline]
    pub fn output(&self) -> (&[u8], Stream) {
        match &self.tls {
            None => self.machine.output(),
            Some(tls) => (&tls.cipher[tls.cipher_sent..], Stream::default()),
        }
    }

    /// Records bytes that the system accepted by `now_ns`.
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

    /// The memory of its buffers, bytes; the sender may hold the output a second time.
    #[inline]
    pub fn held_bytes(&self) -> usize {
        let tls_bytes = self.tls.as_ref().map_or(0, |tls| TLS_BYTES + 2 * tls.cipher.capacity());
        2 * self.machine.held_bytes() + tls_bytes
    }

    /// The memory that a connection needs at least.
    pub fn least_bytes(&self) -> usize {
        if self.tls.is_some() {
            TLS_BYTES
        } else {
            0
        }
    }

    /// Whether there is output.
    #[inline]
    pub fn has_output(&self) -> bool {
        match &self.tls {
            None => self.machine.has_output(),
            Some(tls) => tls.has_output(),
        }
    }

    /// Whether to read now.
    #[inline]
    pub fn wants_input(&self) -> bool {
        self.machine.wants_input() && self.tls.as_ref().is_none_or(|tls| !tls.has_output() && !tls.has_failed)
    }

    /// Whether nothing more may be read, even if there is no output.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.machine.is_full() || self.tls.as_ref().is_some_and(|tls| tls.cipher.len() >= CIPHER_LIMIT_BYTES)
    }

    /// Whether everything was sent and the connection is to be closed.
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

    /// Encrypts the machine's output while there is room.
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
