//! Paced datagrams from the client's side.

use std::sync::mpsc;
use std::sync::Arc;
use std::time::Duration;

use leadline_pace::Pace;
use leadline_sys::net;
use leadline_transport::{DatagramOptions, DatagramSizes, Open, Work, LONGEST_ROUND, MOST_SIZES, SHORT_HEADER_BYTES};
use leadline_wire::{Direction, ErrorReport, Outcome, PeerProgram, UdpSpec};

use super::iperf3;
use super::session::Session;
use super::session_runner::{span, PlannedFlow, SessionRunner};
use crate::atomic_option::AtomicOption;
use crate::events::{input_error, system_error};
use crate::flows::datagram::{self, format_for, DatagramFlow, DatagramWork, MOST_DSCP};
use crate::flows::payload::Payload;
use crate::flows::thread_group::Worker;
use crate::flows::{counters, deal_out, planned_directions, Role};
use crate::metering::Recorder;
use crate::task::{Ready, Task};

/// The longest payload of a UDP datagram over IPv4, bytes.
const MOST_DATAGRAM_BYTES: u32 = 65_507;

struct ReadyUdp {
    spec: UdpSpec,
    sizes: DatagramSizes,
    options: DatagramOptions,
    pace: Option<Pace>,
    runner: SessionRunner,
    flows: Vec<DatagramFlow>,
}

/// Returns the pace of a specified rate.
pub fn parse_pace(rate_per_s: Option<f64>) -> Result<Option<Pace>, ErrorReport> {
    rate_per_s
        .map(|rate| {
            Pace::per_second(rate).ok_or_else(|| input_error("bad_rate", format!("a rate of {rate}/s is none")))
        })
        .transpose()
}

fn parse_sizes(spec: &UdpSpec) -> Result<DatagramSizes, ErrorReport> {
    let sizes =
        DatagramSizes::new(spec.datagram_bytes, spec.sizes.as_deref().unwrap_or_default()).ok_or_else(|| {
            input_error(
                "bad_size",
                format!("a mix has at most {MOST_SIZES} sizes and 1 to {LONGEST_ROUND} datagrams a round"),
            )
        })?;
    let bounds = SHORT_HEADER_BYTES..=MOST_DATAGRAM_BYTES as usize;
    for bytes in [sizes.smallest(), sizes.largest()] {
        if !bounds.contains(&bytes) {
            let message = format!(
                "a datagram of {bytes} bytes: {} to {} carry the measuring header",
                bounds.start(),
                bounds.end()
            );
            return Err(input_error("bad_size", message));
        }
    }
    Ok(sizes)
}

/// Opens the session and its sockets.
pub fn prepare(spec: UdpSpec) -> Result<Box<dyn Ready>, ErrorReport> {
    if spec.flows == 0 || spec.duration_ms == 0 || spec.interval_ms == 0 {
        return Err(input_error("bad_spec", "flows, duration and interval must be at least 1"));
    }
    let sizes = parse_sizes(&spec)?;
    if let Some(code_point) = spec.dscp.filter(|code_point| *code_point > MOST_DSCP) {
        return Err(input_error("bad_spec", format!("a DSCP of {code_point}: 0 to {MOST_DSCP} fit")));
    }
    let pace = parse_pace(spec.rate_pps)?;
    if spec.peer == PeerProgram::Iperf3 {
        return iperf3::prepare_udp(&spec, pace);
    }
    let work = Work::Udp { datagram_bytes: spec.datagram_bytes, rate_pps: spec.rate_pps, number: spec.number };
    // With a rate, batches would leave as bursts.
    let gso = spec.gso.unwrap_or(spec.rate_pps.is_none());
    let options = DatagramOptions {
        gso,
        sizes: spec.sizes.clone().unwrap_or_default(),
        dscp: spec.dscp,
        window_bytes: spec.window_bytes,
    };
    let open = Open {
        work,
        flows: spec.flows,
        threads: spec.threads,
        direction: spec.direction,
        duration_ms: spec.duration_ms,
        congestion: None,
        interval_ms: spec.interval_ms,
        takes_turns: false,
        datagrams: options.clone(),
    };
    let mut session = Session::open(&spec.target, spec.bind.as_deref(), open)?;
    let (mut flows, mut planned) = (Vec::new(), Vec::new());
    let directions = planned_directions(spec.direction, spec.flows);
    let counters = counters(directions.len() as u32);
    for ((id, direction), counters) in (0..).zip(directions).zip(counters) {
        let socket = session.connect_datagram(id)?;
        net::set_dscp(&socket, spec.dscp).map_err(|error| system_error("setting the DSCP", &error))?;
        if let Some(bytes) = spec.window_bytes {
            let set = net::set_buffers(&socket, bytes as usize);
            set.map_err(|error| system_error("setting the window", &error))?;
        }
        let expected = Arc::new(AtomicOption::none());
        planned.push(PlannedFlow {
            id,
            direction,
            counters: Arc::clone(&counters),
            expected: (direction == Direction::Down).then(|| Arc::clone(&expected)),
            local: socket.local_addr().ok().map(|address| address.to_string()),
            remote: socket.peer_addr().ok().map(|address| address.to_string()),
            congestion: None,
        });
        let role = if direction == Direction::Up { Role::Send } else { Role::Receive };
        flows.push(DatagramFlow { id, socket, role, counters, offset_ns: 0, expected });
    }
    session.await_ready()?;
    let interval = Duration::from_millis(spec.interval_ms.into());
    let runner =
        SessionRunner { session, flows: planned, has_units: true, counts_loss: true, interval, metrics: &["late"] };
    Ok(Box::new(ReadyUdp { spec, sizes, options, pace, runner, flows }))
}

impl Ready for ReadyUdp {
    fn run(self: Box<Self>, at_ns: u64, task: &Task) -> Result<Outcome, ErrorReport> {
        let span = span(at_ns, self.spec.duration_ms);
        let work = DatagramWork {
            format: format_for(&self.sizes, self.runner.session.token),
            sizes: self.sizes,
            pace: self.pace,
            burst: 1,
            number: self.spec.number,
            payload: Payload::Zeros,
            gso: self.options.gso,
        };
        let warm_until_ns = span.at_ns.saturating_add(self.spec.warmup_ms.saturating_mul(1_000_000));
        let (out, rolled) = mpsc::channel();
        let (sending, receiving): (Vec<_>, Vec<_>) = self.flows.into_iter().partition(|flow| flow.role == Role::Send);
        let mut workers: Vec<(Role, Worker)> = Vec::new();
        for (role, flows, name) in [(Role::Send, sending, "udp-send"), (Role::Receive, receiving, "udp-receive")] {
            for (index, group) in
                deal_out(flows, self.spec.threads).into_iter().enumerate().filter(|(_, g)| !g.is_empty())
            {
                let name = format!("{name}-{index}");
                let recorder = (role == Role::Send).then(|| Recorder::new(1, warm_until_ns, out.clone()));
                let work = work.clone();
                workers
                    .push((role, Box::new(move |signal| datagram::drive(group, work, span, signal, &name, recorder))));
            }
        }
        drop(out);
        self.runner.run(span, workers, rolled, task)
    }
}
