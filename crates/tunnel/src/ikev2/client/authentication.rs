//! The second exchange (RFC 7296, section 1.2): each end proves its identity, and the answer carries addresses and the
//! first child SA, each of which may be refused alone. With EAP (section 2.16) it takes several rounds.

use rustls::pki_types::CertificateDer;

use super::child::ChildTerms;
use super::handshake::{Authentication, EapRounds};
use super::ike_sa::{Purpose, Task};
use super::output::{Cause, Event};
use super::{Client, Stage};
use crate::ikev2::auth::{
    build_signed_octets, compute_shared_key_proof, is_shared_key_proof, push_auth, read_auth, METHOD_SHARED_KEY,
    METHOD_SIGNATURE,
};
use crate::ikev2::config::{LocalAuth, RemoteAuth};
use crate::ikev2::configuration::{push_request, Assigned};
use crate::ikev2::eap::{Eap, Step};
use crate::ikev2::identification::Id;
use crate::ikev2::keys::ChildKeys;
use crate::ikev2::message::{find_payload, payload, read_payloads, ExchangeType, Payload, PayloadWriter};
use crate::ikev2::notify::{kind, Notify};
use crate::ikev2::proposal::{read_proposals, write_proposals};
use crate::ikev2::signature::{ENCODING_X509, MAX_CERTIFICATES};
use crate::ikev2::traffic_selector::{is_narrowed, read_selectors, write_selectors};

/// The largest number of rounds with EAP; MSCHAPv2 takes five.
const MAX_ROUNDS: u32 = 16;

impl Client {
    /// Sends the first request of the exchange.
    pub(super) fn begin_authentication(&mut self, now_ns: u64, state: Box<Authentication>) {
        match self.write_first_request(&state) {
            Ok(chain) => {
                self.stage = Stage::Authenticating(state);
                self.request(now_ns, 0, ExchangeType::Auth, &chain, Purpose::Authenticate);
            }
            Err(cause) => self.fail(cause, ""),
        }
    }

    fn write_first_request(&self, state: &Authentication) -> Result<PayloadWriter, Cause> {
        let (config, identity) = (&self.config, &self.identity);
        let mut chain = PayloadWriter::new();
        let id_body = identity.id.body();
        chain.push(payload::ID_I, &id_body);
        if let LocalAuth::Certificate(signer) = &identity.auth {
            for certificate in signer.chain() {
                chain.push(payload::CERT, &[&[ENCODING_X509], certificate.as_ref()].concat());
            }
        }
        if config.has_initial_contact {
            Notify::new(kind::INITIAL_CONTACT, &[]).push_to(&mut chain);
        }
        if let RemoteAuth::Certificate(verifier) = &config.remote_auth {
            chain.push(payload::CERTREQ, &[&[ENCODING_X509], verifier.authorities()].concat());
        }
        if let Some(id) = &config.remote_id {
            chain.push(payload::ID_R, &id.body());
        }
        let prf = self.sas[0].suite.prf;
        let octets = build_signed_octets(prf, &state.request, &state.nonce_r, &state.sk_pi, &id_body);
        match &identity.auth {
            LocalAuth::SharedKey => {
                let key = identity.shared_key.as_ref().ok_or(Cause::Internal)?;
                let proof = compute_shared_key_proof(prf, key.expose(), &octets);
                push_auth(&mut chain, METHOD_SHARED_KEY, proof.expose());
            }
            LocalAuth::Certificate(signer) => {
                let proof = signer.sign(&octets, &state.hashes).ok_or(Cause::NoCommonSignature)?;
                push_auth(&mut chain, METHOD_SIGNATURE, &proof);
            }
            // RFC 7296, section 2.16: "An initiator indicates a desire to use EAP by leaving out the AUTH payload".
            LocalAuth::Eap { .. } => {}
        }
        if config.requests_ipv4 || config.requests_ipv6 {
            push_request(&mut chain, config.requests_ipv4, config.requests_ipv6);
        }
        let offers = config.esp.iter().zip(1..);
        let proposals: Vec<_> =
            offers.map(|(offer, number)| offer.esp_proposal(number, state.child_spi, false)).collect();
        chain.push_with(payload::SA, |out| write_proposals(&proposals, out));
        chain.push_with(payload::TS_I, |out| write_selectors(&self.local_selectors(), out));
        chain.push_with(payload::TS_R, |out| write_selectors(&config.remote_ts, out));
        if config.has_mobike {
            Notify::new(kind::MOBIKE_SUPPORTED, &[]).push_to(&mut chain);
        }
        Ok(chain)
    }

