//! A gateway for tests: one IKE SA with one client, by the crate's own codec. It answers, asks for cookies or another
//! group, refuses parts, rekeys and deletes by itself, and repeats its requests. Its answers to odd input are simple:
//! it panics, because only the client under test talks to it.

use std::net::IpAddr;

use leadline_tunnel::esp::{Inbound, Opened, Outbound, Policy};
use leadline_tunnel::ikev2::auth::{
    build_signed_octets, compute_shared_key_proof, is_shared_key_proof, push_auth, read_auth,
};
use leadline_tunnel::ikev2::configuration::{read_requested_versions, Assigned};
use leadline_tunnel::ikev2::dh::{Group, KeyPair};
use leadline_tunnel::ikev2::identification::Id;
use leadline_tunnel::ikev2::keys::{derive_first_seed, derive_rekey_seed, ChildKeys, IkeKeys};
use leadline_tunnel::ikev2::message::{
    find_payload, payload, push_key_exchange, read_key_exchange, read_payloads, ExchangeType, Header, Payload,
    PayloadWriter, FLAG_RESPONSE, HEADER_BYTES,
};
use leadline_tunnel::ikev2::notify::{kind, Delete, Notify};
use leadline_tunnel::ikev2::proposal::{read_proposals, write_proposals, EspSuite, Offer, Proposal};
use leadline_tunnel::ikev2::protected;
use leadline_tunnel::ikev2::random::Random;
use leadline_tunnel::ikev2::secret_bytes::SecretBytes;
use leadline_tunnel::ikev2::traffic_selector::{write_selectors, TrafficSelector};

use super::responder_sa::{agree, write_answer, Purpose, Sa, Task};

pub const KEY: &[u8] = b"shared";
const REPEAT_NS: u64 = 2_000_000_000;
const REDUNDANT_NS: u64 = 60_000_000_000;

/// What a gateway does other than to accept.
#[derive(Clone, Default)]
pub struct Options {
    /// Number of cookies that it asks for.
    pub cookies: u32,
    /// The group that it wants.
    pub group: Option<Group>,
    /// An error in place of the SA_INIT answer, this many times.
    pub init_error: Option<(u16, u32)>,
    /// An error in place of the address.
    pub address_error: Option<u16>,
    /// An error in place of the child SA.
    pub child_error: Option<u16>,
    /// Fragments of encrypted messages.
    pub fragment_bytes: Option<usize>,
}

struct Child {
    inbound: Inbound,
    outbound: Outbound,
}

struct Init {
    request: Vec<u8>,
    response: Vec<u8>,
    nonces: (Vec<u8>, Vec<u8>),
    sk_pi: SecretBytes,
    sk_pr: SecretBytes,
}

pub struct Responder {
    options: Options,
    ike: Offer,
    esp: Offer,
    random: Random,
    init: Option<Init>,
    pub sas: Vec<Sa>,
    children: Vec<Child>,
    sender: Option<u32>,
    pub out: Vec<Vec<u8>>,
    pub esp_out: Vec<Vec<u8>>,
    pub opened: u64,
    pub rejected: u64,
    pub requests: u32,
    now_ns: u64,
}

impl Responder {
    pub fn new(ike: &str, esp: &str, options: Options) -> Self {
        let mut ike = Offer::parse_ike(ike).unwrap();
        ike.groups = options.group.map_or(ike.groups, |group| vec![group]);
        Self {
            options,
            ike,
            esp: Offer::parse_esp(esp).unwrap(),
            random: Random::new([9; 32]),
            init: None,
            sas: Vec::new(),
            children: Vec::new(),
            sender: None,
            out: Vec::new(),
            esp_out: Vec::new(),
            opened: 0,
            rejected: 0,
            requests: 0,
            now_ns: 0,
        }
    }

    pub fn children(&self) -> usize {
        self.children.len()
    }

    pub fn is_idle(&self) -> bool {
        self.sas.iter().all(|sa| sa.outstanding.is_none() && sa.tasks.is_empty())
    }

