//! Tests of how connections open, fail, are lost and reopen.

use super::simulation::{Accept, ServerRequest, ADDRESS};
use super::*;
use leadline_tls::{ClientTls, ServerTls, TlsOptions, TlsServer, TlsVersion};

/// Delays between attempts to connect, ms.
fn gaps_ms(simulation: &Simulation) -> Vec<u64> {
    simulation.attempts_ns.windows(2).map(|pair| (pair[1] - pair[0]) / MS).collect()
}

/// The recorded effects of opening connections.
fn opened(settings: Settings, simulation: Simulation) -> Simulation {
    let mut load = Load::new(settings, 1, simulation);
    load.open();
    load.simulation
}

#[test]
fn unreachable_connection_is_down_and_retried_at_growing_delays() {
    let accept = |attempt| if attempt == 0 { Accept::Yes } else { Accept::Refused };
    let simulation = Simulation { accept: Box::new(accept), ..Simulation::new(|_| vec![Reaction::closes(MS)]) };
    let ended = Load::new(settings(), 1, simulation).run(None, 4 * SECOND);
    assert_eq!(ended.tally.connections_down, 1);
    assert_eq!(ended.counts_with(1), [1, 1, 0, 0, 0, 1]);
    let refused = ended.simulation.failures["connection_refused"];
    assert_eq!(ended.simulation.failures, [("closed_early", 1), ("connection_refused", refused)].into());
    // Each attempt takes 1 ms; the delay after it is twice the previous one, up to 1 s.
    assert_eq!(gaps_ms(&ended.simulation)[1..], [11, 21, 41, 81, 161, 321, 641, 1001, 1001]);
}

#[test]
fn a_server_that_speaks_first_is_retried_at_growing_delays() {
    let greets = Simulation { greeting: Some("SSH-2.0-OpenSSH_9.2\r\n"), ..Simulation::new(|_| Vec::new()) };
    let settings = Settings { is_open_loop: true, ..settings() };
    let ended = Load::new(settings, 1, greets).run_at_rate(0.5, None, 4 * SECOND);
    // A connection takes 1 ms, and is lost 1 ms later. The eighth and the last get a request, whose failure is its own.
    let gaps = gaps_ms(&ended.simulation);
    assert_eq!(gaps, [12, 22, 42, 82, 162, 322, 642, 2, 1002, 1002]);
    let failed: u64 = ended.simulation.failures.values().sum();
    assert_eq!(failed, 11, "{:?}", ended.simulation.failures);
}

#[test]
fn each_step_of_opening_times_out() {
    let limited = || Settings { connect_timeout_ns: 100 * MS, ..settings() };
    let silent = || Simulation { is_raw: true, ..Simulation::new(|_| Vec::new()) };
    let unanswered = Simulation { accept: Box::new(|_| Accept::Never), ..silent() };
    let proxied = Settings { proxy_request: Some(b"CONNECT a:443 HTTP/1.1\r\n\r\n".to_vec()), ..limited() };
    let sealed = Settings { tls: Some(client_tls(None)), ..limited() };
    for (name, settings, simulation) in [
        ("connect_timeout", limited(), unanswered),
        ("dns_timeout", limited(), Simulation { resolve: Some(Box::new(|| None)), ..silent() }),
        ("proxy_timeout", proxied, silent()),
        ("tls_timeout", sealed, silent()),
    ] {
        let simulation = opened(settings, simulation);
        assert_eq!(simulation.failures.keys().collect::<Vec<_>>(), [&name]);
        assert_eq!(simulation.examples[name], "a:80 did not answer within 100 ms");
    }
}

#[test]
fn a_name_is_looked_up_for_each_connection() {
    let known = Simulation { resolve: Some(Box::new(|| Some(Ok(ADDRESS)))), ..sends(OK) };
    let ended = Load::new(settings(), 3, known).run(Some(9), SECOND);
    assert_eq!(ended.counts(), [9, 9, 9, 0, 0, 0]);
    assert_eq!(ended.values(Metric::Dns), [MS; 3]);
    let unknown = Simulation { resolve: Some(Box::new(|| Some(Err("no such name".to_owned())))), ..sends(OK) };
    let simulation = opened(settings(), unknown);
    assert_eq!(simulation.examples, [("unknown_host", "no such name".to_owned())].into());
}

