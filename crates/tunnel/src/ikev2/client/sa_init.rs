//! The first exchange (RFC 7296, section 1.2): proposals, key exchange, nonces; cookies, another group, NAT detection.
//! Its messages are not authenticated, so that no error in them ends the attempt at once (section 2.21.1).

use aws_lc_rs::digest::{digest, SHA1_FOR_LEGACY_USE_ONLY};
use std::net::{IpAddr, SocketAddr};

use super::handshake::{Authentication, SaInit};
use super::ike_sa::IkeSa;
use super::output::{Cause, Event};
use super::{Client, Stage};
use crate::ikev2::dh::{Group, KeyPair};
use crate::ikev2::keys::{derive_first_seed, IkeKeys};
use crate::ikev2::message::{
    find_payload, is_nonce, payload, push_key_exchange, read_key_exchange, read_payloads, ExchangeType, Header,
    Payload, PayloadWriter, FLAG_INITIATOR, HEADER_BYTES,
};
use crate::ikev2::notify::{kind, Notify};
use crate::ikev2::proposal::{read_proposals, write_proposals, IkeSuite, Proposal};
use crate::ikev2::signature::HASHES;

/// The largest number of answers that ask for a cookie or another group.
const MAX_RESTARTS: u32 = 8;
/// RFC 7296, section 2.6: a cookie has 1 to 64 bytes.
const MAX_COOKIE_BYTES: usize = 64;

/// What a right answer contains.
struct Answer<'m> {
    suite: IkeSuite,
    nonce: &'m [u8],
    public: &'m [u8],
}

/// Creates the state with its first request.
fn create(client: &mut Client, now_ns: u64) -> Result<SaInit, Cause> {
    let group = client.config.ike.iter().find_map(|offer| offer.groups.first()).ok_or(Cause::NoCommonGroup)?;
    let key_pair = KeyPair::generate(*group).map_err(|_| Cause::Internal)?;
    let (spi, nonce) = (client.random.ike_spi(), client.random.bytes());
    let nat_source = match client.config.forces_encapsulation {
        true => client.random.bytes(),
        false => hash_endpoint(spi, 0, client.endpoints.local),
    };
    let due_ns = now_ns.saturating_add(client.config.retransmission.wait_ns(0));
    let (cookie, request) = (Vec::new(), Vec::new());
    let mut state =
        SaInit { spi, nonce, key_pair, cookie, nat_source, request, repeats: 0, due_ns, restarts: 0, suspect: None };
    state.request = write_request(&state, client);
    Ok(state)
}

fn write_request(state: &SaInit, client: &Client) -> Vec<u8> {
    let mut chain = PayloadWriter::new();
    if !state.cookie.is_empty() {
        Notify::new(kind::COOKIE, &state.cookie).push_to(&mut chain);
    }
    let proposals = list_proposals(client, &[]);
    chain.push_with(payload::SA, |out| write_proposals(&proposals, out));
    push_key_exchange(&mut chain, state.key_pair.group().number(), state.key_pair.public());
    chain.push(payload::NONCE, &state.nonce);
    Notify::new(kind::NAT_DETECTION_SOURCE, &state.nat_source).push_to(&mut chain);
    let destination = hash_endpoint(state.spi, 0, client.endpoints.peer);
    Notify::new(kind::NAT_DETECTION_DESTINATION, &destination).push_to(&mut chain);
    if client.config.fragment_bytes.is_some() {
        Notify::new(kind::FRAGMENTATION_SUPPORTED, &[]).push_to(&mut chain);
    }
    Notify::new(kind::SIGNATURE_HASH_ALGORITHMS, &HASHES).push_to(&mut chain);
    let header = Header {
        spi_i: state.spi,
        spi_r: 0,
        next: 0,
        exchange: ExchangeType::SaInit as u8,
        flags: FLAG_INITIATOR,
        message_id: 0,
    };
    chain.into_message(header)
}

fn read_answer<'m>(state: &SaInit, client: &Client, payloads: &[Payload<'m>]) -> Result<Answer<'m>, Cause> {
    let body = |kind| find_payload(payloads, kind).ok_or(Cause::Malformed);
    let proposals = read_proposals(body(payload::SA)?).map_err(|_| Cause::Malformed)?;
    let [chosen] = proposals.as_slice() else { return Err(Cause::NotOffered) };
    let is_offered = list_proposals(client, &[]).iter().any(|one| one.number == chosen.number && one.contains(chosen));
    let suite = chosen.ike_suite().filter(|_| is_offered).ok_or(Cause::NotOffered)?;
    let nonce = body(payload::NONCE)?;
    let (group, public) = read_key_exchange(body(payload::KE)?).ok_or(Cause::Malformed)?;
    let own_group = state.key_pair.group();
    if !is_nonce(nonce) {
        return Err(Cause::Malformed);
    }
    if suite.group != own_group || group != own_group.number() {
        return Err(Cause::NotOffered);
    }
    Ok(Answer { suite, nonce, public })
}

