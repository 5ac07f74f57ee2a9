//! Each kind of traffic against the kernel's stack and a server of this crate, over a TUN device instead of tunnels.
//! Both sides must count the same, to the packet. Skipped if no TUN device can be created.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::mpsc;
use std::sync::Arc;

use leadline_stats::Histogram;
use leadline_sys::clock::monotonic_ns;
use leadline_sys::poll::{Interest, Poll};
use leadline_sys::tun::Tun;
use leadline_testkit::{until, PATIENCE};
use leadline_tunnel::timer::is_due;
use leadline_wire::{Direction, FlowReport, HttpAnswer, ServeSpec, TunnelTraffic};

use super::{plan, Channel, ClientContext, Figures, Traffic, TrafficPlan};
use crate::control_signal::ControlSignal;
use crate::load::tunnel::metric::{Metric, METRICS};
use crate::metering::{Collector, FlowCounters, Recorder};
use crate::serve::{self, Server};

mod http;

const MTU: u16 = 1500;

/// A TUN device with the clients behind it, and a server on the host's side.
struct TunLab {
    tun: Tun,
    /// The number in this lab's addresses, which other labs do not use.
    number: u16,
    signal: Arc<ControlSignal>,
    _server: Server,
}

/// The result of a load.
struct LoadResult {
    figures: Vec<Figures>,
    histograms: BTreeMap<String, u64>,
    latency: Histogram,
    service: Histogram,
    counters: Vec<(u64, u64, u64, u64)>,
    /// Packets that each client sent from the start on.
    sent: Vec<u64>,
    plan: Arc<dyn TrafficPlan>,
}

/// Impairments of UDP packets with payload, by their number: to the server, and from it.
#[derive(Clone, Copy, Default)]
struct Impairment {
    lose_up: u64,
    lose_down: u64,
    /// A client whose datagrams are all lost.
    muted_client: Option<usize>,
    /// A client, and the index of its TCP connection whose packets are all lost.
    muted_stream: Option<(usize, usize)>,
    /// A client whose tunnel breaks once it has sent this many packets after the start.
    breaking_client: Option<(usize, u64)>,
}

impl TunLab {
    /// Returns `None` if this host has no TUN device for the test.
    fn new(answer: HttpAnswer) -> Option<Self> {
        static NUMBER: AtomicU16 = AtomicU16::new(0);
        // Concurrent test processes share the host's network.
        let number =
            (std::process::id() as u16).wrapping_mul(16).wrapping_add(NUMBER.fetch_add(1, Ordering::Relaxed)) & 0x1ff;
        let tun = match Tun::create(&format!("llin{number}"), false) {
            Ok(tun) => tun,
            Err(error) => {
                println!("skipped: no TUN device: {error}");
                return None;
            }
        };
        let (v4, v6) = (ipv4(number, 1), ipv6(number, 1));
        tun.add_address(v4.into(), 24).unwrap();
        let has_v6 = tun.add_address(v6.into(), 64).is_ok();
        tun.bring_up(MTU, 500).unwrap();
        let bind = [Some(v4.to_string()), has_v6.then(|| v6.to_string())].into_iter().flatten().collect();
        let spec = ServeSpec {
            bind,
            port: Some(5201),
            http_port: Some(8080),
            https_port: None,
            answer,
            threads: Some(1),
            longest_ms: 60_000,
            most_flows: 1000,
            key: None,
            per_peer: None,
            iperf3_users: None,
        };
        let signal = Arc::new(ControlSignal::default());
        let server = serve::start(&spec, &signal).unwrap();
        Some(Self { tun, number, signal, _server: server })
    }

    fn context(&self, client: u32, clients: u32) -> ClientContext {
        ClientContext {
            client,
            clients,
            ipv4: Some(ipv4(self.number, 10 + client as u8)),
            ipv6: Some(ipv6(self.number, 10 + client as u16)),
            server_ipv4: Some(ipv4(self.number, 1)),
            server_ipv6: Some(ipv6(self.number, 1)),
            mtu: MTU,
        }
    }

