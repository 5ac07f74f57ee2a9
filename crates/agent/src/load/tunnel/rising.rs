//! What happens to a client from when its options are there: they are checked, its tunnel is proved, and it is `configured` or
//! `partial`; later on the server may change what it gave. Owns the order of the checks and what is counted of a way up.

use leadline_sys::clock::monotonic_ns;

use super::given::{Given, OPTION_MALFORMED};
use super::inside::Proven;
use super::member::{Occasion, Phase, Success};
use super::metric::Metric;
use super::worker::Worker;

impl Worker {
    /// All options are there: check them, then prove the tunnel.
    pub fn came_up(&mut self, index: usize, now_ns: u64) {
        let plan = &self.fleet.plan;
        let member = &mut self.members[index];
        let Some(pushed) = member.machine.as_ref().and_then(|machine| machine.pushed()) else { return };
        let cipher = member.machine.as_ref().and_then(|machine| machine.cipher());
        let given = Given::new(plan.server(member.remote), pushed, cipher, plan.mtu);
        let until_ns = now_ns.saturating_add(plan.first_data_ns);
        member.give_up_ns = until_ns.max(member.give_up_ns);
        let echo_ends = given.echo_ends(plan.expectation.echo);
        member.inside.prove(now_ns, until_ns, echo_ends);
        member.given = Some(Box::new(given));
        self.check(index, now_ns);
    }

    /// Look at what a client was given; where nothing is missing, its tunnel is to be proved.
    fn check(&mut self, index: usize, now_ns: u64) {
        let plan = &self.fleet.plan;
        let member = &mut self.members[index];
        let Some(pushed) = member.machine.as_ref().and_then(|machine| machine.pushed()) else { return };
        let Some(given) = member.given.as_deref() else { return };
        let missing = plan.expectation.missing(pushed, given);
        let malformed = pushed.malformed().map(str::to_owned);
        // Whatever else is missing, others must not have the same.
        let shared = self.fleet.register.enter(member.number, given, now_ns);
        let order = ["partial_no_address", "partial_address_outside_pool"];
        let first = missing.filter(|missing| order.contains(missing)).or(shared_first(shared)).or(missing).or(shared);
        if let Some(name) = first.filter(|name| Some(*name) == shared) {
            return self.contest(index, name, now_ns);
        }
        if let Some(name) = first {
            // Whatever comes through it: the check that it missed stands.
            let detail = malformed.filter(|_| name == OPTION_MALFORMED);
            return self.lacking(index, name, detail.as_deref().unwrap_or_else(|| explanation(name)));
        }
        if !member.inside.can_prove() {
            return self.lacking(index, "partial_no_data", "the server pushes no address of its own: give expect.echo");
        }
        self.enter(index, Phase::Proving);
        self.poll_proof(index, now_ns);
        self.look_at_proof(index, now_ns);
    }

    /// Another client holds the same. Unless that one's tunnel turns out to be dead, this one is `partial`; it is proved meanwhile.
    fn contest(&mut self, index: usize, name: &'static str, now_ns: u64) {
        self.members[index].cause = Some(name);
        self.enter(index, Phase::Contested);
        self.end_way(index, now_ns);
        self.poll_proof(index, now_ns);
    }

    /// Clients that hold alone by now what they were given go on to be proved.
    pub fn take_freed(&mut self, now_ns: u64) {
        for client in self.fleet.register.take_freed(self.number, self.threads) {
            let index = (client / self.threads) as usize;
            if self.members[index].phase == Phase::Contested {
                let until_ns = now_ns.saturating_add(self.fleet.plan.first_data_ns);
                let member = &mut self.members[index];
                member.cause = None;
                member.give_up_ns = until_ns.max(member.give_up_ns);
                member.inside.prove_until(now_ns, until_ns);
                self.check(index, now_ns);
            }
        }
    }

    /// What two clients hold is not decided any more: the later one is `partial`.
    pub fn settle_contest(&mut self, index: usize) {
        if self.members[index].phase == Phase::Contested {
            let name = self.members[index].cause.unwrap_or("partial_address_not_unique");
            self.failures.count(name, 1, || explanation(name).to_owned());
            self.enter(index, Phase::Partial);
            self.returned_partly(index);
        }
    }

