//! The records of one connection, on either side: turns ciphertext in any pieces into plaintext, and plaintext into
//! ciphertext. Owns the bytes of an unfinished message, the plaintext that is queued until the handshake ends, and
//! the output. Uses rustls's unbuffered connections, which decrypt in place. Holds at most [`PENDING_LIMIT_BYTES`] of
//! the peer's unfinished messages.

use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncodeTlsData, EncryptError, ReadEarlyData, ReadTraffic, UnbufferedStatus,
    WriteTraffic,
};
use rustls::{ClientConfig, CommonState, HandshakeKind, ServerConfig};

use super::setup::{suite_name, version_of};
use super::{Handshake, TlsFailure};

/// The maximum of a peer's bytes that one connection holds, apart from decrypted ones: the largest handshake message
/// (64 KiB), in small records, and one more record.
pub const PENDING_LIMIT_BYTES: usize = 96 * 1024;

/// The capacity that an emptied buffer keeps; more is released, because most of thousands of connections are idle.
const KEPT_BYTES: usize = 2 * 1024;
/// Plaintext of one record (RFC 8446, 5.1).
const RECORD_BYTES: usize = 16 * 1024;
/// The type, version and length of a record.
const HEADER_BYTES: usize = 5;
/// The maximum that a record adds to its plaintext: header, explicit nonce, content type and tag.
const OVERHEAD_BYTES: usize = HEADER_BYTES + 8 + 1 + 16;
/// The exact addition in TLS 1.3: header, content type and tag (RFC 8446, 5.2).
const OVERHEAD_1_3_BYTES: usize = HEADER_BYTES + 1 + 16;
/// EndOfEarlyData in its record: a message that consists of its header of 4 bytes (RFC 8446, 4.5).
const END_OF_EARLY_DATA_BYTES: usize = 4 + OVERHEAD_1_3_BYTES;

/// The receiver of plaintext.
pub type Deliver<'d> = &'d mut dyn FnMut(&[u8]);

/// The differences between a client's and a server's connection.
pub trait Side {
    /// The state that rustls keeps for this side.
    type Data;
    /// The configuration that its connections share.
    type Config;

    /// The ALPN protocols of this side.
    fn protocols(config: &Self::Config) -> &[Vec<u8>];

    /// Processes received bytes.
    fn process<'c, 'i>(&'c mut self, incoming: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data>;

    /// The state that both sides have in common.
    fn common(&self) -> &CommonState;

    /// Appends as much sealed early data to `out` as the server allows; returns the number of plaintext bytes.
    fn write_early(&mut self, plaintext: &[u8], out: &mut Vec<u8>) -> usize;

    /// Delivers early data; returns how many bytes of the input it has used up.
    fn deliver_early(early: ReadEarlyData<'_, '_, Self::Data>, deliver: Deliver) -> Result<usize, rustls::Error>;
}

impl Side for UnbufferedClientConnection {
    type Data = ClientConnectionData;
    type Config = ClientConfig;

    fn protocols(config: &ClientConfig) -> &[Vec<u8>] {
        &config.alpn_protocols
    }

    fn write_early(&mut self, plaintext: &[u8], out: &mut Vec<u8>) -> usize {
        let from = out.len();
        if let Ok(ConnectionState::TransmitTlsData(mut transmit)) = self.process_tls_records(&mut []).state {
            if let Some(mut traffic) = transmit.may_encrypt_early_data() {
                out.resize(from + encrypted_bytes(plaintext.len()), 0);
                let written = traffic.encrypt(plaintext, &mut out[from..]).unwrap_or(0);
                out.truncate(from + written);
                return written - written.div_ceil(RECORD_BYTES + OVERHEAD_1_3_BYTES) * OVERHEAD_1_3_BYTES;
            }
        }
        0
    }

    fn process<'c, 'i>(&'c mut self, incoming: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(incoming)
    }

    fn common(&self) -> &CommonState {
        self
    }