    /// Runs them again until the machine has run this thread and the server in time for the clients that `counts`
    /// selects.
    fn run_served(
        &self,
        spec: &TunnelTraffic,
        clients: u32,
        impairment: Impairment,
        counts: impl Fn(usize) -> bool,
    ) -> LoadResult {
        until("each flow is known to the server and sends", || {
            let result = self.run(spec, clients, impairment);
            result.is_served((0..clients as usize).filter(|client| counts(*client))).then_some(result)
        })
    }

    /// Runs this many clients from their creation to their figures.
    fn run(&self, spec: &TunnelTraffic, clients: u32, impairment: Impairment) -> LoadResult {
        let plan = plan(spec).unwrap();
        let mut loads: Vec<Box<dyn Traffic>> =
            (0..clients).map(|client| plan.client(&self.context(client, clients)).unwrap()).collect();
        let counters: Vec<FlowCounters> = (0..clients).map(|_| FlowCounters::default()).collect();
        let (out, rolled) = mpsc::channel();
        let mut recorder = Recorder::new(METRICS.len(), 0, out);
        let mut poll = Poll::new(4).unwrap();
        poll.add(&self.tun, 0, Interest::Read).unwrap();
        let (mut started, mut up, mut down) = (false, 0u64, 0u64);
        let mut sent = vec![0u64; loads.len()];
        let mut ports: Vec<Vec<u16>> = vec![Vec::new(); loads.len()];
        let mut figures: Vec<Option<Figures>> = loads.iter().map(|_| None).collect();
        let mut packet = [0; 2048];
        let given_up_ns = monotonic_ns() + PATIENCE.as_nanos() as u64;
        while !loads.iter().zip(&figures).all(|(load, figures)| figures.is_some() || load.is_done()) {
            // One time for the whole turn: packets that arrived while this thread did not run are read before timers expire.
            let now_ns = monotonic_ns();
            assert!(now_ns < given_up_ns, "the load ends");
            if !started && loads.iter().all(|load| load.is_ready()) {
                started = true;
                let start_ns = now_ns + 20_000_000;
                loads.iter_mut().for_each(|load| load.start(start_ns));
            }
            let mut touched = vec![false; loads.len()];
            while let Ok(bytes) = self.tun.read(&mut packet) {
                let Some(client) = client_of(&packet[..bytes]).filter(|client| *client < loads.len()) else {
                    continue;
                };
                down += u64::from(is_datagram(&packet[..bytes]));
                if impairment.lose_down > 0 && is_datagram(&packet[..bytes]) && down % impairment.lose_down == 0 {
                    continue;
                }
                let mut channel = Channel { send: &mut |_| true, recorder: &mut recorder, counters: &counters[client] };
                loads[client].payload(now_ns, &packet[..bytes], &mut channel);
                touched[client] = true;
            }
            let mut next_ns = now_ns + 50_000_000;
            for (client, load) in loads.iter_mut().enumerate() {
                if figures[client].is_none() && (touched[client] || is_due(load.deadline_ns(), now_ns)) {
                    let mut send = |packet: &[u8]| {
                        up += u64::from(is_datagram(packet));
                        sent[client] += u64::from(started);
                        let is_lost = impairment.lose_up > 0 && is_datagram(packet) && up % impairment.lose_up == 0
                            || impairment.muted_client == Some(client) && is_udp(packet)
                            || impairment.muted_stream.is_some_and(|(muted, which)| {
                                muted == client && connection_of(packet, &mut ports[client]) == Some(which)
                            });
                        is_lost || self.tun.write(packet).is_ok()
                    };
                    let mut channel = Channel { send: &mut send, recorder: &mut recorder, counters: &counters[client] };
                    load.poll(now_ns, &mut channel);
                }
                if figures[client].is_none()
                    && impairment
                        .breaking_client
                        .is_some_and(|(broken, after)| broken == client && sent[client] >= after)
                {
                    let mut channel =
                        Channel { send: &mut |_| false, recorder: &mut recorder, counters: &counters[client] };
                    figures[client] = Some(load.finish(now_ns, &mut channel));
                }
                if figures[client].is_none() {
                    next_ns = load.deadline_ns().map_or(next_ns, |at_ns| at_ns.min(next_ns));
                }
            }
            poll.wait(Some(next_ns)).unwrap().for_each(drop);
        }
        let figures = (0..loads.len())
            .map(|client| {
                let mut channel = Channel { send: &mut |_| true, recorder: &mut recorder, counters: &counters[client] };
                let finish = || loads[client].finish(monotonic_ns(), &mut channel);
                figures[client].take().unwrap_or_else(finish)
            })
            .collect();
        recorder.finish();
        let mut collector = Collector::new(METRICS);
        rolled.try_iter().for_each(|one| collector.take(one));
        let histograms = collector.totals().into_iter().map(|report| (report.metric, report.count)).collect();
        let counters = counters
            .iter()
            .map(|one| (one.sent_bytes(), one.sent_units(), one.received_bytes(), one.received_units()))
            .collect();
        let (latency, service) = (collector.total(Metric::Latency as usize), collector.total(Metric::Service as usize));
        LoadResult { figures, histograms, latency, service, counters, sent, plan }
    }
}

