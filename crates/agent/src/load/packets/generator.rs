//! A generator of frames: checks what is asked for, chooses a path into the interface, runs one thread per share of the
//! flows, and reports what was sent.

use std::net::IpAddr;
use std::sync::Arc;

use leadline_packet::flows::zipf_table;
use leadline_packet::frame::{FramePlan, Own};
use leadline_stats::Histogram;
use leadline_sys::clock::monotonic_ns;
use leadline_sys::interfaces::Interface;
use leadline_sys::usage::{allowed_cpus, pin_to, this_cpu};
use leadline_wire::{
    CaptureSpec, CaptureTiming, Counts, ErrorReport, FlowProgress, GeneratorPath, HistogramReport, InterfaceCounts,
    NoCounts, Outcome, PacketFlowCount, PacketGeneratorSpec, PacketsReport, PacketsSent, Side, SizeCount,
};

use super::capture_sender::CaptureSender;
use super::link;
use super::path::NoPath;
use super::path_choice::{choose_path, name_of};
use super::pktgen_sender::PktgenSender;
use super::report::{flow_report, REPORTED_FLOWS};
use super::sender::{Frames, Sender, Sent, Share};
use super::socket_sender::SocketSender;
use super::xdp_sender::XdpSender;
use crate::control_signal::ControlSignal;
use crate::events::{input_error, system_error};
use crate::flows::account::Account;
use crate::flows::thread_group::{ThreadGroup, Worker};
use crate::flows::{Role, Span, WorkerReport};
use crate::load::udp::parse_pace;
use crate::machine_meter::MachineMeter;
use crate::metering::ThreadMeter;
use crate::task::{Ready, Task};

/// A load without a duration ends by a stop or its number; its clock ends in 30 days.
const NO_END_NS: u64 = 30 * 86_400_000_000_000;
const MAX_THREADS: u32 = 64;
const ETHERNET_BYTES: usize = 14;

struct ReadyGenerator {
    spec: PacketGeneratorSpec,
    interface: Interface,
    destination_mac: Option<[u8; 6]>,
    shares: Vec<Share>,
    senders: Vec<Arc<dyn Sender>>,
    via: GeneratorPath,
    via_reason: String,
    is_paced: bool,
}

/// Checks the specification and opens what it needs.
pub fn prepare(spec: PacketGeneratorSpec) -> Result<Box<dyn Ready>, ErrorReport> {
    check_spec(&spec)?;
    let plan = FramePlan::parse(&spec.frame, &spec.flows, spec.stamp_every > 0)
        .map_err(|error| input_error("bad_frame", error.to_string()))?;
    let interface = match &spec.device {
        Some(name) => link::find(name)?,
        None => link::find_route(plan.first_destination())?,
    };
    link::check_default_route(&interface, spec.may_use_default_route)?;
    if let Some(capture) = &spec.capture {
        let sender = Arc::new(open_capture(capture, &spec, &plan, &interface)?);
        let is_paced = capture.timing != CaptureTiming::Top;
        return Ok(Box::new(ReadyGenerator {
            shares: one_share(&spec)?,
            spec,
            interface,
            destination_mac: None,
            senders: vec![sender],
            via: GeneratorPath::Pcap,
            via_reason: "frames of a capture".to_owned(),
            is_paced,
        }));
    }
    if spec.via == GeneratorPath::Pcap {
        return Err(input_error("bad_spec", "the path pcap sends the frames of a capture: name one"));
    }
    let longest = plan.sizes.iter().map(|size| size.bytes).max().unwrap_or(0);
    link::check_mtu(&interface, longest, plan.vlans.len() as u32)?;
    let own = own_addresses(&plan, &interface)?;
    let is_plain = interface.mac.is_none() && !interface.is_loopback;
    if is_plain && !plan.vlans.is_empty() {
        let message = format!("{} carries packets without Ethernet, and so without VLAN tags", interface.name);
        return Err(input_error("bad_frame", message));
    }
    let popularity = spec.flows.zipf.map(|exponent| zipf_table(spec.flows.count, exponent));
    let shares = shares(&spec)?;
    let (via, via_reason) = choose_path(&spec, &plan, &interface).map_err(NoPath::refuse)?;
    let stripped_bytes = if is_plain { ETHERNET_BYTES } else { 0 };
    let (own_spec, own_interface) = (spec.clone(), interface.clone());
    let frames = Arc::new(Frames { plan, own, spec: own_spec, interface: own_interface, stripped_bytes, popularity });
    let (senders, via, via_reason) = open_senders(&frames, &shares, via, via_reason)?;
    let (is_paced, destination_mac) = (spec.rate_pps.is_some(), Some(own.1));
    Ok(Box::new(ReadyGenerator { spec, interface, destination_mac, shares, senders, via, via_reason, is_paced }))
}

