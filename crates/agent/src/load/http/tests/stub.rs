//! One worker over a stub backend: the test controls when the backend submits requests, waits and detaches. How a
//! connection handles its inputs is tested with the machine, in `leadline_http::client`.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use leadline_http::client::{Metric, SocketUse, Source};
use leadline_http::{ClosedLoop, Schedule, ThreadShare};
use leadline_stats::Histogram;
use socket2::Socket;

use super::super::plan::Plan;
use super::super::report::WorkerReport;
use super::super::start_signal::{LoadStart, StartSignal};
use super::super::worker::{Worker, WorkerParts};
use super::*;
use crate::flows::Span;
use crate::load::net::io_backend::backend::{Completion, Detached, IoBackend};
use crate::metering::{Collector, FlowCounters, Recorder};

/// Time from a request's hand-over to its response, ns.
const SERVICE_NS: u64 = 1_000_000;

/// More bytes than any test sends.
const ALL_BYTES: usize = 1 << 20;

type StubEvent = (Completion, &'static [u8]);

/// A stub backend with one connection.
struct StubBackend {
    socket: Option<Socket>,
    /// The completions of each wait; after the last wait the load is stopped.
    waits: VecDeque<Vec<StubEvent>>,
    happening: VecDeque<StubEvent>,
    received: &'static [u8],
    /// Whether sends are reported as accepted at once, as for short requests.
    promises: bool,
    /// Bytes that are accepted without a completion, in addition to those that `send` reported.
    takes_bytes: usize,
    /// How long a send stays in the queue, ns.
    queue_ns: u64,
    is_queued: bool,
    handed_over_ns: u64,
    /// How often queued sends were submitted because of a `flush`, before a wait.
    flushes: Arc<AtomicUsize>,
    signal: Arc<ControlSignal>,
}

impl StubBackend {
    fn new(waits: Vec<Vec<StubEvent>>) -> Self {
        let up = vec![(Completion::Writable, b"".as_slice())];
        Self {
            socket: None,
            waits: std::iter::once(up).chain(waits).collect(),
            happening: VecDeque::new(),
            received: b"",
            promises: true,
            takes_bytes: 0,
            queue_ns: 0,
            is_queued: false,
            handed_over_ns: 0,
            flushes: Arc::default(),
            signal: Arc::default(),
        }
    }

    fn submit(&mut self) {
        if std::mem::take(&mut self.is_queued) {
            self.handed_over_ns = clock::monotonic_ns().max(self.handed_over_ns + SERVICE_NS) + self.queue_ns;
        }
    }
}

impl IoBackend for StubBackend {
    fn begin(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn connect(&mut self, _index: usize, socket: Socket) -> io::Result<()> {
        self.socket = Some(socket);
        Ok(())
    }

    fn connected(&mut self, _index: usize, _stamped: bool) -> io::Result<()> {
        Ok(())
    }

    fn send(&mut self, _index: usize, piece: Range<usize>) -> io::Result<usize> {
        self.is_queued = true;
        Ok(if self.promises { piece.len() } else { 0 })
    }

    fn send_copy(&mut self, _index: usize, _bytes: &[u8]) -> io::Result<usize> {
        self.is_queued = true;
        Ok(0)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.flushes.fetch_add(usize::from(self.is_queued), Ordering::Relaxed);
        self.submit();
        Ok(())
    }

    fn handed_over_ns(&self) -> Option<u64> {
        (!self.is_queued).then_some(self.handed_over_ns)
    }

    fn detach(&mut self, _index: usize, _then: SocketUse) -> Option<Detached> {
        let socket = self.socket.take()?;
        self.submit();
        Some(Detached { socket, unsent_bytes: 0, taken_bytes: self.takes_bytes })
    }

    fn wait(&mut self, _until_ns: u64) -> io::Result<()> {
        self.submit();
        match self.waits.pop_front() {
            Some(happening) => self.happening = happening.into(),
            None => self.signal.stop(),
        }
        Ok(())
    }

    fn completion(&mut self) -> io::Result<Option<(usize, u64, Completion)>> {
        let next = self.happening.pop_front();
        Ok(next.map(|(completion, received)| {
            self.received = received;
            (0, self.handed_over_ns + SERVICE_NS, completion)
        }))
    }

    fn received(&self) -> &[u8] {
        self.received
    }

    fn stamp_ns(&self) -> Option<u64> {
        None
    }

    fn spun_ns(&self) -> u64 {
        0
    }

    fn socket(&self, _index: usize) -> Option<&Socket> {
        self.socket.as_ref()
    }

    fn sockets(&self) -> impl Iterator<Item = &Socket> {
        self.socket.iter()
    }
}

/// The result of a worker's run.
struct StubRun {
    report: WorkerReport,
    counters: Arc<FlowCounters>,
    collector: Collector,
}

impl StubRun {
    fn histogram(&self, metric: Metric) -> Histogram {
        self.collector.total(metric as usize)
    }

    /// Requests: due, sent, answered, unanswered, unsent, failed.
    fn counts(&self) -> [u64; 6] {
        let WorkerReport { due, tally, failures, .. } = &self.report;
        let failed = failures.counts.values().sum();
        let counts =
            [*due, self.counters.sent_units(), self.counters.received_units(), tally.unanswered, tally.unsent, failed];
        assert_eq!(counts[0], counts[2..].iter().sum::<u64>(), "each request ends in one way: {counts:?}");
        counts
    }
}

/// Runs a worker in a closed loop over this backend.
fn play(backend: StubBackend, spec: HttpSpec) -> StubRun {
    // No data flows on the connection, which the peer has closed by the end of the load.
    let (listener, address) = listener();
    std::thread::spawn(move || drop(listener.accept()));
    let url = spec.requests[0].url.replace("http://stub", &format!("http://{address}"));
    let spec = HttpSpec { connections: 1, threads: 1, ..spec };
    let spec = HttpSpec { requests: vec![HttpRequest { url, ..spec.requests[0].clone() }], ..spec };
    let plan = Plan::new(&spec).unwrap();
    let source = Source::Fixed(plan.settings.requests.picker(0, 1));
    let (counters, (out, rolled)) = (Arc::new(FlowCounters::default()), mpsc::channel());
    let number = spec.number;
    let signal = Arc::clone(&backend.signal);
    let worker = Worker::new(WorkerParts {
        plan: Arc::new(plan),
        backend,
        source,
        recorder: Recorder::new(Metric::NAMES.len(), 0, out),
        counters: Arc::clone(&counters),
        snapshots: Arc::default(),
        number: 0,
        connections: 1,
    });
    let at_ns = clock::monotonic_ns();
    let span = Span { at_ns, end_ns: u64::MAX / 2 };
    let share = ThreadShare { index: 0, threads: 1, batch: 1 };
    let schedule = Arc::new(move |_| Schedule::Closed(ClosedLoop::new(at_ns, u64::MAX / 2, number, share)));
    let start_signal = StartSignal::default();
    start_signal.give(LoadStart { span, warm_until_ns: 0, signal, schedule });
    let report = worker.run_thread(&start_signal, mpsc::channel().0).unwrap().unwrap();
    let mut collector = Collector::new(Metric::NAMES);
    rolled.iter().for_each(|one| collector.take(one));
    StubRun { report, counters, collector }
}

fn stub_spec(number: Option<u64>) -> HttpSpec {
    let spec = spec(SocketAddr::from((Ipv4Addr::LOCALHOST, 1)), number);
    HttpSpec { requests: vec![HttpRequest { url: "http://stub/a".to_owned(), ..spec.requests[0].clone() }], ..spec }
}

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

#[test]
fn a_request_that_the_kernel_has_at_the_end_is_sent_and_unanswered() {
    // It is too long to be accepted at once, and no completion reports its acceptance before the load is over.
    let long = StubBackend { promises: false, takes_bytes: ALL_BYTES, ..StubBackend::new(Vec::new()) };
    assert_eq!(play(long, stub_spec(None)).counts(), [1, 1, 0, 1, 0, 0]);
    let stuck = StubBackend { promises: false, ..StubBackend::new(Vec::new()) };
    assert_eq!(play(stuck, stub_spec(None)).counts(), [1, 0, 0, 0, 1, 0]);
}

#[test]
fn a_request_is_sent_when_it_is_handed_to_the_kernel() {
    const QUEUE_NS: u64 = 40_000_000;
    let answers = vec![vec![(Completion::Received, OK)], vec![(Completion::Received, OK)]];
    let backend = StubBackend { queue_ns: QUEUE_NS, ..StubBackend::new(answers) };
    let played = play(backend, stub_spec(Some(2)));
    assert_eq!(played.counts(), [2, 2, 2, 0, 0, 0]);
    let [late, service, latency] =
        [Metric::Late, Metric::Service, Metric::Latency].map(|metric| played.histogram(metric));
    let least_ns = |histogram: &Histogram| histogram.recorded().map(|(value_ns, _)| value_ns).min().unwrap();
    assert!(least_ns(&late) >= QUEUE_NS - QUEUE_NS / 500, "{late:?}");
    let near_ns = SERVICE_NS - SERVICE_NS / 500..=SERVICE_NS + SERVICE_NS / 500;
    assert!(service.recorded().all(|(value_ns, _)| near_ns.contains(&value_ns)), "{service:?}");
    assert!(least_ns(&latency) >= QUEUE_NS + SERVICE_NS - QUEUE_NS / 500, "{latency:?}");
    assert_eq!([late.count(), service.count(), latency.count()], [2; 3]);
}

#[test]
fn queued_requests_are_flushed_before_a_snapshot() {
    // A thread publishes its state after its first turn, in which the second request began after the first response.
    let answers = vec![vec![(Completion::Received, OK)], vec![(Completion::Received, OK)]];
    let backend = StubBackend::new(answers);
    let flushes = Arc::clone(&backend.flushes);
    assert_eq!(play(backend, stub_spec(Some(2))).counts(), [2, 2, 2, 0, 0, 0]);
    assert!(flushes.load(Ordering::Relaxed) >= 1);
}
