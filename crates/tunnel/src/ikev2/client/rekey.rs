//! The client's own requests after authentication: new keys for child and IKE SAs, deletions, probes, and what their
//! answers lead to. Collisions with the peer's requests are resolved by nonces (RFC 7296, sections 2.8.1, 2.8.2).

use super::child::ChildTerms;
use super::ike_sa::{IkeSa, PendingChild, PendingIke, Purpose, Task};
use super::output::{Cause, Event};
use super::{sa_init, Client, Stage};
use crate::ikev2::dh::{Group, KeyPair};
use crate::ikev2::keys::{derive_rekey_seed, ChildKeys, IkeKeys};
use crate::ikev2::message::{
    find_payload, is_nonce, payload, push_key_exchange, read_key_exchange, read_payloads, ExchangeType, Payload,
    PayloadWriter,
};
use crate::ikev2::notify::{kind, Delete, Notify};
use crate::ikev2::proposal::{read_proposals, write_proposals, PROTOCOL_ESP};
use crate::ikev2::traffic_selector::{is_narrowed, read_selectors, write_selectors};

/// The new SA and the peer's nonce, or why there is none and the group that the peer wants.
type Rekeyed<T> = Result<(T, Vec<u8>), (Cause, Option<Group>)>;

/// Wait before new keys are asked for again, ns (RFC 7296, section 2.25), and the random time that is added.
const RETRY_NS: u64 = 10_000_000_000;
const RETRY_SPREAD_NS: u64 = 5_000_000_000;

impl Client {
    /// Begins what waits for its turn, one exchange of each IKE SA.
    pub(super) fn start_tasks(&mut self, now_ns: u64) {
        for index in 0..self.sas.len() {
            while index < self.sas.len() && self.sas[index].outstanding.is_none() {
                let Some(task) = self.sas[index].tasks.pop_front() else { break };
                self.start_task(now_ns, index, task);
            }
        }
    }

    fn start_task(&mut self, now_ns: u64, index: usize, task: Task) {
        let mut chain = PayloadWriter::new();
        let informational = ExchangeType::Informational;
        match task {
            Task::Probe => self.request(now_ns, index, informational, &chain, Purpose::Probe),
            Task::DeleteIke => {
                Delete::Ike.push_to(&mut chain);
                self.request(now_ns, index, informational, &chain, Purpose::DeleteIke);
            }
            Task::DeleteChild(spi) => {
                let Some(child) = self.child(spi).filter(|child| child.end_ns.is_none()) else { return };
                child.is_deleting = true;
                Delete::Esp(vec![spi]).push_to(&mut chain);
                self.request(now_ns, index, informational, &chain, Purpose::DeleteChild(spi));
            }
            Task::RekeyChild(spi, group) => self.start_child_rekey(now_ns, index, spi, group),
            Task::RekeyIke(group) => self.start_ike_rekey(now_ns, index, group),
        }
    }

    fn start_child_rekey(&mut self, now_ns: u64, index: usize, replaces: u32, group: Option<Group>) {
        let key_pair = group.map(KeyPair::generate).transpose();
        let (spi, nonce) = (self.random.esp_spi(), self.random.bytes());
        let Some(child) = self.child(replaces).filter(|child| child.end_ns.is_none() && !child.is_deleting) else {
            return;
        };
        let Ok(key_pair) = key_pair else { return };
        let (local_ts, remote_ts) = (child.local_ts.clone(), child.remote_ts.clone());
        let mut chain = PayloadWriter::new();
        let replaced = replaces.to_be_bytes();
        Notify { protocol: PROTOCOL_ESP, spi: &replaced, kind: kind::REKEY_SA, data: &[] }.push_to(&mut chain);
        let offers = self.config.esp.iter().zip(1..);
        let proposals: Vec<_> =
            offers.map(|(offer, number)| offer.esp_proposal(number, spi, group.is_some())).collect();
        chain.push_with(payload::SA, |out| write_proposals(&proposals, out));
        chain.push(payload::NONCE, &nonce);
        if let Some(key_pair) = &key_pair {
            push_key_exchange(&mut chain, key_pair.group().number(), key_pair.public());
        }
        chain.push_with(payload::TS_I, |out| write_selectors(&local_ts, out));
        chain.push_with(payload::TS_R, |out| write_selectors(&remote_ts, out));
        let pending = PendingChild { replaces, spi, nonce, key_pair, collision: None };
        self.request(now_ns, index, ExchangeType::CreateChildSa, &chain, Purpose::RekeyChild(Box::new(pending)));
    }

