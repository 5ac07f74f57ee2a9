//! What remains of a request or transaction that has ended: its figures, its place among the slowest requests, its
//! sample, and what the transactions around it count.

use std::borrow::Cow;
use std::sync::atomic::Ordering::Relaxed;

use leadline_wire::scenario::SampleRule;

use super::Flows;
use crate::figures::{Age, End, Slow};
use crate::judge::Failure;
use crate::program::{Program, Request};
use crate::samples::{Sample, Samples};
use crate::user::{Frame, Lane, User};

/// The instants of a request, ns, as far as it got.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Instants {
    pub sent_ns: Option<u64>,
    pub first_ns: Option<u64>,
    /// When its response was complete.
    pub done_ns: Option<u64>,
    /// When it ended, with a response or without one.
    pub end_ns: u64,
}

impl Flows {
    /// Says which requests are wanted one by one.
    pub fn keep_samples(&mut self, rule: Option<&SampleRule>) {
        match rule {
            None => {}
            Some(SampleRule::Slowest { count }) => {
                self.figures.slowest_most = *count as usize;
                self.figures.slowest_with_urls = true;
            }
            Some(SampleRule::All { with_urls }) => self.samples = Some(Samples::new(&self.program, *with_urls)),
        }
    }

    /// Counts the outstanding requests of a user; resources belong to the requests of their pages. The caller records
    /// the ages of those that wait for an answer; a page that waits for its resources alone has its age here.
    pub(super) fn count_interrupted(&mut self, user: &mut User, now_ns: u64) {
        for lane in user.lanes.drain(..).filter(|lane| lane.parent.is_none()) {
            let label = self.program.requests[lane.request as usize].label;
            self.figures.labels[label as usize].interrupted += 1;
            if lane.page.is_some() {
                let since = |at_ns: u64| now_ns.saturating_sub(at_ns);
                let age = Age { latency_ns: Some(since(lane.due_ns)), service_ns: lane.sent_ns.map(since) };
                self.figures.outstanding(label, lane.due_ns, age);
            }
        }
    }

    /// Records the end of a request.
    pub(super) fn record(
        &mut self,
        user: &mut User,
        lane: &Lane,
        request: &Request,
        instants: Instants,
        status: Option<u16>,
        failure: Option<Failure>,
    ) {
        let figures = &mut self.figures.labels[request.label as usize];
        figures.sent_bytes += lane.sent_bytes;
        figures.received_bytes += lane.received_bytes;
        let Instants { sent_ns, first_ns, done_ns, end_ns } = instants;
        let since_due = |at_ns: u64| at_ns.saturating_sub(lane.due_ns);
        let since_sent = |at_ns: Option<u64>| Some(at_ns?.saturating_sub(sent_ns?));
        let (service_ns, first_byte_ns) = (since_sent(done_ns), since_sent(first_ns));
        let elapsed_ns = since_due(done_ns.unwrap_or(end_ns));
        if self.figures.is_slow(elapsed_ns) {
            let url = self.figures.slowest_with_urls.then(|| self.mask(user, lane.url.absolute()));
            self.figures.keep_slow(Slow {
                latency_ns: elapsed_ns,
                label: request.label,
                user: user.number,
                due_ns: lane.due_ns,
                before_sent_ns: since_due(sent_ns.unwrap_or(end_ns)),
                first_byte_ns,
                status,
                error: failure.as_ref().map(|(cause, _)| cause.to_string()),
                opening: lane.opening,
                url,
            });
        }
        count_in_transactions(user, lane, failure.is_some());
        if self.samples.is_some() && !is_hidden(&user.frames) {
            let sample = Sample {
                label: request.label,
                due_ns: lane.due_ns,
                elapsed_ns,
                before_sent_ns: sent_ns.map(since_due),
                first_byte_ns,
                status,
                sent_bytes: lane.sent_bytes,
                received_bytes: lane.received_bytes,
                failure: failure.as_ref().map(owned),
                opening: lane.opening,
                url: self.sample_url(user, lane),
                ..Sample::default()
            };
            self.sample(user, sample);
        }
        let has_timed_out = failure.as_ref().is_some_and(|(cause, _)| cause.ends_with("_timeout"));
        let age = Age { latency_ns: Some(elapsed_ns), service_ns: since_sent(Some(end_ns)) };
        let end = End {
            due_ns: lane.due_ns,
            latency_ns: done_ns.map(since_due),
            service_ns,
            first_byte_ns,
            waits_ns: None,
            age: if has_timed_out { age } else { Age::default() },
            failure,
        };
        self.figures.end(request.label, end);
    }

