//! One line of each format, with every trap of it, and what must come out.

use leadline_replay::{Cause, Log, LogFormat, Recorded, Source};

/// 29 November 2026, 14:00:00 UTC, ns.
const AT_NS: i64 = 1_795_960_800_000_000_000;
const MS: i64 = 1_000_000;

/// The requests of a log and its counts.
fn read(format: &str, log: &str) -> (Vec<Recorded>, Vec<(Cause, u64)>) {
    let format = LogFormat::parse(format).expect("it is a format");
    read_as(Some(format), log.as_bytes())
}

fn read_as(format: Option<LogFormat>, log: &[u8]) -> (Vec<Recorded>, Vec<(Cause, u64)>) {
    let mut source = Log::open(log, format).expect("it is a log");
    let requests = std::iter::from_fn(|| source.next().expect("a slice can be read")).collect();
    (requests, source.causes().iter().collect())
}

fn read_one(format: &str, line: &str) -> Recorded {
    let (mut requests, causes) = read(format, &format!("{line}\n"));
    assert_eq!(causes, [], "{line}");
    requests.pop().expect("there is a request")
}

fn cause_of(format: &str, line: &str) -> Cause {
    let (requests, causes) = read(format, &format!("{line}\n"));
    assert!(requests.is_empty(), "{line}");
    causes[0].0
}

/// Method, host, target, start and precision.
fn request(recorded: &Recorded) -> (String, String, String, i64, u32) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("it is text");
    let start_ns = recorded.start_ns - AT_NS;
    (text(&recorded.method), text(&recorded.host), text(&recorded.target), start_ns, recorded.precision_ns)
}

fn expected(
    method: &str,
    host: &str,
    target: &str,
    start_ns: i64,
    precision_ns: u32,
) -> (String, String, String, i64, u32) {
    (method.to_owned(), host.to_owned(), target.to_owned(), start_ns, precision_ns)
}

const SECOND: u32 = 1_000_000_000;
const MILLISECOND: u32 = 1_000_000;

/// A format, a line of it, and the host, target, start and precision of its request, which is a GET.
type FormatCase = (&'static str, &'static str, (&'static str, &'static str, i64, u32));