    /// The server has changed what it gave.
    pub fn updated(&mut self, index: usize) {
        let plan = &self.fleet.plan;
        let member = &mut self.members[index];
        let Some(machine) = &member.machine else { return };
        let Some(pushed) = machine.pushed() else { return };
        let given = Given::new(plan.server(member.remote), pushed, machine.cipher(), plan.mtu);
        if let Some(before) = &member.given {
            self.fleet.register.leave(member.number, before, machine.heard_at_ns().unwrap_or(0));
        }
        let place = |given: &Given| (given.ipv4, given.ipv6, given.mtu);
        let has_moved = member.given.as_ref().is_some_and(|before| place(before) != place(&given));
        self.tally.updated += 1;
        // Two clients that are given the same later on are as wrong as at first, but stay what they are: this is counted.
        let now_ns = monotonic_ns();
        self.tally.shared_later += u64::from(self.fleet.register.enter(member.number, &given, now_ns).is_some());
        member.inside.move_to(given.echo_ends(plan.expectation.echo));
        member.given = Some(Box::new(given));
        if has_moved {
            let detail =
                "the server gave a client other addresses or another MTU: its traffic had begun with the former ones";
            self.break_traffic(index, "address_changed", detail);
        }
    }

    /// Something has come through a tunnel that is being proved, or its time is over.
    pub fn look_at_proof(&mut self, index: usize, now_ns: u64) {
        let is_contested = self.members[index].phase == Phase::Contested;
        match self.members[index].inside.proven(now_ns) {
            Proven::NotYet => {}
            // Kept for when it turns out to be the only one that has its address.
            Proven::At(_) if is_contested => self.members[index].inside.rest_proof(),
            Proven::Never if is_contested => self.members[index].inside.go_on_proving(),
            Proven::At(at_ns) => self.configured(index, at_ns),
            Proven::Never => {
                self.partial(index, "partial_no_data", "no answer to any echo request through the tunnel in time");
                self.enter(index, Phase::Overdue);
                self.members[index].inside.go_on_proving();
                self.rearm(index);
            }
        }
    }

    fn configured(&mut self, index: usize, at_ns: u64) {
        self.enter(index, Phase::Configured);
        let member = &mut self.members[index];
        member.cause = None;
        let steps = &mut member.steps;
        steps.configured_ns = at_ns;
        let due_ns = steps.due_ns;
        let mut record = |metric: Metric, from_ns: u64, to_ns: u64| {
            self.recorder.record(metric as usize, due_ns, to_ns.saturating_sub(from_ns));
        };
        match member.occasion {
            Occasion::Arrival => record(Metric::Connect, due_ns, at_ns),
            Occasion::Reconnect => record(Metric::Reconnect, due_ns, at_ns),
            Occasion::Retry => {}
        }
        record(Metric::Answer, steps.sent_ns, steps.answered_ns);
        record(Metric::Tls, steps.answered_ns, steps.tls_ns);
        record(Metric::Keys, steps.tls_ns, steps.keys_ns);
        record(Metric::Push, steps.keys_ns, steps.pushed_ns);
        record(Metric::FirstData, steps.pushed_ns, at_ns);
        if let Some(failed_ns) = member.failed_ns.take() {
            record(Metric::Recovered, failed_ns, at_ns);
            self.tally.recovered += 1;
        }
        member.failures = 0;
        if let (None, Some(given)) = (&member.success, &member.given) {
            member.success = Some(Box::new(Success { steps: member.steps, given: **given }));
        }
        self.ping_from(index, at_ns);
        self.end_way(index, at_ns);
        self.rearm(index);
    }

    /// A check was missed, which no packet can make good.
    fn lacking(&mut self, index: usize, name: &'static str, detail: &str) {
        self.members[index].inside.end();
        self.partial(index, name, detail);
        self.returned_partly(index);
    }

    /// A client ends as `partial`: one that had failed before has come back, and not whole.
    pub fn returned_partly(&mut self, index: usize) {
        self.tally.recovered_partial += u64::from(self.members[index].failed_ns.take().is_some());
    }

    fn partial(&mut self, index: usize, name: &'static str, detail: &str) {
        self.members[index].cause = Some(name);
        self.failures.count(name, 1, || detail.to_owned());
        self.enter(index, Phase::Partial);
        self.end_way(index, monotonic_ns());
        self.rearm(index);
    }
}

/// What the server's check of what nobody else may have comes before, in the order of the checks.
fn shared_first(shared: Option<&'static str>) -> Option<&'static str> {
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