    fn start_ike_rekey(&mut self, now_ns: u64, index: usize, group: Group) {
        if index != 0 {
            return;
        }
        let Ok(key_pair) = KeyPair::generate(group) else { return };
        let (spi, nonce) = (self.random.ike_spi(), self.random.bytes());
        let mut chain = PayloadWriter::new();
        let proposals = sa_init::list_proposals(self, &spi.to_be_bytes());
        chain.push_with(payload::SA, |out| write_proposals(&proposals, out));
        chain.push(payload::NONCE, &nonce);
        push_key_exchange(&mut chain, group.number(), key_pair.public());
        let pending = PendingIke { spi, nonce, key_pair, collision: None };
        self.request(now_ns, index, ExchangeType::CreateChildSa, &chain, Purpose::RekeyIke(Box::new(pending)));
    }

    /// Handles the answer to one of these requests.
    pub(super) fn handle_answer(&mut self, now_ns: u64, index: usize, purpose: Purpose, first: u8, chain: &[u8]) {
        let payloads = read_payloads(first, chain);
        match purpose {
            Purpose::Authenticate | Purpose::Probe => {}
            Purpose::DeleteChild(spi) => self.retire_child(now_ns, spi),
            Purpose::DeleteIke if index == 0 => {
                let is_left = matches!(self.stage, Stage::Left);
                (self.sender, self.children, self.stage) = (None, Vec::new(), Stage::Failed);
                self.sas.clear();
                if is_left {
                    self.events.push_back(Event::Left { is_confirmed: true });
                }
            }
            Purpose::DeleteIke => drop(self.sas.remove(index)),
            Purpose::RekeyChild(pending) => {
                let answer = payloads
                    .map_err(|_| (Cause::Malformed, None))
                    .and_then(|payloads| self.read_child_answer(index, &pending, &payloads));
                self.finish_child_rekey(now_ns, *pending, answer);
            }
            Purpose::RekeyIke(pending) => {
                let answer = payloads
                    .map_err(|_| (Cause::Malformed, None))
                    .and_then(|payloads| self.read_ike_answer(index, &pending, &payloads));
                self.finish_ike_rekey(now_ns, index, *pending, answer);
            }
        }
    }