    /// Opens an ESP packet and sends its payload back.
    pub fn handle_esp(&mut self, packet: &mut [u8]) {
        let spi = u32::from_be_bytes(*packet.first_chunk().unwrap());
        let found = self.children.iter_mut().find(|child| child.inbound.spi() == spi);
        match found.map(|child| child.inbound.open(packet)) {
            Some(Ok(Opened::Payload(payload))) => {
                self.opened += 1;
                let sender = self.sender;
                let mut answer = Vec::new();
                if let Some(child) = self.children.iter_mut().find(|child| Some(child.inbound.spi()) == sender) {
                    child.outbound.seal(payload, &mut answer).unwrap();
                    self.esp_out.push(answer);
                }
            }
            _ => self.rejected += 1,
        }
    }

    pub fn handle(&mut self, now_ns: u64, message: &mut [u8]) {
        self.now_ns = now_ns;
        let header = Header::parse(message).unwrap();
        if header.exchange == ExchangeType::SaInit as u8 {
            return self.answer_init(&header, message);
        }
        let found = self.sas.iter().position(|sa| sa.spis == (header.spi_i, header.spi_r));
        let Some(index) = found else {
            self.rejected += 1;
            return;
        };
        let sa = &mut self.sas[index];
        if !header.is_response() && header.message_id.wrapping_add(1) == sa.peer_next_id {
            self.out.extend(sa.answered.clone());
            return;
        }
        let is_expected = match header.is_response() {
            true => sa.outstanding.is_some() && header.message_id.wrapping_add(1) == sa.next_id,
            false => header.message_id == sa.peer_next_id,
        };
        if !is_expected {
            return;
        }
        let unsealed = protected::open(&sa.open, message).unwrap();
        let whole = match unsealed.fragment {
            None => Some((unsealed.first_payload, unsealed.content.to_vec())),
            Some(numbers) => {
                let of = (header.message_id, header.is_response());
                sa.reassembly.push(of, numbers, unsealed.first_payload, unsealed.content)
            }
        };
        let Some((first, chain)) = whole else { return };
        let payloads = read_payloads(first, &chain).unwrap();
        if header.is_response() {
            let (_, _, purpose) = sa.outstanding.take().unwrap();
            self.on_answer(index, purpose, &payloads);
        } else {
            self.requests += 1;
            self.answer(index, header.exchange, &payloads);
        }
        self.start(now_ns);
    }

    fn answer_init(&mut self, header: &Header, message: &[u8]) {
        if let Some(init) = self.init.as_ref().filter(|init| init.request == message) {
            self.out.push(init.response.clone());
            return;
        }
        let payloads = read_payloads(header.next, &message[HEADER_BYTES..]).unwrap();
        let flags = FLAG_RESPONSE;
        let mut reply = Header { spi_r: 0, flags, next: 0, ..*header };
        let (group, public) = find_payload(&payloads, payload::KE).and_then(read_key_exchange).unwrap();
        let mut chain = PayloadWriter::new();
        if let Some((error, times)) = self.options.init_error.as_mut().filter(|(_, times)| *times > 0) {
            *times -= 1;
            Notify::new(*error, &[]).push_to(&mut chain);
        } else if self.options.cookies > 0 {
            self.options.cookies -= 1;
            Notify::new(kind::COOKIE, &[self.options.cookies as u8; 20]).push_to(&mut chain);
        } else if let Some(wanted) = self.options.group.filter(|wanted| wanted.number() != group) {
            Notify::new(kind::INVALID_KE_PAYLOAD, &wanted.number().to_be_bytes()).push_to(&mut chain);
        }
        if chain.first() != 0 {
            self.out.push(chain.into_message(reply));
            return;
        }
        let proposals = read_proposals(find_payload(&payloads, payload::SA).unwrap()).unwrap();
        let chosen = proposals.iter().find_map(|one| one.choose(&self.ike.ike_proposal(1, &[]))).unwrap();
        let suite = chosen.ike_suite().unwrap();
        assert_eq!(suite.group.number(), group);
        let key_pair = KeyPair::generate(suite.group).unwrap();
        let shared = key_pair.agree(public).unwrap();
        let nonce_i = find_payload(&payloads, payload::NONCE).unwrap().to_vec();
        let nonce_r: [u8; 32] = self.random.bytes();
        reply.spi_r = self.random.ike_spi();
        chain.push_with(payload::SA, |out| write_proposals(&[chosen], out));
        push_key_exchange(&mut chain, group, key_pair.public());
        chain.push(payload::NONCE, &nonce_r);
        Notify::new(kind::NAT_DETECTION_SOURCE, &[1; 20]).push_to(&mut chain);
        Notify::new(kind::NAT_DETECTION_DESTINATION, &[1; 20]).push_to(&mut chain);
        if self.options.fragment_bytes.is_some() {
            Notify::new(kind::FRAGMENTATION_SUPPORTED, &[]).push_to(&mut chain);
        }
        let response = chain.into_message(reply);
        let seed = derive_first_seed(suite.prf, &nonce_i, &nonce_r, &shared);
        let spis = (reply.spi_i, reply.spi_r);
        let keys = IkeKeys::derive(&suite, &seed, (&nonce_i, &nonce_r), spis);
        let (sk_pi, sk_pr) = (keys.sk_pi.clone(), keys.sk_pr.clone());
        self.sas = vec![Sa::new(suite, keys, spis, false)];
        self.sas[0].peer_next_id = 1;
        let nonces = (nonce_i, nonce_r.to_vec());
        self.init = Some(Init { request: message.to_vec(), response: response.clone(), nonces, sk_pi, sk_pr });
        self.out.push(response);
    }