    fn deliver_early(_: ReadEarlyData<'_, '_, Self::Data>, _: Deliver) -> Result<usize, rustls::Error> {
        Ok(0) // servers send none
    }
}

impl Side for UnbufferedServerConnection {
    type Data = ServerConnectionData;
    type Config = ServerConfig;

    fn protocols(config: &ServerConfig) -> &[Vec<u8>] {
        &config.alpn_protocols
    }

    fn write_early(&mut self, _: &[u8], _: &mut Vec<u8>) -> usize {
        0 // servers send none
    }

    fn process<'c, 'i>(&'c mut self, incoming: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(incoming)
    }

    fn common(&self) -> &CommonState {
        self
    }

    fn deliver_early(mut early: ReadEarlyData<'_, '_, Self::Data>, deliver: Deliver) -> Result<usize, rustls::Error> {
        let mut used = 0;
        while let Some(record) = early.next_record() {
            let record = record?;
            used += record.discard;
            deliver(record.payload);
        }
        Ok(used)
    }
}

/// The data that a client sent before the end of the handshake.
#[derive(Default)]
struct Early {
    /// Whether more may still be sent: nothing has been received.
    open: bool,
    /// Whether data was written while more could be sent.
    is_written: bool,
    /// All sent data, in case the server refuses it.
    sent: Vec<u8>,
    /// Whether the server accepted it; known at the end of the handshake.
    accepted: bool,
}

/// The records of one connection.
pub(super) struct Records<S> {
    connection: S,
    incoming: Vec<u8>,
    outgoing: Vec<u8>,
    queued: Vec<u8>,
    plaintext: Vec<u8>,
    plaintext_read: usize,
    early: Early,
    closing: bool,
    peer_closed: bool,
    failure: Option<TlsFailure>,
}

impl<S: Side> Records<S> {
    /// Begins a connection.
    fn new(connection: S, early: bool) -> Self {
        let mut records = Self {
            connection,
            incoming: Vec::new(),
            outgoing: Vec::new(),
            queued: Vec::new(),
            plaintext: Vec::new(),
            plaintext_read: 0,
            early: Early { open: early, ..Early::default() },
            closing: false,
            peer_closed: false,
            failure: None,
        };
        records.run(&mut [], &[], &mut |_| ());
        records
    }

    /// Takes ciphertext; its plaintext waits to be read.
    pub(super) fn receive(&mut self, ciphertext: &[u8]) -> Result<(), TlsFailure> {
        let mut plaintext = std::mem::take(&mut self.plaintext);
        let received = self.receive_with(ciphertext, &mut |piece| plaintext.extend_from_slice(piece));
        self.plaintext = plaintext;
        received
    }

    /// Takes ciphertext and delivers its plaintext.
    pub(super) fn receive_with(&mut self, ciphertext: &[u8], deliver: Deliver) -> Result<(), TlsFailure> {
        let mut incoming = std::mem::take(&mut self.incoming);
        incoming.extend_from_slice(ciphertext);
        let used = self.take_in(&mut incoming, deliver);
        if used > 0 {
            incoming.copy_within(used.., 0);
            incoming.truncate(incoming.len() - used);
        }
        self.keep(incoming)
    }

    /// Takes ciphertext and decrypts it in place; only records that begin in one piece and end in another are copied.
    pub(super) fn receive_in_place(&mut self, ciphertext: &mut [u8], deliver: Deliver) -> Result<(), TlsFailure> {
        let mut rest = ciphertext;
        while !self.incoming.is_empty() {
            if rest.is_empty() {
                return Ok(());
            }
            let missing =
                if self.is_handshaking() { rest.len() } else { missing_bytes(&self.incoming).min(rest.len()) };
            let (first, others) = rest.split_at_mut(missing);
            self.receive_with(first, deliver)?;
            rest = others;
        }
        let used = self.take_in(rest, deliver);
        let mut incoming = std::mem::take(&mut self.incoming);
        incoming.extend_from_slice(&rest[used..]);
        self.keep(incoming)
    }