type Opened = (Vec<Arc<dyn Sender>>, GeneratorPath, String);

/// Opens each share's sender. Where AF_XDP was not asked for by name, packet sockets take its place.
fn open_senders(
    frames: &Arc<Frames>,
    shares: &[Share],
    via: GeneratorPath,
    reason: String,
) -> Result<Opened, ErrorReport> {
    let is_chosen = frames.spec.via == GeneratorPath::Auto;
    let by_sockets = |reason: String| -> Result<Opened, ErrorReport> {
        let open = |share| SocketSender::open(frames, share).map(|sender| Arc::new(sender) as Arc<dyn Sender>);
        Ok((shares.iter().map(open).collect::<Result<_, _>>()?, GeneratorPath::AfPacket, reason))
    };
    match via {
        GeneratorPath::Xdp => {
            let open = |share| XdpSender::open(frames, share).map(|sender| Arc::new(sender) as Arc<dyn Sender>);
            Ok((shares.iter().map(open).collect::<Result<_, _>>()?, via, reason))
        }
        GeneratorPath::AfXdp => {
            let opened = shares.iter().map(|share| SocketSender::open_xdp(frames, share, is_chosen));
            match opened.collect::<Result<Vec<_>, _>>() {
                Ok(opened) => {
                    let way = opened.first().map_or("", |(_, way)| way);
                    let senders = opened.into_iter().map(|(sender, _)| Arc::new(sender) as Arc<dyn Sender>);
                    Ok((senders.collect(), via, format!("{reason}; {way}")))
                }
                Err(error) if is_chosen => by_sockets(format!("{reason}; {}", error.message)),
                Err(error) => Err(error),
            }
        }
        // One sender controls all threads of the kernel.
        GeneratorPath::Pktgen => {
            Ok((vec![Arc::new(PktgenSender::open(frames, shares)?) as Arc<dyn Sender>], via, reason))
        }
        _ => by_sockets(reason),
    }
}

fn check_spec(spec: &PacketGeneratorSpec) -> Result<(), ErrorReport> {
    if spec.interval_ms == 0 || spec.duration_ms == Some(0) || spec.number == Some(0) {
        return Err(input_error("bad_spec", "interval, duration and number are at least 1"));
    }
    if spec.threads == 0 || spec.threads > MAX_THREADS || spec.threads > spec.flows.count {
        let message = format!("{} threads: from 1 to {MAX_THREADS}, and no more than flows", spec.threads);
        return Err(input_error("bad_spec", message));
    }
    if spec.flows.zipf.is_some() && spec.threads > 1 {
        return Err(input_error("bad_spec", "flows by Zipf's law are those of one thread"));
    }
    if spec.via != GeneratorPath::Pktgen && !spec.pktgen.is_empty() {
        return Err(input_error("bad_spec", "commands of pktgen are for the path pktgen"));
    }
    Ok(())
}

fn open_capture(
    capture: &CaptureSpec,
    spec: &PacketGeneratorSpec,
    plan: &FramePlan,
    interface: &Interface,
) -> Result<CaptureSender, ErrorReport> {
    if interface.mac.is_none() && !interface.is_loopback {
        let message = format!("{} carries packets without Ethernet; a capture has frames", interface.name);
        return Err(input_error("bad_frame", message));
    }
    let destination = || match plan.destination_mac {
        Some(mac) => Ok(mac),
        None => link::next_hop(interface, plan.first_destination()),
    };
    let source = plan.source_mac.or(interface.mac).unwrap_or_default();
    let macs = if capture.rewrites_macs { Some((source, destination()?)) } else { None };
    CaptureSender::open(capture, parse_pace(spec.rate_pps)?, interface, macs)
}

fn own_addresses(plan: &FramePlan, interface: &Interface) -> Result<Own, ErrorReport> {
    let name = &interface.name;
    let is_v4 = plan.is_v4();
    let usable = |address: &&IpAddr| match address {
        IpAddr::V4(_) => is_v4,
        IpAddr::V6(address) => !is_v4 && !address.is_unicast_link_local(),
    };
    let source = interface.addresses.iter().find(usable).copied();
    if plan.sources.is_none() && source.is_none() && plan.template.is_none() {
        let version = if is_v4 { 4 } else { 6 };
        let message = format!("{name} has no IPv{version} address; name the frames' sources (--src)");
        return Err(input_error("no_address", message));
    }
    let destination_mac = match (plan.destination_mac, &plan.template) {
        (Some(mac), _) => mac,
        (None, Some(_)) => [0; 6],
        (None, None) if interface.mac.is_none() => [0; 6],
        (None, None) => link::next_hop(interface, plan.first_destination())?,
    };
    Ok((interface.mac.unwrap_or_default(), destination_mac, source))
}