#[test]
fn proxy_accepts_or_fails_the_connection() {
    let proxied = || Settings { proxy_request: Some(b"CONNECT a:443 HTTP/1.1\r\n\r\n".to_vec()), ..settings() };
    let server = |request: &ServerRequest<'_>| match request.number {
        0 => vec![Reaction::sends(MS, "HTTP/1.1 200 Go ahead\r\n\r\n")],
        _ => vec![Reaction::sends(MS, OK)],
    };
    let ended = Load::new(proxied(), 1, Simulation::new(server)).run(Some(2), SECOND);
    assert_eq!((ended.counts(), ended.tally.connections_opened), ([2, 2, 2, 0, 0, 0], 1));
    assert_eq!(ended.simulation.request_lines, ["CONNECT a:443", "GET /", "GET /"]);
    for (name, reaction) in [
        ("proxy_refused", Reaction::sends(MS, "HTTP/1.1 407 Who are you\r\nContent-Length: 0\r\n\r\n")),
        ("proxy_malformed", Reaction::sends(MS, "HTTP/1.1 200 Go ahead\r\n\r\nhello")),
        ("proxy_malformed", Reaction::sends(MS, "SSH-2.0-x\r\n\r\n")),
        ("proxy_closed_early", Reaction::closes(MS)),
    ] {
        let simulation = opened(proxied(), Simulation::new(move |_| vec![reaction.clone()]));
        assert_eq!(simulation.failures.keys().collect::<Vec<_>>(), [&name]);
    }
}

#[test]
fn connection_lost_while_idle_is_reopened_without_a_failure() {
    let server = |_: &ServerRequest<'_>| vec![Reaction::sends(MS, OK), Reaction::closes(6 * MS)];
    let settings = Settings { is_open_loop: true, ..settings() };
    let ended = Load::new(settings, 1, Simulation::new(server)).run_at_rate(20.0, Some(2), SECOND);
    assert_eq!(ended.counts(), [2, 2, 2, 0, 0, 0]);
    assert_eq!(ended.simulation.attempts_ns[1], START_NS + 16 * MS, "10 ms after it was lost");
}

#[test]
fn unsolicited_bytes_are_a_failure_without_a_request() {
    let server = |_: &ServerRequest<'_>| vec![Reaction::sends(MS, OK), Reaction::sends(6 * MS, "x")];
    let settings = Settings { is_open_loop: true, ..settings() };
    let ended = Load::new(settings, 1, Simulation::new(server)).run_at_rate(20.0, Some(2), SECOND);
    assert_eq!(ended.failures(), [("malformed_unsolicited_bytes", 1)]);
    assert_eq!(ended.counts_with(0), [2, 2, 2, 0, 0, 0]);
}

#[test]
fn connection_closes_after_its_requests_and_reopens_only_for_further_ones() {
    for (limit, connections, attempts) in [(1, 4, 50), (7, 1, 8)] {
        let settings = Settings { requests_per_connection: Some(limit), ..settings() };
        let ended = Load::new(settings, connections, sends(OK)).run(Some(50), SECOND);
        assert_eq!((ended.counts(), ended.simulation.attempts_ns.len()), ([50, 50, 50, 0, 0, 0], attempts));
    }
}

#[test]
fn an_open_loop_opens_connections_as_it_needs_them() {
    let open_loop = || Settings { is_open_loop: true, ..settings() };
    let slow = Simulation::new(|_| vec![Reaction::sends(25 * MS, OK)]);
    let ended = Load::new(open_loop(), 1000, slow).run_at_rate(1000.0, Some(200), SECOND);
    assert_eq!(ended.counts(), [200, 200, 200, 0, 0, 0]);
    // One connection for each request that is due within a response time or a TCP handshake.
    assert!((25..30).contains(&ended.tally.connections_opened), "{}", ended.tally.connections_opened);
    let ended = Load::new(open_loop(), 1000, sends(OK)).run_at_rate(50.0, Some(25), SECOND);
    assert_eq!((ended.counts(), ended.tally.connections_opened), ([25, 25, 25, 0, 0, 0], 1));
}

