//! A session: two session ids, the wrapping of its control packets, the current and the previous key state, and the
//! data channels of both. The same for both ends; `client` and `server` decide which messages are sent.

use super::data::{DataChannel, DataError, DataOptions};
use super::keys::{from_exported, from_prf, KeyMaterial, Randoms, EXPORT_LABEL};
use super::negotiation::Negotiation;
use super::packet::{ControlBody, Header, Opcode, SessionId};
use super::random;
use super::role::Role;
use super::tls::TlsMaker;
use super::wrap::{Wrap, WrapKeys, DYNAMIC_LABEL};
use leadline_tls::TlsFailure;
use zeroize::{Zeroize, ZeroizeOnDrop};

/// Validity of the previous keys, ns (`tran-window`).
pub const TRANSITION_NS: u64 = 3_600_000_000_000;

/// The key state of a control packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyStateMatch {
    /// The current key state, which may have advanced.
    Current,
    /// The previous key state.
    Previous,
    /// A key state that the other end has just begun; it is the current one now.
    Renewed,
    /// None: another session's packet, a duplicate, a forgery, or an invalid packet.
    Foreign,
}

/// Both ends' shares of the keys, for the derivation without an exporter; wiped when dropped.
#[derive(Zeroize, ZeroizeOnDrop)]
pub struct Shares {
    /// The client's secret.
    pub pre_master: [u8; 48],
    /// The client's random values.
    pub client: Randoms,
    /// The server's random values.
    pub server: Randoms,
}

/// The derivation of data keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Derivation {
    /// From TLS's exporter (RFC 5705).
    Exported,
    /// From the key methods, with the pseudo-random function of TLS 1.0.
    Prf,
}

/// A session's time parameters.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// Unix time at `now_ns` 0, s.
    pub unix_base_s: u64,
    /// Delay of a control packet's first retransmission, ns.
    pub first_timeout_ns: u64,
}

/// A session.
pub struct Session {
    role: Role,
    own: SessionId,
    peer: Option<SessionId>,
    wrap: Wrap,
    /// The wrap of all key states after the first, if it was negotiated.
    dynamic: Option<Wrap>,
    times: Times,
    tls: TlsMaker,
    current: Negotiation,
    previous: Option<Negotiation>,
    /// Data channels, the newest last; at most two.
    data: Vec<Keyed>,
    body: Vec<u8>,
    /// Retransmissions of all key states.
    retransmits: u32,
}

struct Keyed {
    key_id: u8,
    /// When the key came into use, ns; not before that of an older key.
    since_ns: u64,
    channel: DataChannel,
}

impl Session {
    /// Begins with a reset.
    pub fn new(tls: TlsMaker, wrap: &WrapKeys, reset: Opcode, times: Times, now_ns: u64) -> Self {
        let current = Negotiation::new(tls.clone(), 0, reset, times.first_timeout_ns, now_ns);
        Self {
            role: tls.role(),
            own: SessionId(random::bytes()),
            peer: None,
            wrap: Wrap::new(wrap.clone()),
            dynamic: None,
            times,
            tls,
            current,
            previous: None,
            data: Vec::new(),
            body: Vec::new(),
            retransmits: 0,
        }
    }

    /// The current key state.
    pub fn current(&mut self) -> &mut Negotiation {
        &mut self.current
    }

    /// The current key state, read-only.
    pub fn negotiation(&self) -> &Negotiation {
        &self.current
    }

    /// Handles a control packet.
    pub fn receive(&mut self, now_ns: u64, packet: &mut [u8]) -> KeyStateMatch {
        self.receive_checked(now_ns, packet).unwrap_or(KeyStateMatch::Foreign)
    }

    fn receive_checked(&mut self, now_ns: u64, packet: &mut [u8]) -> Option<KeyStateMatch> {
        let header = Header::parse(*packet.first()?)?;
        let wrap = match &mut self.dynamic {
            Some(dynamic) if header.key_id > 0 => dynamic,
            _ => &mut self.wrap,
        };
        let opened = wrap.open(packet).ok()?;
        let body = ControlBody::parse(header.opcode, opened.body).ok()?;
        if body.peer.is_some_and(|session| session != self.own) {
            return None;
        }
        match self.peer {
            Some(peer) if peer != opened.session => return None,
            Some(_) => {}
            // Only the response to our reset identifies the other end.
            None if is_reset(header.opcode) => self.peer = Some(opened.session),
            None => return None,
        }
        if header.key_id == self.current.key_id {
            self.current.receive(now_ns, &body);
            return Some(KeyStateMatch::Current);
        }
        if let Some(previous) = self.previous.as_mut().filter(|previous| previous.key_id == header.key_id) {
            previous.receive(now_ns, &body);
            return Some(KeyStateMatch::Previous);
        }
        let next = next_key_id(self.current.key_id);
        if header.opcode == Opcode::SoftReset && header.key_id == next && self.current.is_open() {
            self.begin_next(next, now_ns);
            self.current.receive(now_ns, &body);
            return Some(KeyStateMatch::Renewed);
        }
        None
    }

    /// Begins a new key state if the current one is done; returns whether it did.
    pub fn renegotiate(&mut self, now_ns: u64) -> bool {
        let is_open = self.current.is_open();
        if is_open {
            self.begin_next(next_key_id(self.current.key_id), now_ns);
        }
        is_open
    }

    fn begin_next(&mut self, key_id: u8, now_ns: u64) {
        let timeout_ns = self.times.first_timeout_ns;
        let next = Negotiation::new(self.tls.clone(), key_id, Opcode::SoftReset, timeout_ns, now_ns);
        let mut previous = std::mem::replace(&mut self.current, next);
        previous.retire();
        self.previous = Some(previous);
    }

