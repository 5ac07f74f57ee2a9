//! What happens to one client: it begins, connects, comes up, is proved, acts, fails, rests and leaves. Owns what each event
//! of its machine and of its socket means to it, and what is counted then.

use std::io;

use leadline_sys::clock::monotonic_ns;
use leadline_sys::poll::Interest;
use leadline_tunnel::openvpn::client::{Client, Event, Output};
use leadline_tunnel::openvpn::framing::set_length;
use leadline_tunnel::openvpn::packet::{Header, Opcode};
use leadline_wire::TunnelDeed;

use super::given::{Given, OPTION_MALFORMED};
use super::inside::{Ledger, Proven};
use super::link::{Link, Sent};
use super::member::{Member, Occasion, Phase, Steps, Success};
use super::metric::Metric;
use super::worker::Worker;
use crate::events::error_code;

/// The rest after a failure, ns; doubled after each further one, as OpenVPN 2.6 and later do (`connect-retry 1 300`).
const FIRST_REST_NS: u64 = 1_000_000_000;
const LONGEST_REST_NS: u64 = 300_000_000_000;

impl Worker {
    /// An attempt is due.
    pub fn begin(&mut self, index: usize, due_ns: u64, occasion: Occasion) {
        let member = &mut self.members[index];
        member.occasion = occasion;
        member.steps = Steps { due_ns, ..Steps::default() };
        member.first_due_ns.get_or_insert(due_ns);
        member.cause = None;
        let opened = if member.link.is_some() { Ok(()) } else { self.open(index, None) };
        let member = &mut self.members[index];
        member.attempts += 1;
        self.tally.attempts += 1;
        let now_ns = monotonic_ns();
        member.give_up_ns = now_ns.saturating_add(self.fleet.plan.attempt_ns);
        if let Err(error) = opened {
            return self.fail(index, error_code(&error), &format!("opening a socket: {error}"));
        }
        match &member.link {
            Some(Link::Tcp { .. }) => {
                self.enter(index, Phase::Connecting);
                self.rearm(index);
            }
            _ => self.negotiate(index),
        }
    }

    /// TCP's handshake is over, one way or the other.
    pub fn connected(&mut self, index: usize) {
        let Some(link) = &self.members[index].link else { return };
        if let Some(error) = link.failure() {
            return self.fail(index, error_code(&error), &error.to_string());
        }
        if let Err(error) = link.watch_for(&self.poll, index as u64, Interest::Read) {
            return self.fail(index, error_code(&error), &error.to_string());
        }
        self.negotiate(index);
    }

    fn negotiate(&mut self, index: usize) {
        self.enter(index, Phase::Negotiating);
        let plan = &self.fleet.plan;
        let member = &mut self.members[index];
        member.local = member.link.as_ref().and_then(Link::local);
        let now_ns = monotonic_ns();
        member.machine = Some(Box::new(Client::new(&plan.config, plan.identity(member.number), now_ns)));
        member.steps.sent_ns = now_ns;
        self.recorder.record(Metric::Late as usize, member.steps.due_ns, now_ns.saturating_sub(member.steps.due_ns));
        self.drive(index);
    }

    /// Let the machine do what it wants to, until it waits.
    pub fn drive(&mut self, index: usize) {
        let mut failure = None;
        loop {
            let now_ns = monotonic_ns();
            let Some(machine) = &mut self.members[index].machine else { break };
            match machine.poll(now_ns, &mut self.control) {
                Output::Send => {
                    if let Err(error) = self.transmit(index) {
                        return self.broken(index, &error);
                    }
                }
                // Its last words to the server are still to come.
                Output::Event(Event::Failed(failed)) => failure = Some((failed.name, failed.detail)),
                Output::Event(event) => failure = self.happened(index, now_ns, event).or(failure),
                Output::Wait(due_ns) => {
                    self.members[index].machine_due_ns = due_ns.unwrap_or(u64::MAX);
                    break;
                }
            }
        }
        match failure {
            Some((name, detail)) => self.fail(index, name, &detail),
            None => self.rearm(index),
        }
    }

