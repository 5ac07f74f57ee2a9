//! Request-response from the client's side: opens the session and its flows, and hands them to threads. A flow has a
//! socket of its own (`persistent`) or one per transaction (`connecting`); `driver` runs the flows of a thread.

mod connecting;
mod driver;
mod persistent;
#[cfg(test)]
mod tests;
mod thread_state;

use std::io;
use std::net::SocketAddr;
use std::sync::mpsc;
use std::sync::Arc;
use std::time::Duration;

use leadline_pace::Pace;
use leadline_sys::net;
use leadline_sys::ports::{local_port_range, SourcePorts};
use leadline_sys::process::random_u64;
use leadline_sys::reason::reason;
use leadline_sys::tcp;
use leadline_transport::{DatagramOptions, Open, Requester, RequesterLimits, Schedule, Work, HEADER_BYTES};
use leadline_wire::{Direction, ErrorReport, Outcome, Protocol, RrSpec};

use self::connecting::{ConnectingFlow, Destination};
use self::driver::RrFlow;
use self::persistent::{FlowSocket, PersistentFlow};
use self::thread_state::{ThreadWork, METRICS};
use super::session::Session;
use super::session_runner::{span, PlannedFlow, SessionRunner};
use crate::events::{input_error, peer_error, system_error};
use crate::flows::datagram::MOST_DSCP;
use crate::flows::thread_group::Worker;
use crate::flows::{counters, deal_out, Role, Span};
use crate::metering::{FlowCounters, Recorder, ROLL_NS};
use crate::task::{Ready, Task};

/// The maximum number of outstanding transactions of all flows: a bound on memory and, with a connection each, on
/// descriptors.
const MOST_OUTSTANDING: u64 = 65_536;
/// The shortest time between histograms, ms: they must not become a load.
const LEAST_HISTOGRAM_INTERVAL_MS: u32 = 10;
/// The time limit of the connection that checks the session's own port.
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);

struct ReadyRr {
    spec: RrSpec,
    pace: Option<Pace>,
    runner: SessionRunner,
    flows: Vec<ReadyFlow>,
}

/// A flow before its start.
struct ReadyFlow {
    id: u32,
    counters: Arc<FlowCounters>,
    /// Transactions that this flow may make; only the time limits them if absent.
    number: Option<u64>,
    path: FlowPath,
}

enum FlowPath {
    Persistent(FlowSocket),
    Connecting(Arc<Destination>),
}

/// Opens the session and its flows.
pub fn prepare(spec: RrSpec) -> Result<Box<dyn Ready>, ErrorReport> {
    let pace = checked(&spec)?;
    let (request_bytes, response_bytes) = (spec.request_bytes, spec.response_bytes);
    let RrSpec { protocol, connect, outstanding, .. } = spec;
    let open = Open {
        work: Work::Rr { protocol, request_bytes, response_bytes, connect, outstanding },
        flows: spec.flows,
        threads: spec.threads,
        direction: Direction::Up,
        duration_ms: spec.duration_ms,
        congestion: None,
        interval_ms: spec.interval_ms,
        takes_turns: false,
        datagrams: DatagramOptions { dscp: spec.dscp, ..DatagramOptions::default() },
    };
    let mut session = Session::open(&spec.target, spec.bind.as_deref(), open)?;
    let paths = if connect { connecting_paths(&mut session, &spec)? } else { persistent_paths(&mut session, &spec)? };
    let (mut flows, mut planned) = (Vec::new(), Vec::new());
    for ((id, path), counters) in (0..).zip(paths).zip(counters(spec.flows)) {
        let (local, remote) = path.addresses();
        planned.push(PlannedFlow {
            id,
            direction: Direction::Up,
            counters: Arc::clone(&counters),
            expected: None,
            local,
            remote,
            congestion: None,
        });
        let share = |number: u64| (number + u64::from(spec.flows - 1 - id)) / u64::from(spec.flows);
        flows.push(ReadyFlow { id, counters, number: spec.number.map(share), path });
    }
    let interval = Duration::from_millis(spec.interval_ms.into());
    let runner =
        SessionRunner { session, flows: planned, has_units: true, counts_loss: false, interval, metrics: METRICS };
    Ok(Box::new(ReadyRr { spec, pace, runner, flows }))
}

/// Checks the request; returns the flows' pace.
fn checked(spec: &RrSpec) -> Result<Option<Pace>, ErrorReport> {
    if [spec.flows, spec.interval_ms, spec.timeout_ms, spec.outstanding].contains(&0) || spec.duration_ms == 0 {
        let message = "flows, duration, interval, timeout and outstanding must be at least 1";
        return Err(input_error("bad_spec", message));
    }
    if u64::from(spec.flows) * u64::from(spec.outstanding) > MOST_OUTSTANDING {
        let message = format!("{} flows with {} outstanding; at most {MOST_OUTSTANDING}", spec.flows, spec.outstanding);
        return Err(input_error("bad_spec", message));
    }
    let least = if spec.protocol == Protocol::Udp { HEADER_BYTES as u32 } else { 1 };
    if spec.request_bytes < least || spec.response_bytes < least {
        return Err(input_error("bad_size", format!("request and response must have at least {least} bytes")));
    }
    if let Some(point) = spec.dscp.filter(|point| *point > MOST_DSCP || spec.connect) {
        let message = format!("a DSCP of {point}: 0 to {MOST_DSCP} fit, and not with --connect");
        return Err(input_error("bad_spec", message));
    }
    if spec.histogram_interval_ms.is_some_and(|interval_ms| interval_ms < LEAST_HISTOGRAM_INTERVAL_MS) {
        let message = format!("histograms at least {LEAST_HISTOGRAM_INTERVAL_MS} ms apart");
        return Err(input_error("bad_spec", message));
    }
    let bad_rate = |rate| input_error("bad_rate", format!("{rate} transactions per second is no rate"));
    spec.rate_per_s.map(|rate| Pace::per_second(rate).ok_or_else(|| bad_rate(rate))).transpose()
}

