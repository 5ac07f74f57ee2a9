//! Routes to a server and the requests over them: Unix sockets, names, local addresses, proxies, TLS, reopened
//! connections, scripts. Each test runs over both engines, against servers of a few lines that count.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use leadline_testkit::until;
use leadline_tls::{ServerTls, TlsServer};
use leadline_wire::{HttpScript, Resolution, TlsSpec, TlsVersion};

use super::*;

on_both_engines!(
    requests_go_over_a_unix_socket,
    names_resolve_and_local_addresses_rotate,
    a_connection_ends_after_its_requests,
    a_proxy_gets_absolute_urls,
    tls_through_a_proxy_and_without,
    an_untrusted_certificate_is_refused,
    a_script_with_batches_sees_each_answer,
    a_script_may_mix_head_with_other_methods,
    a_constant_script_runs_as_a_plan,
    a_script_ends_its_thread,
);

/// The heads that a server received.
type ReceivedHeads = Arc<Mutex<Vec<String>>>;

/// Reads a head; `None` at the connection's end.
fn head(reader: &mut impl BufRead) -> Option<String> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    Some(head)
}

/// Starts a server that answers each head with the result of `answer`, on a thread that lives as long as the tests.
fn answering(answer: impl Fn(&str) -> String + Clone + Send + 'static) -> (SocketAddr, ReceivedHeads) {
    let (listener, address) = listener();
    let received = ReceivedHeads::default();
    let recorder = Arc::clone(&received);
    std::thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            let (answer, recorder) = (answer.clone(), Arc::clone(&recorder));
            std::thread::spawn(move || {
                let mut reader = BufReader::new(socket.try_clone().unwrap());
                while let Some(head) = head(&mut reader) {
                    let text = answer(&head);
                    recorder.lock().unwrap().push(head);
                    if (&socket).write_all(text.as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    (address, received)
}

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

fn ok(_: &str) -> String {
    OK.to_owned()
}

fn requests_go_over_a_unix_socket(engine: Engine) {
    let path = std::env::temp_dir().join(format!("leadline-http-{}-{}", engine.name(), std::process::id()));
    let _ = std::fs::remove_file(&path);
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    std::thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut reader = BufReader::new(socket.try_clone().unwrap());
                while head(&mut reader).is_some() && (&socket).write_all(OK.as_bytes()).is_ok() {}
            });
        }
    });
    let nowhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
    let mut unix = spec(nowhere, Some(100));
    unix.route.unix_socket = Some(path.to_str().unwrap().to_owned());
    let outcome = run(engine, unix);
    std::fs::remove_file(&path).unwrap();
    assert_eq!((outcome.counts["responses"], outcome.counts["body_bytes"]), (100, 200));
    assert!(outcome.flows[0].remote.as_ref().unwrap().starts_with("unix:"));
    assert_accounted(&outcome);
}

fn names_resolve_and_local_addresses_rotate(engine: Engine) {
    let (listener, address) = listener();
    let from: Arc<Mutex<Vec<SocketAddr>>> = Arc::default();
    let seen = Arc::clone(&from);
    std::thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            seen.lock().unwrap().push(socket.peer_addr().unwrap());
            std::thread::spawn(move || {
                let mut reader = BufReader::new(socket.try_clone().unwrap());
                while head(&mut reader).is_some() && (&socket).write_all(OK.as_bytes()).is_ok() {}
            });
        }
    });
    let url = format!("http://somewhere.example:{}/", address.port());
    let mut named = spec(address, Some(40));
    named.requests[0].url = url;
    named.route.bind = vec!["127.0.0.2".to_owned(), "127.0.0.3".to_owned()];
    named.route.resolve = vec![Resolution {
        host: "SOMEWHERE.example".to_owned(),
        port: address.port(),
        address: address.ip().to_string(),
    }];
    let outcome = run(engine, named);
    assert_eq!(outcome.counts["responses"], 40);
    assert_eq!(histogram_count(&outcome, "dns"), 0, "no name is resolved");
    let hosts = from.lock().unwrap().iter().map(|from| from.ip().to_string()).collect::<Vec<_>>();
    for host in ["127.0.0.2", "127.0.0.3"] {
        assert_eq!(hosts.iter().filter(|one| *one == host).count(), 2, "{hosts:?}");
    }
    // A name that is resolved once, and one that each connection resolves.
    for (dns, lookups) in [(DnsPolicy::Run, 1), (DnsPolicy::Connection, 4)] {
        let mut with_policy = spec(address, Some(40));
        with_policy.requests[0].url = format!("http://localhost:{}/", address.port());
        with_policy.ip_version = Some(leadline_wire::IpVersion::V4);
        with_policy.route.dns = dns;
        let outcome = run(engine, with_policy);
        assert_eq!((outcome.counts["responses"], histogram_count(&outcome, "dns")), (40, lookups));
    }
}

