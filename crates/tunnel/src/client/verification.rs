//! The verification of a client after its options are known: they are checked, an echo request passes through the
//! tunnel, and the client is `configured` or `partial`. Later the server may change the assigned configuration. Owns
//! the order of the checks.

use leadline_wire::FailureCause;

use super::assigned_config::AssignedConfig;
use super::echo::Verified;
use super::effects::{Effects, Metric};
use super::expectation::OPTION_MALFORMED;
use super::phase::{Occasion, Phase};
use super::{Success, VpnClient};
use crate::protocol::Failure;

impl VpnClient {
    /// Checks the complete options, then verifies the tunnel.
    pub(super) fn options_received(&mut self, now_ns: u64, effects: &mut impl Effects) {
        let Some(assigned) = self.session_assigned() else { return };
        let until_ns = now_ns.saturating_add(self.settings.first_data_ns);
        self.give_up_ns = self.give_up_ns.max(Some(until_ns));
        self.echoes.verify(now_ns, until_ns, assigned.echo_ends(self.settings.expectation.echo));
        self.assigned = Some(Box::new(assigned));
        self.check(now_ns, effects);
    }

    /// The tunnel is up without a data channel: the client is `partial` for the session's reason.
    pub(super) fn stay_incomplete(&mut self, now_ns: u64, failure: &Failure, effects: &mut impl Effects) {
        if let Some(assigned) = self.session_assigned() {
            effects.claim(&assigned, now_ns);
            self.assigned = Some(Box::new(assigned));
        }
        self.fail_check(now_ns, failure.name, &failure.detail, effects);
    }

    /// The configuration that the session's server has assigned.
    fn session_assigned(&self) -> Option<AssignedConfig> {
        let session = self.session.as_ref()?;
        let server = self.settings.server(self.server_turn);
        session.assigned(server, self.settings.mtu)
    }

    /// Checks the assigned configuration; if no check fails, the tunnel is verified.
    fn check(&mut self, now_ns: u64, effects: &mut impl Effects) {
        let Some(granted) = self.session.as_ref().and_then(|session| session.granted()) else { return };
        let Some(assigned) = self.assigned.as_deref() else { return };
        let missing = self.settings.expectation.find_missing(granted, assigned);
        let malformed = granted.malformed().map(str::to_owned);
        // Claims the addresses in any case: other clients must not have the same.
        let shared = effects.claim(assigned, now_ns);
        let order = ["partial_no_address", "partial_address_outside_pool"];
        let first = missing.filter(|missing| order.contains(missing)).or(shared_first(shared)).or(missing).or(shared);
        if let Some(name) = first.filter(|name| Some(*name) == shared) {
            return self.contest(now_ns, name, effects);
        }
        if let Some(name) = first {
            // The failed check stands, whatever arrives through the tunnel.
            let detail = malformed.filter(|_| name == OPTION_MALFORMED);
            return self.fail_check(now_ns, name, detail.as_deref().unwrap_or_else(|| explanation(name)), effects);
        }
        if !self.echoes.can_verify() {
            let detail = "the address of the server's end of the tunnel is not known: set expect.echo";
            return self.fail_check(now_ns, "partial_no_data", detail, effects);
        }
        self.enter(Phase::Proving, effects);
        self.send_verification(now_ns, effects);
        self.check_verification(now_ns, effects);
    }

    /// Another client holds the same. The client is verified meanwhile, but stays `partial` unless the other client's
    /// tunnel turns out to be dead.
    fn contest(&mut self, now_ns: u64, name: &'static str, effects: &mut impl Effects) {
        self.current.cause = Some(name);
        self.enter(Phase::Contested, effects);
        self.end_arrival(now_ns, effects);
        self.send_verification(now_ns, effects);
    }

    /// No other client holds the assigned configuration: verification continues.
    pub(super) fn claim_freed(&mut self, now_ns: u64, effects: &mut impl Effects) {
        if self.phase == Phase::Contested {
            let until_ns = now_ns.saturating_add(self.settings.first_data_ns);
            self.current.cause = None;
            self.give_up_ns = self.give_up_ns.max(Some(until_ns));
            self.echoes.verify_until(now_ns, until_ns);
            self.check(now_ns, effects);
        }
    }

    /// Ends a contest without a decision: the later client is `partial`.
    pub(super) fn settle_contest(&mut self, effects: &mut impl Effects) {
        if self.phase == Phase::Contested {
            let name = self.current.cause.unwrap_or("partial_address_not_unique");
            effects.failed(name, explanation(name));
            self.enter(Phase::Partial, effects);
            self.returned_partial(effects);
        }
    }

    /// The server has changed the assigned configuration.
    pub(super) fn options_updated(&mut self, now_ns: u64, effects: &mut impl Effects) {
        let Some(assigned) = self.session_assigned() else { return };
        let has_moved = match &self.assigned {
            Some(before) => {
                effects.release(before, self.heard_ns());
                !assigned.carries_traffic_of(before)
            }
            None => false,
        };
        effects.counts().updated += 1;
        // Clients that are later assigned the same keep their phase, although it is an error of the server: it is
        // counted.
        let is_shared = effects.claim(&assigned, now_ns).is_some();
        effects.counts().shared_later += u64::from(is_shared);
        self.echoes.move_to(assigned.echo_ends(self.settings.expectation.echo));
        self.assigned = Some(Box::new(assigned));
        if has_moved {
            let detail =
                "the server changed a client's addresses or MTU, but its traffic had begun with the former ones";
            effects.break_traffic("address_changed", detail);
        }
    }