#[test]
fn only_reopening_a_connection_can_be_warm_up() {
    let is_dated = |ended: &Ended, metric: Metric| -> Vec<bool> {
        ended.simulation.recorded.iter().filter(|one| one.0 == metric).map(|one| one.1.is_some()).collect()
    };
    // An open loop opens its connections while requests are already on their way.
    let open_loop = Settings { is_open_loop: true, ..settings() };
    let slow = Simulation::new(|_| vec![Reaction::sends(25 * MS, OK)]);
    let ended = Load::new(open_loop, 1000, slow).run_at_rate(1000.0, Some(200), SECOND);
    assert!(ended.tally.connections_opened >= 25);
    assert_eq!(is_dated(&ended, Metric::Connect), vec![false; ended.tally.connections_opened as usize]);
    let known = Simulation { resolve: Some(Box::new(|| Some(Ok(ADDRESS)))), ..sends(OK) };
    let limited = Settings { requests_per_connection: Some(1), ..settings() };
    let ended = Load::new(limited, 2, known).run(Some(5), SECOND);
    for metric in [Metric::Dns, Metric::Connect] {
        assert_eq!(is_dated(&ended, metric), [false, false, true, true, true], "{metric:?}");
    }
}

fn client_tls(ca_pem: Option<&str>) -> ClientTls {
    ClientTls::new(&TlsOptions {
        verify: ca_pem.is_some(),
        ca_pem,
        identity: None,
        oldest: TlsVersion::V1_2,
        newest: TlsVersion::V1_3,
        cipher_suites: &[],
        alpn: &[],
        server_name: "localhost",
        resumption: true,
        connections: 1,
        early_data: false,
    })
    .unwrap()
}

/// A TLS server that closes without close_notify after `requests` of a connection; and its certificate.
fn sealed(requests: usize) -> (Simulation, String) {
    let (tls, certificate_pem) = ServerTls::self_signed(&["localhost".to_owned()]).unwrap();
    let (mut server, mut answered) = (None, 0);
    let simulation = Simulation::new(move |request| {
        if request.number == 0 {
            (server, answered) = (Some(TlsServer::new(&tls).unwrap()), 0);
        }
        let server = server.as_mut().unwrap();
        let mut plain = Vec::new();
        server.receive_with(request.bytes, |bytes| plain.extend_from_slice(bytes)).unwrap();
        for _ in plain.windows(4).filter(|window| window == b"\r\n\r\n") {
            if answered == requests {
                return vec![Reaction::closes(MS)];
            }
            server.write(OK.as_bytes());
            answered += 1;
        }
        let mut output = Vec::new();
        server.take_output(&mut output);
        (!output.is_empty()).then(|| Reaction::sends(MS, output)).into_iter().collect()
    });
    (Simulation { is_raw: true, ..simulation }, certificate_pem)
}

#[test]
fn requests_travel_through_tls_and_later_connections_resume_the_session() {
    let (simulation, certificate_pem) = sealed(usize::MAX);
    let tls = Some(client_tls(Some(&certificate_pem)));
    let settings = Settings { tls, requests_per_connection: Some(10), ..settings() };
    let ended = Load::new(settings, 1, simulation).run(Some(30), SECOND);
    assert_eq!(ended.counts(), [30, 30, 30, 0, 0, 0]);
    assert_eq!((ended.tally.tls_full, ended.tally.tls_resumed, ended.tally.body_bytes), (1, 2, 60));
    assert_eq!((ended.values(Metric::TlsFull).len(), ended.values(Metric::TlsResumed).len()), (1, 2));
}

#[test]
fn tls_connection_without_close_notify_is_truncated() {
    let (simulation, certificate_pem) = sealed(1);
    let settings = Settings { tls: Some(client_tls(Some(&certificate_pem))), ..settings() };
    let ended = Load::new(settings, 1, simulation).run(Some(4), SECOND);
    assert_eq!((ended.counts(), ended.failures()), ([4, 4, 2, 0, 0, 2], vec![("tls_truncated", 2)]));
    let cuts = Simulation { is_raw: true, ..Simulation::new(|_| vec![Reaction::closes(MS)]) };
    let simulation = opened(Settings { tls: Some(client_tls(None)), ..super::settings() }, cuts);
    assert_eq!(simulation.failures.keys().collect::<Vec<_>>(), [&"tls_handshake_cut"]);
}