    fn respond(&mut self, index: usize, exchange: u8, chain: &PayloadWriter) {
        let limit = self.options.fragment_bytes;
        let sa = &mut self.sas[index];
        sa.answered = sa.sealed(exchange, sa.peer_next_id, FLAG_RESPONSE, chain, limit);
        sa.peer_next_id += 1;
        self.out.extend(sa.answered.clone());
    }

    fn answer(&mut self, index: usize, exchange: u8, payloads: &[Payload<'_>]) {
        let mut chain = PayloadWriter::new();
        let mut added = None;
        let mut ended = false;
        if exchange == ExchangeType::Auth as u8 {
            self.answer_auth(payloads, &mut chain);
        } else if exchange == ExchangeType::Informational as u8 {
            match find_payload(payloads, payload::DELETE).and_then(Delete::parse) {
                Some(Delete::Ike) => ended = true,
                Some(Delete::Esp(spis)) => {
                    let own = self.delete_children(&spis);
                    if !own.is_empty() {
                        Delete::Esp(own).push_to(&mut chain);
                    }
                }
                _ => {}
            }
        } else {
            added = self.answer_create(index, payloads, &mut chain);
        }
        self.respond(index, exchange, &chain);
        if ended {
            let sa = self.sas.remove(index);
            // The client has replaced it without the request of this end.
            if let Some((_, _, Purpose::RekeyIke { collision: Some((made, _)), .. })) = sa.outstanding {
                self.sas.insert(0, *made);
            }
        }
        if let Some(sa) = added {
            self.sas.insert(0, *sa);
        }
    }

    fn delete_children(&mut self, spis: &[u32]) -> Vec<u32> {
        let mut own = Vec::new();
        self.children.retain(|child| {
            let is_named = spis.contains(&child.outbound.spi());
            if is_named {
                own.push(child.inbound.spi());
            }
            !is_named
        });
        self.mend_sender();
        own
    }

    fn mend_sender(&mut self) {
        if !self.children.iter().any(|child| Some(child.inbound.spi()) == self.sender) {
            self.sender = self.children.last().map(|child| child.inbound.spi());
        }
    }

    fn answer_auth(&mut self, payloads: &[Payload<'_>], chain: &mut PayloadWriter) {
        let init = self.init.as_ref().unwrap();
        let prf = self.sas[0].suite.prf;
        let id_i = find_payload(payloads, payload::ID_I).unwrap();
        let octets = build_signed_octets(prf, &init.request, &init.nonces.1, &init.sk_pi, id_i);
        let (_, proof) = find_payload(payloads, payload::AUTH).and_then(read_auth).unwrap();
        if !is_shared_key_proof(prf, KEY, &octets, proof) {
            return Notify::new(kind::AUTHENTICATION_FAILED, &[]).push_to(chain);
        }
        let id_r = Id::parse("@gw.test").body();
        let octets = build_signed_octets(prf, &init.response, &init.nonces.0, &init.sk_pr, &id_r);
        chain.push(payload::ID_R, &id_r);
        push_auth(chain, 2, compute_shared_key_proof(prf, KEY, &octets).expose());
        let requested = find_payload(payloads, payload::CP).map(read_requested_versions);
        if let Some(error) = self.options.address_error {
            return Notify::new(error, &[]).push_to(chain);
        }
        if requested.is_some_and(|(has_ipv4, _)| has_ipv4) {
            let addresses = vec!["10.20.0.1".parse::<IpAddr>().unwrap()];
            Assigned { addresses, name_servers: vec![] }.push_to(chain);
        }
        if let Some(error) = self.options.child_error {
            return Notify::new(error, &[]).push_to(chain);
        }
        let nonces = init.nonces.clone();
        let (chosen, suite, peer_spi) = self.choose_esp(payloads, false);
        let spi = chosen.esp_spi().unwrap();
        let sa = &self.sas[0];
        let keys = ChildKeys::derive(sa.suite.prf, &sa.sk_d, &suite, None, (&nonces.0, &nonces.1));
        self.install(&suite, (spi, peer_spi), &keys.from_responder, &keys.from_initiator);
        self.sender = Some(spi);
        chain.push_with(payload::SA, |out| write_proposals(&[chosen], out));
        for kind in [payload::TS_I, payload::TS_R] {
            chain.push(kind, find_payload(payloads, kind).unwrap());
        }
    }

    fn choose_esp(&mut self, payloads: &[Payload<'_>], has_groups: bool) -> (Proposal, EspSuite, u32) {
        let spi = self.random.esp_spi();
        let proposals = read_proposals(find_payload(payloads, payload::SA).unwrap()).unwrap();
        let wanted = self.esp.esp_proposal(1, spi, has_groups);
        let (mut chosen, peer_spi) =
            proposals.iter().find_map(|one| Some((one.choose(&wanted)?, one.esp_spi()?))).unwrap();
        chosen.spi = spi.to_be_bytes().to_vec();
        let suite = chosen.esp_suite().unwrap();
        (chosen, suite, peer_spi)
    }

    fn install(&mut self, suite: &EspSuite, spis: (u32, u32), own: &SecretBytes, peers: &SecretBytes) {
        let policy = Policy { suite: suite.cipher, has_esn: suite.has_esn, replay_window: 64 };
        self.children.push(Child {
            inbound: Inbound::new(&policy, spis.0, peers.expose()).unwrap(),
            outbound: Outbound::new(&policy, spis.1, own.expose()).unwrap(),
        });
    }

    fn answer_create(&mut self, index: usize, payloads: &[Payload<'_>], chain: &mut PayloadWriter) -> Option<Box<Sa>> {
        let proposals = read_proposals(find_payload(payloads, payload::SA).unwrap()).unwrap();
        let peer_nonce = find_payload(payloads, payload::NONCE).unwrap().to_vec();
        let nonce: [u8; 32] = self.random.bytes();
        let lowest = peer_nonce.as_slice().min(&nonce[..]).to_vec();
        let busy = self.sas[index].outstanding.as_ref().map(|(_, _, purpose)| purpose);
        if proposals[0].protocol == 1 {
            let is_closing = self.sas[index].tasks.contains(&Task::DeleteIke);
            let is_busy =
                matches!(busy, Some(Purpose::RekeyChild { .. } | Purpose::DeleteChild(_) | Purpose::DeleteIke));
            if is_closing || is_busy {
                Notify::new(kind::TEMPORARY_FAILURE, &[]).push_to(chain);
                return None;
            }
            let mut chosen = proposals.iter().find_map(|one| one.choose(&self.ike.ike_proposal(1, &[]))).unwrap();
            let (suite, peer_spi) = (chosen.ike_suite().unwrap(), chosen.ike_spi().unwrap());
            let spis = (peer_spi, self.random.ike_spi());
            chosen.spi = spis.1.to_be_bytes().to_vec();
            let (key_pair, shared) = agree(payloads);
            let old = &mut self.sas[index];
            let seed = derive_rekey_seed(old.suite.prf, &old.sk_d, &shared, &peer_nonce, &nonce);
            let keys = IkeKeys::derive(&suite, &seed, (&peer_nonce, &nonce), spis);
            write_answer(&chosen, &nonce, Some(&key_pair), chain);
            let made = Box::new(Sa::new(suite, keys, spis, false));
            if let Some((_, _, Purpose::RekeyIke { collision, .. })) = &mut old.outstanding {
                *collision = Some((made, lowest));
                return None;
            }
            return Some(made);
        }
        let named = Notify::parse(find_payload(payloads, payload::NOTIFY).unwrap()).unwrap();
        let replaced = u32::from_be_bytes(named.spi.try_into().unwrap());
        let replaced = self.children.iter().find(|child| child.outbound.spi() == replaced);
        let (Some(replaced), false) = (replaced, matches!(busy, Some(Purpose::RekeyIke { .. }))) else {
            let error = if replaced.is_some() { kind::TEMPORARY_FAILURE } else { kind::CHILD_SA_NOT_FOUND };
            Notify::new(error, &[]).push_to(chain);
            return None;
        };
        let replaced = replaced.inbound.spi();
        let is_closing = matches!(busy, Some(Purpose::DeleteChild(spi)) if *spi == replaced);
        if is_closing || self.sas[index].tasks.contains(&Task::DeleteChild(replaced)) {
            Notify::new(kind::TEMPORARY_FAILURE, &[]).push_to(chain);
            return None;
        }
        let (chosen, suite, peer_spi) = self.choose_esp(payloads, true);
        let spi = chosen.esp_spi().unwrap();
        let exchange = suite.group.map(|_| agree(payloads));
        let sa = &self.sas[index];
        let shared = exchange.as_ref().map(|(_, shared)| shared);
        let keys = ChildKeys::derive(sa.suite.prf, &sa.sk_d, &suite, shared, (&peer_nonce, &nonce));
        self.install(&suite, (spi, peer_spi), &keys.from_responder, &keys.from_initiator);
        write_answer(&chosen, &nonce, exchange.as_ref().map(|(key_pair, _)| key_pair), chain);
        for kind in [payload::TS_I, payload::TS_R] {
            chain.push(kind, find_payload(payloads, kind).unwrap());
        }
        if let Some((_, _, Purpose::RekeyChild { replaces, collision, .. })) = &mut self.sas[index].outstanding {
            if *replaces == replaced {
                *collision = Some((spi, lowest));
            }
        }
        None
    }

    fn on_answer(&mut self, index: usize, purpose: Purpose, payloads: &[Payload<'_>]) {
        let error = find_payload(payloads, payload::NOTIFY).and_then(Notify::parse).filter(Notify::is_error);
        match purpose {
            Purpose::Probe => {}
            Purpose::DeleteIke => drop(self.sas.remove(index)),
            Purpose::DeleteChild(spi) => {
                self.children.retain(|child| child.inbound.spi() != spi);
                self.mend_sender();
            }
            Purpose::RekeyChild { .. } if error.is_some() => {}
            Purpose::RekeyIke { collision, .. } if error.is_some() => {
                if let Some((sa, _)) = collision {
                    self.sas.insert(0, *sa);
                }
            }
            Purpose::RekeyChild { replaces, spi, nonce, key_pair, collision } => {
                let chosen = &read_proposals(find_payload(payloads, payload::SA).unwrap()).unwrap()[0];
                let suite = chosen.esp_suite().unwrap();
                let peer_nonce = find_payload(payloads, payload::NONCE).unwrap();
                let shared = key_pair.map(|key_pair| {
                    key_pair.agree(find_payload(payloads, payload::KE).and_then(read_key_exchange).unwrap().1).unwrap()
                });
                let sa = &self.sas[index];
                let keys = ChildKeys::derive(sa.suite.prf, &sa.sk_d, &suite, shared.as_ref(), (&nonce, peer_nonce));
                self.install(&suite, (spi, chosen.esp_spi().unwrap()), &keys.from_initiator, &keys.from_responder);
                let own_lowest = peer_nonce.min(&nonce[..]);
                let (sender, redundant) = match collision {
                    Some((other, lowest)) if own_lowest < lowest.as_slice() => (other, spi),
                    _ => (spi, replaces),
                };
                self.sender = Some(sender);
                self.sas[0].tasks.push(Task::DeleteChild(redundant));
            }
            Purpose::RekeyIke { spi, nonce, key_pair, collision } => {
                let chosen = &read_proposals(find_payload(payloads, payload::SA).unwrap()).unwrap()[0];
                let suite = chosen.ike_suite().unwrap();
                let peer_nonce = find_payload(payloads, payload::NONCE).unwrap();
                let public = find_payload(payloads, payload::KE).and_then(read_key_exchange).unwrap().1;
                let old = &mut self.sas[index];
                let shared = key_pair.agree(public).unwrap();
                let seed = derive_rekey_seed(old.suite.prf, &old.sk_d, &shared, &nonce, peer_nonce);
                let spis = (spi, chosen.ike_spi().unwrap());
                let mut made = Sa::new(suite, IkeKeys::derive(&suite, &seed, (&nonce, peer_nonce), spis), spis, true);
                let own_lowest = peer_nonce.min(&nonce[..]);
                match collision {
                    Some((other, lowest)) if own_lowest < lowest.as_slice() => {
                        made.tasks.push(Task::DeleteIke);
                        self.sas.insert(0, *other);
                        self.sas.push(made);
                    }
                    other => {
                        old.tasks.push(Task::DeleteIke);
                        self.sas.insert(0, made);
                        if let Some((mut sa, _)) = other {
                            sa.end_ns = Some(self.now_ns + REDUNDANT_NS);
                            self.sas.push(*sa);
                        }
                    }
                }
            }
        }
    }

    pub fn push(&mut self, now_ns: u64, task: Task) {
        self.sas[0].tasks.push(task);
        self.start(now_ns);
    }

    fn start(&mut self, now_ns: u64) {
        for index in 0..self.sas.len() {
            if self.sas[index].outstanding.is_some() || self.sas[index].tasks.is_empty() {
                continue;
            }
            let task = self.sas[index].tasks.remove(0);
            let mut chain = PayloadWriter::new();
            let (exchange, purpose) = match task {
                Task::Probe => (ExchangeType::Informational, Purpose::Probe),
                Task::DeleteIke => {
                    Delete::Ike.push_to(&mut chain);
                    (ExchangeType::Informational, Purpose::DeleteIke)
                }
                Task::DeleteChild(spi) => {
                    Delete::Esp(vec![spi]).push_to(&mut chain);
                    (ExchangeType::Informational, Purpose::DeleteChild(spi))
                }
                Task::RekeyChild => (ExchangeType::CreateChildSa, self.write_child_rekey(&mut chain)),
                Task::RekeyIke => {
                    let (spi, nonce) = (self.random.ike_spi(), self.random.bytes());
                    let key_pair = KeyPair::generate(self.ike.groups[0]).unwrap();
                    write_answer(&self.ike.ike_proposal(1, &spi.to_be_bytes()), &nonce, Some(&key_pair), &mut chain);
                    (ExchangeType::CreateChildSa, Purpose::RekeyIke { spi, nonce, key_pair, collision: None })
                }
            };
            let limit = self.options.fragment_bytes;
            let sa = &mut self.sas[index];
            let messages = sa.sealed(exchange as u8, sa.next_id, 0, &chain, limit);
            sa.next_id += 1;
            self.out.extend(messages.clone());
            sa.outstanding = Some((messages, now_ns + REPEAT_NS, purpose));
        }
    }

    fn write_child_rekey(&mut self, chain: &mut PayloadWriter) -> Purpose {
        let (replaces, spi, nonce) = (self.sender.unwrap(), self.random.esp_spi(), self.random.bytes());
        let key_pair = self.esp.groups.first().map(|group| KeyPair::generate(*group).unwrap());
        let named = replaces.to_be_bytes();
        Notify { protocol: 3, spi: &named, kind: kind::REKEY_SA, data: &[] }.push_to(chain);
        write_answer(&self.esp.esp_proposal(1, spi, true), &nonce, key_pair.as_ref(), chain);
        for kind in [payload::TS_I, payload::TS_R] {
            chain.push_with(kind, |out| write_selectors(&[TrafficSelector::any_ipv4()], out));
        }
        Purpose::RekeyChild { replaces, spi, nonce, key_pair, collision: None }
    }

    /// Repeats requests that are due; returns when the next one is, ns.
    pub fn check_timers(&mut self, now_ns: u64) -> Option<u64> {
        for sa in &mut self.sas {
            if let Some((messages, due_ns, _)) = sa.outstanding.as_mut().filter(|(_, due_ns, _)| *due_ns <= now_ns) {
                *due_ns = now_ns + REPEAT_NS;
                self.out.extend(messages.clone());
            }
        }
        self.sas.retain(|sa| sa.end_ns.is_none_or(|end_ns| end_ns > now_ns));
        let due = self.sas.iter().filter_map(|sa| Some(sa.outstanding.as_ref()?.1));
        due.chain(self.sas.iter().filter_map(|sa| sa.end_ns)).min()
    }
}
