//! What is counted of a client's life when it does not go straight up: those who come back, break, change and are cut off; and
//! the order of a thread's work. Counts, and instants of a fleet that are worked out, not waited for.

use std::cmp::Reverse;
use std::net::UdpSocket;
use std::sync::mpsc;

use leadline_tunnel::inside::icmp;
use leadline_tunnel::openvpn::client::Event;
use leadline_wire::{TunnelTraffic, TunnelUser};

use super::super::client::{Occasion, Phase};
use super::super::fleet::Fleet;
use super::super::inner_traffic::{InnerTraffic, Metrics, PingTally};
use super::super::metric::METRICS;
use super::super::plan::Plan;
use super::super::transport::TransportSocket;
use super::super::worker::{Parts, Worker};
use super::*;
use crate::load::threads::Recorder;

const SECOND_NS: u64 = 1_000_000_000;

/// A thread that has all of a fleet's clients, before its start.
pub fn worker(spec: &TunnelSpec) -> Worker {
    let fleet = Arc::new(Fleet::new(Plan::new(spec).unwrap(), Vec::new(), 1));
    fleet.begin(monotonic_ns());
    let recorder = Recorder::new(METRICS.len(), 0, mpsc::channel().0);
    let snapshots = Arc::default();
    Worker::new(Parts { fleet, number: 0, threads: 1, recorder, snapshots, snapshot_gap_ns: SECOND_NS }).unwrap()
}