impl LoadResult {
    /// Whether the machine ran this thread and the server in time for these clients: each takes part, and each of its
    /// flows has sent something.
    fn is_served(&self, clients: impl IntoIterator<Item = usize>) -> bool {
        clients.into_iter().all(|client| {
            let figures = &self.figures[client];
            let is_late = ["udp_unanswered", "stream_unanswered"].iter().any(|name| figures.errors.contains_key(name));
            !is_late && figures.flows.iter().all(|flow| flow.sent_bytes > Some(0))
        })
    }
}

impl Drop for TunLab {
    fn drop(&mut self) {
        // The server's threads notice this; the device ends with its descriptor.
        self.signal.stop();
    }
}

/// An address of RFC 2544's range for measurements.
fn ipv4(number: u16, host: u8) -> Ipv4Addr {
    Ipv4Addr::new(198, 18 + (number >> 8) as u8, number as u8, host)
}

fn ipv6(number: u16, host: u16) -> Ipv6Addr {
    Ipv6Addr::new(0xfd5a, 0x1ead, number, 0, 0, 0, 0, host)
}

/// Returns the client of a packet, by the last byte of its destination.
fn client_of(packet: &[u8]) -> Option<usize> {
    let last = if packet[0] >> 4 == 4 { packet.get(19) } else { packet.get(39) };
    usize::from(*last?).checked_sub(10)
}

fn is_udp(packet: &[u8]) -> bool {
    17 == if packet[0] >> 4 == 4 { packet[9] } else { packet[6] }
}

/// Returns which of a client's TCP connections a packet belongs to, by the order of their first packets.
fn connection_of(packet: &[u8], ports: &mut Vec<u16>) -> Option<usize> {
    let (protocol, at) = if packet[0] >> 4 == 4 { (packet[9], 20) } else { (packet[6], 40) };
    let port = u16::from_be_bytes([packet[at], packet[at + 1]]);
    if protocol != 6 {
        return None;
    }
    Some(ports.iter().position(|known| *known == port).unwrap_or_else(|| {
        ports.push(port);
        ports.len() - 1
    }))
}

/// Whether it is a UDP packet longer than an introduction.
fn is_datagram(packet: &[u8]) -> bool {
    is_udp(packet) && packet.len() > if packet[0] >> 4 == 4 { 68 } else { 88 }
}

fn flow(figures: &Figures, direction: Direction) -> &FlowReport {
    figures.flows.iter().find(|flow| flow.direction == direction).unwrap()
}

/// Asserts that what each flow sent has arrived, and that the rest of what was due is counted as unsent: what is due
/// while the machine runs something else is not sent. Returns what the flow of this direction sent.
fn assert_all_arrived(figures: &Figures, due_each: u64, direction: Direction) -> u64 {
    assert_eq!(figures.errors, BTreeMap::new(), "{:?}", figures.examples);
    for flow in &figures.flows {
        assert_eq!((flow.received_units, flow.received_bytes), (flow.sent_units, flow.sent_bytes), "{flow:?}");
        assert_eq!((flow.lost, flow.duplicates, flow.reordered), (Some(0), Some(0), Some(0)), "{flow:?}");
    }
    let sent: u64 = figures.flows.iter().filter_map(|flow| flow.sent_units).sum();
    assert_eq!(sent + figures.counts["unsent"], figures.flows.len() as u64 * due_each);
    flow(figures, direction).sent_units.unwrap()
}

