//! What happens to a client from when its options are there: they are checked, its tunnel is proved, and it is `configured` or
//! `partial`; later on the server may change what it gave. Owns the order of the checks and what is counted of a way up.

use leadline_sys::clock::monotonic_ns;

use super::assigned_config::{AssignedConfig, OPTION_MALFORMED};
use super::client::{Occasion, Phase, Success};
use super::inner_traffic::Proven;
use super::metric::Metric;
use super::worker::Worker;

impl Worker {
    /// All options are there: check them, then prove the tunnel.
    pub fn on_connected(&mut self, index: usize, now_ns: u64) {
        let plan = &self.fleet.plan;
        let client = &mut self.clients[index];
        let Some(pushed) = client.machine.as_ref().and_then(|machine| machine.pushed()) else { return };
        let cipher = client.machine.as_ref().and_then(|machine| machine.cipher());
        let assigned = AssignedConfig::new(plan.server(client.remote), pushed, cipher, plan.mtu);
        let until_ns = now_ns.saturating_add(plan.first_data_ns);
        client.give_up_ns = until_ns.max(client.give_up_ns);
        let echo_ends = assigned.echo_ends(plan.expectation.echo);
        client.inner.prove(now_ns, until_ns, echo_ends);
        client.assigned = Some(Box::new(assigned));
        self.check(index, now_ns);
    }

    /// Look at what a client was given; where nothing is missing, its tunnel is to be proved.
    fn check(&mut self, index: usize, now_ns: u64) {
        let plan = &self.fleet.plan;
        let client = &mut self.clients[index];
        let Some(pushed) = client.machine.as_ref().and_then(|machine| machine.pushed()) else { return };
        let Some(assigned) = client.assigned.as_deref() else { return };
        let missing = plan.expectation.missing(pushed, assigned);
        let malformed = pushed.malformed().map(str::to_owned);
        // Whatever else is missing, others must not have the same.
        let shared = self.fleet.register.claim(client.number, assigned, now_ns);
        let order = ["partial_no_address", "partial_address_outside_pool"];
        let first =
            missing.filter(|missing| order.contains(missing)).or(unique_address_first(shared)).or(missing).or(shared);
        if let Some(name) = first.filter(|name| Some(*name) == shared) {
            return self.contest(index, name, now_ns);
        }
        if let Some(name) = first {
            // Whatever comes through it: the check that it missed stands.
            let detail = malformed.filter(|_| name == OPTION_MALFORMED);
            return self.fail_check(index, name, detail.as_deref().unwrap_or_else(|| explanation(name)));
        }
        if !client.inner.can_prove() {
            return self.fail_check(
                index,
                "partial_no_data",
                "the server pushes no address of its own: give expect.echo",
            );
        }
        self.enter_phase(index, Phase::Proving);
        self.poll_proof(index, now_ns);
        self.check_proof(index, now_ns);
    }

    /// Another client holds the same. Unless that one's tunnel turns out to be dead, this one is `partial`; it is proved meanwhile.
    fn contest(&mut self, index: usize, name: &'static str, now_ns: u64) {
        self.clients[index].cause = Some(name);
        self.enter_phase(index, Phase::Contested);
        self.end_setup(index, now_ns);
        self.poll_proof(index, now_ns);
    }

    /// Clients that hold alone by now what they were given go on to be proved.
    pub fn take_freed(&mut self, now_ns: u64) {
        for client in self.fleet.register.take_freed(self.number, self.threads) {
            let index = (client / self.threads) as usize;
            if self.clients[index].phase == Phase::Contested {
                let until_ns = now_ns.saturating_add(self.fleet.plan.first_data_ns);
                let client = &mut self.clients[index];
                client.cause = None;
                client.give_up_ns = until_ns.max(client.give_up_ns);
                client.inner.prove_until(now_ns, until_ns);
                self.check(index, now_ns);
            }
        }
    }

    /// What two clients hold is not decided any more: the later one is `partial`.
    pub fn settle_contest(&mut self, index: usize) {
        if self.clients[index].phase == Phase::Contested {
            let name = self.clients[index].cause.unwrap_or("partial_address_not_unique");
            self.failures.count(name, 1, || explanation(name).to_owned());
            self.enter_phase(index, Phase::Partial);
            self.count_partial_return(index);
        }
    }

