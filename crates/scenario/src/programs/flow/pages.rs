//! The resources of pages and the cache of users: what follows the response of a request before the request has ended.
//! The request keeps its lane meanwhile; each resource has one of its own.

use std::collections::VecDeque;
use std::sync::Arc;

use leadline_http::Url;
use leadline_wire::scenario::StatusRange;

use super::records::{mark_failed, Instants};
use super::{context, Effect, ExchangeEnd, Flows, Send};
use crate::browser::cache::{with_fields, Lookup};
use crate::browser::html::resources::{is_html, resources};
use crate::compressed::decompressed;
use crate::judge::Failure;
use crate::outgoing::Outgoing;
use crate::program::Request;
use crate::render::{render_next, Redirect};
use crate::user::{Lane, Page, User};

/// The statuses of pages and resources that are there.
const THERE: StatusRange = StatusRange { from: 200, to: 399 };

impl Flows {
    /// Looks a request up in the user's cache. Returns whether it is answered by that; if not, it may ask now whether
    /// the known response has changed.
    pub(super) fn is_cached(&mut self, user: &User, request: &Request, outgoing: &mut Outgoing, now_ns: u64) -> bool {
        let Some(cache) = user.cache.as_ref().filter(|_| request.cache) else { return false };
        match cache.lookup(&outgoing.url.absolute(), &outgoing.bytes, self.tools.epoch_ms(now_ns)) {
            Lookup::Absent => false,
            Lookup::Fresh => {
                self.figures.labels[request.label as usize].cached += 1;
                true
            }
            Lookup::Stale(fields) => {
                outgoing.bytes = with_fields(&outgoing.bytes, &fields).into();
                false
            }
        }
    }

    /// Keeps a response in the user's cache.
    pub(super) fn remember(
        &self,
        user: &mut User,
        place: usize,
        request: &Request,
        end: &ExchangeEnd<'_>,
        now_ns: u64,
    ) {
        if request.cache {
            let lane = &user.lanes[place];
            let now_ms = self.tools.epoch_ms(now_ns);
            let sent = lane.sent_bytes_of_request();
            let cache = user.cache.get_or_insert_default();
            cache.receive(&lane.url.absolute(), sent, end.status, end.head, now_ms);
        }
    }

    /// Begins to fetch the resources that a response names. Returns the lane if there are none.
    pub(super) fn begin_page(
        &mut self,
        slot: u32,
        user: &mut User,
        lane: Lane,
        end: &ExchangeEnd<'_>,
        (body, failure): (&[u8], Option<Failure>),
        now_ns: u64,
    ) -> Option<(Lane, Option<Failure>)> {
        let program = Arc::clone(&self.program);
        let Some(rule) = &program.requests[lane.request as usize].embedded else {
            return Some((lane, failure));
        };
        if !(200..300).contains(&end.status) || !is_html(end.head) {
            return Some((lane, failure));
        }
        let urls = resources(&String::from_utf8_lossy(body), &lane.url, rule.pattern.as_deref());
        let left = VecDeque::from(urls);
        let page =
            Page { left, at_once: rule.at_once, outstanding: 0, status: end.status, failure, done_ns: end.done_ns };
        let id = lane.id;
        user.lanes.push(Lane { page: Some(Box::new(page)), ..lane });
        self.fetch(slot, user, id, now_ns);
        None
    }

    /// Fetches as many resources of a page as may be outstanding; ends the page's request after the last one.
    fn fetch(&mut self, slot: u32, user: &mut User, page: u32, now_ns: u64) {
        let program = Arc::clone(&self.program);
        while let Some(place) = user.lanes.iter().position(|lane| lane.id == page) {
            let lane = &mut user.lanes[place];
            let (request, sent) = (lane.request, lane.sent.clone());
            let Some(own) = &mut lane.page else { return };
            if own.outstanding >= own.at_once {
                return;
            }
            let Some(url) = own.left.pop_front() else {
                if own.outstanding == 0 {
                    self.end_page(user, place, &program.requests[request as usize], now_ns);
                }
                return;
            };
            let Some(before) = sent else { return };
            match self.begin_resource(slot, user, (page, request), (&before, url), now_ns) {
                Ok(begun) => {
                    if let Some(own) = &mut user.lanes[place].page {
                        own.outstanding += u32::from(begun);
                    }
                }
                Err(failure) => {
                    let may_fail = may_fail(&program.requests[request as usize]);
                    if let Some(own) = user.lanes[place].page.as_mut().filter(|_| !may_fail) {
                        own.failure.get_or_insert(failure);
                    }
                }
            }
        }
    }