    /// Records a request that could not be made.
    pub(super) fn record_unmade(&mut self, user: &mut User, label: u32, due_ns: u64, now_ns: u64, failure: Failure) {
        if !is_hidden(&user.frames) {
            let elapsed_ns = now_ns.saturating_sub(due_ns);
            let failure = Some(owned(&failure));
            self.sample(user, Sample { label, due_ns, elapsed_ns, failure, ..Sample::default() });
        }
        for frame in &mut user.frames {
            if let Frame::Transaction { requests, .. } = frame {
                *requests = (requests.0 + 1, requests.1 + 1);
            }
        }
        self.figures.end(label, End { due_ns, failure: Some(failure), ..End::default() });
    }

    /// Ends the innermost frame in order: a transaction is recorded.
    pub(super) fn end_frame(&mut self, user: &mut User, now_ns: u64) {
        let Some(Frame::Transaction {
            label,
            begun_ns,
            waited_ns,
            includes_waits,
            failed,
            outcome,
            requests,
            bytes,
            ..
        }) = user.frames.pop()
        else {
            return;
        };
        let whole_ns = now_ns.saturating_sub(begun_ns);
        let own_ns = if includes_waits { whole_ns } else { whole_ns.saturating_sub(waited_ns) };
        let failure: Option<Failure> = match outcome {
            Some(passed) => (!passed).then(|| ("marked_failed".into(), "a step says that it has failed".to_owned())),
            None => failed.then(|| ("request_failed".into(), "a request of the transaction failed".to_owned())),
        };
        if !is_hidden(&user.frames) {
            let sample = Sample {
                label,
                due_ns: begun_ns,
                elapsed_ns: own_ns,
                sent_bytes: bytes.0,
                received_bytes: bytes.1,
                failure: failure.as_ref().map(owned),
                transaction: Some((waited_ns, requests.0, requests.1)),
                ..Sample::default()
            };
            self.sample(user, sample);
        }
        self.figures.end(
            label,
            End {
                due_ns: begun_ns,
                latency_ns: Some(own_ns),
                service_ns: None,
                first_byte_ns: None,
                waits_ns: Some(waited_ns),
                failure,
                ..End::default()
            },
        );
    }

    fn sample_url(&self, user: &User, lane: &Lane) -> Option<String> {
        let with_urls = self.samples.as_ref().is_some_and(|samples| samples.with_urls);
        with_urls.then(|| self.mask(user, lane.url.absolute()))
    }

    /// Adds a sample of a user, if samples are wanted.
    fn sample(&mut self, user: &User, sample: Sample) {
        let Some(samples) = &mut self.samples else { return };
        let active = |population: &crate::shared::SharedPopulation| population.active.load(Relaxed);
        let group_active = active(self.shared.population(user.population));
        let all_active = self.shared.populations().iter().map(active).sum();
        samples.add(&self.program, Sample { user: user.number, group_active, all_active, ..sample });
    }
}

/// Whether a transaction hides what is in these frames.
fn is_hidden(frames: &[Frame]) -> bool {
    frames.iter().any(|frame| matches!(frame, Frame::Transaction { hides: true, .. }))
}

fn owned((cause, detail): &(Cow<'static, str>, String)) -> (String, String) {
    (cause.clone().into_owned(), detail.clone())
}

fn count_in_transactions(user: &mut User, lane: &Lane, has_failed: bool) {
    for frame in &mut user.frames {
        if let Frame::Transaction { requests, bytes, .. } = frame {
            *requests = (requests.0 + 1, requests.1 + u32::from(has_failed));
            *bytes = (bytes.0 + lane.sent_bytes, bytes.1 + lane.received_bytes);
        }
    }
}

/// Says whether the open transaction of a name, or the innermost one, has passed.
pub(super) fn set_outcome(program: &Program, user: &mut User, wanted: Option<&str>, passed: bool) {
    for frame in user.frames.iter_mut().rev() {
        if let Frame::Transaction { label, outcome, .. } = frame {
            if wanted.is_none_or(|wanted| *wanted == *program.labels[*label as usize].name) {
                *outcome = Some(passed);
                return;
            }
        }
    }
}

/// Marks the iteration and its open transactions as failed.
pub(super) fn mark_failed(user: &mut User) {
    user.has_failed = true;
    for frame in &mut user.frames {
        if let Frame::Transaction { failed, .. } = frame {
            *failed = true;
        }
    }
}