const CASES: &[FormatCase] = &[
    ("common", r#"192.0.2.1 - - [29/Nov/2026:15:00:00 +0100] "GET /a?b HTTP/1.1" 200 -"#, ("", "/a?b", 0, SECOND)),
    (
        "combined",
        r#"2001:db8::1 - frank b [29/Nov/2026:14:00:00 +0000] "GET /a HTTP/1.1" 200 5 "-" "A \"B\"" 0.1 "further""#,
        ("", "/a", 0, SECOND),
    ),
    (
        "vhost_combined",
        r#"shop.example:80 192.0.2.1 - - [29/Nov/2026:14:00:00 +0000] "GET /a HTTP/1.1" 200 5 "-" "-""#,
        ("shop.example", "/a", 0, SECOND),
    ),
    (
        r#"log_format x '$remote_addr [$time_local] ' '"$request" $status $upstream_response_time $msec $request_time';"#,
        r#"192.0.2.1 [29/Nov/2026:14:00:00 +0000] "GET /a HTTP/1.1" 200 0.004, 0.010 : 0.2 1795960800.123 0.120"#,
        ("", "/a", 3 * MS, MILLISECOND),
    ),
    (
        "$scheme://$host$request_uri\t$request_method ${msec}s $request_time",
        "https://shop.example/a?b\tGET 1795960800.000s -",
        ("shop.example", "/a?b", 0, MILLISECOND),
    ),
    (
        r#"$time_iso8601 $request_time $host$uri$is_args$args "$request_method""#,
        r#"2026-11-29T14:00:00+00:00 0.250 shop.example/a- "GET""#,
        ("shop.example", "/a", -250 * MS, SECOND),
    ),
    ("$msec $request_method $uri?$args", "1795960800.000 GET /a-?-", ("", "/a-", 0, MILLISECOND)),
    ("$msec $request_method $uri?$args", "1795960800.000 GET /a?b-", ("", "/a?b-", 0, MILLISECOND)),
    (
        r#"LogFormat "%h %{%d/%b/%Y:%H:%M:%S}t.%{usec_frac}t %{%z}t \"%r\" %>s %D" x"#,
        r#"192.0.2.1 29/Nov/2026:15:00:00.000250 +0100 "GET /a HTTP/1.1" 200 1200"#,
        ("", "/a", 250_000, 1000),
    ),
    (
        "%{end:msec}t %{us}T %m %U%q %{Host}i",
        "1795960800500 1500 GET /a?b shop.example",
        ("shop.example", "/a?b", 498_500_000, MILLISECOND),
    ),
    (
        "%t %{usec_frac}t %m %U%q %V",
        "[29/Nov/2026:14:00:00 +0000] 000007 GET /a shop.example",
        ("shop.example", "/a", 7000, 1000),
    ),
    (
        "haproxy",
        r#"Nov 29 14:00:00 lb haproxy[7]: 192.0.2.1:5000 [29/Nov/2026:14:00:00.123] web~ app/<NOSRV> 0/-1/-1/-1/+9 503 +0 - - SC-- 1/1/0/0/+3 0/0 "GET /a#22 HTTP/1.1""#,
        ("", "/a\"", 123 * MS, MILLISECOND),
    ),
    (
        "haproxy {Host|User-Agent}",
        r#"<134>1 2026-11-29T14:00:00Z lb haproxy 7 - - 192.0.2.1:5000 [29/Nov/2026:14:00:00.000] web app/s 0/0/1/2/3 200 9 - - ---- 1/1/0/0/0 0/0 {shop.example|A #7D} {x} "GET https://b.example/a HTTP/2.0" 0/0000/0/0/0 b/TLSv1.3/X"#,
        ("b.example", "/a", 0, MILLISECOND),
    ),
    (
        r#"%{+json}o %(client)ci %(port)cp %(when)tr %(line)r"#,
        r#"{"client":"192.0.2.1","port":5000,"when":"29/Nov/2026:14:00:00.007","line":"GET /a HTTP/1.1"}"#,
        ("", "/a", 7 * MS, MILLISECOND),
    ),
    (
        "envoy",
        r#"[2026-11-29T14:00:00.310Z] "GET /a HTTP/2" 200 - 0 154 226 100 "198.51.100.1" "A" "id" "shop.example" "192.0.2.9:80""#,
        ("shop.example", "/a", 310 * MS, MILLISECOND),
    ),
    (
        "istio",
        r#"[2026-11-29T14:00:00.310Z] "GET /a HTTP/1.1" 200 - via_upstream - "-" 0 154 226 100 "-" "A" "id" "shop.example" "192.0.2.9:80" outbound|80||x 192.0.2.8:1 192.0.2.9:80 192.0.2.1:5000 - default"#,
        ("shop.example", "/a", 310 * MS, MILLISECOND),
    ),
    (
        "traefik",
        r#"192.0.2.1 - - [29/Nov/2026:14:00:00 +0000] "GET /a HTTP/1.1" 200 19 "-" "A" 42 "web@file" "http://192.0.2.9:80" 7ms"#,
        ("", "/a", 0, SECOND),
    ),
    (
        "alb",
        r#"https 2026-11-29T14:00:01.186641Z app/lb/1 192.0.2.1:2817 192.0.2.9:80 0.086 -1 0.037 200 200 0 57 "GET https://shop.example:443/a HTTP/1.1" "A" ECDHE TLSv1.2 arn:aws "Root=1" "shop.example" "arn:aws" 1 2026-11-29T14:00:00.364000Z "waf,forward" "-" "-" "192.0.2.9:80" "200" "-" "-""#,
        ("shop.example", "/a", 364 * MS, 1000),
    ),
    (
        r#"{"t": "$msec", "r": {"u": "$host$request_uri", "m": "$request_method"}, "d": $request_time}"#,
        r#"{"x": [1, {"t": 2}], "t": 1795960800.100, "d": 0.1, 0.2, "r": {"m": "GET", "u": "shop.example\/a\u003fb"}}"#,
        ("shop.example", "/a?b", 100 * MS, MILLISECOND),
    ),
    (
        "json",
        r#"{"StartUTC":"2026-11-29T14:00:00.5Z","Duration":1000,"RequestMethod":"GET","RequestPath":"/a","RequestHost":"shop.example","DownstreamStatus":200,"ClientAddr":"192.0.2.1:5"}"#,
        ("shop.example", "/a", 500 * MS, 100 * MILLISECOND),
    ),
    (
        "json",
        r#"{"start_time":"2026-11-29T14:00:00.310Z","method":"GET","path":"/a","authority":"shop.example","response_code":200,"duration":5}"#,
        ("shop.example", "/a", 310 * MS, MILLISECOND),
    ),
    (
        "json",
        r#"{"ts":1795960800.5,"request":{"method":"GET","host":"shop.example","uri":"/a","headers":{"User-Agent":["A"]}},"duration":0.25,"status":200}"#,
        ("shop.example", "/a", 250 * MS, 100 * MILLISECOND),
    ),
    (
        "json",
        r#"{"@timestamp":"2026-11-29T14:00:00+00:00","request":"GET /a HTTP/1.1","request_time":"-","http_host":"shop.example"}"#,
        ("shop.example", "/a", 0, SECOND),
    ),
];

#[test]
fn each_format_gives_the_request() {
    for (format, line, (host, target, start_ns, precision_ns)) in CASES {
        let expected = expected("GET", host, target, *start_ns, *precision_ns);
        assert_eq!(request(&read_one(format, line)), expected, "{format}: {line}");
    }
}

#[test]
fn what_is_no_request_is_counted() {
    let combined = |request: &str| format!(r#"192.0.2.1 - - [29/Nov/2026:14:00:00 +0000] "{request}" 400 0 "-" "-""#);
    for line in
        ["", "-", r"\x16\x03\x01\x02", "GET  HTTP/1.1", "GET /a b HTTP/1.1", "PRI * HTTP/2.0", "CONNECT a:443 HTTP/1.1"]
    {
        assert_eq!(cause_of("combined", &combined(line)), Cause::NoRequest, "{line}");
    }
    for line in [r#"192.0.2.1 - - [29/Nov/2026:14:00:00] "GET / H"#, "\u{0}\u{1}", "192.0.2.1"] {
        assert!(matches!(cause_of("combined", line), Cause::Malformed | Cause::CutOff), "{line}");
    }
    let haproxy = |request: &str| {
        format!("192.0.2.1:5 [29/Nov/2026:14:00:00.000] a b/c 0/0/0/0/0 200 1 - - ---- 1/1/0/0/0 0/0 {request}")
    };
    assert_eq!(cause_of("haproxy", &haproxy(r#""<BADREQ>""#)), Cause::NoRequest);
    assert_eq!(cause_of("haproxy", &haproxy(&format!("\"GET /{}", "l".repeat(900)))), Cause::CutOff);
    assert_eq!(cause_of("haproxy", &haproxy(&format!("\"GET /{}\"", "l".repeat(1000)))), Cause::CutOff);
    assert_eq!(cause_of("haproxy", &haproxy("{a|b")), Cause::CutOff);
    assert_eq!(cause_of("haproxy", "Server app/s1 is DOWN, reason: Layer4 timeout."), Cause::Malformed);
    let alb = r#"http 2026-11-29T14:00:01.1Z app/lb/1 192.0.2.1:2817 - -1 -1 -1 400 - 0 57 "- http://shop.example:80- " "-" - - - "-" "-" "-" - 2026-11-29T14:00:00.3Z "-""#;
    assert_eq!(cause_of("alb", alb), Cause::NoRequest);
}

#[test]
fn long_lines_and_a_last_one_without_its_end_cost_one_count_each() {
    let line = r#"192.0.2.1 - - [29/Nov/2026:14:00:00 +0000] "GET /a HTTP/1.1" 200 5"#;
    let long = format!("{line}{}", "x".repeat(70_000));
    let log = format!("\u{feff}{line}\r\n\r\n{long}\n{line}\n{}", &line[..60]);
    let (requests, causes) = read("common", &log);
    assert_eq!(requests.len(), 2);
    assert_eq!(causes, [(Cause::CutOff, 1), (Cause::TooLarge, 1)]);
}

#[test]
fn fields_body_and_answer_are_what_the_log_has() {
    let line = r#"192.0.2.1 - - [29/Nov/2026:14:00:00 +0000] "POST /a HTTP/1.1" 201 57 "http://x/\x22" "A\x0d\x0aB: c" "198.51.100.1""#;
    let recorded = read_one("nginx-main", line);
    assert_eq!(
        String::from_utf8_lossy(&recorded.fields),
        "Referer: http://x/\"\r\nUser-Agent: AB: c\r\nX-Forwarded-For: 198.51.100.1\r\n"
    );
    assert_eq!(recorded.body, None);
    assert_eq!((recorded.answer.status, recorded.answer.body_bytes), (Some(201), Some(57)));
    assert_eq!(recorded.answer.latency_ns, None);
    let get = read_one("nginx-main", &line.replace("POST", "GET"));
    assert_eq!(get.body, Some(Vec::new()));
    let haproxy = r#"192.0.2.1:5 [29/Nov/2026:14:00:00.000] a b/c 0/1/2/30/90 200 1 - - ---- 1/1/0/0/0 0/0 {h:8080|A|} "GET / HTTP/1.1""#;
    let recorded = read_one("haproxy {Host|User-Agent|Expect}", haproxy);
    assert_eq!((recorded.answer.latency_ns, recorded.answer.body_bytes), (Some(33_000_000), None));
    assert_eq!((recorded.host.as_slice(), recorded.fields.as_slice()), (&b"h:8080"[..], &b"User-Agent: A\r\n"[..]));
    let common = read_one("common", r#"192.0.2.1 - - [29/Nov/2026:14:00:00 +0000] "GET / HTTP/1.1" 304 -"#);
    assert_eq!(common.answer.body_bytes, Some(0));
    assert_eq!(read_one("$msec $request_time $request", "1795960800.5 0.25 GET / HTTP/1.1").lead_ns, 250_000_000);
}

#[test]
fn sessions_are_kept_by_the_best_basis() {
    let session = |format: &str, line: &str| read_one(format, line).session;
    let format = r#"$remote_addr $remote_port $remote_user $cookie_sid $cookie_lang [$http_x_forwarded_for] [$http_user_agent] $msec $request"#;
    let line = |address: &str, port: u32, user: &str, sid: &str, forwarded: &str, agent: &str| {
        format!("{address} {port} {user} {sid} en [{forwarded}] [{agent}] 1795960800.5 GET / HTTP/1.1")
    };
    let same = |one: String, other: String| assert_eq!(session(format, &one), session(format, &other), "{one}");
    let differ = |one: String, other: String| assert_ne!(session(format, &one), session(format, &other), "{one}");
    same(line("a", 1, "u", "s", "-", "x"), line("b", 2, "v", "s", "-", "y"));
    same(line("a", 1, "u", "-", "-", "x"), line("b", 2, "u", "-", "-", "y"));
    same(line("a", 1, "-", "-", "-", "x"), line("a", 1, "-", "-", "-", "y"));
    differ(line("a", 1, "-", "-", "-", "x"), line("a", 2, "-", "-", "-", "x"));
    // The proxy's connection carries the requests of several users.
    differ(line("a", 1, "-", "-", "198.51.100.1, 192.0.2.1", "x"), line("a", 1, "-", "-", "198.51.100.2", "x"));
    same(line("a", 1, "-", "-", "198.51.100.1, 192.0.2.1", "x"), line("b", 2, "-", "-", "198.51.100.1", "x"));
    let combined =
        |agent: &str| format!(r#"192.0.2.1 - - [29/Nov/2026:14:00:00 +0000] "GET / HTTP/1.1" 200 5 "-" "{agent}""#);
    assert_ne!(session("combined", &combined("x")), session("combined", &combined("y")));
    let basis = |format: &str| LogFormat::parse(format).expect("it is a format").session_basis();
    assert_eq!(
        basis(format),
        "the cookie sid, else the user, else the client's address and port, which is one connection; behind a proxy by \
         X-Forwarded-For"
    );
    assert_eq!(basis("haproxy"), "a cookie whose name says that it is a session's or a user's, else the client's address and port, which is one connection");
    assert_eq!(basis("%t %r"), "none: the log names no client, so each request is a session of its own");
    assert_ne!(
        session("$msec $request", "1795960800.5 GET /a HTTP/1.1"),
        session("$msec $request", "1795960800.5 GET /b HTTP/1.1")
    );
}

#[test]
fn columns_may_change_in_the_middle() {
    let log = "#Software: Microsoft Internet Information Services 10.0\r\n#Version: 1.0\r\n\
        2026-11-29 14:00:00 GET /lost\r\n\
        #Fields: date time cs-method cs-uri-stem cs-uri-query s-port cs-username c-ip cs(User-Agent) cs-host sc-status time-taken\r\n\
        2026-11-29 14:00:00 GET /a+b c=d+e 80 - 192.0.2.1 Mozilla/5.0+(X) shop.example 200 1500\r\n\
        #Fields: time date cs-method cs-uri-stem cs-uri-query c-ip\r\n\
        14:00:01 2026-11-29 GET /b - 192.0.2.1\r\n\
        14:00:01 2026-11-29 GET /b -\r\n\
        14:00:01 2026-11-29 GET /b - 192.0.2.1 more\r\n";
    let (requests, causes) = read_as(None, log.as_bytes());
    assert_eq!(causes, [(Cause::Malformed, 2), (Cause::CutOff, 1)]);
    assert_eq!(request(&requests[0]), expected("GET", "shop.example", "/a%20b?c=d+e", -1500 * MS, SECOND));
    assert_eq!(requests[0].fields, b"User-Agent: Mozilla/5.0 (X)\r\n");
    assert_eq!(request(&requests[1]), expected("GET", "", "/b", 1000 * MS, SECOND));
    let log = "#Version: 1.0\n#Fields: date time x-edge-location sc-bytes c-ip cs-method cs(Host) cs-uri-stem sc-status cs(User-Agent) cs-uri-query cs(Cookie) x-host-header time-taken c-port\n\
        2026-11-29\t14:00:00\tFRA2\t100\t192.0.2.1\tGET\td1.cloudfront.net\t/a%20b+c\t200\tMozilla/5.0%20(X)\t-\tlang=en;%20SESSIONID=7\tshop.example\t0.250\t5000\n";
    let (requests, causes) = read_as(None, log.as_bytes());
    assert_eq!(causes, []);
    assert_eq!(request(&requests[0]), expected("GET", "shop.example", "/a%20b+c", -250 * MS, SECOND));
    assert_eq!(requests[0].fields, b"User-Agent: Mozilla/5.0 (X)\r\nCookie: lang=en; SESSIONID=7\r\n");
}

#[test]
fn formats_are_recognised() {
    let recognise = |lines: &[&str]| {
        let lines: Vec<&[u8]> = lines.iter().map(|line| line.as_bytes()).collect();
        LogFormat::recognise(&lines).map(|format| format.name().to_owned()).map_err(|error| error.to_string())
    };
    let common = r#"192.0.2.1 - - [29/Nov/2026:14:00:00 +0000] "GET /a HTTP/1.1" 200 5"#;
    for (line, name) in [
        (common.to_owned(), "common"),
        (format!(r#"{common} "-" "A""#), "combined"),
        (format!(r#"{common} "-" "A" 0.007"#), "combined"),
        (format!(r#"{common} "-" "A" "-""#), "nginx-main"),
        (format!(r#"{common} "-" "A" 1 "r" "s" 7ms"#), "traefik"),
        (format!(r#"shop.example:80 {common} "-" "A""#), "vhost_combined"),
        (r#"{"msec":1795960800.5,"request":"GET /a HTTP/1.1"}"#.to_owned(), "JSON by nginx's names"),
        (
            r#"{"time":"2026-11-29T14:00:00Z","RequestPath":"/a","RequestMethod":"GET"}"#.to_owned(),
            "JSON by Traefik's names",
        ),
    ] {
        assert_eq!(recognise(&[&line, "", "damaged"]).as_deref(), Ok(name), "{line}");
    }
    let error = recognise(&["a", "b"]).expect_err("no format fits");
    assert!(error.contains("combined, vhost_combined, nginx-main, haproxy") && error.contains("--format '"), "{error}");
    for (text, cause) in [
        ("combinde", "none of the names"),
        ("$remote_addr $request", "no time"),
        ("$msec $status", "neither the request's line"),
        ("$status$msec $request", "nothing is between status and"),
        ("%{%c}t %r", "no fixed width"),
        (r#"{"a": "$msec $request"}"#, "more than one variable"),
        ("{", "no JSON object"),
    ] {
        let error = LogFormat::parse(text).expect_err("it is no format").to_string();
        assert!(error.contains(cause) && error.contains(&format!("{text:?}")), "{error}");
    }
}

#[test]
fn a_log_that_is_followed_is_recognised_by_what_is_there() {
    /// Gives a line, and then waits for ever.
    struct Live(bool);

    impl std::io::Read for Live {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            assert!(!std::mem::replace(&mut self.0, true), "the reader was asked for more than its first line");
            let line = b"192.0.2.1 - - [29/Nov/2026:14:00:00 +0000] \"GET /a HTTP/1.1\" 200 5\n";
            buffer[..line.len()].copy_from_slice(line);
            Ok(line.len())
        }
    }

    let mut log = Log::open(Live(false), None).expect("the format is known");
    assert_eq!(log.format().name(), "common");
    assert!(log.next().expect("it can be read").is_some());
}
