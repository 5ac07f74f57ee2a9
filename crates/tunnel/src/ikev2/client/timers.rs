//! The timers of a client: repetitions, silence, keepalives, lifetimes, and the ends of replaced SAs.

use super::ike_sa::Task;
use super::output::Cause;
use super::{earlier, is_due, Client, Outgoing, Stage};

impl Client {
    pub(super) fn next_timer_ns(&self) -> Option<u64> {
        let stage_ns = match &self.stage {
            Stage::Initiating(state) => Some(state.deadline_ns()),
            Stage::Up => earlier(self.probe_ns(), self.keepalive_ns()),
            _ => None,
        };
        let is_up = matches!(self.stage, Stage::Up);
        let of_sas = self.sas.iter().map(|sa| {
            let due_ns = sa.outstanding.as_ref().map(|outstanding| outstanding.due_ns);
            earlier(earlier(due_ns, sa.end_ns), sa.rekey_ns.filter(|_| is_up))
        });
        let of_children = self.children.iter().map(|child| earlier(child.end_ns, child.rekey_ns.filter(|_| is_up)));
        of_sas.chain(of_children).fold(stage_ns, earlier)
    }

    pub(super) fn check_timers(&mut self, now_ns: u64) {
        self.check_sa_init(now_ns);
        self.check_repetitions(now_ns);
        self.sas.retain(|sa| !is_due(sa.end_ns, now_ns));
        self.children.retain(|child| !is_due(child.end_ns, now_ns));
        if !matches!(self.stage, Stage::Up) {
            return;
        }
        if is_due(self.probe_ns(), now_ns) {
            self.push_task(Task::Probe);
        }
        if is_due(self.keepalive_ns(), now_ns) {
            self.counters.keepalives += 1;
            self.sent_ns = now_ns;
            self.outgoing.push_back(Outgoing::Keepalive);
        }
        let group = self.config.esp.iter().find_map(|offer| offer.groups.first().copied());
        for index in 0..self.children.len() {
            let child = &mut self.children[index];
            if is_due(child.rekey_ns, now_ns) {
                child.rekey_ns = None;
                let spi = child.inbound.spi();
                self.push_task(Task::RekeyChild(spi, group));
            }
        }
        let sa = &mut self.sas[0];
        if is_due(sa.rekey_ns, now_ns) {
            sa.rekey_ns = None;
            let group = sa.suite.group;
            self.push_task(Task::RekeyIke(group));
        }
        self.start_tasks(now_ns);
    }

    fn check_repetitions(&mut self, now_ns: u64) {
        for index in 0..self.sas.len() {
            let sa = &mut self.sas[index];
            let Some(outstanding) = sa.outstanding.as_ref().filter(|outstanding| now_ns >= outstanding.due_ns) else {
                continue;
            };
            let exchange = outstanding.exchange;
            if let Some(messages) = sa.repeat(now_ns, &self.config.retransmission) {
                self.outgoing.extend(messages.iter().cloned().map(Outgoing::Message));
                self.counters.retransmits += 1;
            } else if index == 0 {
                return self.fail(Cause::NoAnswer(exchange), "");
            } else {
                // No answer comes to the deletion of a replaced SA.
                (sa.outstanding, sa.end_ns) = (None, Some(now_ns));
            }
        }
    }

    /// When the gateway is asked whether it is alive, ns: not while another request asks it.
    fn probe_ns(&self) -> Option<u64> {
        let sa = self.sas.first()?;
        let is_idle = sa.outstanding.is_none() && sa.tasks.is_empty();
        self.config.dpd_ns.filter(|_| is_idle).map(|dpd_ns| self.last_received_ns.saturating_add(dpd_ns))
    }

    fn keepalive_ns(&self) -> Option<u64> {
        let interval_ns = self.config.keepalive_ns.filter(|_| self.encapsulates)?;
        Some(self.sent_ns.saturating_add(interval_ns))
    }
}
