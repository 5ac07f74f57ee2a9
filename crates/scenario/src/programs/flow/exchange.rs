//! Requests of a user from their beginning to their judged end, with redirects.

use std::borrow::Cow;
use std::sync::Arc;

use leadline_wire::scenario::OnError;

use super::records::{mark_failed, Instants};
use super::{context, Effect, ExchangeEnd, ExchangeFailure, Flows, Send, Step};
use crate::browser::cookies::{Destination, Jar};
use crate::compressed::decompressed;
use crate::encoding::join;
use crate::judge::{judge, Failure, Reply};
use crate::outgoing::Outgoing;
use crate::program::{Instruction, Request};
use crate::render::{render, render_next, Redirect};
use crate::samples::Opening;
use crate::shared::Stop;
use crate::user::{Ending, Lane, Last, User};

impl Flows {
    /// Begins a request of a user.
    pub(super) fn begin_request(&mut self, slot: u32, user: &mut User, request: u32, now_ns: u64) {
        let program = Arc::clone(&self.program);
        let definition = &program.requests[request as usize];
        // The first request of an iteration that began late was wanted when that was due.
        let due_ns = now_ns.saturating_sub(user.late_ns);
        let mut context = context(&program, &self.shared, &mut self.tools, user, now_ns);
        match render(&mut context, definition) {
            Ok((mut outgoing, frame)) => {
                if self.is_cached(user, definition, &mut outgoing, now_ns) {
                    user.last.failed = false;
                    return;
                }
                let id = self.exchange_number();
                let sent = definition.needs_request.then(|| outgoing.clone());
                let lane = Lane::new(id, request, due_ns, definition.redirects, &outgoing.url, sent);
                user.lanes.push(Lane { frame, ..lane });
                self.effects.push_back(Effect::Send(Box::new(self.send(slot, id, definition, outgoing, due_ns))));
            }
            Err(fault) => {
                let failure = (fault.cause.into(), self.mask(user, fault.detail));
                user.last = Last { failed: true, ..Last::default() };
                mark_failed(user);
                self.record_unmade(user, definition.label, due_ns, now_ns, failure);
            }
        }
    }

    pub(super) fn send(&self, slot: u32, exchange: u32, definition: &Request, outgoing: Outgoing, due_ns: u64) -> Send {
        Send {
            user: slot,
            exchange,
            outgoing,
            due_ns,
            label: Some(definition.label),
            connect_timeout_ns: definition.connect_timeout_ns,
            response_timeout_ns: definition.response_timeout_ns,
            // With a body goes the field that names its compression.
            keeps_head: definition.needs_head
                || definition.needs_body
                || self.program.keeps_last_head
                || self.program.keeps_last_body
                || self.program.keeps_pages,
            keeps_body: definition.needs_body || self.program.keeps_last_body || self.program.keeps_pages,
        }
    }

    /// Begins as many requests of a parallel node as may be outstanding.
    pub(super) fn fill_lanes(&mut self, slot: u32, user: &mut User, now_ns: u64) {
        let program = Arc::clone(&self.program);
        while let Some((at, next)) = user.parallel {
            let Instruction::Parallel(requests, at_once) = &program.code[at as usize] else { return };
            let Some(request) = requests.get(next as usize) else {
                user.parallel = None;
                return;
            };
            if user.lanes.iter().filter(|lane| lane.parent.is_none()).count() >= *at_once as usize {
                return;
            }
            user.parallel = Some((at, next + 1));
            self.begin_request(slot, user, *request, now_ns);
        }
    }

    /// Decides what follows when requests have begun or ended: waiting, or the next instruction.
    pub(super) fn after_requests(&mut self, user: &mut User) -> Option<Step> {
        if !user.lanes.is_empty() {
            return Some(Step::Requesting);
        }
        if !user.last.failed {
            return None;
        }
        let interrupted = match self.program.populations[user.population as usize].on_error {
            OnError::Continue => return None,
            OnError::NextIteration => false,
            OnError::StopUser => {
                user.ending = user.ending.max(Ending::AfterIteration);
                false
            }
            OnError::StopTest => {
                self.shared.stop(Stop::Soon);
                false
            }
            OnError::StopTestNow => {
                self.shared.stop(Stop::Now);
                true
            }
        };
        Some(Step::Over { interrupted })
    }