/// The share of one sender that has a schedule of its own.
fn one_share(spec: &PacketGeneratorSpec) -> Result<Vec<Share>, ErrorReport> {
    shares(&PacketGeneratorSpec { threads: 1, rate_pps: None, ..spec.clone() })
}

fn shares(spec: &PacketGeneratorSpec) -> Result<Vec<Share>, ErrorReport> {
    let pace = parse_pace(spec.rate_pps)?;
    let threads = spec.threads;
    let share = |thread: u32| Share {
        thread,
        threads,
        flows: (spec.flows.count - thread).div_ceil(threads),
        pace: pace.map(|pace| pace.scaled(1.0 / f64::from(threads))),
        later_ns: pace.map_or(0, |pace| pace.due_ns(u64::from(thread))),
        number: spec.number.map(|number| {
            let (thread, threads) = (u64::from(thread), u64::from(threads));
            number / threads + u64::from(thread < number % threads)
        }),
    };
    Ok((0..threads).map(share).collect())
}

impl Ready for ReadyGenerator {
    fn run(self: Box<Self>, at_ns: u64, task: &Task) -> Result<Outcome, ErrorReport> {
        let Self { spec, interface, destination_mac, shares, senders, via, via_reason, is_paced } = *self;
        let duration_ns = spec.duration_ms.map_or(NO_END_NS, |ms| ms.saturating_mul(1_000_000));
        let at_ns = at_ns.max(monotonic_ns());
        let span = Span { at_ns, end_ns: at_ns.saturating_add(duration_ns) };
        let before = link::counts(&interface.name);
        let workers = senders.iter().zip(&shares).map(|(sender, share)| worker(sender, share, span)).collect();
        let threads = ThreadGroup::start(workers, &task.signal, || {});
        let threads = threads.map_err(|error| system_error("starting threads", &error))?;
        let mut machine = MachineMeter::default();
        supervise(&spec, span, &senders, &threads, &mut machine, task);
        let workers = threads.join().map_err(|error| system_error("sending frames", &error))?;
        let grown = link::grown(before, link::counts(&interface.name));
        let sent: Vec<Sent> = senders.iter().map(|sender| sender.report()).collect();
        let mut late = Histogram::new();
        sent.iter().for_each(|sent| late.merge(&sent.late));
        let frames: u64 = sent.iter().map(|sent| sent.frames).sum();
        let bytes = senders.iter().map(|sender| sender.so_far().1).sum();
        let mut account = Account::of(workers);
        account.load.machine = machine.used().map(Box::new);
        account.load.quota = machine.held_back();
        account.load.late_p99_us = late.quantile_ns(0.99).filter(|_| is_paced).map(|ns| ns as f64 / 1e3);
        account.load.pushback = sent.iter().map(|sent| sent.pushback).sum();
        account.load.threads.extend(senders.iter().flat_map(|sender| sender.kernel_threads()));
        account.load.engine = Some(name_of(via).to_owned());
        account.load.engine_reason = Some(via_reason.clone());
        let last_ns = sent.iter().filter_map(|sent| sent.last_ns).max();
        let elapsed_ns = count_elapsed_ns(span, task.signal.stopped(), last_ns);
        let due = senders.iter().map(|sender| sender.due(elapsed_ns)).sum::<Option<u64>>();
        let packets = PacketsSent {
            via,
            via_reason,
            sent: frames,
            sent_bytes: bytes,
            refused: count_refused(grown, frames).map(|refused| refused.saturating_sub(account.load.pushback)),
            unsent: due.map(|due: u64| due.saturating_sub(frames)),
            late_p99_us: account.load.late_p99_us,
            first_ns: sent.iter().filter_map(|sent| sent.first_ns).min().or((frames > 0).then_some(span.at_ns)),
            last_ns,
            destination_mac: destination_mac.map(mac_text),
            by_size: join_sizes(&sent),
            flows: first_flows(&sent),
            interface: grown,
        };
        let mut flow = flow_report(span.at_ns, (packets.first_ns, last_ns));
        (flow.sent_bytes, flow.sent_units) = (Some(bytes), Some(frames));
        let report = HistogramReport { metric: "late".to_owned(), count: late.count(), hdr_v2: late.encode() };
        Ok(Outcome {
            flows: vec![flow],
            histograms: if is_paced && !late.is_empty() { vec![report] } else { Vec::new() },
            error_examples: Default::default(),
            errors: account.errors,
            generator: account.load,
            receiver: None,
            counts: Counts::None(NoCounts {}),
            tunnel: None,
            crypto: None,
            scenario: None,
            packets: Some(Box::new(PacketsReport { generator: Some(packets), receiver: None })),
        })
    }
}