    fn read_child_answer(
        &mut self,
        index: usize,
        pending: &PendingChild,
        payloads: &[Payload<'_>],
    ) -> Rekeyed<ChildTerms> {
        check_for_errors(payloads)?;
        self.read_child_terms(index, pending, payloads).map_err(|cause| (cause, None))
    }

    fn read_child_terms(
        &mut self,
        index: usize,
        pending: &PendingChild,
        payloads: &[Payload<'_>],
    ) -> Result<(ChildTerms, Vec<u8>), Cause> {
        let body = |kind| find_payload(payloads, kind).ok_or(Cause::Malformed);
        let proposals = read_proposals(body(payload::SA)?).map_err(|_| Cause::Malformed)?;
        let group = pending.key_pair.as_ref().map(KeyPair::group);
        let (chosen, suite) = self.check_esp_choice(&proposals, pending.spi, group)?;
        let nonce = find_payload(payloads, payload::NONCE).filter(|nonce| is_nonce(nonce)).ok_or(Cause::Malformed)?;
        let shared = match &pending.key_pair {
            None => None,
            Some(key_pair) => {
                let (number, public) = read_key_exchange(body(payload::KE)?).ok_or(Cause::Malformed)?;
                if number != key_pair.group().number() {
                    return Err(Cause::NotOffered);
                }
                Some(key_pair.agree(public).map_err(|_| Cause::Malformed)?)
            }
        };
        let selectors = |kind| read_selectors(body(kind)?).map_err(|_| Cause::Malformed);
        let (local_ts, remote_ts) = (selectors(payload::TS_I)?, selectors(payload::TS_R)?);
        if !is_narrowed(&self.local_selectors(), &local_ts) || !is_narrowed(&self.config.remote_ts, &remote_ts) {
            return Err(Cause::NotOffered);
        }
        let sa = &self.sas[index];
        let keys = ChildKeys::derive(sa.suite.prf, &sa.sk_d, &suite, shared.as_ref(), (&pending.nonce[..], nonce));
        let spis = (pending.spi, chosen.esp_spi().ok_or(Cause::Malformed)?);
        Ok((ChildTerms { suite, spis, keys, is_initiator: true, local_ts, remote_ts }, nonce.to_vec()))
    }

    fn finish_child_rekey(&mut self, now_ns: u64, pending: PendingChild, answer: Rekeyed<ChildTerms>) {
        let installed = answer.and_then(|(terms, peer_nonce)| {
            let spi = self.install_child(now_ns, terms).map_err(|cause| (cause, None))?;
            Ok((spi, peer_nonce))
        });
        match installed {
            Ok((spi, peer_nonce)) => {
                let own_lowest = peer_nonce.as_slice().min(&pending.nonce[..]);
                let collision = pending.collision;
                // RFC 7296, section 2.8.1: of two new SAs, "the SA created with the lowest of the four nonces" is
                // closed by the end that created it; the other end closes the replaced one.
                match collision.filter(|collision| own_lowest < collision.lowest_nonce.as_slice()) {
                    Some(collision) => {
                        self.push_task(Task::DeleteChild(spi));
                        if self.child(collision.spi).is_some_and(|child| child.end_ns.is_none()) {
                            self.sender = Some(collision.spi);
                        }
                        self.events.push_back(Event::ChildRekeyed { by_peer: true });
                    }
                    None => {
                        self.sender = Some(spi);
                        self.push_task(Task::DeleteChild(pending.replaces));
                        self.events.push_back(Event::ChildRekeyed { by_peer: false });
                    }
                }
            }
            // The peer has replaced it, and this end's request came too late.
            Err(_) if pending.collision.is_some() => self.events.push_back(Event::ChildRekeyed { by_peer: true }),
            Err((Cause::NoCommonGroup, Some(group))) if self.is_offered_for_esp(group) => {
                self.counters.group_changes += 1;
                self.push_task(Task::RekeyChild(pending.replaces, Some(group)));
            }
            Err((Cause::UnknownSa, _)) => self.retire_child(now_ns, pending.replaces),
            Err((cause, _)) => {
                let again_ns = self.retry_ns(now_ns);
                if let Some(child) = self.child(pending.replaces).filter(|child| child.end_ns.is_none()) {
                    child.rekey_ns = Some(again_ns);
                    self.events.push_back(Event::RekeyRefused(cause));
                }
            }
        }
    }

    fn read_ike_answer(&mut self, index: usize, pending: &PendingIke, payloads: &[Payload<'_>]) -> Rekeyed<Box<IkeSa>> {
        check_for_errors(payloads)?;
        self.read_ike_terms(index, pending, payloads).map_err(|cause| (cause, None))
    }

    fn read_ike_terms(
        &mut self,
        index: usize,
        pending: &PendingIke,
        payloads: &[Payload<'_>],
    ) -> Result<(Box<IkeSa>, Vec<u8>), Cause> {
        let body = |kind| find_payload(payloads, kind).ok_or(Cause::Malformed);
        let proposals = read_proposals(body(payload::SA)?).map_err(|_| Cause::Malformed)?;
        let [chosen] = proposals.as_slice() else { return Err(Cause::NotOffered) };
        let offered = sa_init::list_proposals(self, &[]);
        let is_offered = offered.iter().any(|one| one.number == chosen.number && one.contains(chosen));
        let suite = chosen.ike_suite().filter(|_| is_offered).ok_or(Cause::NotOffered)?;
        let nonce = find_payload(payloads, payload::NONCE).filter(|nonce| is_nonce(nonce)).ok_or(Cause::Malformed)?;
        let (number, public) = read_key_exchange(body(payload::KE)?).ok_or(Cause::Malformed)?;
        if suite.group != pending.key_pair.group() || number != suite.group.number() {
            return Err(Cause::NotOffered);
        }
        let spi_r = chosen.ike_spi().filter(|spi| *spi != 0).ok_or(Cause::Malformed)?;
        let shared = pending.key_pair.agree(public).map_err(|_| Cause::Malformed)?;
        let old = &self.sas[index];
        let seed = derive_rekey_seed(old.suite.prf, &old.sk_d, &shared, &pending.nonce, nonce);
        let spis = (pending.spi, spi_r);
        let keys = IkeKeys::derive(&suite, &seed, (&pending.nonce, nonce), spis);
        let sa = IkeSa::new(suite, keys, spis, true, old.fragment_bytes()).map_err(|_| Cause::Internal)?;
        Ok((Box::new(sa), nonce.to_vec()))
    }

    fn finish_ike_rekey(&mut self, now_ns: u64, index: usize, pending: PendingIke, answer: Rekeyed<Box<IkeSa>>) {
        match (answer, pending.collision) {
            (Ok((sa, peer_nonce)), Some(mut collision)) => {
                let own_lowest = peer_nonce.as_slice().min(&pending.nonce[..]);
                let mut own = sa;
                if own_lowest < collision.lowest_nonce.as_slice() {
                    // This end's new SA is the redundant one; the peer deletes the replaced one.
                    own.tasks.push_back(Task::DeleteIke);
                    self.adopt(now_ns, index, collision.sa, true);
                    self.sas.push(own);
                } else {
                    collision.sa.end_ns = Some(now_ns.saturating_add(self.redundant_ns()));
                    self.adopt(now_ns, index, own, false);
                    self.sas.push(collision.sa);
                }
            }
            (Ok((sa, _)), None) => self.adopt(now_ns, index, sa, false),
            (Err(_), Some(collision)) => self.adopt(now_ns, index, collision.sa, true),
            (Err((Cause::NoCommonGroup, Some(group))), None) if self.is_offered_for_ike(group) => {
                self.counters.group_changes += 1;
                self.push_task(Task::RekeyIke(group));
            }
            (Err((cause, _)), None) => {
                self.sas[index].rekey_ns = Some(self.retry_ns(now_ns));
                self.events.push_back(Event::RekeyRefused(cause));
            }
        }
    }

    /// Makes `sa` the current IKE SA in place of the one at `index`, which its successor's creator deletes.
    pub(super) fn adopt(&mut self, now_ns: u64, index: usize, mut sa: Box<IkeSa>, by_peer: bool) {
        sa.rekey_ns = self.lifetime_end(now_ns, self.config.ike_lifetime);
        let end_ns = now_ns.saturating_add(self.redundant_ns());
        let old = &mut self.sas[index];
        old.rekey_ns = None;
        sa.tasks = std::mem::take(&mut old.tasks);
        sa.tasks.retain(|task| !matches!(task, Task::RekeyIke(_)));
        if by_peer {
            old.end_ns = Some(end_ns);
        } else {
            old.tasks.push_back(Task::DeleteIke);
        }
        self.sas.insert(0, sa);
        self.events.push_back(Event::IkeRekeyed { by_peer });
    }

    /// How long an SA that the peer should delete is kept, ns: longer than all its repetitions.
    pub(super) fn redundant_ns(&self) -> u64 {
        let retransmission = &self.config.retransmission;
        (0..=retransmission.tries).map(|repeats| retransmission.wait_ns(repeats)).sum()
    }

    fn retry_ns(&mut self, now_ns: u64) -> u64 {
        now_ns.saturating_add(RETRY_NS + self.random.below(RETRY_SPREAD_NS))
    }

    fn is_offered_for_esp(&self, group: Group) -> bool {
        self.config.esp.iter().any(|offer| offer.groups.contains(&group))
    }

    fn is_offered_for_ike(&self, group: Group) -> bool {
        self.config.ike.iter().any(|offer| offer.groups.contains(&group))
    }
}

/// Fails with the first error, and the group that the peer wants instead.
fn check_for_errors(payloads: &[Payload<'_>]) -> Result<(), (Cause, Option<Group>)> {
    let notifications = payloads.iter().filter(|payload| payload.kind == payload::NOTIFY);
    let mut errors = notifications.filter_map(|payload| Notify::parse(payload.body)).filter(Notify::is_error);
    let Some(error) = errors.next() else { return Ok(()) };
    let number = error.data.first_chunk().map(|bytes| u16::from_be_bytes(*bytes));
    let group = number.filter(|_| error.kind == kind::INVALID_KE_PAYLOAD).and_then(Group::from_number);
    Err((Cause::of_notification(error.kind), group))
}