/// Proposals of the IKE SA in the order of preference.
pub(super) fn list_proposals(client: &Client, spi: &[u8]) -> Vec<Proposal> {
    client.config.ike.iter().zip(1..).map(|(offer, number)| offer.ike_proposal(number, spi)).collect()
}

/// SHA1(SPIi | SPIr | address | port).
pub(super) fn hash_endpoint(spi_i: u64, spi_r: u64, endpoint: SocketAddr) -> [u8; 20] {
    let mut bytes = [spi_i.to_be_bytes(), spi_r.to_be_bytes()].concat();
    match endpoint.ip() {
        IpAddr::V4(address) => bytes.extend_from_slice(&address.octets()),
        IpAddr::V6(address) => bytes.extend_from_slice(&address.octets()),
    }
    bytes.extend_from_slice(&endpoint.port().to_be_bytes());
    *digest(&SHA1_FOR_LEGACY_USE_ONLY, &bytes).as_ref().first_chunk().expect("a digest of 20 bytes")
}

impl Client {
    /// Begins the attempt.
    pub(super) fn begin(&mut self, now_ns: u64) {
        self.steps.started_ns = Some(now_ns);
        match create(self, now_ns) {
            Ok(state) => {
                self.push_message(&state.request);
                self.stage = Stage::Initiating(Box::new(state));
            }
            Err(cause) => self.fail(cause, ""),
        }
    }

    /// Handles an answer to the first message, which anybody could have sent.
    pub(super) fn handle_sa_init(&mut self, now_ns: u64, header: &Header, message: &[u8]) {
        let Stage::Initiating(mut state) = std::mem::replace(&mut self.stage, Stage::Failed) else { return };
        let payloads = match read_payloads(header.next, &message[HEADER_BYTES..]) {
            Ok(payloads) => payloads,
            Err(_) => {
                self.counters.rejected += 1;
                self.stage = Stage::Initiating(state);
                return;
            }
        };
        let notifications = payloads.iter().filter(|payload| payload.kind == payload::NOTIFY);
        let notifications: Vec<Notify<'_>> = notifications.filter_map(|payload| Notify::parse(payload.body)).collect();
        let find = |kind| notifications.iter().find(|notify| notify.kind == kind);
        let restart = if let Some(cookie) = find(kind::COOKIE) {
            self.take_cookie(&mut state, cookie.data)
        } else if let Some(wanted) = find(kind::INVALID_KE_PAYLOAD) {
            self.take_group(&mut state, wanted.data)
        } else if find(kind::REDIRECT).is_some() {
            Err(Cause::Redirected)
        } else if let Some(error) = notifications.iter().find(|notify| notify.is_error()) {
            Err(Cause::of_notification(error.kind))
        } else {
            let answer = read_answer(&state, self, &payloads).and_then(|answer| {
                let next = self.derive(now_ns, &state, header, message, &answer, &notifications)?;
                Ok(Box::new(next))
            });
            match answer {
                Ok(next) => return self.begin_authentication(now_ns, next),
                Err(cause) => Err(cause),
            }
        };
        match restart {
            Ok(()) => {
                state.repeats = 0;
                state.due_ns = now_ns.saturating_add(self.config.retransmission.wait_ns(0));
                state.suspect = None;
                state.request = write_request(&state, self);
                self.push_message(&state.request);
            }
            Err(cause) => state.suspect(now_ns, cause),
        }
        self.stage = Stage::Initiating(state);
    }

    fn take_cookie(&mut self, state: &mut SaInit, cookie: &[u8]) -> Result<(), Cause> {
        if !(1..=MAX_COOKIE_BYTES).contains(&cookie.len()) {
            return Err(Cause::Malformed);
        }
        state.restarts += 1;
        if state.restarts > MAX_RESTARTS {
            return Err(Cause::TooManyRestarts);
        }
        self.counters.cookies += 1;
        state.cookie = cookie.to_vec();
        Ok(())
    }