fn a_connection_ends_after_its_requests(engine: Engine) {
    for (limit, connections) in [(1, 60), (7, 10)] {
        let (address, received) = answering(ok);
        let limited = HttpSpec { requests_per_connection: Some(limit), threads: 1, ..spec(address, Some(60)) };
        let outcome = run(engine, limited);
        assert_eq!((outcome.counts["responses"], received.lock().unwrap().len()), (60, 60));
        let opened = outcome.counts["connections_opened"];
        assert!((connections - 4..=connections + 4).contains(&opened), "{opened} connections for {limit} each");
        let closing = received.lock().unwrap().iter().filter(|head| head.contains("Connection: close\r\n")).count();
        assert_eq!(closing, if limit == 1 { 60 } else { 0 });
        assert!(outcome.errors.is_empty(), "{:?}", outcome.errors);
        assert_accounted(&outcome);
    }
}

fn a_proxy_gets_absolute_urls(engine: Engine) {
    let (proxy, received) = answering(ok);
    let mut proxied = spec(proxy, Some(10));
    proxied.requests[0].url = "http://behind.example:81/x?y".to_owned();
    proxied.route.proxy = Some(format!("http://me:secret@{proxy}"));
    let outcome = run(engine, proxied);
    assert_eq!(outcome.counts["responses"], 10);
    let head = received.lock().unwrap()[0].clone();
    assert!(head.starts_with("GET http://behind.example:81/x?y HTTP/1.1\r\nHost: behind.example:81\r\n"), "{head}");
    assert!(head.contains("Proxy-Authorization: Basic bWU6c2VjcmV0\r\n"), "{head}");
}

/// Returns TLS settings for a server whose certificate is in `ca_pem`.
fn tls_spec(ca_pem: Option<String>, resumption: bool) -> TlsSpec {
    TlsSpec {
        verify: true,
        ca_pem,
        identity: None,
        oldest: TlsVersion::V1_2,
        newest: TlsVersion::V1_3,
        cipher_suites: Vec::new(),
        alpn: vec!["http/1.1".to_owned()],
        server_name: Some("localhost".to_owned()),
        resumption,
        early_data: false,
    }
}

/// Starts a server that answers over TLS; returns its address and certificate.
fn secure() -> (SocketAddr, String) {
    let (tls, certificate_pem) = ServerTls::self_signed(&["localhost".to_owned()]).unwrap();
    let (listener, address) = listener();
    std::thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            let mut tls = TlsServer::new(&tls).unwrap();
            std::thread::spawn(move || answer_sealed(&socket, &mut tls));
        }
    });
    (address, certificate_pem)
}

fn answer_sealed(mut socket: &TcpStream, tls: &mut TlsServer) {
    let (mut input, mut plain) = ([0; 4096], Vec::new());
    while let Ok(read @ 1..) = socket.read(&mut input) {
        let taken = tls.receive_with(&input[..read], |bytes| plain.extend_from_slice(bytes));
        while let Some(end) = plain.windows(4).position(|window| window == b"\r\n\r\n") {
            plain.drain(..end + 4);
            tls.write(OK.as_bytes());
        }
        let mut output = Vec::new();
        tls.take_output(&mut output);
        if taken.is_err() || socket.write_all(&output).is_err() {
            return;
        }
    }
}

/// Starts a proxy that opens tunnels; returns its address and the counter of its tunnels.
fn tunnelling_proxy() -> (SocketAddr, Arc<AtomicUsize>) {
    let (listener, address) = listener();
    let made = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&made);
    std::thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            let count = Arc::clone(&count);
            std::thread::spawn(move || {
                let mut reader = BufReader::new(socket.try_clone().unwrap());
                let request = head(&mut reader).unwrap();
                let to = request.split(' ').nth(1).unwrap().to_owned();
                if !request.starts_with("CONNECT ") || !request.contains("Proxy-Authorization: Basic bWU6c2VjcmV0\r\n")
                {
                    let _ = (&socket).write_all(b"HTTP/1.1 407 Denied\r\nContent-Length: 3\r\n\r\nyou");
                    return;
                }
                count.fetch_add(1, Ordering::SeqCst);
                let server = TcpStream::connect(to).unwrap();
                (&socket).write_all(b"HTTP/1.1 200 Connection Established\r\n\r\n").unwrap();
                let (mut upward, mut downward) = (server.try_clone().unwrap(), socket.try_clone().unwrap());
                std::thread::spawn(move || std::io::copy(&mut reader, &mut upward));
                let _ = std::io::copy(&mut (&server), &mut downward);
            });
        }
    });
    (address, made)
}