    /// Handles an answer of the exchange, which is authentic.
    pub(super) fn handle_auth_answer(&mut self, now_ns: u64, first_payload: u8, chain: &[u8]) {
        let Stage::Authenticating(mut state) = std::mem::replace(&mut self.stage, Stage::Failed) else { return };
        let Ok(payloads) = read_payloads(first_payload, chain) else {
            return self.abort(now_ns, Cause::Malformed, "");
        };
        let (find_auth, find_eap) = (find_payload(&payloads, payload::AUTH), find_payload(&payloads, payload::EAP));
        let notifications = payloads.iter().filter(|payload| payload.kind == payload::NOTIFY);
        let notifications: Vec<Notify<'_>> = notifications.filter_map(|payload| Notify::parse(payload.body)).collect();
        if let Some(target) = notifications.iter().find(|notify| notify.kind == kind::REDIRECT) {
            let detail = format!("to {} bytes of an identity", target.data.len());
            return self.abort(now_ns, Cause::Redirected, &detail);
        }
        if find_auth.is_none() && find_eap.is_none() {
            let error = notifications.iter().find(|notify| notify.is_error());
            // The gateway has no IKE SA after such an error (RFC 7296, section 2.21.2): there is nothing to delete.
            let cause = error.map_or(Cause::Malformed, |error| Cause::of_notification(error.kind));
            return self.fail(cause, "");
        }
        let is_eap = matches!(self.identity.auth, LocalAuth::Eap { .. });
        match find_eap {
            Some(packet) if is_eap => match self.handle_eap(&mut state, &payloads, packet) {
                Ok(chain) => {
                    self.stage = Stage::Authenticating(state);
                    self.request(now_ns, 0, ExchangeType::Auth, &chain, Purpose::Authenticate);
                }
                Err(cause) => self.abort(now_ns, cause, ""),
            },
            Some(_) => self.abort(now_ns, Cause::UnexpectedAuthentication, "the gateway asks for EAP"),
            None => match self.check_last_proof(&state, &payloads, is_eap) {
                Ok(()) => self.complete_authentication(now_ns, &state, &payloads, &notifications),
                Err(cause) => self.abort(now_ns, cause, ""),
            },
        }
    }

