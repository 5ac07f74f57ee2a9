//! Properties of all lines: any bytes cost one count, and what a format writes is read back.

use leadline_replay::{LogFormat, Recorded};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::stored_corpus::access_log;

/// A text as nginx writes it.
fn escape_nginx(text: &str) -> String {
    let plain = |byte: u8| (32..=126).contains(&byte) && byte != b'"' && byte != b'\\';
    text.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("\\x{byte:02X}") }).collect()
}

/// A text as Apache writes it.
fn escape_apache(text: &str) -> String {
    let escape = |byte: u8| match byte {
        b'"' | b'\\' => format!("\\{}", char::from(byte)),
        32..=126 => char::from(byte).to_string(),
        _ => format!("\\x{byte:02x}"),
    };
    text.bytes().map(escape).collect()
}

fn escape_json(text: &str) -> String {
    let quoted = serde_json::to_string(text).expect("it is text");
    quoted[1..quoted.len() - 1].to_owned()
}

/// A text as HAProxy writes it.
fn escape_haproxy(text: &str) -> String {
    let plain = |byte: u8| (32..=126).contains(&byte) && !b"{|}\"#".contains(&byte);
    text.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("#{byte:02X}") }).collect()
}

fn encode(path: &str) -> Vec<u8> {
    let plain = |byte: u8| (0x21..0x7f).contains(&byte);
    path.bytes().flat_map(|byte| if plain(byte) { vec![byte] } else { format!("%{byte:02X}").into_bytes() }).collect()
}

fn read_line(format: &str, line: &str) -> Recorded {
    let mut format = LogFormat::parse(format).expect("it is a format");
    format.read_line(line.as_bytes()).unwrap_or_else(|cause| panic!("{cause:?}: {line}")).expect("it is no empty line")
}

proptest! {
    #[test]
    fn any_bytes_are_a_log(data in vec(any::<u8>(), 0..400)) {
        access_log::logs(&data);
    }

    #[test]
    fn any_damaged_line_is_a_log(
        choice in 0..13_u8,
        line in prop::sample::select(LINES.to_vec()),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
    ) {
        let mut log = line.repeat(2).into_bytes();
        for (index, byte) in damage {
            let at = index.index(log.len());
            log[at] = byte;
        }
        log.insert(0, choice);
        access_log::logs(&log);
    }

    #[test]
    fn any_text_is_a_format_or_none(text in "[$%{}:'\" a-zA-Z()\\[\\]_+|]{0,60}", log in vec(any::<u8>(), 0..100)) {
        access_log::formats(&[text.as_bytes(), b"\n", &log].concat());
    }

    #[test]
    fn written_lines_are_read_back(
        path in "/[^ \r\n]{0,30}",
        agent in "[^\\p{Cc} ]{1,20}",
        ms in 0..4_000_000_000_000_i64,
        duration_ms in 0..100_000_i64,
        status in 100..600_u16,
    ) {
        // A hyphen alone is what is not there.
        prop_assume!(agent != "-");
        let request = format!("GET {path} HTTP/1.1");
        let (seconds, rest) = (ms / 1000, ms % 1000);
        let nginx = format!("{seconds}.{rest:03} 0.{:03} \"{}\" {status} \"{}\"", duration_ms % 1000, escape_nginx(&request), escape_nginx(&agent));
        let apache = format!("{ms} {} \"{}\" {status} \"{}\"", duration_ms * 1000, escape_apache(&request), escape_apache(&agent));
        let json = format!(r#"{{"t": {ms}, "x": ["{}"], "r": "{}", "s": {status}, "a": "{}"}}"#, escape_json(&agent), escape_json(&request), escape_json(&agent));
        let haproxy = format!("{seconds} {rest:03} {{{}}} {status} \"{}\"", escape_haproxy(&agent), escape_haproxy(&request));
        for (format, line, lead_ms) in [
            (r#"$msec $request_time "$request" $status "$http_user_agent""#, nginx, duration_ms % 1000),
            (r#"%{msec}t %D "%r" %>s "%{User-Agent}i""#, apache, 0),
            (r#"{"t": "%{msec}t", "r": "%r", "s": "%>s", "a": "%{User-Agent}i"}"#, json, 0),
            (r#"%Ts %ms %hr %ST %{+Q}r"#, haproxy, 0),
        ] {
            let recorded = read_line(format, &line);
            prop_assert_eq!(&recorded.method, b"GET");
            prop_assert_eq!(&recorded.target, &encode(&path), "{}", line);
            prop_assert_eq!(recorded.answer.status, Some(status));
            if format != "%Ts %ms %hr %ST %{+Q}r" {
                prop_assert_eq!(recorded.start_ns, (ms - lead_ms) * 1_000_000);
                prop_assert_eq!(recorded.fields, format!("User-Agent: {agent}\r\n").into_bytes());
            }
        }
    }
}

const LINES: [&str; 6] = [
    "192.0.2.1 - - [29/Nov/2026:14:00:00 +0000] \"GET /a HTTP/1.1\" 200 5 \"-\" \"A\"\n",
    "192.0.2.1:5 [29/Nov/2026:14:00:00.000] a b/c 0/0/0/0/0 200 1 - - ---- 1/1/0/0/0 0/0 {a|b} \"GET / HTTP/1.1\"\n",
    "[2026-11-29T14:00:00.310Z] \"GET /a HTTP/2\" 200 - 0 1 2 1 \"-\" \"A\" \"id\" \"h\" \"192.0.2.9:80\"\n",
    "{\"t\": 1795960800.1, \"d\": 0.1, 0.2, \"r\": {\"l\": \"GET /\\u0041 HTTP/1.1\"}, \"c\": \"sid=1\"}\n",
    "#Fields: date time cs-method cs-uri-stem cs(Cookie)\n2026-11-29 14:00:00 GET /a sid=1\n",
    "h/a?b\tGET 0.1, 0.2 : - 1795960800.1 0.1 sid\n",
];