fn tls_through_a_proxy_and_without(engine: Engine) {
    let (address, certificate_pem) = secure();
    let (proxy, tunnels) = tunnelling_proxy();
    for is_proxied in [false, true] {
        for resumption in [true, false] {
            let mut sealed = spec(address, Some(200));
            sealed.requests[0].url = format!("https://{address}/");
            sealed.requests_per_connection = Some(10);
            sealed.tls = Some(tls_spec(Some(certificate_pem.clone()), resumption));
            sealed.route.proxy = is_proxied.then(|| format!("http://me:secret@{proxy}"));
            let outcome = run(engine, sealed);
            assert_eq!((outcome.counts["responses"], outcome.counts["body_bytes"]), (200, 400));
            let (full, resumed) = (outcome.counts["tls_full"], outcome.counts["tls_resumed"]);
            assert!(
                (20..=24).contains(&outcome.counts["connections_opened"]),
                "ten requests on each: {:?}",
                outcome.counts
            );
            // The last ones may have been in transit when all requests had been answered.
            assert!((20..=outcome.counts["connections_opened"]).contains(&(full + resumed)), "{full} + {resumed}");
            assert_eq!(resumed > 0, resumption, "{full} full, {resumed} resumed");
            assert_eq!(
                (histogram_count(&outcome, "tls_full"), histogram_count(&outcome, "tls_resumed")),
                (full, resumed)
            );
            assert!(outcome.errors.is_empty(), "{:?}", outcome.errors);
            assert_accounted(&outcome);
        }
    }
    assert!(tunnels.load(Ordering::SeqCst) >= 40);
    let mut refused = spec(address, Some(1));
    refused.requests[0].url = format!("https://{address}/");
    refused.tls = Some(tls_spec(Some(certificate_pem), true));
    refused.route.proxy = Some(format!("http://{proxy}"));
    assert_eq!(refusal(engine, refused), ("proxy_refused".to_owned(), "the proxy answered 407".to_owned()));
}

fn refusal(engine: Engine, spec: HttpSpec) -> (String, String) {
    let error = prepare_with(spec, Some(engine), &task(Arc::default())).err().unwrap();
    (error.code, error.message)
}

fn an_untrusted_certificate_is_refused(engine: Engine) {
    let (address, certificate_pem) = secure();
    let (_, another_pem) = ServerTls::self_signed(&["localhost".to_owned()]).unwrap();
    let mut sealed = spec(address, Some(1));
    sealed.requests[0].url = format!("https://{address}/");
    assert_eq!(refusal(engine, sealed.clone()).0, "bad_tls", "https needs TLS settings");
    sealed.tls = Some(tls_spec(Some(another_pem), true));
    assert!(refusal(engine, sealed.clone()).0.starts_with("tls_certificate_"));
    sealed.tls =
        Some(TlsSpec { server_name: Some("other.example".to_owned()), ..tls_spec(Some(certificate_pem), true) });
    assert_eq!(refusal(engine, sealed.clone()).0, "tls_certificate_name_mismatch");
    sealed.tls = Some(TlsSpec { verify: false, ..tls_spec(None, true) });
    assert_eq!(run(engine, sealed).counts["responses"], 1);
}

fn scripted(address: SocketAddr, number: Option<u64>, source: &str) -> HttpSpec {
    let script = HttpScript { name: "test.lua".to_owned(), source: source.to_owned(), args: Vec::new() };
    HttpSpec { script: Some(script), ..spec(address, number) }
}