    /// Send the packet that is in `control`.
    fn transmit(&mut self, index: usize) -> io::Result<()> {
        let Some(link) = &mut self.members[index].link else { return Ok(()) };
        if let Some(header) = self.control.first().and_then(|byte| Header::parse(*byte)) {
            if matches!(header.opcode, Opcode::HardResetClientV2 | Opcode::HardResetClientV3) {
                self.tally.resets_sent += 1;
            }
        }
        if link.is_stream() {
            self.control.splice(..0, [0, 0]);
            set_length(&mut self.control, 0);
        }
        let was_blocked = link.is_blocked();
        let sent = link.send(&self.control, self.control.len())?;
        if sent != Sent::Taken {
            self.tally.pushback += 1;
        }
        if sent == Sent::Waits && !was_blocked {
            link.watch_for(&self.poll, index as u64, Interest::ReadWrite)?;
        }
        Ok(())
    }

    /// Take an event of the machine; says what the client fails by, where it does.
    fn happened(&mut self, index: usize, now_ns: u64, event: Event) -> Option<(&'static str, String)> {
        let steps = &mut self.members[index].steps;
        match event {
            Event::Answered => steps.answered_ns = now_ns,
            Event::TlsDone => steps.tls_ns = now_ns,
            Event::KeysDone => steps.keys_ns = now_ns,
            Event::Up => {
                steps.pushed_ns = now_ns;
                self.came_up(index, now_ns);
            }
            Event::Renegotiated => {
                self.tally.renegotiated += 1;
                if let Some(due_ns) = self.members[index].renewal_due_ns.take() {
                    self.renewals -= 1;
                    self.recorder.record(Metric::Renegotiate as usize, due_ns, now_ns.saturating_sub(due_ns));
                }
            }
            Event::Updated => self.updated(index),
            Event::RenegotiationFailed => {}
            Event::Pending { .. } => self.tally.auth_pending += 1,
            Event::Restart(why) => return Some(("restarted_by_server", why)),
            Event::PeerLeft => return Some(("server_left", String::new())),
            Event::Failed(failure) => return Some((failure.name, failure.detail)),
        }
        None
    }

    /// All options are there: check them, then prove the tunnel.
    fn came_up(&mut self, index: usize, now_ns: u64) {
        let plan = &self.fleet.plan;
        let member = &mut self.members[index];
        let Some(pushed) = member.machine.as_ref().and_then(|machine| machine.pushed()) else { return };
        let cipher = member.machine.as_ref().and_then(|machine| machine.cipher());
        let given = Given::new(pushed, cipher, plan.mtu);
        let missing = plan.expectation.missing(pushed, &given);
        let malformed = pushed.malformed().map(str::to_owned);
        // Whatever else is missing, others must not have the same.
        let shared = self.fleet.register.enter(member.number, &given);
        let until_ns = now_ns.saturating_add(plan.first_data_ns).min(member.give_up_ns);
        let has_proof = member.inside.prove(now_ns, until_ns, given.echo_ends(plan.expectation.echo));
        member.given = Some(Box::new(given));
        let order = ["partial_no_address", "partial_address_outside_pool"];
        let first = missing.filter(|missing| order.contains(missing)).or(shared_first(shared)).or(missing).or(shared);
        if let Some(name) = first {
            // Whatever comes through it: the check that it missed stands.
            member.inside.end();
            let detail = malformed.filter(|_| name == OPTION_MALFORMED).unwrap_or_default();
            return self.partial(index, name, &detail);
        }
        if !has_proof {
            member.inside.end();
            return self.partial(index, "partial_no_data", "the server pushes no address of its own: give expect.echo");
        }
        self.enter(index, Phase::Proving);
        self.poll_proof(index, now_ns);
    }

    /// The server has changed what it gave.
    fn updated(&mut self, index: usize) {
        let plan = &self.fleet.plan;
        let member = &mut self.members[index];
        let Some(machine) = &member.machine else { return };
        let Some(pushed) = machine.pushed() else { return };
        let given = Given::new(pushed, machine.cipher(), plan.mtu);
        if let Some(before) = &member.given {
            self.fleet.register.leave(member.number, before);
        }
        self.tally.updated += 1;
        // Two clients that are given the same later on are as wrong as at first, but stay what they are: this is counted.
        self.tally.shared_later += u64::from(self.fleet.register.enter(member.number, &given).is_some());
        member.inside.move_to(given.echo_ends(plan.expectation.echo));
        member.given = Some(Box::new(given));
    }