    fn take_group(&mut self, state: &mut SaInit, data: &[u8]) -> Result<(), Cause> {
        let number = data.first_chunk().map(|bytes| u16::from_be_bytes(*bytes)).ok_or(Cause::Malformed)?;
        let is_offered = |group: &Group| self.config.ike.iter().any(|offer| offer.groups.contains(group));
        let group = Group::from_number(number).filter(is_offered).ok_or(Cause::NoCommonGroup)?;
        state.restarts += 1;
        if state.restarts > MAX_RESTARTS {
            return Err(Cause::TooManyRestarts);
        }
        if group != state.key_pair.group() {
            state.key_pair = KeyPair::generate(group).map_err(|_| Cause::Internal)?;
        }
        self.counters.group_changes += 1;
        Ok(())
    }

    fn derive(
        &mut self,
        now_ns: u64,
        state: &SaInit,
        header: &Header,
        message: &[u8],
        answer: &Answer<'_>,
        notifications: &[Notify<'_>],
    ) -> Result<Authentication, Cause> {
        if header.spi_r == 0 {
            return Err(Cause::Malformed);
        }
        let spis = (state.spi, header.spi_r);
        let shared = state.key_pair.agree(answer.public).map_err(|_| Cause::Malformed)?;
        let seed = derive_first_seed(answer.suite.prf, &state.nonce, answer.nonce, &shared);
        let mut keys = IkeKeys::derive(&answer.suite, &seed, (&state.nonce, answer.nonce), spis);
        let (sk_pi, sk_pr) = (std::mem::take(&mut keys.sk_pi), std::mem::take(&mut keys.sk_pr));
        let find = |kind| notifications.iter().find(|notify| notify.kind == kind);
        let fragment_bytes = self.config.fragment_bytes.filter(|_| find(kind::FRAGMENTATION_SUPPORTED).is_some());
        let mut sa = IkeSa::new(answer.suite, keys, spis, true, fragment_bytes).map_err(|_| Cause::Internal)?;
        sa.skip_first_id();
        self.detect_nat(spis, notifications);
        self.sas.insert(0, Box::new(sa));
        self.steps.sa_init_answered_ns = Some(now_ns);
        self.events.push_back(Event::SaInitAnswered);
        Ok(Authentication {
            request: state.request.clone(),
            response: message.to_vec(),
            nonce_i: state.nonce,
            nonce_r: answer.nonce.to_vec(),
            sk_pi,
            sk_pr,
            hashes: find(kind::SIGNATURE_HASH_ALGORITHMS).map_or(Vec::new(), |notify| notify.data.to_vec()),
            child_spi: self.random.esp_spi(),
            eap: None,
            rounds: 0,
        })
    }

    /// Decides about port and encapsulation (RFC 7296, section 2.23): a NAT is where an address differs from its hash.
    fn detect_nat(&mut self, (spi_i, spi_r): (u64, u64), notifications: &[Notify<'_>]) {
        let hashes = |kind| notifications.iter().filter(move |notify| notify.kind == kind).map(|notify| notify.data);
        let supports_nat = hashes(kind::NAT_DETECTION_SOURCE).next().is_some();
        let peer = hash_endpoint(spi_i, spi_r, self.endpoints.peer);
        let local = hash_endpoint(spi_i, spi_r, self.endpoints.local);
        let has_nat = self.config.forces_encapsulation
            || !hashes(kind::NAT_DETECTION_SOURCE).any(|hash| hash == peer)
            || !hashes(kind::NAT_DETECTION_DESTINATION).any(|hash| hash == local);
        self.encapsulates = supports_nat && has_nat;
        // RFC 4555, section 3.3: with MOBIKE, the port changes in any case.
        self.uses_4500 |= supports_nat && (has_nat || self.config.has_mobike);
    }

    /// Repeats the first message, or ends the attempt.
    pub(super) fn check_sa_init(&mut self, now_ns: u64) {
        let Stage::Initiating(state) = &mut self.stage else { return };
        if let Some((cause, end_ns)) = state.suspect {
            if now_ns >= end_ns {
                return self.fail(cause, "");
            }
        }
        if now_ns < state.due_ns {
            return;
        }
        if state.repeats == self.config.retransmission.tries {
            return self.fail(Cause::NoAnswer(ExchangeType::SaInit), "");
        }
        state.repeats += 1;
        state.due_ns = now_ns.saturating_add(self.config.retransmission.wait_ns(state.repeats));
        self.counters.retransmits += 1;
        let request = state.request.clone();
        self.push_message(&request);
    }
}