    /// Takes the response of an exchange.
    pub(super) fn answered(
        &mut self,
        slot: u32,
        user: &mut User,
        exchange: u32,
        end: &ExchangeEnd<'_>,
        now_ns: u64,
    ) -> Option<Step> {
        let Some(place) = user.lanes.iter().position(|lane| lane.id == exchange) else { return Some(Step::Requesting) };
        let program = Arc::clone(&self.program);
        let lane = &mut user.lanes[place];
        let request = &program.requests[lane.request as usize];
        lane.sent_ns.get_or_insert(end.sent_ns);
        lane.first_ns.get_or_insert(end.first_ns);
        lane.received_bytes += end.received_bytes;
        lane.sent_bytes += end.sent_bytes;
        lane.opening = joined(lane.opening, end.opening);
        if request.cookies {
            let now_s = self.tools.epoch_ms(now_ns).div_euclid(1000);
            receive_cookies(&mut user.jar, end.head, &Destination::of(&lane.url, now_s));
        }
        let refused = match self.follow(slot, user, place, request, end, now_ns) {
            Redirected::Sent => return Some(Step::Requesting),
            Redirected::Refused(failure) => Some(failure),
            Redirected::No => None,
        };
        self.remember(user, place, request, end, now_ns);
        let lane = user.lanes.swap_remove(place);
        if let Some(page) = lane.parent {
            self.keep_frame(user, &lane, page, end);
            let outcome = refused.map_or(Ok((end.status, end.done_ns)), Err);
            self.end_resource(slot, user, (&lane, page), outcome, now_ns);
            return self.go_on(slot, user, now_ns);
        }
        let sent_ns = lane.sent_ns.unwrap_or(end.sent_ns);
        let (body, unreadable) = match decompressed(end.head, end.body) {
            Ok(body) => (body, None),
            Err(fault) => (Cow::Borrowed(end.body), Some((fault.cause.into(), fault.detail))),
        };
        let reply = Reply {
            status: end.status,
            reason: end.reason,
            head: end.head,
            body: &body,
            body_bytes: end.body_bytes,
            duration_ns: end.done_ns.saturating_sub(sent_ns),
            url: &lane.url,
            sent: lane.sent_bytes_of_request(),
        };
        user.last = Last {
            status: end.status,
            failed: false,
            timed_out: false,
            duration_ns: reply.duration_ns,
            url: program.keeps_last_url.then(|| lane.url.absolute().into()),
            head: program.keeps_last_head.then(|| end.head.into()),
            body: program.keeps_last_body.then(|| String::from_utf8_lossy(&body).into()),
        };
        self.keep_page(user, &lane, end, &body);
        let mut context = context(&program, &self.shared, &mut self.tools, user, now_ns);
        let figures = &mut self.figures.labels[request.label as usize];
        let judged = judge(&mut context, request, &reply, figures);
        let failure = refused.or(unreadable).or(judged).map(|(cause, detail)| (cause, self.mask(user, detail)));
        if failure.is_some() {
            user.last.failed = true;
            mark_failed(user);
        }
        if let Some((lane, failure)) = self.begin_page(slot, user, lane, end, (&*body, failure), now_ns) {
            let instants = Instants {
                sent_ns: Some(sent_ns),
                first_ns: lane.first_ns,
                done_ns: Some(end.done_ns),
                end_ns: now_ns,
            };
            self.record(user, &lane, request, instants, Some(end.status), failure);
        }
        self.go_on(slot, user, now_ns)
    }

