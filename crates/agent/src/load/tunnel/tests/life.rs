//! Clients' traffic when their tunnel ends, and the order of a thread's work: packets in sockets, timers, ports, the
//! fleet's end. The life of a single client is tested in virtual time, in `crates/tunnel/tests/client`.

use std::cmp::Reverse;
use std::net::UdpSocket;
use std::sync::mpsc;

use leadline_tunnel::client::phase::Phase;
use leadline_tunnel::client::Input;
use leadline_wire::TunnelTraffic;

use super::super::fleet::Fleet;
use super::super::metric::METRICS;
use super::super::plan::Plan;
use super::super::worker::{Worker, WorkerParts};
use super::*;
use crate::metering::Recorder;

const SECOND_NS: u64 = 1_000_000_000;

/// Returns a worker with all clients of a fleet, before its start.
pub fn worker(spec: &TunnelSpec) -> Worker {
    let fleet = Arc::new(Fleet::new(Plan::new(spec).unwrap(), Vec::new(), 1));
    fleet.begin(monotonic_ns());
    let recorder = Recorder::new(METRICS.len(), 0, mpsc::channel().0);
    let snapshots = Arc::default();
    Worker::new(WorkerParts { fleet, number: 0, threads: 1, recorder, snapshots, snapshot_gap_ns: SECOND_NS }).unwrap()
}

/// Lets a client arrive.
pub fn arrive(worker: &mut Worker, index: usize) {
    let now_ns = monotonic_ns();
    worker.hand(index, now_ns, Input::Arrive { due_ns: now_ns });
}

/// Returns a client's phase.
pub fn phase(worker: &Worker, index: usize) -> Phase {
    worker.clients[index].machine.phase()
}

/// Runs a fleet, and stops it as soon as a server has seen enough.
fn run_until(spec: &TunnelSpec, gateway: &Gateway, enough: fn(&GatewayCounts) -> bool) -> Outcome {
    let signal = Arc::<ControlSignal>::default();
    let (seen, stopping) = (Arc::clone(&gateway.seen), Arc::clone(&signal));
    let watch = std::thread::spawn(move || {
        while !enough(&seen) {
            std::thread::yield_now();
        }
        stopping.stop();
    });
    let outcome = run_at(spec, signal);
    watch.join().unwrap();
    outcome
}

fn echo(rate_pps: f64, packet_bytes: u32, duration_ms: u64) -> Option<TunnelTraffic> {
    Some(TunnelTraffic::Echo { to: None, rate_pps, packet_bytes, duration_ms })
}

#[test]
fn traffic_ends_with_its_tunnel() {
    for transport in [Transport::Udp, Transport::Tcp] {
        let gateway = Gateway::start(ServerBehaviour {
            transport,
            control_message: Some((20, "RESTART")),
            ..ServerBehaviour::default()
        });
        let spec = TunnelSpec { retries: 1, traffic: echo(100.0, 100, 1000), ..spec(&gateway, 4) };
        until("no tunnel is verified twice", || {
            let outcome = run(&spec);
            assert_eq!(outcome.errors, errors(&[("restarted_by_server", 4), ("tunnel_broke", 4)]));
            let names = ["configured", "lost", "recovered"];
            assert_eq!(names.map(|name| count(&outcome, name)), [4, 4, 4]);
            assert_eq!(outcome.flows.len(), 4);
            for flow in &outcome.flows {
                assert_eq!(flow.end_ns, outcome.flows[0].end_ns);
                assert!(flow.end_ns >= Some(flow.due_ns + SECOND_NS), "{flow:?}");
            }
            received_before_the_message(&outcome)
        });
    }
}

/// Asserts that the flows received what the server answered before its message. A tunnel's verifying echo is one of the
/// twenty; it is repeated if the machine does not run the client or the server in time. `None` if it was.
fn received_before_the_message(outcome: &Outcome) -> Option<()> {
    let mut is_repeated = false;
    for flow in &outcome.flows {
        assert!(flow.received_units > Some(0) && flow.received_units <= Some(19), "{flow:?}");
        is_repeated |= flow.received_units < Some(19);
    }
    (!is_repeated).then_some(())
}

#[test]
fn flows_keep_their_duration_when_all_tunnels_dropped() {
    let gateway =
        Gateway::start(ServerBehaviour { control_message: Some((20, "RESTART")), ..ServerBehaviour::default() });
    let spec = TunnelSpec { traffic: echo(100.0, 100, 20_000), ..spec(&gateway, 2) };
    until("no tunnel is verified twice", || {
        let outcome = run(&spec);
        assert_eq!(outcome.errors, errors(&[("restarted_by_server", 2), ("tunnel_broke", 2)]));
        for flow in &outcome.flows {
            assert_eq!(flow.end_ns, Some(flow.due_ns + 20 * SECOND_NS));
        }
        received_before_the_message(&outcome)
    });
}