    /// Takes over the data channels of the session that this one replaces.
    pub fn take_over(&mut self, before: Self) {
        self.data = before.data;
        self.retransmits += before.retransmits;
    }

    /// Appends the next control packet that is due, if any.
    pub fn transmit(&mut self, now_ns: u64, out: &mut Vec<u8>) -> bool {
        let wrapped_key = self.wrap.keys().wrapped_key_bytes();
        let states = [self.previous.as_mut(), Some(&mut self.current)];
        for state in states.into_iter().flatten() {
            let before = state.retransmits();
            let Some(opcode) = state.transmit(now_ns, self.peer, wrapped_key, &mut self.body) else { continue };
            self.retransmits += state.retransmits() - before;
            let header = Header { opcode, key_id: state.key_id };
            let wrap = match &mut self.dynamic {
                Some(dynamic) if state.key_id > 0 => dynamic,
                _ => &mut self.wrap,
            };
            let unix_s = self.times.unix_base_s + now_ns / 1_000_000_000;
            // The wire format has 32 bits for seconds.
            wrap.seal(header, self.own, &self.body, unix_s as u32, out);
            return true;
        }
        self.body = Vec::new();
        false
    }

    /// When a packet has to be sent, ns: 0 if output is pending.
    pub fn deadline(&self) -> Option<u64> {
        let previous = self.previous.as_ref().and_then(Negotiation::deadline);
        [self.current.deadline(), previous].into_iter().flatten().min()
    }

    /// Wraps the control packets of all later key states with keys from this one's TLS.
    ///
    /// # Errors
    /// The handshake is not done.
    pub fn renew_wrap(&mut self) -> Result<(), TlsFailure> {
        let exported = self.current.export::<256>(DYNAMIC_LABEL)?;
        self.dynamic = Some(Wrap::dynamic(self.wrap.keys(), exported, self.role));
        Ok(())
    }

    /// Starts to use the current key state's data keys.
    ///
    /// # Errors
    /// The handshake is not done, or the options do not fit together.
    pub fn install(
        &mut self,
        now_ns: u64,
        derivation: Derivation,
        shares: &Shares,
        options: &DataOptions,
    ) -> Result<(), DataError> {
        let keys = self.derive(derivation, shares).map_err(|_| DataError::Library)?;
        let key_id = self.current.key_id;
        let channel = DataChannel::new(&keys, self.role, key_id, options)?;
        if self.data.len() > 1 {
            self.data.remove(0);
        }
        self.data.push(Keyed { key_id, since_ns: now_ns, channel });
        Ok(())
    }

    fn derive(&self, derivation: Derivation, shares: &Shares) -> Result<KeyMaterial, TlsFailure> {
        match (derivation, self.peer) {
            (Derivation::Exported, _) => self.current.export::<256>(EXPORT_LABEL).map(from_exported),
            (Derivation::Prf, Some(peer)) => {
                let (client, server) = match self.role {
                    Role::Client => (self.own, peer),
                    Role::Server => (peer, self.own),
                };
                Ok(from_prf(&shares.pre_master, &shares.client, &shares.server, &client.0, &server.0))
            }
            (Derivation::Prf, None) => Err(TlsFailure::internal("the other end's session is not known")),
        }
    }

    /// The data channel for sending.
    pub fn sender(&mut self) -> Option<&mut DataChannel> {
        self.data.last_mut().map(|keyed| &mut keyed.channel)
    }

    /// When the newest data keys were installed, ns.
    pub fn keys_since_ns(&self) -> Option<u64> {
        self.data.last().map(|keyed| keyed.since_ns)
    }

    /// The data channel of a packet's key state.
    pub fn receiver(&mut self, now_ns: u64, key_id: u8) -> Option<&mut DataChannel> {
        let newest_since_ns = self.keys_since_ns()?;
        let is_newest = |keyed: &Keyed| keyed.since_ns == newest_since_ns;
        self.data
            .iter_mut()
            .rev()
            .find(|keyed| keyed.key_id == key_id)
            .filter(|keyed| is_newest(keyed) || now_ns < newest_since_ns.saturating_add(TRANSITION_NS))
            .map(|keyed| &mut keyed.channel)
    }

    /// The id of the newest data keys.
    pub fn newest_key_id(&self) -> Option<u8> {
        self.data.last().map(|keyed| keyed.key_id)
    }

    /// Drops the previous keys after their validity.
    pub fn expire(&mut self, now_ns: u64) {
        let is_over = self.keys_since_ns().is_some_and(|since_ns| now_ns >= since_ns.saturating_add(TRANSITION_NS));
        if is_over && self.data.len() > 1 {
            self.data.remove(0);
            self.previous = None;
        }
    }

    /// Number of retransmitted control packets.
    pub fn retransmits(&self) -> u32 {
        self.retransmits
    }
}

/// The next key id: 0, 1 ... 7, 1 ...; 0 is a session's first.
fn next_key_id(key_id: u8) -> u8 {
    key_id % 7 + 1
}

fn is_reset(opcode: Opcode) -> bool {
    matches!(opcode, Opcode::HardResetClientV2 | Opcode::HardResetClientV3 | Opcode::HardResetServerV2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_wiped<T: ZeroizeOnDrop>(_: &T) -> bool {
        true
    }

    #[test]
    fn key_shares_are_zeroized() {
        let shares = || Shares { pre_master: [7; 48], client: Randoms::default(), server: Randoms::default() };
        let mut wiped = shares();
        wiped.zeroize();
        assert_eq!(wiped.pre_master, [0; 48]);
        assert!(is_wiped(&shares()));
    }
}
