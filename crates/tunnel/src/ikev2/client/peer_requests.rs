//! The peer's own requests (RFC 7296, sections 1.3, 1.4, 2.8, 2.25): probes and MOBIKE's, deletions, new keys. Each is
//! answered; what collides with this end's own exchange is answered as section 2.25 says.

use super::child::ChildTerms;
use super::ike_sa::{ChildCollision, IkeCollision, IkeSa, Purpose, Task, NONCE_BYTES};
use super::output::{Cause, Event};
use super::{Client, Outgoing, Stage, MAX_CHILDREN, MAX_SAS};
use crate::ikev2::dh::{Group, KeyPair};
use crate::ikev2::keys::{derive_rekey_seed, ChildKeys, IkeKeys};
use crate::ikev2::message::{
    find_payload, is_nonce, payload, push_key_exchange, read_key_exchange, read_payloads, ExchangeType, MessageError,
    Payload, PayloadWriter,
};
use crate::ikev2::notify::{kind, Delete, Notify};
use crate::ikev2::proposal::{read_proposals, write_proposals, Proposal, PROTOCOL_ESP, PROTOCOL_IKE};
use crate::ikev2::secret_bytes::SecretBytes;
use crate::ikev2::traffic_selector::{is_narrowed, read_selectors, write_selectors, TrafficSelector};

/// A refusal: the notification, its data, and the SPI of ESP that it concerns.
struct Refusal(u16, Vec<u8>, Option<u32>);

impl Refusal {
    fn new(kind: u16) -> Self {
        Self(kind, Vec::new(), None)
    }
}

impl Client {
    /// Answers a request of the IKE SA at `index`.
    pub(super) fn answer_request(&mut self, now_ns: u64, index: usize, exchange: u8, first: u8, chain: &[u8]) {
        self.counters.peer_requests += 1;
        let mut answer = PayloadWriter::new();
        let mut is_deleted = false;
        match read_payloads(first, chain) {
            Err(MessageError::Critical(kind)) => {
                Notify::new(kind::UNSUPPORTED_CRITICAL_PAYLOAD, &[kind]).push_to(&mut answer);
            }
            Err(_) => Notify::new(kind::INVALID_SYNTAX, &[]).push_to(&mut answer),
            Ok(payloads) if exchange == ExchangeType::Informational as u8 => {
                is_deleted = self.answer_informational(now_ns, &payloads, &mut answer);
            }
            Ok(payloads) if exchange == ExchangeType::CreateChildSa as u8 => {
                let made = self.answer_create_child(now_ns, index, &payloads, &mut answer);
                if let Err(Refusal(kind, data, spi)) = made {
                    let spi = spi.map(u32::to_be_bytes);
                    let protocol = spi.map_or(0, |_| PROTOCOL_ESP);
                    let spi = spi.as_ref().map_or(&[][..], |spi| spi);
                    answer = PayloadWriter::new();
                    Notify { protocol, spi, kind, data: &data }.push_to(&mut answer);
                }
            }
            Ok(_) => Notify::new(kind::INVALID_SYNTAX, &[]).push_to(&mut answer),
        }
        // A new IKE SA may stand before the one that the request came by.
        let index = self.sas.iter().position(|sa| sa.is_answering).unwrap_or(index);
        match self.sas[index].respond(exchange, &answer) {
            Ok(messages) => self.outgoing.extend(messages.iter().cloned().map(Outgoing::Message)),
            Err(_) => return self.fail(Cause::Internal, "a message cannot be sealed"),
        }
        if is_deleted {
            self.on_deleted(now_ns, index);
        }
    }

    /// The peer has deleted the IKE SA at `index`.
    fn on_deleted(&mut self, now_ns: u64, index: usize) {
        let end_ns = now_ns.saturating_add(self.redundant_ns());
        let sa = &mut self.sas[index];
        let purpose = sa.outstanding.take().map(|outstanding| outstanding.purpose);
        (sa.rekey_ns, sa.end_ns) = (None, Some(end_ns));
        match purpose {
            // The peer has replaced it without this end's request, and deletes the replaced one.
            Some(Purpose::RekeyIke(pending)) if pending.collision.is_some() => {
                let Some(collision) = pending.collision else { return };
                self.adopt(now_ns, index, collision.sa, true);
            }
            _ if index == 0 => self.fail(Cause::DeletedByPeer, ""),
            _ => sa.tasks.clear(),
        }
    }