#[test]
fn traffic_ends_when_its_address_changes() {
    let update = "PUSH_UPDATE,ifconfig 10.8.9.9 255.255.0.0";
    let gateway = Gateway::start(ServerBehaviour { control_message: Some((20, update)), ..ServerBehaviour::default() });
    let spec = TunnelSpec { traffic: echo(100.0, 100, 1000), ..spec(&gateway, 1) };
    until("no tunnel is verified twice", || {
        let outcome = run(&spec);
        assert_eq!(outcome.errors, errors(&[("address_changed", 1)]));
        assert_eq!((count(&outcome, "updated"), count(&outcome, "configured")), (1, 1));
        received_before_the_message(&outcome)
    });
}

#[test]
fn scheduled_reconnect_ends_traffic() {
    let gateway = Gateway::start(ServerBehaviour::default());
    // The time of the actions and of the traffic begins with the arrivals, of which there are none. The traffic comes
    // first, however late a thread is.
    let actions = vec![TunnelAction { at_ms: 4000, what: TunnelActionKind::Reconnect, over_ms: 0 }];
    let outcome = run(&TunnelSpec { settled: 2, actions, traffic: echo(50.0, 100, 60_000), ..spec(&gateway, 2) });
    assert_eq!(outcome.errors, errors(&[("tunnel_broke", 2)]));
    let names = ["configured", "reconnects_begun", "lost", "recovered"];
    assert_eq!(names.map(|name| count(&outcome, name)), [2, 2, 0, 0], "asked for");
    assert_eq!(recorded(&outcome, "reconnect"), 2);
}

#[test]
fn arrivals_start_after_a_quiet_time() {
    let gateway = Gateway::start(ServerBehaviour::default());
    for (ping_ms, quiet_ns) in [(Some(50), SECOND_NS), (Some(200), 2 * SECOND_NS), (None, 0)] {
        let plan = Plan::new(&TunnelSpec { settled: 2, ping_ms, ..spec(&gateway, 3) }).unwrap();
        let fleet = Fleet::new(plan, Vec::new(), 1);
        fleet.begin(SECOND_NS);
        fleet.arrival_ended(0, 2 * SECOND_NS);
        assert_eq!((fleet.times().settled_ns, fleet.due_ns(2)), (None, None));
        let now_ns = 3 * SECOND_NS;
        fleet.arrival_ended(1, now_ns);
        let times = fleet.times();
        let (settled_ns, arrivals_ns) = (times.settled_ns.unwrap(), times.arrivals_ns.unwrap());
        assert!(settled_ns > now_ns && arrivals_ns >= settled_ns + quiet_ns, "{times:?}");
        assert_eq!((fleet.due_ns(2), times.arrived_ns), (times.arrivals_ns, None));
        let now_ns = arrivals_ns + SECOND_NS;
        fleet.arrival_ended(2, now_ns);
        assert!(fleet.times().arrived_ns > Some(now_ns), "known to every thread before it comes");
    }
}

#[test]
fn remote_random_spreads_clients_over_servers() {
    let gateway = Gateway::start(ServerBehaviour::default());
    let remotes = "remote 127.0.0.1 9 udp\nremote 127.0.0.1 9 tcp-client\n";
    let named = gateway.profile.lines().filter(|line| !line.starts_with("remote ") && !line.starts_with("proto "));
    let fixed = named.fold(remotes.to_owned(), |text, line| text + line + "\n");
    let profile = format!("{fixed}remote-random\n");
    // UDP sockets are opened beforehand.
    let open = |profile| {
        worker(&TunnelSpec { profile, ..spec(&gateway, 4) })
            .clients
            .iter()
            .map(|it| it.transport.is_some())
            .collect::<Vec<_>>()
    };
    assert_eq!(open(profile), [true, false, true, false]);
    assert_eq!(open(fixed), [true; 4]);
}

#[test]
fn packets_queued_during_a_stall_are_read_before_timeouts() {
    until("the response waits in the socket", || {
        // The first echo is lost; the response to the second one is not read before its time is over.
        let gateway = Gateway::start(ServerBehaviour { lost_pings: 1, ..ServerBehaviour::default() });
        let mut worker = worker(&spec(&gateway, 2));
        arrive(&mut worker, 0);
        while gateway.seen.echoes.load(Ordering::Relaxed) == 0 {
            let now_ns = monotonic_ns();
            worker.expire(now_ns, 1);
            if !worker.clients[0].machine.phase().is_up() {
                worker.poll_io(now_ns + SECOND_NS / 100, || false).unwrap();
            }
        }
        // The server handles one packet after another: it has sent the response once it has received what followed the
        // echo.
        let before = gateway.seen.resets.load(Ordering::Relaxed);
        arrive(&mut worker, 1);
        while gateway.seen.resets.load(Ordering::Relaxed) == before {
            std::thread::yield_now();
        }
        if phase(&worker, 0) != Phase::Proving {
            return None;
        }
        // Later than the attempt and its first data packet may take.
        let due_ns = monotonic_ns() + 60 * SECOND_NS;
        worker.on_timer(0, due_ns, due_ns + SECOND_NS);
        assert_eq!((phase(&worker, 0), worker.failures.counts.len()), (Phase::Configured, 0));
        Some(())
    });
}

