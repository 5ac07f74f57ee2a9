//! The side effects of a worker's connections: sockets over the thread's backend, counters, histograms. Decides
//! nothing about requests.

use std::ops::Range;
use std::sync::Arc;

use leadline_http::client::{Attempt, Detached, Effects, Failure, Metric, Opening, SocketUse, Wire};
use leadline_http::Timing;
use leadline_stats::Histogram;
use leadline_sys::clock::{monotonic_ns, realtime_ns};
use leadline_sys::connect::{self, Remote};
use socket2::Socket;

use super::plan::{Destination, Plan};
use crate::failures::Failures;
use crate::load::net::failure::{connect_failure, failure};
use crate::load::net::io_backend::IoBackend;
use crate::load::net::resolver::{Asker, Resolver};
use crate::metering::{FlowCounters, Recorder};

/// One connection in this many receives with kernel timestamps.
const STAMPED_EVERY: usize = 64;

/// The side effects of one worker's connections.
pub struct WorkerEffects<B> {
    /// The route to the server.
    pub plan: Arc<Plan>,
    /// The sockets.
    pub backend: B,
    /// Resolves names, if each connection does so.
    pub resolver: Resolver,
    /// Histograms.
    pub recorder: Recorder,
    /// Counters that the task's thread reads.
    pub counters: Arc<FlowCounters>,
    /// Failures by name.
    pub failures: Failures,
    /// Lateness of paced requests: from when they were due and a connection was free until they were sent.
    pub late: Option<Histogram>,
    /// Sockets with outstanding requests at the end.
    pub outstanding: Vec<Socket>,
    /// Counts connections, for their local addresses.
    pub turn: usize,
}

impl<B: IoBackend> WorkerEffects<B> {
    /// Records how long received bytes waited in the kernel before the read at `at_ns`. This delay is the
    /// generator's, not the server's. `due_ns` is `None` before the load begins; the value then counts as measured,
    /// not as warm-up.
    pub fn compare_with_stamp(&mut self, stamp_ns: u64, at_ns: u64, due_ns: Option<u64>) {
        let since_reading_ns = monotonic_ns().saturating_sub(at_ns);
        let waited_ns = realtime_ns().saturating_sub(stamp_ns).saturating_sub(since_reading_ns);
        self.record(Metric::KernelWait, due_ns, waited_ns);
    }

    fn connect(&mut self, index: usize, remote: &Remote) -> Result<(), Failure> {
        let socket = self.plan.route.dialler.begin(remote, &mut self.turn);
        let connecting = socket.and_then(|socket| self.backend.connect(index, socket));
        connecting.map_err(|error| connect_failure(&error, remote))
    }
}

impl<B: IoBackend> Wire for WorkerEffects<B> {
    #[inline]
    fn send_copy(&mut self, index: usize, bytes: &[u8]) -> Result<usize, Failure> {
        self.backend.send_copy(index, bytes).map_err(failure)
    }

    #[inline]
    fn received(&self) -> &[u8] {
        self.backend.received()
    }
}

impl<B: IoBackend> Effects for WorkerEffects<B> {
    #[inline]
    fn now_ns(&self) -> u64 {
        monotonic_ns()
    }

    fn open(&mut self, attempt: Attempt) -> Result<Opening, Failure> {
        let Attempt { index, epoch, give_up_ns, address } = attempt;
        let remote = match (address, &self.plan.route.destination) {
            (Some(address), _) => Remote::Inet(address),
            (None, Destination::Resolved(remote, _)) => remote.clone(),
            (None, Destination::PerConnection(name)) => {
                self.resolver.ask(name, Asker { index, epoch, until_ns: give_up_ns });
                return Ok(Opening::Resolving);
            }
        };
        self.connect(index, &remote).map(|()| Opening::Connecting)
    }

    fn take_up(&mut self, index: usize) -> Result<(), Failure> {
        let socket = self.backend.socket(index).filter(|_| index % STAMPED_EVERY == 0);
        let stamped = socket.is_some_and(|socket| connect::stamp_received(socket).is_ok());
        self.backend.connected(index, stamped).map_err(|error| connect_failure(&error, &self.plan.route))
    }

    #[inline]
    fn send(&mut self, index: usize, piece: Range<usize>) -> Result<usize, Failure> {
        self.backend.send(index, piece).map_err(failure)
    }

    #[inline]
    fn handed_over_ns(&self) -> Option<u64> {
        self.backend.handed_over_ns()
    }

    fn detach(&mut self, index: usize, then: SocketUse) -> Option<Detached> {
        let detached = self.backend.detach(index, then)?;
        if then == SocketUse::Keep {
            self.outstanding.push(detached.socket);
        }
        Some(Detached { unsent_bytes: detached.unsent_bytes, taken_bytes: detached.taken_bytes })
    }

    #[inline]
    fn count_sent(&mut self, bytes: u64, requests: u64) {
        self.counters.sent(bytes, requests);
    }

    fn take_back(&mut self, bytes: u64, requests: u64) {
        self.counters.not_sent(bytes, requests);
    }

    #[inline]
    fn count_received(&mut self, bytes: u64, responses: u64) {
        self.counters.received(bytes, responses);
    }

    fn count_failure(&mut self, name: &'static str, requests: u64, detail: impl FnOnce() -> String) {
        self.failures.count(name, requests, detail);
    }

    fn keep_example(&mut self, name: &'static str, detail: impl FnOnce() -> String) {
        self.failures.example(name, detail);
    }

    #[inline]
    fn record(&mut self, metric: Metric, due_ns: Option<u64>, value_ns: u64) {
        match due_ns {
            Some(due_ns) => self.recorder.record(metric as usize, due_ns, value_ns),
            None => self.recorder.record_measured(metric as usize, value_ns),
        }
    }

    #[inline]
    fn record_late(&mut self, due_ns: u64, late_ns: u64) {
        let bucket = Histogram::bucket(late_ns);
        self.recorder.record_at(Metric::Late as usize, due_ns, bucket);
        if let Some(all) = &mut self.late {
            all.record_at(bucket);
        }
    }

    #[inline]
    fn record_response(&mut self, timing: &Timing) {
        let service = Histogram::bucket(timing.done_ns.saturating_sub(timing.sent_ns));
        let transfer_ns = timing.done_ns - timing.first_ns;
        // Most responses come in one piece.
        let first_byte = match transfer_ns {
            0 => service,
            _ => Histogram::bucket(timing.first_ns.saturating_sub(timing.sent_ns)),
        };
        let mut record = |metric, bucket| self.recorder.record_at(metric as usize, timing.due_ns, bucket);
        record(Metric::Latency, Histogram::bucket(timing.done_ns.saturating_sub(timing.due_ns)));
        record(Metric::Service, service);
        record(Metric::FirstByte, first_byte);
        record(Metric::Transfer, Histogram::bucket(transfer_ns));
    }
}