    /// The server has changed what it gave.
    pub fn updated(&mut self, index: usize) {
        let plan = &self.fleet.plan;
        let client = &mut self.clients[index];
        let Some(machine) = &client.machine else { return };
        let Some(pushed) = machine.pushed() else { return };
        let assigned = AssignedConfig::new(plan.server(client.remote), pushed, machine.cipher(), plan.mtu);
        if let Some(before) = &client.assigned {
            self.fleet.register.release(client.number, before, machine.last_received_ns().unwrap_or(0));
        }
        let place = |assigned: &AssignedConfig| (assigned.ipv4, assigned.ipv6, assigned.mtu);
        let has_moved = client.assigned.as_ref().is_some_and(|before| place(before) != place(&assigned));
        self.tally.updated += 1;
        // Two clients that are given the same later on are as wrong as at first, but stay what they are: this is counted.
        let now_ns = monotonic_ns();
        self.tally.shared_later += u64::from(self.fleet.register.claim(client.number, &assigned, now_ns).is_some());
        client.inner.move_to(assigned.echo_ends(plan.expectation.echo));
        client.assigned = Some(Box::new(assigned));
        if has_moved {
            let detail =
                "the server gave a client other addresses or another MTU: its traffic had begun with the former ones";
            self.break_traffic(index, "address_changed", detail);
        }
    }

    /// Something has come through a tunnel that is being proved, or its time is over.
    pub fn check_proof(&mut self, index: usize, now_ns: u64) {
        let is_contested = self.clients[index].phase == Phase::Contested;
        match self.clients[index].inner.proven(now_ns) {
            Proven::NotYet => {}
            // Kept for when it turns out to be the only one that has its address.
            Proven::At(_) if is_contested => self.clients[index].inner.rest_proof(),
            Proven::Never if is_contested => self.clients[index].inner.go_on_proving(),
            Proven::At(at_ns) => self.configured(index, at_ns),
            Proven::Never => {
                self.partial(index, "partial_no_data", "no answer to any echo request through the tunnel in time");
                self.enter_phase(index, Phase::Overdue);
                self.clients[index].inner.go_on_proving();
                self.rearm(index);
            }
        }
    }

    fn configured(&mut self, index: usize, at_ns: u64) {
        self.enter_phase(index, Phase::Configured);
        let client = &mut self.clients[index];
        client.cause = None;
        let steps = &mut client.steps;
        steps.configured_ns = at_ns;
        let due_ns = steps.due_ns;
        let mut record = |metric: Metric, from_ns: u64, to_ns: u64| {
            self.recorder.record(metric as usize, due_ns, to_ns.saturating_sub(from_ns));
        };
        match client.occasion {
            Occasion::Arrival => record(Metric::Connect, due_ns, at_ns),
            Occasion::Reconnect => record(Metric::Reconnect, due_ns, at_ns),
            Occasion::Retry => {}
        }
        record(Metric::Answer, steps.sent_ns, steps.answered_ns);
        record(Metric::Tls, steps.answered_ns, steps.tls_ns);
        record(Metric::Keys, steps.tls_ns, steps.keys_ns);
        record(Metric::Push, steps.keys_ns, steps.pushed_ns);
        record(Metric::FirstData, steps.pushed_ns, at_ns);
        if let Some(failed_ns) = client.failed_ns.take() {
            record(Metric::Recovered, failed_ns, at_ns);
            self.tally.recovered += 1;
        }
        client.failures = 0;
        if let (None, Some(assigned)) = (&client.success, &client.assigned) {
            client.success = Some(Box::new(Success { steps: client.steps, assigned: **assigned }));
        }
        self.ping_from(index, at_ns);
        self.end_setup(index, at_ns);
        self.rearm(index);
    }

    /// A check was missed, which no packet can make good.
    fn fail_check(&mut self, index: usize, name: &'static str, detail: &str) {
        self.clients[index].inner.end();
        self.partial(index, name, detail);
        self.count_partial_return(index);
    }

    /// A client ends as `partial`: one that had failed before has come back, and not whole.
    pub fn count_partial_return(&mut self, index: usize) {
        self.tally.recovered_partial += u64::from(self.clients[index].failed_ns.take().is_some());
    }

    fn partial(&mut self, index: usize, name: &'static str, detail: &str) {
        self.clients[index].cause = Some(name);
        self.failures.count(name, 1, || detail.to_owned());
        self.enter_phase(index, Phase::Partial);
        self.end_setup(index, monotonic_ns());
        self.rearm(index);
    }
}

/// What the server's check of what nobody else may have comes before, in the order of the checks.
fn unique_address_first(shared: Option<&'static str>) -> Option<&'static str> {
    shared.filter(|name| *name == "partial_address_not_unique")
}

/// What a missed check may come from, where its name does not say all.
fn explanation(name: &str) -> &'static str {
    match name {
        "partial_no_address" => {
            "the server gave the client no address and let it in: its pool (ifconfig-pool) is exhausted, or gives none"
        }
        _ => "",
    }
}