    /// Begins to fetch a resource; returns whether it is outstanding.
    fn begin_resource(
        &mut self,
        slot: u32,
        user: &mut User,
        (page, request): (u32, u32),
        (before, url): (&Outgoing, Url),
        now_ns: u64,
    ) -> Result<bool, Failure> {
        let program = Arc::clone(&self.program);
        let definition = &program.requests[request as usize];
        let mut view = context(&program, &self.shared, &mut self.tools, user, now_ns);
        let asked = url.clone();
        let made = render_next(&mut view, definition, before, Redirect { url, becomes_get: true });
        let mut outgoing = made.map_err(|fault| -> Failure { (fault.cause.into(), fault.detail) })?;
        if self.is_cached(user, definition, &mut outgoing, now_ns) {
            return Ok(false);
        }
        let id = self.exchange_number();
        let sent = definition.needs_request.then(|| outgoing.clone());
        let lane = Lane {
            parent: Some(page),
            asked,
            ..Lane::new(id, request, now_ns, definition.redirects, &outgoing.url, sent)
        };
        user.lanes.push(lane);
        let send = Send { label: None, ..self.send(slot, id, definition, outgoing, now_ns) };
        self.effects.push_back(Effect::Send(Box::new(send)));
        Ok(true)
    }

    /// Keeps the page that a request got.
    pub(super) fn keep_page(&self, user: &mut User, lane: &Lane, end: &ExchangeEnd<'_>, body: &[u8]) {
        if self.program.keeps_pages && (200..300).contains(&end.status) && is_html(end.head) {
            user.pages.replace(&lane.frame, &lane.url, &String::from_utf8_lossy(body));
        }
    }

    /// Keeps the page in a frame, and fetches what it names with the page around it.
    pub(super) fn keep_frame(&self, user: &mut User, lane: &Lane, page: u32, end: &ExchangeEnd<'_>) {
        if !self.program.keeps_pages || !(200..300).contains(&end.status) || !is_html(end.head) {
            return;
        }
        let Ok(body) = decompressed(end.head, end.body) else { return };
        let html = String::from_utf8_lossy(&body);
        if !user.pages.add_frame(&lane.asked, &lane.url, &html) {
            return;
        }
        let rule = &self.program.requests[lane.request as usize].embedded;
        let pattern = rule.as_ref().and_then(|rule| rule.pattern.as_deref());
        let urls = resources(&html, &lane.url, pattern);
        let whole = user.lanes.iter_mut().find(|other| other.id == page);
        if let Some(own) = whole.and_then(|whole| whole.page.as_mut()) {
            own.left.extend(urls);
        }
    }

    /// Takes the end of a resource of a page.
    pub(super) fn end_resource(
        &mut self,
        slot: u32,
        user: &mut User,
        (lane, page): (&Lane, u32),
        outcome: Result<(u16, u64), Failure>,
        now_ns: u64,
    ) {
        let request = &self.program.requests[lane.request as usize];
        let may_fail = may_fail(request);
        self.figures.labels[request.label as usize].resources += 1;
        let Some(whole) = user.lanes.iter_mut().find(|other| other.id == page) else { return };
        whole.sent_bytes += lane.sent_bytes;
        whole.received_bytes += lane.received_bytes;
        let Some(own) = &mut whole.page else { return };
        own.outstanding -= 1;
        let failure = match outcome {
            Ok((status, done_ns)) => {
                own.done_ns = own.done_ns.max(done_ns);
                (!(THERE.from..=THERE.to).contains(&status)).then(|| format!("status {status}"))
            }
            Err((cause, detail)) => {
                own.done_ns = own.done_ns.max(now_ns);
                Some(format!("{cause}: {detail}"))
            }
        };
        if let Some(failure) = failure.filter(|_| !may_fail) {
            let detail = format!("{}: {failure}", lane.url.absolute());
            own.failure.get_or_insert_with(|| ("resource_failed".into(), detail));
        }
        self.fetch(slot, user, page, now_ns);
    }

    /// Ends the request of a page whose resources are there.
    fn end_page(&mut self, user: &mut User, place: usize, request: &Request, now_ns: u64) {
        let mut lane = user.lanes.swap_remove(place);
        let Some(page) = lane.page.take() else { return };
        let Page { status, failure, done_ns, .. } = *page;
        let failure = failure.map(|(cause, detail)| (cause, self.mask(user, detail)));
        if failure.is_some() {
            user.last.failed = true;
            mark_failed(user);
        }
        let instants =
            Instants { sent_ns: lane.sent_ns, first_ns: lane.first_ns, done_ns: Some(done_ns), end_ns: now_ns };
        self.record(user, &lane, request, instants, Some(status), failure);
    }
}

/// Whether a page passes although a resource is missing.
fn may_fail(request: &Request) -> bool {
    request.embedded.as_ref().is_some_and(|rule| rule.may_fail)
}
