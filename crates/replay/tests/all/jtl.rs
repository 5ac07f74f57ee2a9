//! JMeter's results in both forms.

use leadline_replay::jtl::JtlSource;
use leadline_replay::{Cause, Recorded, Source};
use proptest::prelude::*;

use crate::packets::text;

fn read(file: &str) -> (Vec<Recorded>, Vec<(Cause, u64)>) {
    let mut source = JtlSource::open(file.as_bytes()).expect("it is a JTL");
    let requests = std::iter::from_fn(|| source.next().expect("it can be read")).collect();
    (requests, source.causes().iter().collect())
}

fn refused(file: &str) -> String {
    match JtlSource::open(file.as_bytes()) {
        Err(error) => error.to_string(),
        Ok(mut source) => loop {
            if let Some(error) = source.next().map_or_else(Some, |next| next.is_none().then(|| panic!("it is read"))) {
                break error.to_string();
            }
        },
    }
}

const HEADER: &str = "timeStamp,elapsed,label,responseCode,responseMessage,threadName,dataType,success,failureMessage,bytes,sentBytes,grpThreads,allThreads,URL,Latency,IdleTime,Connect";

#[test]
fn rows_are_requests_of_threads() {
    let file = format!(
        "{HEADER}\r\n\
         1700000000250,120,home,200,OK,Users 1-1,text,true,,500,100,1,1,http://a:81/x?y,100,0,30\r\n\
         1700000000100,50,\"a \"\"label\"\", and\nmore\",Non HTTP response code: java.net.X,m,Users 1-2,text,false,,0,0,1,1,https://a/,0,0,0\n\n\
         1700000000300,5,controller,200,OK,Users 1-1,text,true,,0,0,1,1,null,0,0,0\n\
         too,few\n\
         x,5,label,200,OK,Users 1-1,text,true,,0,0,1,1,http://a/,0,0,0\n\
         1700000000400,5,last,302,Found,Users 1-1,text,true,,0,0,1,1,http://a/last,7,0,0"
    );
    let (requests, causes) = read(&file);
    let [first, failed, last] = &requests[..] else { panic!("{requests:?}") };
    assert_eq!(
        (text(&first.method), text(&first.target), text(&first.host)),
        ("GET".into(), "/x?y".into(), "a:81".into())
    );
    assert_eq!((first.start_ns, first.precision_ns, first.body.as_ref()), (1_700_000_000_250_000_000, 1_000_000, None));
    assert_eq!(
        (first.answer.status, first.answer.latency_ns, first.answer.body_bytes),
        (Some(200), Some(70_000_000), None)
    );
    assert_eq!((failed.answer.status, failed.answer.latency_ns), (None, None));
    assert!(first.session != failed.session && first.session == last.session);
    assert_eq!(causes, [(Cause::Malformed, 2), (Cause::NoRequest, 1)]);
    let semicolons = file.replace(',', ";").replace("\"; and", "\", and");
    assert_eq!(read(&semicolons).0, requests);
}

#[test]
fn a_quote_that_is_not_closed_takes_no_more_than_its_limit() {
    let row = "1700000000250,120,l,200,OK,t,text,true,,500,100,1,1,http://a/,100,0,30\n";
    let file = format!("{HEADER}\n{row}\"open,{}{row}", row.repeat(10_000));
    let (requests, causes) = read(&file);
    assert!(requests.len() > 5000, "{}", requests.len());
    assert_eq!(causes, [(Cause::TooLarge, 1)]);
    let (_, causes) = read(&format!("{HEADER}\n\"cut"));
    assert_eq!(causes, [(Cause::CutOff, 1)]);
}

#[test]
fn a_file_without_urls_is_refused_by_what_would_help() {
    assert!(refused("timeStamp,elapsed,label\n").contains("jmeter.save.saveservice.url=true"));
    assert!(refused("1700000000250,120,l,200\n").contains("print_field_names=true"));
    assert_eq!(refused(""), "not a JTL: it has no row");
}

#[test]
fn elements_have_methods_bodies_and_fields() {
    let file = r#"<?xml version="1.0" encoding="UTF-8"?>
<testResults version="1.2">
<httpSample t="9" lt="8" ct="3" ts="1700000000250" s="true" lb="a &amp; b" rc="200" tn="Users 1-1">
  <requestHeader class="java.lang.String">Connection: keep-alive
X-One: 1
Content-Length: 3
X-LocalAddress: /10.0.0.1
</requestHeader>
  <method class="java.lang.String">POST</method>
  <queryString class="java.lang.String">a=1&amp;b=&#50;</queryString>
  <cookies class="java.lang.String">k=v</cookies>
  <java.net.URL>http://a/p?x&amp;y</java.net.URL>
</httpSample>
<httpSample t="9" ts="1700000000300" rc="200" tn="Users 1-1" lb="page">
  <httpSample t="9" ts="1700000000300" rc="302" tn="Users 1-1"><method>GET</method><java.net.URL>http://a/1</java.net.URL></httpSample>
  <httpSample t="9" ts="1700000000310" rc="200" tn="Users 1-1"><method>GET</method><java.net.URL>http://a/2</java.net.URL></httpSample>
  <java.net.URL>http://a/2</java.net.URL>
</httpSample>
<sample t="9" ts="1700000000300" tn="Users 1-1"/>
<httpSample t="9" ts="17"#;
    let (requests, causes) = read(file);
    let targets: Vec<String> = requests.iter().map(|request| text(&request.target)).collect();
    assert_eq!(targets, ["/p?x&y", "/1", "/2"]);
    let first = &requests[0];
    assert_eq!((text(&first.method), first.body.as_deref().map(text)), ("POST".into(), Some("a=1&b=2".into())));
    assert_eq!(text(&first.fields), "X-One: 1\r\nCookie: k=v\r\n");
    assert_eq!((first.answer.status, first.answer.latency_ns), (Some(200), Some(5_000_000)));
    assert_eq!(requests[1].body.as_deref(), Some(&b""[..]));
    assert_eq!(causes, [(Cause::CutOff, 1), (Cause::NoRequest, 1)]);
}

#[test]
fn hostile_elements_are_refused_in_one_line() {
    let deep = "<httpSample>".repeat(100);
    assert!(refused(&deep).contains("64 deep at byte"), "{}", refused(&deep));
    let long = format!("<a>{}", "x".repeat(20 << 20));
    assert!(refused(&long).contains("bytes in one element"), "{}", refused(&long));
    let wrong = refused("<a></b>");
    assert!(wrong.starts_with("the JTL is no XML that JMeter writes, at byte") && !wrong.contains('\n'), "{wrong}");
}

proptest! {
    #[test]
    fn any_text_is_read_to_its_end(text in "(<httpSample ts=\"1\">|</httpSample>|<method>|<java.net.URL>|http://a/|\"|,|\n|&x;|[ -~]){0,40}", is_csv in any::<bool>()) {
        let file = if is_csv { format!("{HEADER}\n{text}") } else { format!("<{text}") };
        if let Ok(mut source) = JtlSource::open(file.as_bytes()) {
            while let Ok(Some(_)) = source.next() {}
        }
    }
}