fn udp(lab: &TunLab, v6: bool, direction: Direction, rate_pps: Option<f64>, duration_ms: u64) -> TunnelTraffic {
    let host = if v6 { ipv6(lab.number, 1).to_string() } else { ipv4(lab.number, 1).to_string() };
    TunnelTraffic::Udp { host, port: 5201, direction, rate_pps, datagram_bytes: 200, duration_ms, key: None }
}

#[test]
fn every_echo_is_answered_by_the_kernel() {
    let Some(lab) = TunLab::new(HttpAnswer::default()) else { return };
    for to in [None, Some(ipv6(lab.number, 1).to_string())] {
        let spec = TunnelTraffic::Echo { to, rate_pps: 100.0, packet_bytes: 100, duration_ms: 500 };
        let result = lab.run(&spec, 3, Impairment::default());
        let mut sent_total = 0;
        for (figures, counters) in result.figures.iter().zip(&result.counters) {
            let sent = assert_all_arrived(figures, 50, Direction::Up);
            // What is due at the first turn after the start leaves, however late it is.
            assert!(sent > 0);
            sent_total += sent;
            let flow = flow(figures, Direction::Up);
            assert_eq!((flow.sent_bytes, *counters), (Some(sent * 100), (sent * 100, sent, sent * 100, sent)));
            assert_eq!(figures.counts["strays"], 0);
            assert!(flow.latency_mean_us > Some(0.0) && flow.latency_max_us >= flow.latency_mean_us, "{flow:?}");
        }
        for name in ["latency", "service", "traffic_late"] {
            assert_eq!(result.histograms[name], sent_total, "{name}");
        }
    }
}

#[test]
fn packets_refused_by_the_socket_are_unsent_not_lost() {
    let context = ClientContext {
        client: 0,
        clients: 1,
        ipv4: Some(Ipv4Addr::LOCALHOST),
        ipv6: None,
        server_ipv4: Some(Ipv4Addr::LOCALHOST),
        server_ipv6: None,
        mtu: MTU,
    };
    let spec = TunnelTraffic::Echo { to: None, rate_pps: 10.0, packet_bytes: 100, duration_ms: 1000 };
    let mut echo = plan(&spec).unwrap().client(&context).unwrap();
    let (out, _rolled) = mpsc::channel();
    let (mut recorder, counters) = (Recorder::new(METRICS.len(), 0, out), FlowCounters::default());
    echo.start(0);
    let mut channel = Channel { send: &mut |_| true, recorder: &mut recorder, counters: &counters };
    (0..10).for_each(|number| echo.poll(number * 100_000_000, &mut channel));
    echo.not_sent(3, &counters);
    let figures = echo.finish(2_000_000_000, &mut channel);
    let flow = flow(&figures, Direction::Up);
    assert_eq!((flow.sent_units, flow.sent_bytes, flow.lost), (Some(7), Some(700), Some(7)));
    assert_eq!((figures.counts["unsent"], counters.sent_units(), counters.sent_bytes()), (3, 7, 700));
}

#[test]
fn echo_without_reply_is_unanswered() {
    let Some(lab) = TunLab::new(HttpAnswer::default()) else { return };
    let spec = TunnelTraffic::Echo {
        to: Some(ipv4(lab.number, 10).to_string()),
        rate_pps: 50.0,
        packet_bytes: 64,
        duration_ms: 200,
    };
    // The kernel sends it back to the first client, which is not the kernel.
    let result = lab.run(&spec, 2, Impairment::default());
    let flow = flow(&result.figures[1], Direction::Up);
    assert_eq!((flow.sent_units, flow.received_units, flow.lost), (Some(10), Some(0), Some(10)));
    assert_eq!((result.figures[1].counts["unanswered"], flow.jitter_us), (10, None));
}