    /// Sends the verification echo if it is due.
    pub(super) fn send_verification(&mut self, now_ns: u64, effects: &mut impl Effects) {
        if self.echoes.is_verification_due(now_ns) {
            self.send_echo(now_ns, effects, |echoes, out| echoes.build_verification(now_ns, out));
            self.echoes.verification_sent(now_ns);
            self.flush(now_ns, effects);
        }
    }

    /// Evaluates the verification after a packet arrived through the tunnel or the time for the reply ended.
    pub(super) fn check_verification(&mut self, now_ns: u64, effects: &mut impl Effects) {
        let is_contested = self.phase == Phase::Contested;
        match self.echoes.verified(now_ns) {
            Verified::NotYet => {}
            // Kept for the case that the client turns out to be the only holder of its address.
            Verified::At(_) if is_contested => self.echoes.pause_verification(),
            Verified::Never if is_contested => self.echoes.continue_verification(),
            Verified::At(at_ns) => self.configured(at_ns, effects),
            Verified::Never => {
                let detail = "no answer to any echo request through the tunnel in time";
                self.partial(now_ns, "partial_no_data", detail, effects);
                self.enter(Phase::Overdue, effects);
                self.echoes.continue_verification();
            }
        }
    }

    /// Marks the client as configured: the first echo reply arrived at `at_ns`.
    fn configured(&mut self, at_ns: u64, effects: &mut impl Effects) {
        self.enter(Phase::Configured, effects);
        self.current.cause = None;
        self.current.steps.configured_ns = Some(at_ns);
        self.record_steps(at_ns, effects);
        if let Some(failed_ns) = self.failed_ns.take() {
            effects.record(Metric::Recovered, self.current.steps.due_ns, at_ns.saturating_sub(failed_ns));
            effects.counts().recovered += 1;
        }
        self.failures = 0;
        if let (None, Some(assigned)) = (&self.success, &self.assigned) {
            self.success = Some(Box::new(Success { steps: self.current.steps, assigned: **assigned }));
        }
        self.ping_from(at_ns, effects);
        self.end_arrival(at_ns, effects);
    }

    fn record_steps(&self, at_ns: u64, effects: &mut impl Effects) {
        let steps = self.current.steps;
        match self.current.occasion {
            Occasion::Arrival => effects.record(Metric::Connect, steps.due_ns, steps.since_due(at_ns)),
            Occasion::Reconnect => effects.record(Metric::Reconnect, steps.due_ns, steps.since_due(at_ns)),
            Occasion::Retry => {}
        }
        let spans = [
            (Metric::Answer, steps.sent_ns, steps.answered_ns),
            (Metric::Tls, steps.answered_ns, steps.tls_ns),
            (Metric::Keys, steps.tls_ns, steps.keys_ns),
            (Metric::Push, steps.keys_ns, steps.pushed_ns),
            (Metric::IkeUp, steps.answered_ns, steps.ike_up_ns),
            (Metric::IpAssigned, steps.ike_up_ns, steps.ip_assigned_ns),
            (Metric::ChildUp, steps.ip_assigned_ns.or(steps.ike_up_ns).or(steps.sent_ns), steps.child_up_ns),
            (Metric::FirstData, steps.complete_ns(), Some(at_ns)),
        ];
        for (metric, from_ns, to_ns) in spans {
            if let (Some(from_ns), Some(to_ns)) = (from_ns, to_ns) {
                effects.record(metric, steps.due_ns, to_ns.saturating_sub(from_ns));
            }
        }
    }

    /// Fails a check; no packet can change that.
    fn fail_check(&mut self, now_ns: u64, name: &'static str, detail: &str, effects: &mut impl Effects) {
        self.echoes.end();
        self.partial(now_ns, name, detail, effects);
        self.returned_partial(effects);
    }

    /// The client ends as `partial`. If it had failed before, it counts as recovered partially.
    pub(super) fn returned_partial(&mut self, effects: &mut impl Effects) {
        effects.counts().recovered_partial += u64::from(self.failed_ns.take().is_some());
    }

    fn partial(&mut self, now_ns: u64, name: &'static str, detail: &str, effects: &mut impl Effects) {
        self.current.cause = Some(name);
        effects.failed(name, detail);
        self.enter(Phase::Partial, effects);
        self.end_arrival(now_ns, effects);
    }
}

/// A shared address is reported before the remaining checks.
fn shared_first(shared: Option<&'static str>) -> Option<&'static str> {
    shared.filter(|name| *name == "partial_address_not_unique")
}

/// Possible reasons for a failed check whose name does not explain it.
fn explanation(name: &'static str) -> &'static str {
    FailureCause::from(name).explanation().unwrap_or_default()
}