    fn take_in(&mut self, incoming: &mut [u8], deliver: Deliver) -> usize {
        if self.failure.is_some() || self.peer_closed {
            return incoming.len();
        }
        self.early.open = false;
        let used = self.run(incoming, &[], deliver);
        if self.failure.is_some() || self.peer_closed {
            return incoming.len();
        }
        used
    }

    fn keep(&mut self, incoming: Vec<u8>) -> Result<(), TlsFailure> {
        if incoming.len() > PENDING_LIMIT_BYTES {
            self.failure = Some(TlsFailure::too_large(PENDING_LIMIT_BYTES));
        } else if !incoming.is_empty() || incoming.capacity() <= KEPT_BYTES {
            self.incoming = incoming;
        }
        self.failure.clone().map_or(Ok(()), Err)
    }

    /// Moves plaintext into `buffer`; returns 0 if there is none now.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> Result<usize, TlsFailure> {
        let waiting = &self.plaintext[self.plaintext_read..];
        if waiting.is_empty() {
            return self.failure.clone().map_or(Ok(0), Err);
        }
        let count = waiting.len().min(buffer.len());
        buffer[..count].copy_from_slice(&waiting[..count]);
        self.plaintext_read += count;
        if self.plaintext_read == self.plaintext.len() {
            self.plaintext_read = 0;
            self.plaintext.clear();
            self.plaintext.shrink_to(KEPT_BYTES);
        }
        Ok(count)
    }

    /// Encrypts plaintext, or queues it until the handshake ends.
    pub(super) fn write(&mut self, plaintext: &[u8]) {
        if self.failure.is_some() || self.closing {
            return;
        }
        if self.is_handshaking() {
            self.queued.extend_from_slice(plaintext);
            return;
        }
        let mut incoming = std::mem::take(&mut self.incoming);
        let used = self.run(&mut incoming, plaintext, &mut |_| ());
        incoming.drain(..used);
        self.incoming = incoming;
    }

    /// Like [`Records::write`], and appends the output to `out` at once.
    pub(super) fn write_to(&mut self, plaintext: &[u8], out: &mut Vec<u8>) {
        self.take_output(out);
        std::mem::swap(&mut self.outgoing, out);
        self.write(plaintext);
        std::mem::swap(&mut self.outgoing, out);
    }

    /// Appends the output to `out`.
    pub(super) fn take_output(&mut self, out: &mut Vec<u8>) {
        out.append(&mut self.outgoing);
        self.outgoing.shrink_to(KEPT_BYTES);
    }

    /// Whether data may be sent before the end of the handshake; never true for a server.
    pub(super) fn may_write_early(&self) -> bool {
        self.early.open
    }

    /// Sends as much of `plaintext` with the hello as the server allows, and queues the rest.
    pub(super) fn write_early(&mut self, plaintext: &[u8]) {
        let sent = self.connection.write_early(plaintext, &mut self.outgoing);
        self.early.is_written |= !plaintext.is_empty();
        self.early.sent.extend_from_slice(&plaintext[..sent]);
        self.queued.extend_from_slice(&plaintext[sent..]);
    }

    /// Whether data was written before the end of the handshake.
    pub(super) fn has_written_early(&self) -> bool {
        self.early.is_written
    }

    /// Whether the server accepted the early data.
    pub(super) fn early_accepted(&self) -> bool {
        self.early.accepted
    }