/// Opens a connection or a socket for each flow.
fn persistent_paths(session: &mut Session, spec: &RrSpec) -> Result<Vec<FlowPath>, ErrorReport> {
    let marking = |error: io::Error| system_error("setting the DSCP", &error);
    let open = |id| {
        Ok(FlowPath::Persistent(match spec.protocol {
            Protocol::Tcp => {
                let socket = session.connect_stream(id)?;
                net::set_dscp(&socket, spec.dscp).map_err(marking)?;
                FlowSocket::Tcp(socket)
            }
            Protocol::Udp => {
                let socket = session.connect_datagram(id)?;
                net::set_dscp(&socket, spec.dscp).map_err(marking)?;
                FlowSocket::Udp(socket)
            }
        }))
    };
    let paths = (0..spec.flows).map(open).collect::<Result<_, _>>()?;
    session.await_ready()?;
    Ok(paths)
}

/// Asks for the session's own port, and checks that it can be reached.
fn connecting_paths(session: &mut Session, spec: &RrSpec) -> Result<Vec<FlowPath>, ErrorReport> {
    // The server compares clocks until a flow arrives; this one carries nothing.
    let introduction = session.connect_stream(0)?;
    let server = session.server();
    let port = session.await_ready()?.ok_or_else(|| {
        peer_error("no_connect", format!("{server} is an older Leadline without --connect; update it"))
    })?;
    drop(introduction);
    let to = SocketAddr::new(server.ip(), port);
    if spec.protocol == Protocol::Tcp {
        tcp::connect(to, session.bind(), CHECK_TIMEOUT).map_err(|error| {
            let message = format!(
                "{to} cannot be reached: {}; transactions with --connect go to a port that the responder chooses: open its port range in the firewall",
                reason(&error)
            );
            peer_error("port_unreachable", message)
        })?;
    }
    let seed = random_u64().map_err(|error| system_error("choosing source ports", &error))?;
    let ports = SourcePorts::new(&local_port_range(), seed);
    let to = Arc::new(Destination { to, from: session.bind(), protocol: spec.protocol, ports });
    Ok((0..spec.flows).map(|_| FlowPath::Connecting(Arc::clone(&to))).collect())
}

impl FlowPath {
    fn addresses(&self) -> (Option<String>, Option<String>) {
        match self {
            Self::Persistent(socket) => socket.addresses(),
            Self::Connecting(destination) => (None, Some(destination.to.to_string())),
        }
    }
}

impl ReadyFlow {
    fn start(self, spec: &RrSpec, pace: Option<Pace>, span: Span) -> RrFlow {
        let schedule = pace.map(|pace| Schedule { pace, start_ns: span.at_ns + pace.turn_ns(self.id, spec.flows) });
        let machine = Requester::new(RequesterLimits {
            timeout_ns: u64::from(spec.timeout_ms) * 1_000_000,
            outstanding: spec.outstanding,
            number: self.number,
            schedule,
            until_ns: span.end_ns,
        });
        match self.path {
            FlowPath::Persistent(socket) => {
                RrFlow::Persistent(PersistentFlow::new(self.id, socket, self.counters, machine))
            }
            FlowPath::Connecting(destination) => {
                RrFlow::Connecting(ConnectingFlow::new(self.id, destination, self.counters, machine, spec.outstanding))
            }
        }
    }
}

impl Ready for ReadyRr {
    fn run(self: Box<Self>, at_ns: u64, task: &Task) -> Result<Outcome, ErrorReport> {
        let Self { spec, pace, runner, flows } = *self;
        let span = span(at_ns, spec.duration_ms);
        let warm_until_ns = span.at_ns.saturating_add(spec.warmup_ms.saturating_mul(1_000_000));
        let roll_ns = spec.histogram_interval_ms.map_or(ROLL_NS, |interval_ms| u64::from(interval_ms) * 1_000_000);
        let work = ThreadWork::new(&spec, runner.session.token);
        let (out, rolled) = mpsc::channel();
        let mut workers: Vec<(Role, Worker)> = Vec::new();
        for (index, group) in deal_out(flows, spec.threads).into_iter().enumerate() {
            let recorder = Recorder::new(METRICS.len(), warm_until_ns, out.clone()).rolling_every(roll_ns);
            let flows = group.into_iter().map(|flow| flow.start(&spec, pace, span)).collect();
            let name = format!("rr-{index}");
            let drive = move |signal: &_| driver::drive(flows, work, span, signal, name, recorder);
            workers.push((Role::Send, Box::new(drive)));
        }
        drop(out);
        runner.run(span, workers, rolled, task)
    }
}
