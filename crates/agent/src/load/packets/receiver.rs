//! A receiver of frames: it counts from its preparation on, so that no frame of a generator that starts later is missed,
//! until it is stopped.

use std::sync::Arc;

use leadline_packet::account::FlowAccount;
use leadline_packet::frame::MAX_FRAME_LENGTH;
use leadline_packet::trailer::FLOW_BITS;
use leadline_stats::Histogram;
use leadline_sys::clock::monotonic_ns;
use leadline_sys::interfaces::Interface;
use leadline_wire::{
    Counts, ErrorReport, FlowProgress, HistogramReport, InterfaceCounts, LoadReport, NoCounts, Outcome,
    PacketFlowCount, PacketReceiverSpec, PacketsReceived, PacketsReport, ReceivedFrames, ReceiverPath, Side, SizeCount,
};

use super::counter::{Counter, Tally};
use super::link;
use super::path::{require_bpf, NoPath};
use super::report::{flow_report, REPORTED_FLOWS};
use super::socket_counter::SocketCounter;
use super::xdp_counter::XdpCounter;
use crate::events::input_error;
use crate::machine_meter::MachineMeter;
use crate::task::{Ready, Task};

struct ReadyReceiver {
    spec: PacketReceiverSpec,
    interface: Interface,
    counter: Arc<dyn Counter>,
    before: InterfaceCounts,
    via: ReceiverPath,
    via_reason: String,
}

/// Begins to count.
pub fn prepare(spec: PacketReceiverSpec) -> Result<Box<dyn Ready>, ErrorReport> {
    if spec.interval_ms == 0 || spec.flows == 0 || spec.flows > 1 << FLOW_BITS {
        let message = format!("the interval is at least 1 ms, and there are 1 to {} flows", 1 << FLOW_BITS);
        return Err(input_error("bad_spec", message));
    }
    if spec.pktgen.is_some() && spec.measures_delay {
        return Err(input_error("bad_spec", "frames of pktgen have no time of the receiver's clock"));
    }
    let address = |text: &str| text.parse().map_err(|_| input_error("bad_spec", format!("{text:?} is no IP address")));
    let interface = match (&spec.device, &spec.address, &spec.toward) {
        (Some(name), ..) => link::find(name)?,
        (None, Some(own), _) => link::find_address(address(own)?)?,
        (None, None, Some(destination)) => link::find_route(address(destination)?)?,
        (None, None, None) => return Err(input_error("bad_spec", "a receiver has an interface, or an address of one")),
    };
    let before = link::counts(&interface.name);
    let (counter, via, mut via_reason) = open(&spec, &interface)?;
    if spec.pktgen.is_some_and(|streams| !streams.has_numbers) {
        via_reason += "; copies of a frame have its number, so that loss is by counts alone";
    }
    Ok(Box::new(ReadyReceiver { spec, interface, counter, before, via, via_reason }))
}

type Opened = (Arc<dyn Counter>, ReceiverPath, String);

fn open(spec: &PacketReceiverSpec, interface: &Interface) -> Result<Opened, ErrorReport> {
    let by_xdp = || -> Result<Opened, NoPath> {
        if interface.is_loopback && spec.then == ReceivedFrames::Echo {
            return Err(NoPath::new("no_echo", "the loopback cannot send frames back by XDP"));
        }
        require_bpf()?;
        let (counter, reason) = XdpCounter::open(spec, interface)?;
        Ok((Arc::new(counter), ReceiverPath::Xdp, reason))
    };
    let by_socket = |reason: String| -> Result<Opened, ErrorReport> {
        Ok((SocketCounter::open(spec, interface)?, ReceiverPath::AfPacket, reason))
    };
    match spec.via {
        ReceiverPath::Xdp => by_xdp().map_err(NoPath::refuse),
        ReceiverPath::AfPacket => by_socket("asked for".to_owned()),
        ReceiverPath::Auto => match by_xdp() {
            Ok(opened) => Ok(opened),
            // A program of another test or tool is no reason to count frames that it may take away.
            Err(no_path) if no_path.code == "busy" => Err(no_path.refuse()),
            Err(no_path) => by_socket(no_path.reason),
        },
    }
}

