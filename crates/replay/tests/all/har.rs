//! HAR files.

use leadline_replay::har::HarSource;
use leadline_replay::{Cause, Recorded, Source};
use proptest::prelude::*;

use crate::packets::text;

fn read(file: &str) -> (Vec<Recorded>, Vec<(Cause, u64)>) {
    let mut source = HarSource::read(file.as_bytes()).expect("it is a HAR");
    let requests = std::iter::from_fn(|| source.next().expect("it can be read")).collect();
    (requests, source.causes().iter().collect())
}

fn har(entries: &[&str]) -> String {
    format!(r#"{{"log":{{"version":"1.2","pages":[],"entries":[{}],"comment":""}}}}"#, entries.join(","))
}

const FORM: &str = r#"{"startedDateTime":"2024-01-02T03:04:06.5Z","connection":"443","pageref":"p1","time":12,
  "request":{"method":"POST","url":"https://a.example:444/form?x#y","httpVersion":"h2","headers":[
    {"name":":authority","value":"a.example"},{"name":"Host","value":"a.example"},{"name":"Content-Length","value":"9"},
    {"name":"Cookie","value":"k=v"},{"name":"X-Bad","value":"a\r\nb"},{"name":"X-One","value":"1"}],
    "cookies":[{"name":"other","value":"not sent"}],
    "postData":{"mimeType":"application/x-www-form-urlencoded; charset=x","params":[{"name":"a b","value":"c&d"},{"name":"e","value":""}]}},
  "response":{"status":201,"headers":[{"name":":status","value":"201"},{"name":"Content-Encoding","value":"br"}],
    "bodySize":3,"content":{"size":5,"mimeType":"text/plain","text":"aGVsbG8=","encoding":"base64"}},
  "timings":{"blocked":-1,"wait":7.25,"receive":1}}"#;

#[test]
fn entries_are_given_by_their_start_with_decoded_bodies() {
    let plain = r#"{"startedDateTime":"2024-01-02T03:04:05.250+00:00","pageref":"p1","request":{"method":"GET",
      "url":"http://b/","headers":[],"cookies":[{"name":"a","value":"1"},{"name":"b","value":"2"}]},"response":{"status":304,
      "headers":[],"content":{"size":0}},"timings":{"wait":-1}}"#;
    let (requests, causes) = read(&har(&[FORM, plain]));
    let [first, form] = &requests[..] else { panic!("{requests:?}") };
    assert_eq!(
        (text(&first.target), text(&first.host), text(&first.fields)),
        ("/".into(), "b".into(), "Cookie: a=1; b=2\r\n".into())
    );
    assert_eq!((first.start_ns, first.precision_ns), (1_704_164_645_250_000_000, 1_000_000));
    assert_eq!(
        (first.answer.status, first.answer.body.as_deref(), first.answer.latency_ns),
        (Some(304), Some(&b""[..]), None)
    );
    assert_eq!((text(&form.target), text(&form.host)), ("/form?x".into(), "a.example:444".into()));
    assert_eq!(text(&form.fields), "Cookie: k=v\r\nX-One: 1\r\n");
    assert_eq!(form.body.as_deref().map(text), Some("a+b=c%26d&e=".into()));
    let answer = &form.answer;
    assert_eq!((answer.status, answer.body.as_deref(), answer.body_bytes), (Some(201), Some(&b"hello"[..]), Some(5)));
    assert!(answer.body_is_decoded);
    assert_eq!(answer.fields.as_deref().map(text), Some("Content-Encoding: br\r\n".into()));
    assert_eq!(answer.latency_ns, Some(7_250_000));
    assert_ne!(first.session, form.session);
    assert_eq!(causes, []);
}

fn entry(method: &str, url: &str, request: &str, rest: &str) -> String {
    format!(
        r#"{{"startedDateTime":"2024-01-02T03:04:05Z","request":{{"method":"{method}","url":"{url}","headers":[]{request}}}{rest}}}"#
    )
}

