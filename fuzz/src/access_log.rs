//! Access logs and formats made by anyone: each line costs at most one count or gives one request that fits in a request
//! line, and the order of starts never goes back.

use leadline_replay::{Log, LogFormat, OrderLimits, Ordered, Recorded, Source};

/// A function of random bytes that must not panic.
pub type Target = fn(&[u8]);

/// The targets by name.
pub const TARGETS: [(&str, Target); 2] = [("access_log", logs), ("log_format", formats)];

const FORMATS: [&str; 12] = [
    "common",
    "combined",
    "vhost_combined",
    "haproxy {host|user-agent}",
    "envoy",
    "istio",
    "traefik",
    "alb",
    "w3c",
    "json",
    "$host$request_uri\t$request_method $upstream_response_time $msec $request_time $cookie_sid",
    r#"{"t": "$msec", "r": {"l": "$request"}, "d": $request_time, "c": "$http_cookie"}"#,
];

/// A log: the first byte selects its format, or that it is recognised.
pub fn logs(data: &[u8]) {
    let Some((&choice, log)) = data.split_first() else { return };
    let format = FORMATS.get(usize::from(choice)).map(|text| LogFormat::parse(text).expect("it is a format"));
    read(log, format);
}

/// A format in the first line, and a log of it in the others.
pub fn formats(data: &[u8]) {
    let end = data.iter().position(|byte| *byte == b'\n').unwrap_or(data.len());
    let Ok(text) = std::str::from_utf8(&data[..end]) else { return };
    if let Ok(format) = LogFormat::parse(text) {
        read(data.get(end + 1..).unwrap_or_default(), Some(format));
    }
}

fn read(log: &[u8], format: Option<LogFormat>) {
    let Ok(mut source) = Log::open(log, format.clone()) else { return };
    let (mut requests, mut targets) = (0, 0);
    while let Some(recorded) = source.next().expect("a slice can be read") {
        check(&recorded);
        requests += 1;
        targets += recorded.target.len();
    }
    let lines = log.split(|byte| *byte == b'\n').count() as u64;
    let counted: u64 = source.causes().iter().map(|(_, count)| count).sum();
    assert!(requests + counted <= lines, "{requests} requests and {counted} counts of {lines} lines");
    assert!(targets <= 3 * log.len() + 2 * requests as usize);
    let limits = OrderLimits { window_ns: 1_000_000_000, max_requests: 3, max_bytes: 10_000 };
    let mut ordered = Ordered::new(Log::open(log, format).expect("it was opened before"), limits, 7);
    let (mut given, mut last_ns) = (0, i64::MIN);
    while let Some(recorded) = ordered.next().expect("a slice can be read") {
        assert!(recorded.start_ns >= last_ns);
        last_ns = recorded.start_ns;
        given += 1;
    }
    assert_eq!(given, requests);
}

fn check(recorded: &Recorded) {
    assert!(!recorded.method.is_empty() && recorded.method.iter().all(|byte| (0x21..0x7f).contains(byte)));
    assert!(matches!(recorded.target.first(), Some(b'/' | b'*')));
    assert!(recorded.target.iter().all(|byte| (0x21..0x7f).contains(byte)));
    assert!(recorded.precision_ns > 0);
    let fields = &recorded.fields;
    assert!(fields.is_empty() || fields.ends_with(b"\r\n"));
    assert_eq!(
        fields.iter().filter(|byte| **byte == b'\r').count(),
        fields.iter().filter(|byte| **byte == b'\n').count()
    );
    assert!(!recorded.host.iter().any(|byte| *byte < b' '), "{:?}", recorded.host);
}