/// Runs a fleet, and stops it as soon as a server has seen enough.
fn run_until(spec: &TunnelSpec, gateway: &Gateway, enough: fn(&gateway::Seen) -> bool) -> Outcome {
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
fn client_recovered_without_address_counts_as_recovered_partial() {
    let pushed_options = |client| if client == 3 { an_address_each(client) } else { Vec::new() };
    let gateway =
        Gateway::start(ServerBehaviour { answers: |client| client >= 3, pushed_options, ..ServerBehaviour::default() });
    let outcome = run(&TunnelSpec { attempt_ms: 6000, retries: 3, ..spec(&gateway, 3) });
    let names = ["configured", "partial", "recovered", "recovered_partial"];
    assert_eq!(names.map(|name| count(&outcome, name)), [1, 2, 1, 2]);
    assert_eq!(outcome.errors, errors(&[("reset_unanswered", 3), ("partial_no_address", 2)]));
    let detail = |name: &str| outcome.error_examples[name].clone();
    assert!(detail("partial_no_address").contains("pool"), "{}", detail("partial_no_address"));
    assert!(
        detail("reset_unanswered").ends_with("ended by the attempt's own time, 6 s"),
        "{}",
        detail("reset_unanswered")
    );
}

#[test]
fn hand_window_timeout_has_an_explanation() {
    let gateway = Gateway::start(ServerBehaviour { answers: |_| false, ..ServerBehaviour::default() });
    let profile = format!("{}hand-window 1\n", gateway.profile);
    let outcome = run(&TunnelSpec { profile, ..spec(&gateway, 2) });
    assert_eq!(outcome.errors, errors(&[("reset_unanswered", 2)]));
    let detail = &outcome.error_examples["reset_unanswered"];
    assert!(
        detail.starts_with("no answer to any reset") && detail.ends_with("the profile's hand-window, 1 s"),
        "{detail}"
    );
}

#[test]
fn retransmits_count_when_the_fleet_is_stopped() {
    let gateway = Gateway::start(ServerBehaviour { answers: |_| false, ..ServerBehaviour::default() });
    let profile = format!("{}tls-timeout 1\n", gateway.profile);
    let spec = TunnelSpec { profile, ..spec(&gateway, 3) };
    // Three clients' first resets, and three that were sent again.
    let outcome = run_until(&spec, &gateway, |seen| seen.resets.load(Ordering::Relaxed) >= 6);
    assert_eq!(outcome.errors, errors(&[("unfinished", 3)]));
    assert!(count(&outcome, "retransmits") >= 3, "{:?}", outcome.counts);
    assert_eq!(count(&outcome, "resets_sent"), count(&outcome, "retransmits") + 3);
}

#[test]
fn replayed_packets_are_counted_while_clients_are_up() {
    let gateway = Gateway::start(ServerBehaviour { duplicates_replies: true, ..ServerBehaviour::default() });
    let outcome = run(&spec(&gateway, 4));
    assert_eq!((count(&outcome, "configured"), count(&outcome, "packets_replayed")), (4, 4));
}

#[test]
fn traffic_ends_with_its_tunnel() {
    for transport in [Transport::Udp, Transport::Tcp] {
        let gateway = Gateway::start(ServerBehaviour {
            transport,
            control_message: Some((20, "RESTART")),
            ..ServerBehaviour::default()
        });
        let outcome = run(&TunnelSpec { retries: 1, traffic: echo(100.0, 100, 1000), ..spec(&gateway, 4) });
        assert_eq!(outcome.errors, errors(&[("restarted_by_server", 4), ("tunnel_broke", 4)]));
        assert_eq!((count(&outcome, "configured"), count(&outcome, "lost"), count(&outcome, "recovered")), (4, 4, 4));
        // The proving echo is one of the twenty; a flow lasts its time, and carries less.
        assert_eq!(outcome.flows.len(), 4);
        for flow in &outcome.flows {
            assert_eq!(flow.received_units, Some(19));
            assert_eq!(flow.end_ns, outcome.flows[0].end_ns);
            assert!(flow.end_ns >= Some(flow.due_ns + SECOND_NS), "{flow:?}");
        }
    }
}

#[test]
fn flows_keep_their_duration_when_all_tunnels_dropped() {
    let gateway =
        Gateway::start(ServerBehaviour { control_message: Some((20, "RESTART")), ..ServerBehaviour::default() });
    let outcome = run(&TunnelSpec { traffic: echo(100.0, 100, 20_000), ..spec(&gateway, 2) });
    assert_eq!(outcome.errors, errors(&[("restarted_by_server", 2), ("tunnel_broke", 2)]));
    for flow in &outcome.flows {
        assert_eq!((flow.end_ns, flow.received_units), (Some(flow.due_ns + 20 * SECOND_NS), Some(19)));
    }
}

#[test]
fn traffic_ends_when_its_address_changes() {
    let update = "PUSH_UPDATE,ifconfig 10.8.9.9 255.255.0.0";
    let gateway = Gateway::start(ServerBehaviour { control_message: Some((20, update)), ..ServerBehaviour::default() });
    let outcome = run(&TunnelSpec { traffic: echo(100.0, 100, 1000), ..spec(&gateway, 1) });
    assert_eq!(outcome.errors, errors(&[("address_changed", 1)]));
    assert_eq!((count(&outcome, "updated"), count(&outcome, "configured")), (1, 1));
    assert_eq!(outcome.flows[0].received_units, Some(19));
}

#[test]
fn scheduled_reconnect_ends_traffic() {
    let gateway = Gateway::start(ServerBehaviour::default());
    // The actions' time and the traffic's begin with the arrivals, of which there are none: the traffic first, however late a
    // thread is.
    let actions = vec![TunnelAction { at_ms: 4000, what: TunnelDeed::Reconnect, over_ms: 0 }];
    let outcome = run(&TunnelSpec { settled: 2, actions, traffic: echo(50.0, 100, 60_000), ..spec(&gateway, 2) });
    assert_eq!(outcome.errors, errors(&[("tunnel_broke", 2)]));
    let names = ["configured", "reconnects_begun", "lost", "recovered"];
    assert_eq!(names.map(|name| count(&outcome, name)), [2, 2, 0, 0], "asked for");
    assert_eq!(recorded(&outcome, "reconnect"), 2);
}

#[test]
fn withdrawn_address_keeps_ping_timers_running() {
    let ends = Some(("10.8.0.2".parse().unwrap(), "10.8.0.1".parse().unwrap()));
    let (out, _rolled) = mpsc::channel();
    let (mut recorder, mut pings) = (Recorder::new(METRICS.len(), 0, out), PingTally::default());
    let times =
        Fleet::new(Plan::new(&spec(&Gateway::start(ServerBehaviour::default()), 1)).unwrap(), Vec::new(), 1).times();
    let (mut inner, mut packet) = (InnerTraffic::default(), Vec::new());
    inner.prove(0, 100 * SECOND_NS, ends);
    assert!(inner.can_prove());
    inner.ping_from(SECOND_NS);
    let mut sent = 0;
    for now_ns in [SECOND_NS, 2 * SECOND_NS, 3 * SECOND_NS] {
        let mut metrics = Metrics { recorder: &mut recorder, pings: &mut pings, times, counters: None };
        let mut send = |packet: &[u8]| {
            sent += 1;
            icmp::answer(packet, &mut Vec::new())
        };
        inner.poll_pings(now_ns, SECOND_NS, &mut metrics, &mut packet, &mut send);
        inner.poll_proof(now_ns, &mut packet, &mut send);
        assert!(inner.ping_due_ns() > now_ns && inner.proof_due_ns() > now_ns);
        inner.move_to(None);
    }
    assert_eq!((sent, pings.sent, pings.unsent), (2, 1, 2), "a ping and the proving echo had an address");
}

#[test]
fn arrivals_start_after_a_quiet_time() {
    let gateway = Gateway::start(ServerBehaviour::default());
    for (ping_ms, quiet_ns) in [(Some(50), SECOND_NS), (Some(200), 2 * SECOND_NS), (None, 0)] {
        let plan = Plan::new(&TunnelSpec { settled: 2, ping_ms, ..spec(&gateway, 3) }).unwrap();
        let fleet = Fleet::new(plan, Vec::new(), 1);
        fleet.begin(SECOND_NS);
        fleet.ended(0, 2 * SECOND_NS);
        assert_eq!((fleet.times().settled_ns, fleet.due_ns(2)), (u64::MAX, u64::MAX));
        let now_ns = 3 * SECOND_NS;
        fleet.ended(1, now_ns);
        let times = fleet.times();
        assert!(times.settled_ns > now_ns && times.arrivals_ns >= times.settled_ns + quiet_ns, "{times:?}");
        assert_eq!((fleet.due_ns(2), times.arrived_ns), (times.arrivals_ns, u64::MAX));
        let now_ns = times.arrivals_ns + SECOND_NS;
        fleet.ended(2, now_ns);
        assert!(fleet.times().arrived_ns > now_ns, "known to every thread before it comes");
    }
}

#[test]
fn remote_random_spreads_clients_over_servers() {
    let gateway = Gateway::start(ServerBehaviour::default());
    let remotes = "remote 127.0.0.1 9 udp\nremote 127.0.0.1 9 tcp-client\n";
    let named = gateway.profile.lines().filter(|line| !line.starts_with("remote ") && !line.starts_with("proto "));
    let fixed = named.fold(remotes.to_owned(), |text, line| text + line + "\n");
    let profile = format!("{fixed}remote-random\n");
    // Sockets of UDP are opened beforehand.
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
fn unsent_reset_has_no_send_time() {
    let mut worker = worker(&spec(&Gateway::start(ServerBehaviour::default()), 2));
    let Some(TransportSocket::Udp { socket, .. }) = &worker.clients[0].transport else { panic!("of UDP") };
    socket2::SockRef::from(socket).shutdown(std::net::Shutdown::Write).unwrap();
    for index in 0..2 {
        worker.begin(index, monotonic_ns(), Occasion::Arrival);
    }
    let sent = |index: usize| worker.clients[index].report().sent_ns.is_some();
    assert_eq!([sent(0), sent(1)], [false, true], "the time is that of the sending, not of the machine's work before");
}

#[test]
fn final_failures_are_not_retried() {
    let fates = [
        ("auth_failed", Phase::Failed),
        ("halted_by_server", Phase::Failed),
        ("ping_exit", Phase::Failed),
        ("too_many_open_files", Phase::Failed),
        ("ping_restart", Phase::Resting),
        ("auth_token_refused", Phase::Resting),
    ];
    let mut worker = worker(&TunnelSpec { retries: 3, ..spec(&Gateway::start(ServerBehaviour::default()), 6) });
    for (index, (name, phase)) in fates.into_iter().enumerate() {
        worker.begin(index, monotonic_ns(), Occasion::Arrival);
        worker.fail(index, name, "");
        assert_eq!(worker.clients[index].phase, phase, "{name}");
    }
}

#[test]
fn client_is_unanswered_until_the_first_reply() {
    let mut worker =
        worker(&spec(&Gateway::start(ServerBehaviour { answers: |_| false, ..ServerBehaviour::default() }), 1));
    worker.begin(0, monotonic_ns(), Occasion::Arrival);
    assert_eq!(worker.clients[0].phase, Phase::Asking);
    worker.on_event(0, monotonic_ns(), Event::Answered);
    assert_eq!((worker.clients[0].phase, worker.phases[Phase::Asking as usize]), (Phase::Negotiating, 0));
}

#[test]
fn auth_pending_extends_the_attempt() {
    let mut worker = worker(&spec(&Gateway::start(ServerBehaviour::default()), 1));
    let now_ns = monotonic_ns();
    worker.begin(0, now_ns, Occasion::Arrival);
    let until_ns = now_ns + 1000 * SECOND_NS;
    assert_eq!(worker.on_event(0, now_ns, Event::Pending { until_ns }), None);
    assert_eq!((worker.clients[0].give_up_ns, worker.tally.auth_pending), (until_ns, 1));
    // What is told of the end is the time that ran, not the one that would have.
    worker.on_timer(0, until_ns, until_ns);
    let given_s = (until_ns - worker.clients[0].began_ns) as f64 / 1e9;
    let detail = worker.failures.examples.values().next().unwrap();
    let expected = format!("the attempt's own time, 30 s, which the server's AUTH_PENDING made {given_s:.1} s");
    assert!(detail.ends_with(&expected), "{detail}");
}

#[test]
fn packets_queued_during_a_stall_are_read_before_timeouts() {
    // The first echo is lost; the answer to the second one is not looked for before its time is over.
    let gateway = Gateway::start(ServerBehaviour { lost_pings: 1, ..ServerBehaviour::default() });
    let mut worker = worker(&spec(&gateway, 2));
    worker.begin(0, monotonic_ns(), Occasion::Arrival);
    while gateway.seen.echoes.load(Ordering::Relaxed) == 0 {
        let now_ns = monotonic_ns();
        worker.expire(now_ns, 1);
        if !worker.clients[0].phase.is_up() {
            worker.poll_io(now_ns + SECOND_NS / 100, || false).unwrap();
        }
    }
    // The server takes one packet after another: the answer is there once it has taken what came after the echo.
    worker.begin(1, monotonic_ns(), Occasion::Arrival);
    while gateway.seen.resets.load(Ordering::Relaxed) < 2 {
        std::thread::yield_now();
    }
    assert_eq!(worker.clients[0].phase, Phase::Proving);
    let due_ns = worker.clients[0].give_up_ns;
    worker.on_timer(0, due_ns, due_ns + SECOND_NS);
    assert_eq!((worker.clients[0].phase, worker.failures.counts.len()), (Phase::Configured, 0));
}

#[test]
fn auth_token_is_reused_until_refused() {
    let pushed_options = |client| [an_address_each(client), vec!["auth-token given".into()]].concat();
    // The first server takes the token for a password, the second only the password itself.
    let servers: [&[(&str, &str)]; 2] = [&[("user", "password"), ("user", "given")], &[("user", "password")]];
    for (users, refused) in servers.into_iter().zip([0, 3]) {
        let gateway = Gateway::start(ServerBehaviour { users, pushed_options, ..ServerBehaviour::default() });
        let profile = format!("{}auth-user-pass\n", gateway.profile);
        let users = vec![TunnelUser { user: "user".into(), password: "password".into() }];
        let actions = vec![TunnelAction { at_ms: 0, what: TunnelDeed::Reconnect, over_ms: 0 }];
        let outcome = run(&TunnelSpec { profile, users, actions, settled: 3, retries: 1, ..spec(&gateway, 3) });
        let expected = if refused > 0 { errors(&[("auth_token_refused", refused)]) } else { errors(&[]) };
        assert_eq!(outcome.errors, expected);
        let names = ["configured", "reconnects_begun", "attempts", "recovered"];
        assert_eq!(names.map(|name| count(&outcome, name)), [3, 3, 6 + refused, refused]);
    }
}

#[test]
fn traffic_over_reneg_bytes_renews_keys() {
    let gateway = Gateway::start(ServerBehaviour::default());
    let profile = format!("{}reneg-bytes 20000\n", gateway.profile);
    let spec = TunnelSpec { profile, traffic: echo(100.0, 1000, 86_400_000), ..spec(&gateway, 3) };
    let outcome = run_until(&spec, &gateway, |seen| seen.renegotiated.load(Ordering::Relaxed) >= 6);
    assert_eq!(outcome.errors, errors(&[]));
    // The end comes when each client may be half way to its next keys.
    let renewed = [count(&outcome, "renegotiated"), gateway.seen.renegotiated.load(Ordering::Relaxed)];
    assert!(renewed[0] >= 3 && renewed[0].abs_diff(renewed[1]) <= 3, "{renewed:?} {:?}", outcome.counts);
}

#[test]
fn source_ports_are_never_reused() {
    let gateway = Gateway::start(ServerBehaviour::default());
    let mut worker = worker(&spec(&gateway, 1));
    let source = |worker: &Worker| worker.clients[0].transport.as_ref().and_then(|transport| transport.local());
    // Of 28,000 ports several would come twice by chance.
    let mut sources = BTreeSet::from([source(&worker)]);
    for _ in 0..3000 {
        worker.clients[0].transport = None;
        worker.open(0).unwrap();
        assert!(sources.insert(source(&worker)));
    }
    assert_eq!(worker.tally.ports_again, 0);
}

#[test]
fn timer_batches_are_bounded() {
    let gateway = Gateway::start(ServerBehaviour::default());
    let mut worker = worker(&spec(&gateway, 100));
    for index in 0..100 {
        worker.clients[index as usize].armed_ns = 1;
        worker.timers.push(Reverse((1, index)));
    }
    assert_eq!(worker.expire(2, 16), 1, "some are due still");
    assert_eq!(worker.timers.len(), 84);
    assert_eq!((worker.expire(2, 100), worker.timers.len()), (u64::MAX, 0));
}

#[test]
fn stopped_fleet_waits_for_outstanding_pings() {
    let gateway = Gateway::start(ServerBehaviour { delays_replies: true, ..ServerBehaviour::default() });
    let stay = TunnelSpec { ping_ms: Some(100), duration_ms: 86_400_000, ..spec(&gateway, 2) };
    // Two proving echoes and the pings that come after them, the last of which is not answered yet.
    let outcome = run_until(&stay, &gateway, |seen| seen.echoes.load(Ordering::Relaxed) >= 7);
    let counted = |name: &str| outcome.counts.get(name).copied().unwrap_or(0);
    assert!(counted("pings_sent") >= 5, "{:?}", outcome.counts);
    assert_eq!(counted("pings_answered"), counted("pings_sent"));
}

#[test]
fn teardown_reads_replies_queued_during_a_stall() {
    let gateway = Gateway::start(ServerBehaviour::default());
    let mut worker = worker(&TunnelSpec { ping_ms: Some(100), ..spec(&gateway, 2) });
    worker.begin(0, monotonic_ns(), Occasion::Arrival);
    while worker.clients[0].phase != Phase::Configured {
        worker.poll_io(monotonic_ns() + SECOND_NS, || false).unwrap();
    }
    let now_ns = monotonic_ns();
    worker.clients[0].inner.ping_from(now_ns);
    worker.poll_pings(0, now_ns);
    // The server takes one packet after another: the answer is there once it has taken what came after the ping.
    worker.begin(1, monotonic_ns(), Occasion::Arrival);
    while gateway.seen.resets.load(Ordering::Relaxed) < 2 {
        std::thread::yield_now();
    }
    // As if the ping had been sent long ago.
    worker.tally.pings.last_ns = 0;
    worker.tear_down(&ControlSignal::default()).unwrap();
    assert_eq!((worker.tally.pings.sent, worker.tally.pings.answered), (1, 1));
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
        worker.begin(index, monotonic_ns(), Occasion::Arrival);
        let (_, client) = server.recv_from(&mut packet).unwrap();
        server.send_to(b"noise", client).unwrap();
    }
    worker.poll_io(monotonic_ns() + SECOND_NS, || true).unwrap();
    assert_eq!(worker.tally.rejected, 0);
    worker.poll_io(monotonic_ns() + SECOND_NS, || false).unwrap();
    assert_eq!(worker.tally.rejected, 3, "counted as it comes");
}