    pub(super) fn has_output(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// Announces the end of the data. During the handshake no announcement is possible.
    pub(super) fn close(&mut self) {
        if self.failure.is_some() || self.closing || self.is_handshaking() {
            self.closing = true;
            return;
        }
        self.closing = true;
        let mut incoming = std::mem::take(&mut self.incoming);
        let used = self.run(&mut incoming, &[], &mut |_| ());
        incoming.drain(..used);
        self.incoming = incoming;
    }

    /// Judges the end of the connection.
    pub(super) fn end(&mut self) -> Result<(), TlsFailure> {
        if !self.peer_closed && self.failure.is_none() {
            self.failure = Some(TlsFailure::ended(self.is_handshaking()));
        }
        self.failure.clone().map_or(Ok(()), Err)
    }

    /// The memory of the buffers, bytes.
    pub(super) fn held_bytes(&self) -> usize {
        [&self.incoming, &self.outgoing, &self.queued, &self.plaintext, &self.early.sent]
            .map(Vec::capacity)
            .iter()
            .sum()
    }

    pub(super) fn peer_closed(&self) -> bool {
        self.peer_closed
    }

    pub(super) fn is_handshaking(&self) -> bool {
        self.connection.common().is_handshaking()
    }

    /// The result of the handshake, with `protocols` as this side's ALPN list.
    pub(super) fn handshake(&self, protocols: &[Vec<u8>]) -> Option<Handshake> {
        let common = self.connection.common();
        if common.is_handshaking() {
            return None;
        }
        let suite = common.negotiated_cipher_suite()?;
        let chosen = common.alpn_protocol();
        Some(Handshake {
            resumed: common.handshake_kind()? == HandshakeKind::Resumed,
            version: version_of(suite),
            suite: suite_name(suite.suite()),
            alpn: chosen.and_then(|chosen| protocols.iter().position(|protocol| protocol == chosen)),
        })
    }

    /// Processes `incoming` until rustls wants more of it, and then encrypts `plaintext`. Returns how much of
    /// `incoming` it used up. An error is stored in `failure`, and its alert is appended to the output.
    fn run(&mut self, incoming: &mut [u8], plaintext: &[u8], deliver: Deliver) -> usize {
        let mut used = 0;
        loop {
            match self.step(&mut incoming[used..], plaintext, deliver) {
                Ok((more, goes_on)) => {
                    used += more;
                    if !goes_on {
                        return used;
                    }
                }
                Err(failure) => {
                    self.failure = Some(failure);
                    self.encode_alert();
                    return used;
                }
            }
        }
    }

    /// Does one step of [`Records::run`]; returns how much of `incoming` it used up, and whether there may be more to
    /// do.
    fn step(&mut self, incoming: &mut [u8], plaintext: &[u8], deliver: Deliver) -> Result<(usize, bool), TlsFailure> {
        let status = self.connection.process(incoming);
        let mut used = status.discard;
        let goes_on = match status.state.map_err(|error| TlsFailure::of(&error))? {
            ConnectionState::ReadTraffic(traffic) => {
                used += deliver_records(traffic, deliver).map_err(|error| TlsFailure::of(&error))?;
                true
            }
            ConnectionState::ReadEarlyData(early) => {
                used += S::deliver_early(early, deliver).map_err(|error| TlsFailure::of(&error))?;
                true
            }
            ConnectionState::EncodeTlsData(message) => {
                let size = encode(message, &mut self.outgoing)?;
                self.early.accepted |= !self.early.open && size == END_OF_EARLY_DATA_BYTES;
                true
            }
            // Early data is sent with the hello, and rustls accepts it only until the sending is reported to it.
            ConnectionState::TransmitTlsData(_) if self.early.open => false,
            ConnectionState::TransmitTlsData(transmit) => {
                transmit.done();
                true
            }
            ConnectionState::PeerClosed => {
                self.peer_closed = true;
                true
            }
            ConnectionState::WriteTraffic(traffic) => {
                let early = std::mem::take(&mut self.early.sent);
                let refused: &[u8] = if self.early.accepted { &[] } else { &early };
                let queued = std::mem::take(&mut self.queued);
                write_all(traffic, &[refused, &queued, plaintext], self.closing, &mut self.outgoing)?;
                false
            }
            _ => false,
        };
        Ok((used, goes_on))
    }

    /// Appends the alert about a failure, which rustls has ready; nothing else is processed after it.
    fn encode_alert(&mut self) {
        while self.connection.common().wants_write() {
            let Ok(ConnectionState::EncodeTlsData(message)) = self.connection.process(&mut []).state else { return };
            if encode(message, &mut self.outgoing).is_err() {
                return;
            }
        }
    }
}

impl Records<UnbufferedServerConnection> {
    /// Begins a server's connection; the client sends first.
    pub(super) fn server(connection: UnbufferedServerConnection) -> Self {
        Self::new(connection, false)
    }
}

impl Records<UnbufferedClientConnection> {
    /// Begins a client's connection; its hello must be sent at once. With `early`, data may be sent with it if the
    /// session allows this.
    pub(super) fn client(connection: UnbufferedClientConnection, early: bool) -> Self {
        let mut records = Self::new(connection, early);
        records.early.open = early
            && match records.connection.process(&mut []).state {
                Ok(ConnectionState::TransmitTlsData(mut transmit)) => transmit.may_encrypt_early_data().is_some(),
                _ => false,
            };
        records
    }
}

/// Returns how many bytes are missing from the unfinished record, or from its header; at least 1. While a handshake
/// message extends over several records, the held bytes do not begin with a header, and 1 only means that any number
/// of bytes will do.
fn missing_bytes(held: &[u8]) -> usize {
    match held {
        [_, _, _, high, low, payload @ ..] => {
            usize::from(u16::from_be_bytes([*high, *low])).saturating_sub(payload.len()).max(1)
        }
        header => HEADER_BYTES - header.len(),
    }
}

/// Delivers plaintext; returns how many bytes of the input it has used up.
fn deliver_records<D>(mut traffic: ReadTraffic<'_, '_, D>, deliver: Deliver) -> Result<usize, rustls::Error> {
    let mut used = 0;
    while let Some(record) = traffic.next_record() {
        let record = record?;
        used += record.discard;
        deliver(record.payload);
    }
    Ok(used)
}

/// Returns the length of records with this much plaintext.
fn encrypted_bytes(plaintext: usize) -> usize {
    plaintext + (plaintext / RECORD_BYTES + 1) * OVERHEAD_BYTES
}

/// Appends a message of the handshake, or an alert; returns its length.
fn encode<D>(mut message: EncodeTlsData<'_, D>, outgoing: &mut Vec<u8>) -> Result<usize, TlsFailure> {
    let from = outgoing.len();
    loop {
        match message.encode(&mut outgoing[from..]) {
            Ok(size) => {
                outgoing.truncate(from + size);
                return Ok(size);
            }
            Err(EncodeError::InsufficientSize(needed)) if from + needed.required_size > outgoing.len() => {
                outgoing.resize(from + needed.required_size, 0);
            }
            Err(error) => return Err(TlsFailure::internal(error)),
        }
    }
}

fn write_all<D>(
    mut traffic: WriteTraffic<'_, D>,
    pieces: &[&[u8]],
    closing: bool,
    outgoing: &mut Vec<u8>,
) -> Result<(), TlsFailure> {
    for piece in pieces.iter().filter(|piece| !piece.is_empty()) {
        append(outgoing, encrypted_bytes(piece.len()), |room| traffic.encrypt(piece, room))?;
    }
    if closing {
        append(outgoing, encrypted_bytes(2), |room| traffic.queue_close_notify(room))?;
    }
    Ok(())
}

/// Appends the output of `fill`, with `room` bytes for it at first.
fn append(
    outgoing: &mut Vec<u8>,
    mut room: usize,
    mut fill: impl FnMut(&mut [u8]) -> Result<usize, EncryptError>,
) -> Result<(), TlsFailure> {
    let from = outgoing.len();
    loop {
        outgoing.resize(from + room, 0);
        match fill(&mut outgoing[from..]) {
            Ok(size) => {
                outgoing.truncate(from + size);
                return Ok(());
            }
            Err(EncryptError::InsufficientSize(needed)) if needed.required_size > room => room = needed.required_size,
            Err(error) => {
                outgoing.truncate(from);
                return Err(TlsFailure::internal(error));
            }
        }
    }
}
