//! Tests of the machine in virtual time against a simulated network: servers are functions, every effect is recorded,
//! and the clock moves only to the next event. So counts and times are exact.

mod life;
mod load_end;
mod outcomes;
mod simulation;

use std::sync::Arc;

use leadline_pace::{Stage, Stages};

use self::simulation::{Reaction, Simulation};
use super::{ConnectionPool, Metric, RequestSource, Script, Settings, Source, Tally};
use crate::{ClosedLoop, OpenLoop, RequestSet, Schedule, ThreadShare, Url};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;
/// Start of each load; its connections are open by then.
const START_NS: u64 = SECOND;
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// A script of fixed functions; each receives the number of its earlier calls.
struct TestScript {
    batch: u32,
    calls: u64,
    request: fn(u64) -> Result<String, String>,
    delay_ms: fn(u64) -> Result<u64, String>,
    response: fn(u16, &[u8]) -> Result<(), String>,
}

impl TestScript {
    /// A script that makes `batch` GET requests per call.
    fn gets(batch: u32) -> Self {
        const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        let request = |_| Ok(GET.to_owned());
        Self { batch, calls: 0, request, delay_ms: |_| Ok(0), response: |_, _| Ok(()) }
    }
}

impl Script for TestScript {
    fn batch(&self) -> u32 {
        self.batch
    }

    fn wants_responses(&self) -> bool {
        true
    }

    fn address(&self) -> Option<std::net::SocketAddr> {
        None
    }

    fn has_stopped(&self) -> bool {
        false
    }

    fn request(&mut self, out: &mut Vec<u8>) -> Result<(), String> {
        for _ in 0..self.batch {
            out.extend_from_slice((self.request)(self.calls)?.as_bytes());
            self.calls += 1;
        }
        Ok(())
    }

    fn delay_ms(&mut self) -> Result<u64, String> {
        (self.delay_ms)(self.calls)
    }

    fn on_response(&mut self, status: u16, response: &super::Capture) -> Result<(), String> {
        (self.response)(status, response.body())
    }
}

/// Settings for one GET request to `http://a/`, with time limits of 1 s for connecting and 10 s for responses.
fn settings() -> Settings {
    settings_of(&["http://a/"])
}

fn settings_of(urls: &[&str]) -> Settings {
    let source = |url: &&str| RequestSource {
        url: Url::parse(url).unwrap(),
        method: "GET".to_owned(),
        headers: Vec::new(),
        body: None,
        is_proxied: false,
    };
    let sources: Vec<RequestSource> = urls.iter().map(source).collect();
    let requests = RequestSet::new(sources.iter().map(|source| (source.template().unwrap(), 1))).unwrap();
    Settings {
        payload: requests.payload().into(),
        requests,
        sources,
        server: "a:80".to_owned(),
        proxy_request: None,
        tls: None,
        connect_timeout_ns: SECOND,
        response_timeout_ns: 10 * SECOND,
        requests_per_connection: None,
        redirects: 0,
        is_open_loop: false,
    }
}

/// A load on a pool of connections.
struct Load {
    pool: ConnectionPool<TestScript>,
    simulation: Simulation,
    is_open_loop: bool,
    batch: u64,
    end_ns: u64,
}

/// The results of a load.
struct Ended {
    due: u64,
    tally: Tally,
    simulation: Simulation,
}

impl Load {
    fn new(settings: Settings, connections: usize, simulation: Simulation) -> Self {
        let picker = settings.requests.picker(0, 1);
        Self::with_source(settings, connections, Source::Fixed(picker), simulation)
    }

    fn scripted(settings: Settings, script: TestScript, simulation: Simulation) -> Self {
        Self::with_source(settings, 1, Source::Script(Box::new(script)), simulation)
    }

    fn with_source(
        settings: Settings,
        connections: usize,
        source: Source<TestScript>,
        mut simulation: Simulation,
    ) -> Self {
        let (is_open_loop, batch) = (settings.is_open_loop, u64::from(source.batch()));
        simulation.payload = Arc::clone(&settings.payload);
        let pool = ConnectionPool::new(Arc::new(settings), source, connections);
        Self { pool, simulation, is_open_loop, batch, end_ns: 0 }
    }

