//! Bulk TCP from the client's side.

use std::net::TcpStream;
use std::path::Path;
use std::sync::mpsc;
use std::sync::Arc;
use std::time::Duration;

use leadline_sys::net;
use leadline_transport::{DatagramOptions, Open, Work};
use leadline_wire::{Direction, ErrorReport, Outcome, PeerProgram, TcpSpec};

use super::iperf3;
use super::session::Session;
use super::session_runner::{span, PlannedFlow, SessionRunner};
use crate::events::{input_error, system_error};
use crate::flows::payload::ByteBudget;
use crate::flows::stream::{self, PacedBlocks, StreamFlow, StreamWork};
use crate::flows::stream_options;
use crate::flows::thread_group::Worker;
use crate::flows::{counters, deal_out, planned_directions, Role};
use crate::rate_text::format_rate;
use crate::task::{Ready, Task};

struct ReadyTcp {
    spec: TcpSpec,
    paced: Option<PacedBlocks>,
    runner: SessionRunner,
    flows: Vec<StreamFlow>,
}

/// Opens the session and its connections.
pub fn prepare(spec: TcpSpec) -> Result<Box<dyn Ready>, ErrorReport> {
    if spec.flows == 0 || spec.block_bytes == 0 || spec.duration_ms == 0 || spec.interval_ms == 0 {
        return Err(input_error("bad_spec", "flows, block, duration and interval must be at least 1"));
    }
    let paced = parse_rate(spec.rate_bps, spec.block_bytes)?;
    if spec.peer == PeerProgram::Iperf3 {
        return iperf3::prepare_tcp(&spec, paced);
    }
    check_file(&spec)?;
    let options = spec.options.unwrap_or_default();
    let work = Work::Tcp { block_bytes: spec.block_bytes, rate_bps: spec.rate_bps, options };
    let open = Open {
        work,
        flows: spec.flows,
        threads: spec.threads,
        direction: spec.direction,
        duration_ms: spec.duration_ms,
        congestion: spec.congestion.clone(),
        interval_ms: spec.interval_ms,
        takes_turns: false,
        datagrams: DatagramOptions::default(),
    };
    let mut session = Session::open(&spec.target, spec.bind.as_deref(), open)?;
    let directions = planned_directions(spec.direction, spec.flows);
    let (mut flows, mut planned) = (Vec::new(), Vec::new());
    let counters = counters(directions.len() as u32);
    let budget = options.total_bytes.map(|bytes| Arc::new(ByteBudget::new(bytes)));
    for ((id, direction), counters) in (0..).zip(directions).zip(counters) {
        let socket = connect(&session, id, &spec)?;
        planned.push(PlannedFlow {
            id,
            direction,
            counters: Arc::clone(&counters),
            expected: None,
            local: socket.local_addr().ok().map(|address| address.to_string()),
            remote: socket.peer_addr().ok().map(|address| address.to_string()),
            congestion: net::congestion(&socket),
        });
        let role = if direction == Direction::Up { Role::Send } else { Role::Receive };
        flows.push(StreamFlow { budget: budget.clone(), ..StreamFlow::new(id, socket, role, counters) });
    }
    session.await_ready()?;
    let interval = Duration::from_millis(spec.interval_ms.into());
    let runner =
        SessionRunner { session, flows: planned, has_units: false, counts_loss: false, interval, metrics: &[] };
    Ok(Box::new(ReadyTcp { spec, paced, runner, flows }))
}

/// Opens a flow with the options of the test.
fn connect(session: &Session, id: u32, spec: &TcpSpec) -> Result<TcpStream, ErrorReport> {
    let options = spec.options.unwrap_or_default();
    let socket = session.connect_stream_with(id, &stream_options::opening(&options))?;
    if let Some(name) = &spec.congestion {
        net::set_congestion(&socket, name)
            .map_err(|error| system_error(&format!("choosing congestion control {name}"), &error))?;
    }
    stream_options::apply(&socket, &options)
        .map_err(|(option, error)| system_error(&format!("setting {option} of a flow"), &error))?;
    Ok(socket)
}

/// A file that cannot be sent is an error before the test.
fn check_file(spec: &TcpSpec) -> Result<(), ErrorReport> {
    let Some(path) = &spec.payload_file else { return Ok(()) };
    if spec.direction != Direction::Up {
        return Err(input_error("bad_spec", "only the client sends a file: the direction must be up"));
    }
    match std::fs::metadata(path) {
        Ok(found) if found.is_file() && found.len() > 0 => Ok(()),
        Ok(_) => Err(input_error("bad_payload", format!("{path} is not a file with content"))),
        Err(error) => Err(system_error(&format!("reading {path}"), &error)),
    }
}

fn parse_rate(rate_bps: Option<u64>, block_bytes: u32) -> Result<Option<PacedBlocks>, ErrorReport> {
    let refused =
        |rate| input_error("bad_rate", format!("blocks of {block_bytes} bytes keep no rate of {}", format_rate(rate)));
    rate_bps.map(|rate| PacedBlocks::new(rate, block_bytes).ok_or_else(|| refused(rate))).transpose()
}

impl Ready for ReadyTcp {
    fn run(self: Box<Self>, at_ns: u64, task: &Task) -> Result<Outcome, ErrorReport> {
        let span = span(at_ns, self.spec.duration_ms);
        let options = self.spec.options.unwrap_or_default();
        let work = StreamWork {
            payload: options.payload.into(),
            payload_file: self.spec.payload_file.as_deref().map(|path| Arc::from(Path::new(path))),
            send: options.send,
            receive: options.receive,
            ..StreamWork::plain(
                self.spec.block_bytes as usize,
                self.paced,
                u64::from(self.spec.interval_ms) * 1_000_000,
            )
        };
        let (sending, receiving): (Vec<_>, Vec<_>) = self.flows.into_iter().partition(|flow| flow.role == Role::Send);
        let mut workers: Vec<(Role, Worker)> = Vec::new();
        for (role, flows, name) in [(Role::Send, sending, "tcp-send"), (Role::Receive, receiving, "tcp-receive")] {
            for (index, group) in
                deal_out(flows, self.spec.threads).into_iter().enumerate().filter(|(_, g)| !g.is_empty())
            {
                let (name, work) = (format!("{name}-{index}"), work.clone());
                workers.push((role, Box::new(move |signal| stream::drive(group, work, span, signal, &name))));
            }
        }
        let (_, rolled) = mpsc::channel();
        self.runner.run(span, workers, rolled, task)
    }
}