    fn handle_eap(
        &mut self,
        state: &mut Authentication,
        payloads: &[Payload<'_>],
        packet: &[u8],
    ) -> Result<PayloadWriter, Cause> {
        state.rounds += 1;
        if state.rounds > MAX_ROUNDS {
            return Err(Cause::EapRefused);
        }
        if state.eap.is_none() {
            let LocalAuth::Eap { user, password } = &self.identity.auth else { return Err(Cause::Internal) };
            let eap = Eap::new(user, password);
            // RFC 7296, section 2.16: the gateway proves its identity first, by a signature.
            self.check_peer(state, payloads)?;
            let peer_id = find_payload(payloads, payload::ID_R).ok_or(Cause::Malformed)?.to_vec();
            state.eap = Some(Box::new(EapRounds { eap, peer_id, key: None }));
        }
        let rounds = state.eap.as_mut().ok_or(Cause::Internal)?;
        let step = rounds.eap.handle(packet, self.random.bytes()).map_err(|_| Cause::EapRefused)?;
        let mut chain = PayloadWriter::new();
        match step {
            Step::Respond(packet) => chain.push(payload::EAP, &packet),
            Step::Succeeded(key) => {
                let prf = self.sas[0].suite.prf;
                let id_body = self.identity.id.body();
                let octets = build_signed_octets(prf, &state.request, &state.nonce_r, &state.sk_pi, &id_body);
                let proof = compute_shared_key_proof(prf, key.expose(), &octets);
                push_auth(&mut chain, METHOD_SHARED_KEY, proof.expose());
                rounds.key = Some(key);
            }
        }
        Ok(chain)
    }

    fn check_last_proof(&self, state: &Authentication, payloads: &[Payload<'_>], is_eap: bool) -> Result<(), Cause> {
        if !is_eap {
            return self.check_peer(state, payloads);
        }
        let rounds = state.eap.as_ref().ok_or(Cause::UnexpectedAuthentication)?;
        let key = rounds.key.as_ref().ok_or(Cause::UnexpectedAuthentication)?;
        let body = find_payload(payloads, payload::AUTH).and_then(read_auth);
        let prf = self.sas[0].suite.prf;
        let octets = build_signed_octets(prf, &state.response, &state.nonce_i, &state.sk_pr, &rounds.peer_id);
        match body {
            Some((METHOD_SHARED_KEY, proof)) if is_shared_key_proof(prf, key.expose(), &octets, proof) => Ok(()),
            _ => Err(Cause::PeerProofWrong),
        }
    }

    /// Checks the gateway's identity and its proof.
    fn check_peer(&self, state: &Authentication, payloads: &[Payload<'_>]) -> Result<(), Cause> {
        let id_body = find_payload(payloads, payload::ID_R).ok_or(Cause::Malformed)?;
        let id = Id::from_body(id_body).ok_or(Cause::Malformed)?;
        if self.config.remote_id.as_ref().is_some_and(|expected| *expected != id) {
            return Err(Cause::PeerIdentity);
        }
        let (method, proof) = find_payload(payloads, payload::AUTH).and_then(read_auth).ok_or(Cause::Malformed)?;
        let prf = self.sas[0].suite.prf;
        let octets = build_signed_octets(prf, &state.response, &state.nonce_i, &state.sk_pr, id_body);
        match (&self.config.remote_auth, method) {
            (RemoteAuth::SharedKey, METHOD_SHARED_KEY) => {
                let key = self.identity.shared_key.as_ref().ok_or(Cause::Internal)?;
                let is_right = is_shared_key_proof(prf, key.expose(), &octets, proof);
                is_right.then_some(()).ok_or(Cause::PeerProofWrong)
            }
            (RemoteAuth::Certificate(verifier), METHOD_SIGNATURE) => {
                let certificates = payloads.iter().filter(|payload| payload.kind == payload::CERT);
                let chain: Vec<CertificateDer<'_>> = certificates
                    .filter_map(|payload| payload.body.split_first())
                    .filter(|(encoding, _)| **encoding == ENCODING_X509)
                    .map(|(_, der)| CertificateDer::from(der))
                    .take(MAX_CERTIFICATES)
                    .collect();
                let unix_s = self.config.unix_base_s + self.now_ns / 1_000_000_000;
                verifier.verify(&chain, &id, &octets, proof, unix_s).map_err(Cause::PeerCertificate)
            }
            _ => Err(Cause::UnexpectedAuthentication),
        }
    }

    fn complete_authentication(
        &mut self,
        now_ns: u64,
        state: &Authentication,
        payloads: &[Payload<'_>],
        notifications: &[Notify<'_>],
    ) {
        self.stage = Stage::Up;
        self.steps.ike_up_ns = Some(now_ns);
        let rekey_ns = self.lifetime_end(now_ns, self.config.ike_lifetime);
        self.sas[0].rekey_ns = rekey_ns;
        self.events.push_back(Event::IkeUp);
        let error = notifications.iter().find(|notify| notify.is_error());
        let refusal = error.map(|error| Cause::of_notification(error.kind));
        if self.config.requests_ipv4 || self.config.requests_ipv6 {
            let assigned = find_payload(payloads, payload::CP).and_then(Assigned::parse);
            match assigned.filter(|assigned| !assigned.addresses.is_empty()) {
                Some(assigned) => {
                    self.steps.ip_assigned_ns = Some(now_ns);
                    self.assigned = assigned.clone();
                    self.events.push_back(Event::AddressAssigned(assigned));
                }
                None => self.events.push_back(Event::AddressRefused(refusal.unwrap_or(Cause::NoAddress))),
            }
        }
        match self.read_first_child(state, payloads) {
            Ok(terms) => match self.install_child(now_ns, terms) {
                Ok(spi) => {
                    self.sender = Some(spi);
                    self.steps.child_up_ns = Some(now_ns);
                    self.events.push_back(Event::ChildUp);
                }
                Err(cause) => self.events.push_back(Event::ChildRefused(cause)),
            },
            Err(cause) => self.events.push_back(Event::ChildRefused(refusal.unwrap_or(cause))),
        }
    }

    fn read_first_child(&mut self, state: &Authentication, payloads: &[Payload<'_>]) -> Result<ChildTerms, Cause> {
        let body = |kind| find_payload(payloads, kind).ok_or(Cause::NoProposalChosen);
        let proposals = read_proposals(body(payload::SA)?).map_err(|_| Cause::Malformed)?;
        let (chosen, suite) = self.check_esp_choice(&proposals, state.child_spi, None)?;
        let selectors = |kind| read_selectors(body(kind)?).map_err(|_| Cause::Malformed);
        let (local_ts, remote_ts) = (selectors(payload::TS_I)?, selectors(payload::TS_R)?);
        if !is_narrowed(&self.local_selectors(), &local_ts) || !is_narrowed(&self.config.remote_ts, &remote_ts) {
            return Err(Cause::NotOffered);
        }
        let sa = &self.sas[0];
        let nonces = (&state.nonce_i[..], &state.nonce_r[..]);
        let keys = ChildKeys::derive(sa.suite.prf, &sa.sk_d, &suite, None, nonces);
        let spis = (state.child_spi, chosen.esp_spi().ok_or(Cause::Malformed)?);
        Ok(ChildTerms { suite, spis, keys, is_initiator: true, local_ts, remote_ts })
    }

    /// Ends the attempt after an IKE SA came into being at the gateway: a deletion is sent, so that it keeps nothing.
    pub(super) fn abort(&mut self, now_ns: u64, cause: Cause, detail: &str) {
        if let Some(sa) = self.sas.first_mut() {
            sa.tasks.push_back(Task::DeleteIke);
        }
        self.start_tasks(now_ns);
        self.fail(cause, detail);
    }
}