    /// Takes the failure of an exchange.
    pub(super) fn failed(
        &mut self,
        slot: u32,
        user: &mut User,
        exchange: u32,
        failure: ExchangeFailure,
        now_ns: u64,
    ) -> Option<Step> {
        let Some(place) = user.lanes.iter().position(|lane| lane.id == exchange) else { return Some(Step::Requesting) };
        let program = Arc::clone(&self.program);
        let mut lane = user.lanes.swap_remove(place);
        lane.sent_bytes += failure.sent_bytes;
        lane.received_bytes += failure.received_bytes;
        lane.opening = joined(lane.opening, failure.opening);
        if let Some(page) = lane.parent {
            self.end_resource(slot, user, (&lane, page), Err((failure.cause, failure.detail)), now_ns);
            return self.go_on(slot, user, now_ns);
        }
        let request = &program.requests[lane.request as usize];
        user.last = Last { failed: true, timed_out: failure.timed_out, ..Last::default() };
        mark_failed(user);
        let sent_ns = lane.sent_ns.or(failure.sent_ns);
        let failure = (failure.cause, self.mask(user, failure.detail));
        let instants = Instants { sent_ns, end_ns: now_ns, ..Instants::default() };
        self.record(user, &lane, request, instants, None, Some(failure));
        self.go_on(slot, user, now_ns)
    }

    /// Continues a user after the end of an exchange.
    fn go_on(&mut self, slot: u32, user: &mut User, now_ns: u64) -> Option<Step> {
        self.fill_lanes(slot, user, now_ns);
        self.after_requests(user)
    }

    /// Follows a redirect, if the request wants that.
    fn follow(
        &mut self,
        slot: u32,
        user: &mut User,
        place: usize,
        request: &Request,
        end: &ExchangeEnd<'_>,
        now_ns: u64,
    ) -> Redirected {
        let lane = &user.lanes[place];
        if lane.redirects_left == 0 || !matches!(end.status, 301 | 302 | 303 | 307 | 308) {
            return Redirected::No;
        }
        let mut fields = end.head.lines().filter_map(|line| line.split_once(": "));
        let location = fields.find(|(name, _)| name.eq_ignore_ascii_case("location"));
        let Some(url) = location.and_then(|(_, location)| join(&lane.url, location)) else { return Redirected::No };
        let Some(before) = lane.sent.clone() else { return Redirected::No };
        let (id, due_ns) = (lane.id, lane.due_ns);
        let label = lane.parent.is_none().then_some(request.label);
        let becomes_get = matches!(end.status, 301..=303);
        let program = Arc::clone(&self.program);
        let mut context = context(&program, &self.shared, &mut self.tools, user, now_ns);
        let outgoing = match render_next(&mut context, request, &before, Redirect { url, becomes_get }) {
            Ok(outgoing) => outgoing,
            Err(fault) => return Redirected::Refused((fault.cause.into(), fault.detail)),
        };
        let lane = &mut user.lanes[place];
        lane.redirects_left -= 1;
        lane.url = outgoing.url.clone();
        lane.sent = Some(outgoing.clone());
        self.figures.labels[request.label as usize].redirects += 1;
        let send = Send { label, ..self.send(slot, id, request, outgoing, due_ns) };
        self.effects.push_back(Effect::Send(Box::new(send)));
        Redirected::Sent
    }
}

/// Keeps the cookies of a response's header fields.
fn receive_cookies(jar: &mut Jar, head: &str, destination: &Destination<'_>) {
    let fields = head.lines().filter_map(|line| line.split_once(": "));
    for (_, value) in fields.filter(|(name, _)| name.eq_ignore_ascii_case("set-cookie")) {
        jar.receive(value, destination);
    }
}

/// What becomes of a response that may be a redirect.
enum Redirected {
    /// It is none, or none that is followed.
    No,
    /// It was followed.
    Sent,
    /// It leads where no request may go.
    Refused(Failure),
}

fn joined(one: Option<Opening>, two: Option<Opening>) -> Option<Opening> {
    match (one, two) {
        (Some(one), Some(two)) => Some(one.and(two)),
        (one, two) => one.or(two),
    }
}
