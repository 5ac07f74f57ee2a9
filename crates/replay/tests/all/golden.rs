//! Lines that nginx, Apache and HAProxy wrote themselves, for the same requests (`tests/data/README.md`): their format
//! strings give the requests back.

use std::path::Path;

use leadline_replay::{Cause, Log, LogFormat, Recorded, Source};

const TIMED: &str = r#"log_format timed '$remote_addr:$remote_port - $remote_user [$time_local] "$request" '
    '$status $body_bytes_sent "$http_referer" "$http_user_agent" $msec $request_time $connection $connection_requests $host "$cookie_sid" $upstream_response_time $upstream_status ${scheme}';"#;
const JSON: &str = r#"log_format js escape=json '{"time":"$time_iso8601","msec":$msec,"request":"$request","status":$status,"rt":"$request_time","ua":"$http_user_agent","up":"$upstream_response_time","c":$connection,"host":"$http_host"}';"#;
const PARTS: &str = r#"log_format parts '$host\t$request_method\t$uri$is_args$args\t$msec\t$request_time';"#;
const APACHE_FINE: &str =
    r#"LogFormat "%a:%{remote}p %{usec}t %D \"%r\" %>s %B %k \"%{Host}i\" \"%{User-Agent}i\" %{ms}T %{sid}C" fine"#;
const APACHE_PARTS: &str = r#"LogFormat "[%{%d/%b/%Y:%H:%M:%S}t.%{msec_frac}t %{%z}t] [%{end:sec}t.%{end:usec_frac}t] %h %m %U%q %H %>s %T" parts"#;
const HAPROXY_OWN: &str = r#"%ci:%cp [%tr] %HM %HU %ST %Ta %{+Q}[capture.req.hdr(0)] %{+Q}b"#;

/// What each server was sent; `long` stands for the target of 1,506 bytes.
const SENT: [&str; 11] = [
    "GET /a?b=c&d=%20e",
    "GET /second",
    "POST /form",
    "GET binary",
    "GET /abs?x",
    "OPTIONS *",
    "GET /old",
    "GET /up/x",
    "GET /up/y",
    "GET long",
    "HEAD /head",
];

fn read(file: &str, format: Option<&str>) -> (Vec<Recorded>, Vec<(Cause, u64)>) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(file);
    let log = std::fs::read(path).expect("the file can be read");
    let format = format.map(|text| LogFormat::parse(text).expect("it is a format"));
    let mut source = Log::open(log.as_slice(), format).expect("it is a log");
    let requests = std::iter::from_fn(|| source.next().expect("a slice can be read")).collect();
    (requests, source.causes().iter().collect())
}

fn texts(requests: &[Recorded]) -> Vec<String> {
    let long = format!("/long/{}", "l".repeat(1500));
    let requests = requests.iter().map(|recorded| {
        let target = String::from_utf8_lossy(&recorded.target);
        let target = match target.as_ref() {
            target if target == long => "long",
            target if target.starts_with("/d%D0%B0%7F\"q\"{b|c}") => "binary",
            target => target,
        };
        format!("{} {target}", String::from_utf8_lossy(&recorded.method))
    });
    requests.collect()
}

#[test]
fn whole_request_lines_are_given_back() {
    for (file, format) in [
        ("nginx-combined.log", None),
        ("nginx-timed.log", Some(TIMED)),
        ("nginx-json.log", Some(JSON)),
        ("nginx-hand.log", None),
        ("apache-combined.log", None),
        ("apache-fine.log", Some(APACHE_FINE)),
    ] {
        let (requests, causes) = read(file, format);
        assert_eq!(texts(&requests), SENT, "{file}");
        assert_eq!(causes, [(Cause::NoRequest, 2)], "{file}: a target with a space, and bytes of TLS");
        assert_eq!(requests[4].host, b"other.example:8080", "{file}");
        assert!(requests.windows(2).all(|pair| pair[0].start_ns <= pair[1].start_ns + 1_000_000_000), "{file}");
    }
}

#[test]
fn requests_in_parts_are_given_back() {
    let (requests, causes) = read("nginx-parts.log", Some(PARTS));
    let parsed: Vec<_> = SENT.into_iter().filter(|sent| !["GET binary", "OPTIONS *"].contains(sent)).collect();
    assert_eq!(texts(&requests), parsed, "nginx has no method of a request that it refused");
    assert_eq!(causes, [(Cause::NoRequest, 4)]);
    let (requests, causes) = read("apache-parts.log", Some(APACHE_PARTS));
    let mut parsed = SENT.to_vec();
    parsed.insert(5, "GET /sp");
    assert_eq!(texts(&requests), parsed, "Apache's %U ends at the space");
    assert_eq!(causes, [(Cause::NoRequest, 1)]);
    assert_eq!(requests[0].precision_ns, 1_000_000);
}

#[test]
fn figures_of_the_servers_are_kept() {
    let (requests, _) = read("nginx-timed.log", Some(TIMED));
    let first = &requests[0];
    assert_eq!((first.start_ns, first.lead_ns, first.precision_ns), (1_795_964_876_516_000_000, 0, 1_000_000));
    assert_eq!((first.answer.status, first.answer.body_bytes, first.answer.latency_ns), (Some(200), Some(6), Some(0)));
    assert_eq!(
        String::from_utf8_lossy(&first.fields),
        "Referer: http://shop.example/x?y\r\nUser-Agent: Probe/1.0 (X; \"Y\" \\Z)\r\n"
    );
    assert_eq!(first.host, b"shop.example");
    // The first has a cookie; the other two of its connection belong together.
    assert_eq!(requests[1].session, requests[2].session);
    assert_ne!(requests[2].session, requests[3].session);
    for (file, format) in [("nginx-json.log", Some(JSON)), ("nginx-json.log", None), ("nginx-hand.log", None)] {
        assert_eq!(read(file, format).0[0].precision_ns, 1_000_000, "{file}: $msec, not the time beside it");
    }
    let (requests, _) = read("apache-fine.log", Some(APACHE_FINE));
    assert_eq!((requests[0].start_ns, requests[0].precision_ns), (1_795_964_877_169_633_000, 1000));
    assert_eq!(requests[0].answer.latency_ns, Some(540_000));
    assert_eq!(requests[0].fields, b"User-Agent: Probe/1.0 (X; \"Y\" \\Z)\r\n");
    assert_eq!(requests[1].session, requests[2].session);
}

#[test]
fn haproxy_lines_are_given_back() {
    let sent = ["GET /a?b=c&d=%20e", "GET /second", "POST /form", "OPTIONS *", "GET /up/x", "GET /up/y", "HEAD /head"];
    let (requests, causes) = read("haproxy.log", None);
    assert_eq!(texts(&requests), sent.repeat(5));
    assert_eq!(causes, [(Cause::CutOff, 5), (Cause::NoRequest, 25)]);
    let (requests, causes) = read("haproxy-own.log", Some(HAPROXY_OWN));
    assert_eq!(texts(&requests), sent);
    assert_eq!(causes, [(Cause::CutOff, 1), (Cause::NoRequest, 5)]);
    let (requests, _) = read("haproxy.log", Some("haproxy {Host|User-Agent}"));
    let captured = &requests[7];
    assert_eq!(captured.host, b"shop.example");
    assert_eq!(captured.fields, b"User-Agent: Probe/1.0 (X; \"Y\" \\Z)\r\n");
    assert_ne!(captured.session, requests[8].session, "its cookie was captured");
    assert_eq!(requests[8].session, requests[9].session);
}