#[test]
fn both_ends_count_the_same_datagrams() {
    let Some(lab) = TunLab::new(HttpAnswer::default()) else { return };
    for v6 in [false, true] {
        until("the server sends to one client after another", || {
            let result = lab.run(&udp(&lab, v6, Direction::Both, Some(200.0), 500), 3, Impairment::default());
            if !result.is_served(0..3) {
                return None;
            }
            let (mut sent_up, mut sent_down) = (0, 0);
            for figures in &result.figures {
                sent_up += assert_all_arrived(figures, 100, Direction::Up);
                sent_down += assert_all_arrived(figures, 100, Direction::Down);
                for direction in [Direction::Up, Direction::Down] {
                    let flow = flow(figures, direction);
                    assert_eq!(flow.sent_bytes, flow.sent_units.map(|units| units * 200));
                }
            }
            assert_eq!((result.histograms["traffic_late"], result.histograms["latency"]), (sent_up, sent_down));
            let peer_progress = result.plan.take_peer_progress();
            assert_eq!(peer_progress.loads.len(), 1, "three clients share one session");
            let (_, rows) = peer_progress.progress.last().expect("it reports its progress");
            assert_eq!(rows.iter().map(|row| row.flow).collect::<Vec<_>>(), [0, 1, 2]);
            // What is due together after a pause leaves in any order, and clocks are compared as well as threads run.
            let mut flows = result.figures.iter().flat_map(|figures| &figures.flows);
            let is_timely = flows.all(|flow| flow.end_ns > flow.start_ns && flow.start_ns >= Some(flow.due_ns));
            let begun = |client: usize| flow(&result.figures[client], Direction::Down).start_ns;
            (is_timely && begun(0) < begun(1) && begun(1) < begun(2)).then_some(())
        });
    }
}

#[test]
fn link_loss_is_counted_to_the_packet() {
    let Some(lab) = TunLab::new(HttpAnswer::default()) else { return };
    let impairment = Impairment { lose_up: 10, lose_down: 20, ..Impairment::default() };
    until("both directions lose datagrams", || {
        let result = lab.run(&udp(&lab, false, Direction::Both, Some(500.0), 400), 2, impairment);
        if !result.is_served(0..2) {
            return None;
        }
        let sum = |direction, count: fn(&FlowReport) -> Option<u64>| {
            result.figures.iter().map(|figures| count(flow(figures, direction)).unwrap()).sum::<u64>()
        };
        // What is due while the machine runs something else is not sent: at most 400 each way.
        let nths = [(Direction::Up, impairment.lose_up), (Direction::Down, impairment.lose_down)];
        let losses = nths.map(|(direction, nth)| {
            let (sent, lost) = (sum(direction, |flow| flow.sent_units), sum(direction, |flow| flow.lost));
            assert_eq!(lost, sent / nth, "{direction:?}: of {sent}");
            lost
        });
        losses.iter().all(|lost| *lost > 0).then_some(())
    });
}

#[test]
fn client_whose_flow_is_unanswered_is_left_out() {
    let Some(lab) = TunLab::new(HttpAnswer::default()) else { return };
    // This holds if another client leads the session, and if the client leads it itself.
    for muted_client in [1, 0] {
        let impairment = Impairment { muted_client: Some(muted_client), ..Impairment::default() };
        let spec = udp(&lab, false, Direction::Both, Some(100.0), 200);
        let result = lab.run_served(&spec, 3, impairment, |client| client != muted_client);
        for (client, figures) in result.figures.iter().enumerate() {
            if client == muted_client {
                assert_eq!(figures.errors, BTreeMap::from([("udp_unanswered", 1)]));
                assert!(figures.flows.is_empty());
            } else {
                assert_eq!(figures.flows.len(), 2);
                assert_all_arrived(figures, 20, Direction::Up);
            }
        }
    }
}