#[test]
fn what_was_not_sent_is_counted_and_what_is_missing_is_unknown() {
    let entries = [
        entry("GET", "http://a/aborted", "", r#","response":{"status":0,"content":{"size":0}}"#),
        entry("GET", "http://a/cached", "", r#","_fromCache":"memory""#),
        entry("GET", "data:text/plain,x", "", ""),
        entry("GET", "wss://a/", "", ""),
        entry("GET", "http://a/ws", "", r#","response":{"status":101}"#),
        entry("CONNECT", "http://a/", "", ""),
        entry("POST", "http://a/unknown", r#","bodySize":-1"#, ""),
        entry("POST", "http://a/missing", r#","bodySize":7"#, ""),
        entry("POST", "http://a/empty", r#","postData":{"mimeType":"","text":""}"#, ""),
        entry(
            "PUT",
            "http://a/file",
            r#","postData":{"mimeType":"multipart/form-data","params":[{"name":"f","fileName":"x"}]}"#,
            "",
        ),
        entry(
            "PUT",
            "http://a/text",
            r#","postData":{"mimeType":"x","text":"é"}"#,
            r#","response":{"status":200,"content":{"size":9}}"#,
        ),
        r#"{"startedDateTime":7}"#.to_owned(),
        r#"{"startedDateTime":"2024-01-02T03:04:05Z"}"#.to_owned(),
        "null".to_owned(),
    ];
    let entries: Vec<&str> = entries.iter().map(String::as_str).collect();
    let (requests, causes) = read(&har(&entries));
    let bodies: Vec<_> = requests.iter().map(|one| (text(&one.target), one.body.as_deref().map(text))).collect();
    let known = |target: &str, body: &str| (target.to_owned(), Some(body.to_owned()));
    let unknown = |target: &str| (target.to_owned(), None);
    assert_eq!(
        bodies,
        [
            known("/aborted", ""),
            unknown("/unknown"),
            unknown("/missing"),
            known("/empty", ""),
            unknown("/file"),
            known("/text", "é")
        ]
    );
    assert_eq!(requests[0].answer.status, None);
    assert_eq!((requests[5].answer.body.as_deref(), requests[5].answer.body_bytes), (None, Some(9)));
    assert_eq!(causes, [(Cause::Malformed, 3), (Cause::NoRequest, 3), (Cause::Upgraded, 2)]);
}

#[test]
fn text_that_is_not_what_was_sent_is_unknown() {
    let content = |kind: &str, body: &str| {
        entry(
            "GET",
            "http://a/",
            "",
            &format!(r#","response":{{"status":200,"content":{{"size":2,"mimeType":"{kind}","text":"{body}"}}}}"#),
        )
    };
    let cases = [
        ("text/html; charset=UTF-8", "é", true),
        ("text/html", "é", true),
        ("text/html; charset=windows-1251", "е", false),
        ("text/html; charset=windows-1251", "e", true),
        ("image/png", "\u{fffd}PNG", false),
    ];
    for (kind, body, is_known) in cases {
        let (requests, _) = read(&har(&[&content(kind, body)]));
        assert_eq!(requests[0].answer.body.is_some(), is_known, "{kind} {body}");
    }
}

#[test]
fn a_file_that_is_none_is_refused_with_its_place() {
    let refused = |file: &str| HarSource::read(file.as_bytes()).err().expect("it is refused").to_string();
    assert_eq!(refused(""), "not a HAR: EOF while parsing a value at line 1 column 0");
    assert_eq!(refused("{\"log\":\n {}}"), "not a HAR: missing field `entries` at line 2 column 3");
    assert!(refused("{\"log\":{\"entries\":[{\"a\"").contains("at line 1 column"));
    assert_eq!(read(&format!("\u{feff}{}", har(&[]))).0, []);
}

proptest! {
    #[test]
    fn any_entry_is_read_or_counted(parts in proptest::collection::vec(
        prop_oneof![
            Just("{"), Just("}"), Just("["), Just("]"), Just(","), Just(":"), Just("\"request\""), Just("\"url\""), Just("\"http://a\""),
            Just("1"), Just("null"), Just("\"startedDateTime\":\"2024-01-02T03:04:05Z\""),
        ], 0..20)) {
        if let Ok(mut source) = HarSource::read(har(&[&parts.concat()]).as_bytes()) {
            while source.next().expect("it can be read").is_some() {}
        }
    }
}