fn a_script_with_batches_sees_each_answer(engine: Engine) {
    let (address, received) = answering(|head| {
        let target = head.split(' ').nth(1).unwrap();
        format!("HTTP/1.1 200 OK\r\nX-Asked: {target}\r\nContent-Length: {}\r\n\r\n{target}", target.len())
    });
    let source = r#"
        local n, wrong = 0, 0
        function request()
            local three = {}
            for i = 1, 3 do n = n + 1; three[i] = wrk.format(nil, "/" .. n) end
            return table.concat(three)
        end
        function response(status, headers, body)
            if status ~= 200 or headers["X-Asked"] ~= body then error("a response belongs to another request") end
        end
    "#;
    let outcome = run(engine, scripted(address, Some(60), source));
    assert!(outcome.errors.is_empty(), "{:?} {:?}", outcome.errors, outcome.error_examples);
    assert_eq!((outcome.counts["responses"], outcome.counts["requests_due"]), (60, 60));
    assert_eq!((outcome.counts["requests_sent"], histogram_count(&outcome, "latency")), (60, 60));
    assert_eq!(received.lock().unwrap().len(), 60);
    assert_accounted(&outcome);
}

fn a_script_may_mix_head_with_other_methods(engine: Engine) {
    let (address, _) = answering(|head| {
        let body = if head.starts_with("HEAD ") { "" } else { "hello" };
        format!("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n{body}")
    });
    let source = r#"
        function request() return wrk.format("GET") .. wrk.format("HEAD") .. wrk.format("GET") end
    "#;
    let outcome = run(engine, scripted(address, Some(30), source));
    assert!(outcome.errors.is_empty(), "{:?} {:?}", outcome.errors, outcome.error_examples);
    assert_eq!((outcome.counts["responses"], outcome.counts["body_bytes"]), (30, 20 * 5));
}

fn a_constant_script_runs_as_a_plan(engine: Engine) {
    let (address, received) = answering(ok);
    let outcome =
        run(engine, scripted(address, Some(50), "wrk.method = 'POST'; wrk.body = 'x=1'; wrk.headers['A'] = 'b'"));
    // The server reads the body as the beginning of the next head; this does not change the counts.
    assert_eq!(outcome.counts["requests_sent"], 50);
    let head = received.lock().unwrap()[0].clone();
    assert!(
        head.starts_with("POST / HTTP/1.1\r\n") && head.contains("A: b\r\n") && head.contains("Content-Length: 3\r\n")
    );
}

fn a_script_ends_its_thread(engine: Engine) {
    let (address, received) = answering(ok);
    let source = r#"
        local n = 0
        function response() n = n + 1; if n == 25 then wrk.thread:stop() end end
    "#;
    let outcome = run(engine, HttpSpec { connections: 2, threads: 2, ..scripted(address, None, source) });
    assert_eq!(outcome.counts["responses"], 50);
    assert!(received.lock().unwrap().len() >= 50);
    let flow = &outcome.flows[0];
    assert!(flow.end_ns.unwrap() < flow.due_ns + LONG_MS * 1_000_000, "the load ends before its duration");
    let source = r#"
        local n = 0
        function request() n = n + 1; if n > 10 then error("no more") end; return wrk.format() end
    "#;
    let broken = run(engine, HttpSpec { connections: 1, threads: 1, ..scripted(address, None, source) });
    // The first call only determines the kind of requests.
    assert_eq!((broken.counts["responses"], broken.errors["script_error"]), (9, 1));
    assert!(broken.error_examples["script_error"].contains("no more"), "{:?}", broken.error_examples);
}

#[test]
fn the_kernels_stamps_are_compared_with_ours() {
    // The kernel begins to timestamp some time after the first socket has requested it, long before the last of these
    // requests.
    let (address, signal) = responder();
    until("the kernel stamps", || {
        let outcome = run(Engine::IoUring, HttpSpec { connections: 1, threads: 1, ..spec(address, Some(20_000)) });
        (histogram_count(&outcome, "kernel_wait") > 0).then_some(())
    });
    signal.stop();
}

#[test]
fn impossible_settings_are_refused_in_one_line() {
    let (address, signal) = responder();
    let code = |spec: HttpSpec| refusal(Engine::Epoll, spec).0;
    let mut bad = spec(address, None);
    bad.route.proxy = Some("socks://x".to_owned());
    assert_eq!(code(bad), "bad_proxy");
    let elsewhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
    assert_eq!(
        code(HttpSpec { requests: vec![request(address, "/"), request(elsewhere, "/")], ..spec(address, None) }),
        "bad_url"
    );
    assert_eq!(code(scripted(address, None, "function request(")), "bad_script");
    assert_eq!(code(HttpSpec { redirects: 1, ..scripted(address, None, "") }), "bad_http");
    assert_eq!(code(HttpSpec { cpus: vec![9999], ..spec(address, None) }), "system_error");
    let mut bound = spec(address, None);
    bound.route.bind = vec!["nowhere".to_owned()];
    assert_eq!(code(bound), "bad_address");
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    drop(listener);
    signal.stop();
}