#[test]
fn client_without_streams_has_no_figures() {
    // This holds if another client leads the session, and if the client leads it itself, over the first of its
    // connections.
    for muted_stream in [(1, 0), (0, 1)] {
        let Some(lab) = TunLab::new(HttpAnswer::default()) else { return };
        let host = ipv4(lab.number, 1).to_string();
        let spec = TunnelTraffic::Tcp { host, port: 5201, direction: Direction::Up, duration_ms: 300, key: None };
        let impairment = Impairment { muted_stream: Some(muted_stream), ..Impairment::default() };
        // The streams end with their time, even if this thread did not run before.
        let result = lab.run_served(&spec, 3, impairment, |client| client != muted_stream.0);
        for (client, figures) in result.figures.iter().enumerate() {
            if client == muted_stream.0 {
                assert_eq!(figures.errors, BTreeMap::from([("stream_unanswered", 1)]));
                assert!(figures.flows.is_empty(), "{:?}", figures.flows);
            } else {
                assert_eq!(figures.errors, BTreeMap::new());
                let flow = flow(figures, Direction::Up);
                assert_eq!(flow.received_bytes, flow.sent_bytes);
            }
        }
    }
}

#[test]
fn clients_beyond_one_session_use_a_second() {
    let Some(lab) = TunLab::new(HttpAnswer::default()) else { return };
    let clients = super::session::MAX_PARTICIPANTS as u32 + 6;
    let spec = udp(&lab, false, Direction::Up, Some(20.0), 500);
    let result = lab.run_served(&spec, clients, Impairment::default(), |_| true);
    // Datagrams that became due together while the machine ran something else may not fit into the server's buffer.
    let is_counted = |flow: &FlowReport| {
        flow.sent_units > Some(0) && flow.received_units.zip(flow.lost).map(|(got, lost)| got + lost) == flow.sent_units
    };
    assert!(result.figures.iter().all(|figures| figures.errors.is_empty() && is_counted(&figures.flows[0])));
    assert!(result.figures.iter().any(|figures| flow(figures, Direction::Up).received_units > Some(0)));
    assert_eq!(result.plan.take_peer_progress().loads.len(), 2);
}

#[test]
fn dropped_tunnel_keeps_its_partial_figures() {
    let Some(lab) = TunLab::new(HttpAnswer::default()) else { return };
    let spec = udp(&lab, false, Direction::Up, Some(100.0), 600);
    let breaking = |client, after| Impairment { breaking_client: Some((client, after)), ..Impairment::default() };
    let follower = lab.run_served(&spec, 2, breaking(1, 20), |_| true);
    assert_all_arrived(&follower.figures[0], 60, Direction::Up);
    let broken = flow(&follower.figures[1], Direction::Up);
    // Datagrams that are due together leave together, before the break is noticed.
    assert!(follower.sent[1] >= 20);
    assert_eq!((broken.sent_units, broken.received_units, broken.lost), (Some(follower.sent[1]), None, None));
    let downward = udp(&lab, false, Direction::Down, Some(100.0), 600);
    // The leader sends little here: the beginning of its session, and keep-alives.
    let leader = lab.run(&downward, 2, breaking(0, 3));
    for figures in &leader.figures {
        let flow = flow(figures, Direction::Down);
        assert_eq!((flow.sent_bytes, flow.sent_units, flow.lost), (None, None, None));
        assert!(
            flow.received_units.is_none_or(|units| units == 0)
                || flow.start_ns.is_some() && flow.end_ns >= flow.start_ns
        );
    }
    let leader = lab.run_served(&spec, 2, breaking(0, 30), |_| true);
    for figures in &leader.figures {
        assert_eq!(figures.errors, BTreeMap::from([("session_broken_off", 1)]));
        assert_eq!(flow(figures, Direction::Up).received_units, None);
    }
}

#[test]
fn full_speed_sends_in_batches_until_the_time_is_over() {
    let Some(lab) = TunLab::new(HttpAnswer::default()) else { return };
    until("a thousand datagrams are sent", || {
        let spec = udp(&lab, false, Direction::Up, None, 300);
        let result = lab.run_served(&spec, 1, Impairment::default(), |_| true);
        let flow = flow(&result.figures[0], Direction::Up);
        let (sent, received) = (flow.sent_units.unwrap(), flow.received_units.unwrap());
        assert!(received <= sent, "{sent} {received}");
        assert_eq!((flow.lost, result.figures[0].counts["unsent"]), (Some(sent - received), 0));
        assert!(flow.end_ns.unwrap() >= flow.due_ns + 300_000_000);
        (sent > 1000 && received > 0).then_some(())
    });
}