fn worker(sender: &Arc<dyn Sender>, share: &Share, span: Span) -> (Role, Worker) {
    let (sender, share) = (Arc::clone(sender), share.clone());
    let work = move |signal: &ControlSignal| {
        let name = format!("packets-{}", share.thread);
        // A driver chooses its queue by the CPU: two threads on one would share a queue, and the frames of one that moves
        // would overtake each other.
        let cpus = allowed_cpus();
        let begin = if share.threads == 1 { cpus.iter().position(|cpu| Some(*cpu) == this_cpu()) } else { None };
        let cpu = cpus.get((begin.unwrap_or(0) + share.thread as usize) % cpus.len().max(1)).copied();
        cpu.map_or(Ok(()), pin_to)?;
        signal.sleep_until(span.at_ns);
        let meter = ThreadMeter::begin(name, monotonic_ns());
        sender.send(span, signal)?;
        Ok(WorkerReport {
            flows: Vec::new(),
            thread: meter.end(monotonic_ns()),
            pushback: 0,
            errors: Default::default(),
            late: None,
        })
    };
    (Role::Send, Box::new(work))
}

/// Reports progress each interval until all threads have ended.
fn supervise(
    spec: &PacketGeneratorSpec,
    span: Span,
    senders: &[Arc<dyn Sender>],
    threads: &ThreadGroup,
    machine: &mut MachineMeter,
    task: &Task,
) {
    let interval_ns = u64::from(spec.interval_ms) * 1_000_000;
    const LOOK_NS: u64 = 2_000_000;
    let so_far =
        || senders.iter().map(|sender| sender.so_far()).fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1));
    let mut tick_ns = span.at_ns.saturating_add(interval_ns);
    while !threads.done() {
        let now_ns = monotonic_ns();
        machine.poll(now_ns, span.at_ns, false, || count_moved(so_far()));
        if now_ns >= tick_ns {
            tick_ns += interval_ns;
            progress(task, so_far());
        }
        let look_ns = if now_ns + 20 * LOOK_NS < span.end_ns { 10 * LOOK_NS } else { LOOK_NS };
        leadline_sys::clock::sleep_until((now_ns + look_ns).min(tick_ns.max(span.at_ns)));
    }
    machine.poll(monotonic_ns(), span.at_ns, true, || count_moved(so_far()));
    progress(task, so_far());
}

fn count_moved((frames, bytes): (u64, u64)) -> [u64; 4] {
    [bytes, 0, frames, 0]
}

fn progress(task: &Task, (frames, bytes): (u64, u64)) {
    let row = FlowProgress { flow: 0, sent_bytes: bytes, sent_units: Some(frames), ..FlowProgress::default() };
    task.progress(Side::Local, monotonic_ns(), vec![row], Vec::new());
}

/// Frames that the driver did not take, by the interface's own counters: it may count them, or only not count them as
/// sent. Frames of others can hide some.
fn count_refused(grown: InterfaceCounts, frames: u64) -> Option<u64> {
    let missing = frames.saturating_sub(grown.tx_packets?);
    Some(missing.max(grown.tx_dropped.unwrap_or(0).min(frames)))
}

fn mac_text(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

fn join_sizes(sent: &[Sent]) -> Vec<SizeCount> {
    let mut sizes: Vec<SizeCount> = Vec::new();
    for size in sent.iter().flat_map(|sent| &sent.by_size) {
        match sizes.iter_mut().find(|known| known.bytes == size.bytes) {
            Some(known) => known.frames += size.frames,
            None => sizes.push(*size),
        }
    }
    sizes.sort_by_key(|size| size.bytes);
    sizes
}

fn first_flows(sent: &[Sent]) -> Vec<PacketFlowCount> {
    let mut flows: Vec<PacketFlowCount> = sent.iter().flat_map(|sent| &sent.flows).copied().collect();
    flows.sort_by_key(|flow| flow.flow);
    flows.truncate(REPORTED_FLOWS as usize);
    flows
}

/// The time in which frames fell due: of a stopped load the one up to its last frame, as later ones were not wanted.
fn count_elapsed_ns(span: Span, is_stopped: bool, last_ns: Option<u64>) -> u64 {
    let end_ns = if is_stopped { last_ns.unwrap_or(span.at_ns).min(span.end_ns) } else { span.end_ns };
    end_ns.saturating_sub(span.at_ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use leadline_pace::Pace;

    #[test]
    fn packets_behind_a_stop_were_not_due() {
        let share =
            Share { thread: 0, threads: 1, flows: 1, pace: Pace::per_second(1000.0), later_ns: 0, number: Some(900) };
        let span = Span { at_ns: 5, end_ns: 5 + 10_000_000_000 };
        let due = |is_stopped, last_ns| share.due(count_elapsed_ns(span, is_stopped, last_ns));
        assert_eq!(due(false, Some(5 + 300_000_000)), Some(900));
        assert_eq!(due(true, Some(5 + 300_000_000)), Some(300));
        assert_eq!(due(true, None), Some(0));
    }
}