#[test]
fn traffic_over_reneg_bytes_renews_keys() {
    let gateway = Gateway::start(ServerBehaviour::default());
    let profile = format!("{}reneg-bytes 20000\n", gateway.profile);
    let spec = TunnelSpec { profile, traffic: echo(100.0, 1000, 86_400_000), ..spec(&gateway, 3) };
    let outcome = run_until(&spec, &gateway, |seen| seen.renegotiated.load(Ordering::Relaxed) >= 6);
    assert_eq!(outcome.errors, errors(&[]));
    // At the end, each client may be in the middle of a renegotiation.
    let renewed = [count(&outcome, "renegotiated"), gateway.seen.renegotiated.load(Ordering::Relaxed)];
    assert!(renewed[0] >= 3 && renewed[0].abs_diff(renewed[1]) <= 3, "{renewed:?} {:?}", outcome.counts);
}

#[test]
fn source_ports_are_never_reused() {
    let gateway = Gateway::start(ServerBehaviour::default());
    let mut worker = worker(&spec(&gateway, 1));
    let source = |worker: &Worker| worker.clients[0].transport.as_ref().and_then(|transport| transport.local());
    // Out of 28,000 ports, several would be used twice by chance.
    let mut sources = BTreeSet::from([source(&worker)]);
    for _ in 0..3000 {
        worker.clients[0].transport = None;
        let server = worker.fleet.plan.settings.server(0);
        worker.client_and_effects(0).1.socket.open(server).unwrap();
        assert!(sources.insert(source(&worker)));
    }
    assert_eq!(worker.tally.sockets.ports_again, 0);
}

#[test]
fn timer_batches_are_bounded() {
    let gateway = Gateway::start(ServerBehaviour::default());
    let mut worker = worker(&spec(&gateway, 100));
    for index in 0..100 {
        worker.clients[index as usize].armed_ns = Some(1);
        worker.timers.push(Reverse((1, index)));
    }
    assert_eq!(worker.expire(2, 16), Some(1), "some are still due");
    assert_eq!(worker.timers.len(), 84);
    assert_eq!((worker.expire(2, 100), worker.timers.len()), (None, 0));
}

#[test]
fn stopped_fleet_waits_for_outstanding_pings() {
    let gateway = Gateway::start(ServerBehaviour { delays_replies: true, ..ServerBehaviour::default() });
    let stay = TunnelSpec { ping_ms: Some(100), duration_ms: 86_400_000, ..spec(&gateway, 2) };
    // Two verifying echoes and the pings that follow them; the last ping has no response yet.
    let outcome = run_until(&stay, &gateway, |seen| seen.echoes.load(Ordering::Relaxed) >= 7);
    let counted = |name: &str| outcome.counts.get(name).copied().unwrap_or(0);
    assert!(counted("pings_sent") >= 5, "{:?}", outcome.counts);
    assert_eq!(counted("pings_answered"), counted("pings_sent"));
}

#[test]
fn teardown_reads_replies_queued_during_a_stall() {
    let gateway = Gateway::start(ServerBehaviour::default());
    let mut worker = worker(&TunnelSpec { ping_ms: Some(100), ..spec(&gateway, 2) });
    arrive(&mut worker, 0);
    while phase(&worker, 0) != Phase::Configured {
        worker.poll_io(monotonic_ns() + SECOND_NS, || false).unwrap();
    }
    let now_ns = monotonic_ns();
    worker.pings_since_ns = Some(now_ns);
    worker.hand(0, now_ns, Input::StartPings);
    worker.hand(0, now_ns, Input::TimerDue);
    // The server handles one packet after another: it has sent the response once it has received what followed the
    // ping.
    arrive(&mut worker, 1);
    while gateway.seen.resets.load(Ordering::Relaxed) < 2 {
        std::thread::yield_now();
    }
    // As if the ping had been sent long ago.
    worker.tally.counts.pings.last_ns = None;
    worker.tear_down(&ControlSignal::default()).unwrap();
    let pings = &worker.tally.counts.pings;
    assert_eq!((pings.sent, pings.answered), (1, 1));
}

#[test]
fn stopped_fleet_reads_no_more_sockets() {
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    let gateway = Gateway::start(ServerBehaviour::default());
    let port = |address: std::net::SocketAddr| format!(" {}\n", address.port());
    let profile = gateway.profile.replace(&port(gateway.address), &port(server.local_addr().unwrap()));
    let mut worker = worker(&TunnelSpec { profile, ..spec(&gateway, 3) });
    let mut packet = [0; 2048];
    for index in 0..3 {
        arrive(&mut worker, index);
        let (_, client) = server.recv_from(&mut packet).unwrap();
        server.send_to(b"noise", client).unwrap();
    }
    worker.poll_io(monotonic_ns() + SECOND_NS, || true).unwrap();
    assert_eq!(worker.tally.counts.rejected, 0);
    worker.poll_io(monotonic_ns() + SECOND_NS, || false).unwrap();
    assert_eq!(worker.tally.counts.rejected, 3, "counted at its arrival");
}