#[test]
fn tcp_streams_are_delivered_both_ways() {
    let Some(lab) = TunLab::new(HttpAnswer::default()) else { return };
    for v6 in [false, true] {
        let host = if v6 { ipv6(lab.number, 1).to_string() } else { ipv4(lab.number, 1).to_string() };
        let spec = TunnelTraffic::Tcp { host, port: 5201, direction: Direction::Both, duration_ms: 500, key: None };
        until("each stream carries more than its buffers hold at first", || {
            let result = lab.run_served(&spec, 2, Impairment::default(), |_| true);
            let mut is_long = true;
            for figures in &result.figures {
                assert_eq!(figures.errors, BTreeMap::new(), "{:?}", figures.examples);
                for direction in [Direction::Up, Direction::Down] {
                    let flow = flow(figures, direction);
                    assert_eq!(flow.received_bytes, flow.sent_bytes, "{direction:?}");
                    is_long &= flow.sent_bytes > Some(100_000) && flow.end_ns > flow.start_ns;
                }
                assert!(flow(figures, Direction::Up).retransmits.is_some());
            }
            is_long.then_some(())
        });
    }
}

#[test]
fn missing_server_is_connection_refused() {
    let Some(lab) = TunLab::new(HttpAnswer::default()) else { return };
    let host = ipv4(lab.number, 1).to_string();
    let tcp = TunnelTraffic::Tcp { host: host.clone(), port: 9, direction: Direction::Up, duration_ms: 100, key: None };
    let result = lab.run(&tcp, 2, Impairment::default());
    assert!(result.figures.iter().all(|figures| figures.errors == BTreeMap::from([("connection_refused", 1)])));
    let udp = TunnelTraffic::Udp {
        host,
        port: 9,
        direction: Direction::Down,
        rate_pps: Some(1.0),
        datagram_bytes: 100,
        duration_ms: 100,
        key: None,
    };
    let result = lab.run(&udp, 1, Impairment::default());
    assert_eq!(result.figures[0].errors, BTreeMap::from([("connection_refused", 1)]));
    assert!(result.figures[0].flows.is_empty());
}

#[test]
fn invalid_traffic_spec_is_refused() {
    let code = |spec: &TunnelTraffic| plan(spec).err().map(|error| error.code);
    let echo = |to: Option<&str>, rate_pps, packet_bytes, duration_ms| TunnelTraffic::Echo {
        to: to.map(str::to_owned),
        rate_pps,
        packet_bytes,
        duration_ms,
    };
    assert_eq!(code(&echo(None, 1.0, 64, 1)), None);
    assert_eq!(code(&echo(Some("gateway"), 1.0, 64, 1)).as_deref(), Some("bad_address"));
    assert_eq!(code(&echo(None, 0.0, 64, 1)).as_deref(), Some("bad_rate"));
    assert_eq!(code(&echo(None, 1.0, 43, 1)).as_deref(), Some("bad_size"));
    assert_eq!(code(&echo(None, 1.0, 64, 0)).as_deref(), Some("bad_spec"));
    let tcp = |host: &str, port| TunnelTraffic::Tcp {
        host: host.into(),
        port,
        direction: Direction::Up,
        duration_ms: 1,
        key: None,
    };
    for (host, port) in [("server", 1), ("0.0.0.0", 1), ("224.0.0.1", 1), ("10.0.0.1", 0)] {
        assert_eq!(code(&tcp(host, port)).as_deref(), Some("bad_address"), "{host}");
    }
    let context = ClientContext {
        client: 0,
        clients: 1,
        ipv4: Some(Ipv4Addr::LOCALHOST),
        ipv6: None,
        server_ipv4: None,
        server_ipv6: None,
        mtu: MTU,
    };
    assert_eq!(plan(&tcp("fd00::1", 1)).unwrap().client(&context).err(), Some("no_address"));
    assert_eq!(plan(&echo(None, 1.0, 64, 1)).unwrap().client(&context).err(), Some("no_echo_target"));
    assert_eq!(plan(&echo(Some("10.0.0.1"), 1.0, 1501, 1)).unwrap().client(&context).err(), Some("packet_too_big"));
}
