//! Child SAs of a client: how they are made and ended, their packets, and which one sends.

use super::child::{Child, ChildTerms};
use super::output::{Cause, Event};
use super::{Client, Stage};
use crate::esp::{EspError, Inbound, Opened, Outbound, Policy};
use crate::ikev2::config::Lifetime;
use crate::ikev2::dh::Group;
use crate::ikev2::proposal::{EspSuite, Proposal};
use crate::ikev2::traffic_selector::TrafficSelector;
use crate::protocol::Received;

impl Client {
    /// What the client's side of the tunnel is proposed as.
    pub(super) fn local_selectors(&self) -> Vec<TrafficSelector> {
        let config = &self.config;
        if !config.local_ts.is_empty() {
            return config.local_ts.clone();
        }
        let mut selectors = Vec::new();
        if config.requests_ipv4 {
            selectors.push(TrafficSelector::any_ipv4());
        }
        if config.requests_ipv6 {
            selectors.push(TrafficSelector::any_ipv6());
        }
        if selectors.is_empty() {
            selectors.push(TrafficSelector::network(self.endpoints.local.ip().into()));
        }
        selectors
    }

    /// Checks that an answer chose one of the offers for a child SA that receives by `spi`.
    pub(super) fn check_esp_choice(
        &self,
        proposals: &[Proposal],
        spi: u32,
        group: Option<Group>,
    ) -> Result<(Proposal, EspSuite), Cause> {
        let [chosen] = proposals else { return Err(Cause::NotOffered) };
        let offers = self.config.esp.iter().zip(1..);
        let mut offered = offers.map(|(offer, number)| offer.esp_proposal(number, spi, group.is_some()));
        let is_offered = offered.any(|one| one.number == chosen.number && one.contains(chosen));
        let suite = chosen.esp_suite().filter(|suite| is_offered && suite.group == group).ok_or(Cause::NotOffered)?;
        Ok((chosen.clone(), suite))
    }

    /// Creates a child SA; returns the SPI that it receives by.
    pub(super) fn install_child(&mut self, now_ns: u64, terms: ChildTerms) -> Result<u32, Cause> {
        let policy = Policy {
            suite: terms.suite.cipher,
            has_esn: terms.suite.has_esn,
            replay_window: self.config.replay_window,
        };
        let (own, peers) = match terms.is_initiator {
            true => (&terms.keys.from_initiator, &terms.keys.from_responder),
            false => (&terms.keys.from_responder, &terms.keys.from_initiator),
        };
        let (spi, peer_spi) = terms.spis;
        let child = Child {
            inbound: Inbound::new(&policy, spi, peers.expose()).map_err(|_| Cause::Internal)?,
            outbound: Outbound::new(&policy, peer_spi, own.expose()).map_err(|_| Cause::Internal)?,
            local_ts: terms.local_ts.into(),
            remote_ts: terms.remote_ts.into(),
            rekey_ns: self.lifetime_end(now_ns, self.config.child_lifetime),
            end_ns: None,
            is_deleting: false,
            awaits_traffic: !terms.is_initiator,
            cipher: terms.suite.cipher.encryption.name(),
        };
        self.children.push(child);
        Ok(spi)
    }

    /// When something that exists since `now_ns` is rekeyed: a fleet's clients at different times.
    pub(super) fn lifetime_end(&mut self, now_ns: u64, lifetime: Lifetime) -> Option<u64> {
        let rekey_ns = lifetime.rekey_ns?;
        let early = self.random.below(lifetime.spread_ns.min(rekey_ns) + 1);
        Some(now_ns.saturating_add(rekey_ns - early))
    }

    pub(super) fn child(&mut self, spi: u32) -> Option<&mut Child> {
        self.children.iter_mut().find(|child| child.inbound.spi() == spi)
    }

    /// Ends the sending of a child SA that is deleted; it receives a little longer.
    pub(super) fn retire_child(&mut self, now_ns: u64, spi: u32) {
        let end_ns = now_ns.saturating_add(self.config.linger_ns);
        if let Some(child) = self.child(spi) {
            (child.end_ns, child.rekey_ns) = (Some(end_ns), None);
        }
        for sa in &mut self.sas {
            sa.tasks.retain(|task| !matches!(task, super::ike_sa::Task::RekeyChild(of, _) if *of == spi));
        }
        if self.sender == Some(spi) {
            let successor = self.children.iter().rev().find(|child| child.end_ns.is_none() && !child.is_deleting);
            self.sender = successor.map(|child| child.inbound.spi());
            if self.sender.is_none() && matches!(self.stage, Stage::Up) {
                self.events.push_back(Event::ChildDeleted);
            }
        }
    }

    /// Opens an ESP packet in place.
    pub(super) fn handle_esp<'p>(&mut self, now_ns: u64, packet: &'p mut [u8]) -> Received<'p> {
        let spi = packet.first_chunk().map(|spi| u32::from_be_bytes(*spi));
        let Some(child) = self.children.iter_mut().find(|child| Some(child.inbound.spi()) == spi) else {
            self.counters.rejected += 1;
            return Received::Nothing;
        };
        let opened = match child.inbound.open(packet) {
            Ok(opened) => opened,
            Err(EspError::Replayed) => {
                self.counters.replayed += 1;
                return Received::Nothing;
            }
            Err(_) => {
                self.counters.rejected += 1;
                return Received::Nothing;
            }
        };
        if std::mem::take(&mut child.awaits_traffic) && child.end_ns.is_none() && !child.is_deleting {
            // RFC 7296, section 2.8: the peer sends by the new SA, so that it also receives by it.
            self.sender = spi;
        }
        self.counters.opened += 1;
        self.last_received_ns = now_ns;
        self.steps.first_packet_ns.get_or_insert(now_ns);
        match opened {
            Opened::Payload(payload) => Received::Payload(payload),
            Opened::Dummy => Received::Nothing,
        }
    }
}