    /// Returns whether the peer deletes the IKE SA.
    fn answer_informational(&mut self, now_ns: u64, payloads: &[Payload<'_>], answer: &mut PayloadWriter) -> bool {
        let mut is_deleted = false;
        let mut deleted = Vec::new();
        for payload in payloads {
            match payload.kind {
                payload::DELETE => match Delete::parse(payload.body) {
                    Some(Delete::Ike) => is_deleted = true,
                    Some(Delete::Esp(spis)) => self.delete_children(now_ns, &spis, &mut deleted),
                    Some(Delete::Other) | None => {}
                },
                // RFC 4555, section 3.7: the peer checks that the path works both ways.
                payload::NOTIFY => match Notify::parse(payload.body) {
                    Some(notify) if notify.kind == kind::COOKIE2 => {
                        Notify::new(kind::COOKIE2, &notify.data[..notify.data.len().min(64)]).push_to(answer);
                    }
                    _ => {}
                },
                _ => {}
            }
        }
        if !deleted.is_empty() {
            Delete::Esp(deleted).push_to(answer);
        }
        is_deleted
    }

    /// Deletes the child SAs that the peer receives by `spis`; appends their other halves.
    fn delete_children(&mut self, now_ns: u64, spis: &[u32], deleted: &mut Vec<u32>) {
        for spi in spis {
            let found = self.children.iter().find(|child| child.outbound.spi() == *spi && child.end_ns.is_none());
            let Some(child) = found else { continue };
            let own = child.inbound.spi();
            // RFC 7296, section 1.4.1: an SA whose deletion this end has asked for is not named again.
            if !child.is_deleting {
                deleted.push(own);
            }
            self.retire_child(now_ns, own);
        }
    }

    fn answer_create_child(
        &mut self,
        now_ns: u64,
        index: usize,
        payloads: &[Payload<'_>],
        answer: &mut PayloadWriter,
    ) -> Result<(), Refusal> {
        let body = find_payload(payloads, payload::SA).ok_or(Refusal::new(kind::INVALID_SYNTAX))?;
        let proposals = read_proposals(body).map_err(|_| Refusal::new(kind::INVALID_SYNTAX))?;
        let nonce = find_payload(payloads, payload::NONCE).filter(|nonce| is_nonce(nonce));
        let nonce = nonce.ok_or(Refusal::new(kind::INVALID_SYNTAX))?;
        if index != 0 || !matches!(self.stage, Stage::Up) {
            return Err(Refusal::new(kind::TEMPORARY_FAILURE));
        }
        if proposals.iter().any(|proposal| proposal.protocol == PROTOCOL_IKE) {
            return self.answer_ike_rekey(now_ns, &proposals, nonce, payloads, answer);
        }
        let notifications = payloads.iter().filter(|payload| payload.kind == payload::NOTIFY);
        let mut notifications = notifications.filter_map(|payload| Notify::parse(payload.body));
        match notifications.find(|notify| notify.kind == kind::REKEY_SA) {
            Some(rekey) => {
                let spi = rekey.spi.try_into().map(u32::from_be_bytes);
                let spi = spi.map_err(|_| Refusal::new(kind::INVALID_SYNTAX))?;
                self.answer_child_rekey(now_ns, spi, &proposals, nonce, payloads, answer)
            }
            None => Err(Refusal::new(kind::NO_ADDITIONAL_SAS)),
        }
    }

    fn answer_child_rekey(
        &mut self,
        now_ns: u64,
        peer_spi: u32,
        proposals: &[Proposal],
        nonce: &[u8],
        payloads: &[Payload<'_>],
        answer: &mut PayloadWriter,
    ) -> Result<(), Refusal> {
        let found = self.children.iter().find(|child| child.outbound.spi() == peer_spi && child.end_ns.is_none());
        let Some(child) = found else { return Err(Refusal(kind::CHILD_SA_NOT_FOUND, Vec::new(), Some(peer_spi))) };
        // RFC 7296, section 2.25.1: "If a peer receives a request to rekey a Child SA that it is currently trying to
        // close, it SHOULD reply with TEMPORARY_FAILURE"; the same while it rekeys the IKE SA (2.25.2).
        let is_rekeying_ike = matches!(
            self.sas[0].outstanding.as_ref().map(|outstanding| &outstanding.purpose),
            Some(Purpose::RekeyIke(_) | Purpose::DeleteIke)
        );
        let is_closing = child.is_deleting || self.sas[0].tasks.contains(&Task::DeleteChild(child.inbound.spi()));
        if is_closing || is_rekeying_ike {
            return Err(Refusal::new(kind::TEMPORARY_FAILURE));
        }
        if self.children.len() >= MAX_CHILDREN {
            return Err(Refusal::new(kind::NO_ADDITIONAL_SAS));
        }
        let (replaces, current_ts) = (child.inbound.spi(), (child.local_ts.to_vec(), child.remote_ts.to_vec()));
        let spi = self.random.esp_spi();
        let chosen = self.choose_esp(proposals, spi).ok_or(Refusal::new(kind::NO_PROPOSAL_CHOSEN))?;
        let suite = chosen.esp_suite().ok_or(Refusal::new(kind::NO_PROPOSAL_CHOSEN))?;
        let exchange = suite.group.map(|group| agree(group, payloads)).transpose()?;
        let selectors = |kind| {
            let body = find_payload(payloads, kind).ok_or(Refusal::new(kind::INVALID_SYNTAX))?;
            read_selectors(body).map_err(|_| Refusal::new(kind::INVALID_SYNTAX))
        };
        let remote_ts = narrow(&current_ts.1, selectors(payload::TS_I)?)?;
        let local_ts = narrow(&current_ts.0, selectors(payload::TS_R)?)?;
        let own_nonce: [u8; NONCE_BYTES] = self.random.bytes();
        let sa = &self.sas[0];
        let shared = exchange.as_ref().map(|(_, shared)| shared);
        let keys = ChildKeys::derive(sa.suite.prf, &sa.sk_d, &suite, shared, (nonce, &own_nonce));
        let peers = proposals.iter().find(|proposal| proposal.number == chosen.number);
        let new_peer_spi = peers.and_then(Proposal::esp_spi).ok_or(Refusal::new(kind::INVALID_SYNTAX))?;
        push_choice(&chosen, &own_nonce, exchange.as_ref().map(|(key_pair, _)| key_pair), answer);
        answer.push_with(payload::TS_I, |out| write_selectors(&remote_ts, out));
        answer.push_with(payload::TS_R, |out| write_selectors(&local_ts, out));
        let terms = ChildTerms { suite, spis: (spi, new_peer_spi), keys, is_initiator: false, local_ts, remote_ts };
        self.install_child(now_ns, terms).map_err(|_| Refusal::new(kind::TEMPORARY_FAILURE))?;
        let lowest_nonce = nonce.min(&own_nonce[..]).to_vec();
        self.on_child_replaced(replaces, ChildCollision { spi, lowest_nonce });
        Ok(())
    }

    /// The peer has replaced a child SA: either this end does so, too, or its rekeying has become needless.
    fn on_child_replaced(&mut self, replaces: u32, collision: ChildCollision) {
        let sa = &mut self.sas[0];
        sa.tasks.retain(|task| !matches!(task, Task::RekeyChild(of, _) if *of == replaces));
        match sa.outstanding.as_mut().map(|outstanding| &mut outstanding.purpose) {
            Some(Purpose::RekeyChild(pending)) if pending.replaces == replaces => pending.collision = Some(collision),
            _ => {
                if let Some(child) = self.child(replaces) {
                    child.rekey_ns = None;
                }
                self.events.push_back(Event::ChildRekeyed { by_peer: true });
            }
        }
    }

    fn choose_esp(&self, proposals: &[Proposal], spi: u32) -> Option<Proposal> {
        let of_esp = proposals.iter().filter(|proposal| proposal.protocol == PROTOCOL_ESP);
        let mut chosen = of_esp.flat_map(|proposal| {
            self.config.esp.iter().filter_map(|offer| proposal.choose(&offer.esp_proposal(1, spi, true)))
        });
        let mut chosen = chosen.next()?;
        chosen.spi = spi.to_be_bytes().to_vec();
        Some(chosen)
    }

    fn answer_ike_rekey(
        &mut self,
        now_ns: u64,
        proposals: &[Proposal],
        nonce: &[u8],
        payloads: &[Payload<'_>],
        answer: &mut PayloadWriter,
    ) -> Result<(), Refusal> {
        let purpose = self.sas[0].outstanding.as_ref().map(|outstanding| &outstanding.purpose);
        let is_rekeying = matches!(purpose, Some(Purpose::RekeyIke(_)));
        // RFC 7296, section 2.25.2: not while child SAs are created, rekeyed or closed, or the IKE SA is closed.
        let is_busy = matches!(purpose, Some(Purpose::RekeyChild(_) | Purpose::DeleteChild(_) | Purpose::DeleteIke));
        if is_busy || self.sas.len() >= MAX_SAS {
            return Err(Refusal::new(kind::TEMPORARY_FAILURE));
        }
        let spi = self.random.ike_spi();
        let of_ike = proposals.iter().filter(|proposal| proposal.protocol == PROTOCOL_IKE);
        let mut choices = of_ike.flat_map(|proposal| {
            self.config.ike.iter().filter_map(|offer| proposal.choose(&offer.ike_proposal(1, &[])))
        });
        let mut chosen = choices.next().ok_or(Refusal::new(kind::NO_PROPOSAL_CHOSEN))?;
        drop(choices);
        let suite = chosen.ike_suite().ok_or(Refusal::new(kind::NO_PROPOSAL_CHOSEN))?;
        let peer_spi = chosen.ike_spi().filter(|spi| *spi != 0).ok_or(Refusal::new(kind::INVALID_SYNTAX))?;
        let (key_pair, shared) = agree(suite.group, payloads)?;
        let own_nonce: [u8; NONCE_BYTES] = self.random.bytes();
        let old = &self.sas[0];
        let seed = derive_rekey_seed(old.suite.prf, &old.sk_d, &shared, nonce, &own_nonce);
        let spis = (peer_spi, spi);
        let keys = IkeKeys::derive(&suite, &seed, (nonce, &own_nonce), spis);
        let made = IkeSa::new(suite, keys, spis, false, old.fragment_bytes());
        let sa = Box::new(made.map_err(|_| Refusal::new(kind::TEMPORARY_FAILURE))?);
        chosen.spi = spi.to_be_bytes().to_vec();
        push_choice(&chosen, &own_nonce, Some(&key_pair), answer);
        let lowest_nonce = nonce.min(&own_nonce[..]).to_vec();
        if is_rekeying {
            let outstanding = self.sas[0].outstanding.as_mut();
            if let Some(Purpose::RekeyIke(pending)) = outstanding.map(|outstanding| &mut outstanding.purpose) {
                pending.collision = Some(IkeCollision { sa, lowest_nonce });
            }
        } else {
            self.sas[0].is_answering = true;
            self.adopt(now_ns, 0, sa, true);
        }
        Ok(())
    }
}

/// Appends SA, nonce and key exchange of an answer.
fn push_choice(chosen: &Proposal, nonce: &[u8], key_pair: Option<&KeyPair>, answer: &mut PayloadWriter) {
    answer.push_with(payload::SA, |out| write_proposals(std::slice::from_ref(chosen), out));
    answer.push(payload::NONCE, nonce);
    if let Some(key_pair) = key_pair {
        push_key_exchange(answer, key_pair.group().number(), key_pair.public());
    }
}

/// Performs this end's part of a key exchange in `group`.
fn agree(group: Group, payloads: &[Payload<'_>]) -> Result<(KeyPair, SecretBytes), Refusal> {
    let wanted = || Refusal(kind::INVALID_KE_PAYLOAD, group.number().to_be_bytes().to_vec(), None);
    let (number, public) = find_payload(payloads, payload::KE).and_then(read_key_exchange).ok_or_else(wanted)?;
    if number != group.number() {
        return Err(wanted());
    }
    let key_pair = KeyPair::generate(group).map_err(|_| Refusal::new(kind::TEMPORARY_FAILURE))?;
    let shared = key_pair.agree(public).map_err(|_| Refusal::new(kind::INVALID_SYNTAX))?;
    Ok((key_pair, shared))
}

/// The selectors of a rekeyed child SA: the peer's if they are within the current ones, else those if they are within
/// the peer's (RFC 7296, section 2.9.2).
fn narrow(current: &[TrafficSelector], proposed: Vec<TrafficSelector>) -> Result<Vec<TrafficSelector>, Refusal> {
    if is_narrowed(current, &proposed) {
        Ok(proposed)
    } else if is_narrowed(&proposed, current) {
        Ok(current.to_vec())
    } else {
        Err(Refusal::new(kind::TS_UNACCEPTABLE))
    }
}