    /// Something has come through a tunnel that is being proved, or its time is over.
    pub fn look_at_proof(&mut self, index: usize, now_ns: u64) {
        match self.members[index].inside.proven(now_ns) {
            Proven::NotYet => {}
            Proven::At(at_ns) => self.configured(index, at_ns),
            Proven::Never => {
                let now_ns = monotonic_ns();
                self.partial(index, "partial_no_data", "no answer to any echo request through the tunnel in time");
                self.enter(index, Phase::Overdue);
                let member = &mut self.members[index];
                member.failed_ns.get_or_insert(now_ns);
                member.inside.go_on_proving();
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
        if let Some(ping_ns) = self.fleet.plan.ping_ns {
            // Spread over one gap, or all pings of a storm's clients would go out together.
            let share = u128::from(ping_ns) * u128::from(member.number) / u128::from(self.fleet.plan.clients);
            member.inside.ping_from(at_ns + u64::try_from(share).unwrap_or(ping_ns));
        }
        self.end_way(index, at_ns);
        self.rearm(index);
    }

    fn partial(&mut self, index: usize, name: &'static str, detail: &str) {
        self.members[index].cause = Some(name);
        self.failures.count(name, 1, || detail.to_owned());
        self.enter(index, Phase::Partial);
        self.end_way(index, monotonic_ns());
        self.rearm(index);
    }

    /// A socket has failed, or its server has closed it.
    pub fn broken(&mut self, index: usize, error: &io::Error) {
        let member = &self.members[index];
        let is_stream = member.link.as_ref().is_some_and(Link::is_stream);
        let is_unanswered = member.phase == Phase::Negotiating && member.steps.answered_ns == 0;
        if !is_stream && !is_unanswered {
            // A datagram could not be delivered; that the server is gone its silence will tell.
            *self.failures_of_sockets(error) += 1;
            return;
        }
        let is_end = matches!(
            error.kind(),
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe
        );
        match (error.kind(), is_end) {
            (io::ErrorKind::InvalidData, _) => self.fail(index, "malformed_stream", &error.to_string()),
            (_, true) if is_unanswered => self.fail(
                index,
                "closed_unanswered",
                "the server took the connection and closed it before it answered the reset: it has as many clients as it \
                 takes (max-clients), or does not know the key of the control channel",
            ),
            (_, true) => self.fail(index, "closed_by_server", &error.to_string()),
            _ => self.fail(index, error_code(error), &error.to_string()),
        }
    }

    fn failures_of_sockets(&mut self, error: &io::Error) -> &mut u64 {
        if error.kind() == io::ErrorKind::ConnectionRefused {
            &mut self.tally.refused
        } else {
            &mut self.tally.socket_errors
        }
    }

    /// An attempt, or a tunnel, is over.
    pub fn fail(&mut self, index: usize, name: &'static str, detail: &str) {
        if self.is_departing {
            self.end_tunnel(index);
            self.members[index].link = None;
            return;
        }
        let now_ns = monotonic_ns();
        let was_up = self.members[index].phase.is_up();
        self.tally.lost += u64::from(self.members[index].phase == Phase::Configured);
        self.end_tunnel(index);
        let plan = &self.fleet.plan;
        let member = &mut self.members[index];
        self.failures.count(name, 1, || detail.to_owned());
        member.link = None;
        member.cause = Some(name);
        member.remote += 1;
        member.failed_ns.get_or_insert(now_ns);
        member.failures += 1;
        // As OpenVPN does: who is refused (`auth-retry none`) or told to stop does not ask again.
        let is_final = matches!(name, "auth_failed" | "halted_by_server") || member.failures > plan.retries;
        if is_final {
            self.enter(index, Phase::Failed);
            self.end_way(index, now_ns);
            return;
        }
        let doublings = if was_up { 0 } else { member.failures - 1 };
        let rest_ns = FIRST_REST_NS.saturating_mul(1 << doublings.min(16)).min(LONGEST_REST_NS);
        member.retry_ns = now_ns + rest_ns;
        self.enter(index, Phase::Resting);
        self.rearm(index);
    }

    /// The machine's part is over.
    fn end_tunnel(&mut self, index: usize) {
        let member = &mut self.members[index];
        if let Some(machine) = member.machine.take() {
            member.retransmits += machine.retransmits();
            self.tally.retransmits += u64::from(machine.retransmits());
            self.tally.count_machine(machine.counters());
        }
        if let (Some(given), true) = (&member.given, member.phase.is_up()) {
            self.fleet.register.leave(member.number, given);
        }
        if member.renewal_due_ns.take().is_some() {
            self.renewals -= 1;
        }
        member.machine_due_ns = u64::MAX;
        member.inside.end();
    }

    /// A client has come to an end of its way up, the first time or not.
    fn end_way(&mut self, index: usize, now_ns: u64) {
        let member = &mut self.members[index];
        if !member.has_ended {
            member.has_ended = true;
            self.fleet.ended(member.number, now_ns);
        }
    }

    /// A client's timer has run out.
    pub fn wake(&mut self, index: usize, now_ns: u64) {
        if self.is_departing {
            return self.drive(index);
        }
        let member = &self.members[index];
        let is_late = now_ns >= member.give_up_ns;
        match member.phase {
            Phase::Resting if now_ns >= member.retry_ns => {
                return self.begin(index, member.retry_ns, Occasion::Retry);
            }
            Phase::Connecting if is_late => return self.fail(index, "connect_timeout", "no answer to TCP's SYN"),
            Phase::Negotiating if is_late => {
                let name = member.machine.as_ref().map_or("reset_unanswered", |machine| machine.stuck_at());
                return self.fail(index, name, explanation(name));
            }
            Phase::Overdue if is_late => {
                self.members[index].inside.end();
                self.enter(index, Phase::Partial);
            }
            Phase::Proving | Phase::Overdue => {
                self.poll_proof(index, now_ns);
                self.look_at_proof(index, now_ns);
            }
            Phase::Configured => self.poll_pings(index, now_ns),
            _ => {}
        }
        if now_ns >= self.members[index].machine_due_ns {
            self.drive(index);
        }
        if now_ns >= self.members[index].inside.traffic_due_ns() {
            self.poll_inside(index, now_ns);
        }
        self.rearm(index);
    }

    /// A connected client is to do something.
    pub fn act(&mut self, index: usize, due_ns: u64, deed: TunnelDeed) {
        let Some(member) = self.members.get_mut(index) else { return };
        if !member.phase.is_up() {
            self.tally.deeds_skipped += 1;
            return;
        }
        match deed {
            TunnelDeed::Renegotiate => {
                let Some(machine) = &mut member.machine else { return };
                machine.renegotiate(monotonic_ns());
                if member.renewal_due_ns.replace(due_ns).is_none() {
                    self.renewals += 1;
                }
                self.drive(index);
            }
            TunnelDeed::Reconnect => self.reconnect(index, due_ns),
        }
    }

    /// From the same address and port, and without a word.
    fn reconnect(&mut self, index: usize, due_ns: u64) {
        let local = self.members[index].local;
        self.end_tunnel(index);
        let member = &mut self.members[index];
        if member.link.as_ref().is_some_and(Link::is_stream) {
            if let Some(link) = member.link.take() {
                link.drop_silently();
            }
            if let Err(error) = self.open(index, local) {
                self.enter(index, Phase::Negotiating);
                return self.fail(index, error_code(&error), &format!("opening the same port again: {error}"));
            }
        }
        self.begin(index, due_ns, Occasion::Reconnect);
    }

    /// Say farewell, where there is somebody to hear it.
    pub fn leave(&mut self, index: usize, now_ns: u64) {
        let member = &mut self.members[index];
        if member.phase.is_trying() {
            member.cause = Some("unfinished");
            self.failures.count("unfinished", 1, || "the fleet's time was over".into());
        }
        // From here on only the machines' own timers count.
        (member.give_up_ns, member.retry_ns) = (u64::MAX, u64::MAX);
        if !member.phase.is_up() {
            (member.machine, member.machine_due_ns) = (None, u64::MAX);
            return;
        }
        member.inside.end();
        if let Some(machine) = &mut member.machine {
            machine.leave(now_ns);
            self.drive(index);
        }
    }

    /// Whether a farewell is still to be acknowledged, or to be sent.
    pub fn is_anyone_leaving(&self) -> bool {
        let is_leaving = |member: &Member| {
            let is_blocked = member.link.as_ref().is_some_and(Link::is_blocked);
            member.phase.is_up() && (member.machine_due_ns != u64::MAX || is_blocked)
        };
        self.members.iter().any(is_leaving)
    }

    fn poll_proof(&mut self, index: usize, now_ns: u64) {
        self.with_inside(index, now_ns, |inside, _, packet, send| inside.poll_proof(now_ns, packet, send));
        self.rearm(index);
    }

    fn poll_pings(&mut self, index: usize, now_ns: u64) {
        let Some(gap_ns) = self.fleet.plan.ping_ns else { return };
        self.with_inside(index, now_ns, |inside, ledger, packet, send| {
            inside.poll_pings(now_ns, gap_ns, ledger, packet, send);
        });
    }

    /// Let the traffic send.
    pub fn poll_inside(&mut self, index: usize, now_ns: u64) {
        if !self.members[index].inside.has_traffic() {
            return;
        }
        self.with_inside(index, now_ns, |inside, ledger, _, send| inside.poll_traffic(now_ns, ledger, send));
        self.carrying -= u32::from(!self.members[index].inside.has_traffic());
        self.rearm(index);
    }

    /// Send packets that stand one behind the other.
    pub fn answer(&mut self, index: usize, now_ns: u64, packets: &[u8]) {
        self.with_inside(index, now_ns, |inside, _, _, send| inside.send_all(packets, send));
    }

    /// No more pings and no more traffic.
    pub fn end_inside(&mut self, index: usize, now_ns: u64) {
        self.members[index].inside.ping_from(u64::MAX);
        self.end_traffic(index, now_ns);
    }

    /// No more traffic, done or not.
    pub fn end_traffic(&mut self, index: usize, now_ns: u64) {
        if self.members[index].inside.has_traffic() {
            self.with_inside(index, now_ns, |inside, ledger, _, send| inside.end_traffic(now_ns, ledger, send));
            self.carrying -= 1;
        }
    }

    /// Let what is inside of a tunnel send: what it hands over is sealed, and leaves together.
    fn with_inside(
        &mut self,
        index: usize,
        now_ns: u64,
        act: impl FnOnce(&mut super::inside::Inside, &mut Ledger<'_>, &mut Vec<u8>, &mut dyn FnMut(&[u8]) -> bool),
    ) {
        let Self { fleet, members, outbox, recorder, tally, packet, poll, .. } = self;
        let Member { number, link, machine, inside, .. } = &mut members[index];
        let settled = fleet.plan.settled;
        let mut ledger = Ledger {
            recorder,
            pings: &mut tally.pings,
            times: fleet.times(),
            is_witness: settled == 0 || *number < settled,
            counters: fleet.counters.get(*number as usize).map(AsRef::as_ref),
        };
        let mut broken = None;
        let was_blocked = link.as_ref().is_some_and(Link::is_blocked);
        let mut send = |payload: &[u8]| {
            let (Some(link), Some(machine)) = (link.as_mut(), machine.as_mut()) else { return false };
            let pushed = outbox.push(link, |out| machine.send(now_ns, payload, out));
            pushed.unwrap_or_else(|error| {
                broken = Some(error);
                false
            })
        };
        act(inside, &mut ledger, packet, &mut send);
        let Some(link) = link.as_mut() else { return };
        let flushed = outbox.flush(link);
        if link.is_blocked() && !was_blocked {
            tally.pushback += 1;
            // The socket is open and watched, so that the change cannot fail.
            let _ = link.watch_for(poll, index as u64, Interest::ReadWrite);
        }
        if let Some(error) = broken.or(flushed.err()) {
            self.broken(index, &error);
        }
    }
}

/// What the server's check of what nobody else may have comes before, in the order of the checks.
fn shared_first(shared: Option<&'static str>) -> Option<&'static str> {
    shared.filter(|name| *name == "partial_address_not_unique")
}

/// What a failure by silence may come from.
fn explanation(name: &str) -> &'static str {
    match name {
        "reset_unanswered" => {
            "no answer to any reset: the server is not there, does not know the key of the control \
                               channel, or has had too many new clients (connect-freq-initial)"
        }
        "silence_after_reset" => {
            "the reset was answered and nothing after it: the server has as many clients as it takes \
                                  (max-clients), or has had too many new ones (connect-freq)"
        }
        _ => "",
    }
}
