//! Prints how fast logs are read: lines taken apart alone, and made into requests. Measures this crate alone and checks
//! no limit. `cost FORMAT write|split|read|order [MB]` does one of them, for a profiler; `write` only makes the log.

use std::error::Error;
use std::fmt::Write;
use std::time::Instant;

use leadline_replay::{Log, LogFormat, OrderLimits, Ordered, Source};

const NGINX: &str = r#"$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent" $msec $request_time $connection $connection_requests $host"#;
const AGENT: &str =
    "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/131.0.0.0 Safari/537.36";
const KINDS: [&str; 3] = ["combined", "nginx", "haproxy"];

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let bytes = arguments.get(2).map_or(Ok(64), |text| text.parse::<usize>())? << 20;
    for kind in KINDS.iter().filter(|kind| arguments.first().is_none_or(|only| only == *kind)) {
        let log = write_log(kind, bytes)?;
        for action in ["write", "split", "read", "order"] {
            if arguments.get(1).map_or(action != "write", |only| only == action) {
                let begin = Instant::now();
                let count = run(kind, action, log.as_bytes())?;
                let megabytes = log.len() as f64 / 1e6;
                let rate = megabytes / begin.elapsed().as_secs_f64();
                println!("{kind:8} {action:5} {count:8} lines of {:3} bytes {rate:7.0} MB/s", log.len() / count.max(1));
            }
        }
    }
    Ok(())
}

fn run(kind: &str, action: &str, log: &[u8]) -> Result<usize, Box<dyn Error>> {
    let mut format = LogFormat::parse(if kind == "nginx" { NGINX } else { kind })?;
    let mut count = 0;
    if action == "write" {
        return Ok(0);
    }
    if action == "split" {
        let mut rest = log;
        while let Some(end) = memchr::memchr(b'\n', rest) {
            count += usize::from(format.split_line(&rest[..end]).is_ok());
            rest = &rest[end + 1..];
        }
        return Ok(count);
    }
    let log = Log::open(log, Some(format))?;
    let mut source: Box<dyn Source> = match action {
        "read" => Box::new(log),
        _ => Box::new(Ordered::new(log, OrderLimits { window_ns: 2_000_000_000, ..OrderLimits::default() }, 1)),
    };
    while source.next()?.is_some() {
        count += 1;
    }
    Ok(count)
}

/// A log of requests 20 us apart.
fn write_log(kind: &str, bytes: usize) -> Result<String, Box<dyn Error>> {
    let mut log = String::with_capacity(bytes + 1024);
    let mut number = 0_u64;
    while log.len() < bytes {
        let (user, ms) = (number % 500, number / 50);
        let (minute, second, ms) = (ms / 60_000 % 60, ms / 1000 % 60, ms % 1000);
        let client = format!("192.0.2.{}", user % 250);
        let request = format!("GET /shop/item/{number}?session={user:08x}&page={} HTTP/1.1", number % 7);
        let referer = format!("https://shop.example/list/{}", number % 97);
        match kind {
            "haproxy" => writeln!(
                log,
                "{client}:{} [29/Nov/2026:14:{minute:02}:{second:02}.{ms:03}] public~ shop/s1 0/0/1/12/{} 200 5120 - - \
                 ---- 120/119/14/7/0 0/0 \"{request}\"",
                10_000 + user,
                number % 90
            )?,
            _ => write!(
                log,
                "{client} - - [29/Nov/2026:14:{minute:02}:{second:02} +0000] \"{request}\" 200 5120 \"{referer}\" \
                 \"{AGENT}\""
            )?,
        }
        match kind {
            "nginx" => writeln!(
                log,
                " {}.{ms:03} 0.0{:02} {user} {} shop.example",
                1_795_960_800 + minute * 60 + second,
                number % 90,
                number / 500
            )?,
            "combined" => writeln!(log)?,
            _ => {}
        }
        number += 1;
    }
    Ok(log)
}