impl Ready for ReadyReceiver {
    fn run(self: Box<Self>, at_ns: u64, task: &Task) -> Result<Outcome, ErrorReport> {
        let Self { spec, interface, counter, before, via, via_reason } = *self;
        let at_ns = at_ns.max(monotonic_ns());
        counter.warm_until(at_ns.saturating_add(spec.warmup_ms.saturating_mul(1_000_000)));
        let mut machine = MachineMeter::default();
        supervise(&spec, at_ns, counter.as_ref(), &mut machine, task);
        let thread = counter.end();
        let tally = counter.tally();
        let accounts: Vec<FlowAccount> = (0..spec.flows).map(|flow| counter.account(flow)).collect();
        let sum = |figure: fn(&FlowAccount) -> u64| accounts.iter().map(figure).sum::<u64>();
        let frames = tally.frames();
        let has_numbers = spec.pktgen.is_none_or(|streams| streams.has_numbers);
        let packets = PacketsReceived {
            via,
            via_reason: via_reason.clone(),
            received: frames,
            received_bytes: tally.bytes(),
            duplicates: has_numbers.then(|| sum(|account| account.duplicates)),
            reordered: has_numbers.then(|| sum(|account| account.reordered)),
            behind_window: sum(|account| account.behind),
            beyond_flows: tally.beyond,
            foreign: tally.foreign,
            overrun: tally.overrun,
            echoed: tally.echoed,
            flows_seen: accounts.iter().filter(|account| account.frames > 0).count() as u32,
            first_ns: tally.first_ns,
            last_ns: tally.last_ns,
            by_size: sizes(&tally),
            flows: (0..)
                .zip(&accounts)
                .take(REPORTED_FLOWS as usize)
                .map(|(flow, account)| row(flow, account))
                .collect(),
            interface: link::grown(before, link::counts(&interface.name)),
        };
        let mut flow = flow_report(at_ns, (packets.first_ns, packets.last_ns));
        (flow.received_bytes, flow.received_units) = (Some(packets.received_bytes), Some(frames));
        (flow.duplicates, flow.reordered) = (packets.duplicates, packets.reordered);
        let generator = LoadReport {
            side: Side::Local,
            wall_s: monotonic_ns().saturating_sub(at_ns) as f64 / 1e9,
            threads: thread.into_iter().collect(),
            pushback: 0,
            late_p99_us: None,
            socket_drops: tally.overrun,
            engine: Some(if via == ReceiverPath::Xdp { "xdp" } else { "af_packet" }.to_owned()),
            engine_reason: Some(via_reason),
            machine: machine.used().map(Box::new),
            quota: machine.held_back(),
        };
        let mut errors = std::collections::BTreeMap::new();
        if tally.from_future > 0 {
            errors.insert("time_from_future".to_owned(), tally.from_future);
        }
        Ok(Outcome {
            flows: vec![flow],
            histograms: histograms(&tally, spec.is_round_trip),
            errors,
            error_examples: Default::default(),
            generator,
            receiver: None,
            counts: Counts::None(NoCounts {}),
            tunnel: None,
            crypto: None,
            scenario: None,
            packets: Some(Box::new(PacketsReport { generator: None, receiver: Some(packets) })),
        })
    }
}

fn row(flow: u32, account: &FlowAccount) -> PacketFlowCount {
    let FlowAccount { next, frames, duplicates, reordered, .. } = *account;
    PacketFlowCount { flow, frames, numbers: next, duplicates, reordered }
}

fn sizes(tally: &Tally) -> Vec<SizeCount> {
    let counted = (0..=MAX_FRAME_LENGTH).zip(&tally.lengths).filter(|(_, frames)| **frames > 0);
    counted.map(|(bytes, frames)| SizeCount { bytes, frames: *frames }).collect()
}

fn histograms(tally: &Tally, is_round_trip: bool) -> Vec<HistogramReport> {
    let metric = if is_round_trip { "round_trip" } else { "one_way_delay" };
    let named = [(metric.to_owned(), &tally.delays), (format!("warmup_{metric}"), &tally.warm_up)];
    let report = |(metric, histogram): (String, &Histogram)| HistogramReport {
        metric,
        count: histogram.count(),
        hdr_v2: histogram.encode(),
    };
    named.into_iter().filter(|(_, histogram)| !histogram.is_empty()).map(report).collect()
}

/// Reports progress each interval until a stop, or until the duration and the time behind it are over.
fn supervise(spec: &PacketReceiverSpec, at_ns: u64, counter: &dyn Counter, machine: &mut MachineMeter, task: &Task) {
    let interval_ns = u64::from(spec.interval_ms) * 1_000_000;
    let lasts = |ms: u64| ms.saturating_add(spec.drain_ms).saturating_mul(1_000_000);
    let end_ns = spec.duration_ms.map_or(u64::MAX, |ms| at_ns.saturating_add(lasts(ms)));
    let load_end_ns = spec.duration_ms.map_or(u64::MAX, |ms| at_ns.saturating_add(ms.saturating_mul(1_000_000)));
    let moved = || {
        let (frames, bytes) = counter.so_far();
        [0, bytes, 0, frames]
    };
    task.signal.sleep_until(at_ns);
    let mut tick_ns = at_ns.saturating_add(interval_ns);
    machine.poll(monotonic_ns(), at_ns, false, moved);
    loop {
        let is_over = task.signal.stopped() || monotonic_ns() >= end_ns;
        machine.poll(monotonic_ns(), at_ns, is_over || monotonic_ns() >= load_end_ns, moved);
        if is_over || monotonic_ns() >= tick_ns {
            tick_ns += interval_ns;
            let [_, bytes, _, frames] = moved();
            let row = FlowProgress {
                flow: 0,
                received_bytes: bytes,
                received_units: Some(frames),
                ..FlowProgress::default()
            };
            task.progress(Side::Local, monotonic_ns(), vec![row], Vec::new());
        }
        if is_over {
            return;
        }
        task.signal.sleep_until(tick_ns.min(end_ns));
    }
}