    /// Opens the connections, then runs a load of `number` requests within `duration_ns`; without `number`, only the
    /// time limits it.
    fn run(mut self, number: Option<u64>, duration_ns: u64) -> Ended {
        assert!(!self.is_open_loop, "an open loop has a rate");
        let share = ThreadShare { index: 0, threads: 1, batch: self.batch };
        self.open();
        self.pool.begin(Schedule::Closed(ClosedLoop::new(START_NS, duration_ns, number, share)));
        self.finish(START_NS + duration_ns)
    }

    /// Runs an open loop at a rate.
    fn run_at_rate(mut self, per_s: f64, number: Option<u64>, duration_ns: u64) -> Ended {
        assert!(self.is_open_loop, "a closed loop has no rate");
        let share = ThreadShare { index: 0, threads: 1, batch: self.batch };
        let stage = Stage { from_per_s: per_s, to_per_s: per_s, duration_ns };
        let stages = Stages::new([stage]).unwrap();
        self.open();
        self.pool.begin(Schedule::Open(OpenLoop::new(stages, START_NS, duration_ns, number, share)));
        self.finish(START_NS + duration_ns)
    }

    /// Tries each initial connection.
    fn open(&mut self) {
        self.pool.open_first(&mut self.simulation);
        self.run_until(START_NS, |_| false);
    }

    fn finish(mut self, end_ns: u64) -> Ended {
        self.run_until(end_ns, ConnectionPool::is_done);
        let now_ns = self.simulation.now_ns;
        if now_ns >= end_ns && self.pool.may_catch_up(end_ns) {
            self.pool.catch_up(end_ns, &mut self.simulation);
            self.simulation.hand_over();
            self.pool.note_handed_over(&mut self.simulation);
        }
        self.end_ns = end_ns;
        let due = self.pool.count_unsent(now_ns, end_ns, &mut self.simulation);
        self.pool.count_outstanding(now_ns, &mut self.simulation);
        Ended { due, tally: self.pool.into_parts().0, simulation: self.simulation }
    }

    /// A worker's loop over the simulated events.
    fn run_until(&mut self, until_ns: u64, is_over: impl Fn(&ConnectionPool<TestScript>) -> bool) {
        let Self { pool, simulation, .. } = self;
        for _ in 0..1_000_000 {
            if is_over(pool) || simulation.now_ns >= until_ns {
                return;
            }
            if pool.is_check_due(simulation.now_ns) {
                pool.check_deadlines(simulation.now_ns, simulation);
            }
            let next_ns = pool.run_once(simulation.now_ns, simulation);
            simulation.hand_over();
            pool.note_handed_over(simulation);
            let at_ns = [next_ns, simulation.next_event_ns()].into_iter().flatten().fold(until_ns, u64::min);
            simulation.now_ns = at_ns.max(simulation.now_ns);
            while let Some((index, input)) = simulation.next_event() {
                pool.handle(index, simulation.now_ns, input, simulation);
            }
        }
        panic!("the load does not end");
    }
}

impl Ended {
    /// The numbers of requests: due, sent, answered, unanswered, unsent, failed. Each request has one outcome.
    fn counts(&self) -> [u64; 6] {
        let failed = self.simulation.failures.values().sum();
        self.counts_with(failed)
    }

    /// The same numbers, with `failed` failures that belong to requests.
    fn counts_with(&self, failed: u64) -> [u64; 6] {
        let Self { due, tally, simulation } = self;
        let counts = [*due, simulation.sent, simulation.responses, tally.unanswered, tally.unsent, failed];
        assert_eq!(counts[0], counts[2..].iter().sum::<u64>(), "each request has one outcome: {counts:?}");
        counts
    }

    /// The values of a metric.
    fn values(&self, metric: Metric) -> Vec<u64> {
        self.simulation.recorded.iter().filter(|one| one.0 == metric).map(|one| one.2).collect()
    }

    fn failures(&self) -> Vec<(&'static str, u64)> {
        self.simulation.failures.iter().map(|(name, count)| (*name, *count)).collect()
    }
}

/// A server that answers each request with this response after 1 ms.
fn sends(response: &'static str) -> Simulation {
    Simulation::new(move |_| vec![Reaction::sends(MS, response)])
}
