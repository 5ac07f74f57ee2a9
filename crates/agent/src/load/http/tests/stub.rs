//! One worker over a backend that a test plays: what happens, when it is handed over and what is left at the end are scripted,
//! so that counts and times depend on no kernel and on no clock.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use leadline_http::client::{Metric, Script, Source};
use leadline_http::{ClosedLoop, Schedule, ThreadShare};
use leadline_stats::Histogram;
use leadline_wire::HttpScript;
use socket2::Socket;

use super::super::io_backend::{Completion, Detached, IoBackend};
use super::super::plan::Plan;
use super::super::report::WorkerReport;
use super::super::scripted::LoadScripts;
use super::super::start_signal::{Begin, StartSignal};
use super::super::worker::{Parts, Worker};
use super::*;
use crate::flows::Span;
use crate::load::threads::{Collector, FlowCounters, Recorder};

/// How long an answer takes from when its request was handed over, ns.
const SERVICE_NS: u64 = 1_000_000;

/// More than anything that is sent here.
const ALL_BYTES: usize = 1 << 20;

type Happening = (Completion, &'static [u8]);

/// See the file's head. It has one connection.
struct StubBackend {
    socket: Option<Socket>,
    /// What each wait brings; after the last one the load is stopped.
    waits: VecDeque<Vec<Happening>>,
    happening: VecDeque<Happening>,
    received: &'static [u8],
    /// Whether sends are promised, as short ones of the plan's are.
    promises: bool,
    /// Bytes that are taken without a completion, beyond what was promised.
    takes_bytes: usize,
    /// How long what is sent stays in the queue, ns.
    queue_ns: u64,
    is_queued: bool,
    handed_over_ns: u64,
    /// How often something was handed over before a wait, because it was asked for.
    flushes: Arc<AtomicUsize>,
    signal: Arc<ControlSignal>,
}

impl StubBackend {
    fn new(waits: Vec<Vec<Happening>>) -> Self {
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

    fn detach(&mut self, _index: usize) -> Option<Detached> {
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

/// What a worker leaves.
struct Played {
    report: WorkerReport,
    counters: Arc<FlowCounters>,
    collector: Collector,
}

impl Played {
    fn histogram(&self, metric: Metric) -> Histogram {
        self.collector.total(metric as usize)
    }

    /// Requests: due, sent, answered, unanswered, unsent, failed.
    fn counts(&self) -> [u64; 6] {
        let WorkerReport { due, tally, failures, .. } = &self.report;
        let failed = failures.counts.values().sum();
        let counts =
            [*due, self.counters.sent_units(), self.counters.received_units(), tally.unanswered, tally.unsent, failed];
        assert_eq!(counts[0], counts[2..].iter().sum::<u64>(), "each request has one fate: {counts:?}");
        counts
    }
}

/// Runs a worker in a closed loop over this backend; what it asks for is made by `script`, where there is one.
fn play(backend: StubBackend, spec: HttpSpec, script: Option<&str>) -> Played {
    // Nothing is said on the connection, which a peer has closed by the time that the load ends.
    let (listener, address) = listener();
    std::thread::spawn(move || drop(listener.accept()));
    let task = task(Arc::clone(&backend.signal));
    let url = spec.requests[0].url.replace("http://stub", &format!("http://{address}"));
    let spec = HttpSpec { connections: 1, threads: 1, ..spec };
    let spec = HttpSpec { requests: vec![HttpRequest { url, ..spec.requests[0].clone() }], ..spec };
    let mut plan = Plan::new(&spec).unwrap();
    let (mut source, mut batch) = (Source::Fixed(plan.settings.requests.picker(0, 1)), 1);
    let mut scripts = None;
    if let Some(text) = script {
        let script = HttpScript { name: "test.lua".to_owned(), source: text.to_owned(), args: Vec::new() };
        let mut made = LoadScripts::new(&script, &spec, &mut plan, 1, &task).unwrap();
        let thread = made.threads.take().unwrap().remove(0);
        batch = u64::from(thread.batch());
        source = Source::Script(Box::new(thread));
        scripts = Some(made);
    }
    let (counters, (out, rolled)) = (Arc::new(FlowCounters::default()), mpsc::channel());
    let number = spec.number;
    let signal = Arc::clone(&backend.signal);
    let worker = Worker::new(Parts {
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
    let share = ThreadShare { index: 0, threads: 1, batch };
    let schedule = Arc::new(move |_| Schedule::Closed(ClosedLoop::new(at_ns, u64::MAX / 2, number, share)));
    let start_signal = StartSignal::default();
    start_signal.give(Begin { span, warm_until_ns: 0, signal, schedule });
    let report = worker.run_thread(&start_signal, mpsc::channel().0).unwrap().unwrap();
    drop(scripts);
    let mut collector = Collector::new(Metric::NAMES);
    rolled.iter().for_each(|one| collector.take(one));
    Played { report, counters, collector }
}

fn stub_spec(number: Option<u64>) -> HttpSpec {
    let spec = spec(SocketAddr::from((Ipv4Addr::LOCALHOST, 1)), number);
    HttpSpec { requests: vec![HttpRequest { url: "http://stub/a".to_owned(), ..spec.requests[0].clone() }], ..spec }
}

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const THREE_AT_ONCE: &str = "function request() return string.rep(wrk.format('GET', '/'), 3) end";

#[test]
fn requests_that_the_kernel_has_at_the_end_are_sent_and_unanswered() {
    // The kernel has the three requests, which no completion tells before the load is over.
    let whole = StubBackend { takes_bytes: ALL_BYTES, ..StubBackend::new(Vec::new()) };
    let played = play(whole, stub_spec(None), Some(THREE_AT_ONCE));
    assert_eq!(played.counts(), [3, 3, 0, 3, 0, 0]);
    // So it is with a request of the plan's that is too long to be promised.
    let long = StubBackend { promises: false, takes_bytes: ALL_BYTES, ..StubBackend::new(Vec::new()) };
    assert_eq!(play(long, stub_spec(None), None).counts(), [1, 1, 0, 1, 0, 0]);
    // It has a part of them, or nothing: what has not left whole is unsent.
    for takes_bytes in [0, 10] {
        let torn = StubBackend { takes_bytes, ..StubBackend::new(Vec::new()) };
        assert_eq!(play(torn, stub_spec(None), Some(THREE_AT_ONCE)).counts(), [3, 0, 0, 0, 3, 0], "{takes_bytes}");
    }
}

#[test]
fn requests_that_the_kernel_has_when_their_connection_breaks_are_sent_and_failed() {
    for ends in [Ok(()), Err(io::ErrorKind::ConnectionReset.into())] {
        let backend = StubBackend::new(vec![vec![(Completion::Ended(ends), b"".as_slice())]]);
        let played = play(StubBackend { takes_bytes: ALL_BYTES, ..backend }, stub_spec(Some(3)), Some(THREE_AT_ONCE));
        assert_eq!(played.counts(), [3, 3, 0, 0, 0, 3]);
    }
}

#[test]
fn a_request_is_sent_when_it_is_handed_to_the_kernel() {
    const QUEUE_NS: u64 = 40_000_000;
    let answers = vec![vec![(Completion::Received, OK)], vec![(Completion::Received, OK)]];
    let backend = StubBackend { queue_ns: QUEUE_NS, ..StubBackend::new(answers) };
    let played = play(backend, stub_spec(Some(2)), None);
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
    // A thread tells how it stands after its first turn, in which the first answer has let the second request begin.
    let answers = vec![vec![(Completion::Received, OK)], vec![(Completion::Received, OK)]];
    let backend = StubBackend::new(answers);
    let flushes = Arc::clone(&backend.flushes);
    assert_eq!(play(backend, stub_spec(Some(2)), None).counts(), [2, 2, 2, 0, 0, 0]);
    assert!(flushes.load(Ordering::Relaxed) >= 1);
}

#[test]
fn a_redirect_that_comes_before_its_request_left_is_an_answer() {
    const ELSEWHERE: &[u8] = b"HTTP/1.1 302 Found\r\nLocation: /b\r\nContent-Length: 0\r\n\r\n";
    let spec = || HttpSpec { redirects: 5, ..stub_spec(Some(1)) };
    // Of the request nothing is known to have left: what is left of it would be read as part of the next.
    let early = StubBackend { promises: false, ..StubBackend::new(vec![vec![(Completion::Received, ELSEWHERE)]]) };
    let played = play(early, spec(), None);
    assert_eq!((played.counts(), played.report.tally.redirects), ([1, 1, 1, 0, 0, 0], 0));
    // Of one that has left the redirect is followed, and both are one request.
    let told = vec![(Completion::Received, ELSEWHERE)];
    let then = vec![(Completion::Sent(ALL_BYTES), b"".as_slice()), (Completion::Received, OK)];
    let played = play(StubBackend::new(vec![told, then]), spec(), None);
    assert_eq!((played.counts(), played.report.tally.redirects), ([1, 1, 1, 0, 0, 0], 1));
}

#[test]
fn an_answer_with_excess_bytes_is_counted_once() {
    let more = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok and more";
    let played = play(StubBackend::new(vec![vec![(Completion::Received, more)]]), stub_spec(Some(1)), None);
    assert_eq!(played.counts(), [1, 1, 0, 0, 0, 1]);
    assert_eq!(played.report.failures.counts["malformed_unsolicited_bytes"], 1);
    assert_eq!(played.histogram(Metric::Latency).count(), 0);
    assert_eq!(played.report.tally.status, [0; 10]);
    // Of a batch, the answers before it stand.
    let four = concat!(
        "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    );
    let sent = vec![(Completion::Sent(ALL_BYTES), b"".as_slice()), (Completion::Received, four.as_bytes())];
    let played = play(StubBackend::new(vec![sent]), stub_spec(Some(3)), Some(THREE_AT_ONCE));
    assert_eq!(played.counts(), [3, 3, 2, 0, 0, 1]);
}

#[test]
fn an_answer_that_fails_the_script_is_counted_once() {
    let sent = || vec![(Completion::Sent(ALL_BYTES), b"".as_slice()), (Completion::Received, OK)];
    let response = "function response() error('no') end";
    let played = play(StubBackend::new(vec![sent(), sent()]), stub_spec(Some(2)), Some(response));
    assert_eq!(played.counts(), [1, 1, 0, 0, 0, 1]);
    assert_eq!(played.histogram(Metric::Latency).count(), 0);
    // The first request is wanted when the connection is up, the second with the first one's answer.
    let delay = "local asked = 0 function delay() asked = asked + 1; if asked > 1 then error('no') end return 0 end";
    let played = play(StubBackend::new(vec![sent()]), stub_spec(Some(2)), Some(delay));
    assert_eq!(played.counts(), [2, 1, 1, 0, 0, 1]);
}
