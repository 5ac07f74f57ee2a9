//! Prints the CPU time of a script per request and per response, for a counter script and a login script. Measures
//! this crate alone and checks no limit.

use std::sync::Arc;

use leadline_wrk_lua::{load, Network, Origin, Program, ThreadScript};

const COUNTER: &str = r#"
local served = 0
request = function()
   served = served + 1
   wrk.headers["X-Served"] = served
   return wrk.format(nil, "/item/" .. served)
end
"#;

const AUTH: &str = r#"
local key
request = function()
   return wrk.format("GET", key and "/inside" or "/login")
end
response = function(status, headers, body)
   if not key and status == 200 then
      key = headers["X-Key"]
      wrk.headers["X-Key"] = key
   end
end
"#;

const ROUNDS: u32 = 1_000_000;

struct Nowhere;

impl Network for Nowhere {
    fn lookup(&self, _: &str, _: &str) -> Result<Vec<std::net::SocketAddr>, String> {
        Err("no names here".to_owned())
    }

    fn connect(&self, _: std::net::SocketAddr) -> bool {
        false
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for (name, source) in [("counter", COUNTER), ("auth", AUTH)] {
        let mut script = loaded(name, source)?;
        let mut request = Vec::new();
        let begin = cpu_ns()?;
        for _ in 0..ROUNDS {
            script.request(&mut request)?;
        }
        print(name, "request", begin)?;
        if script.has_response() {
            responses(name, &mut script)?;
        }
    }
    Ok(())
}

/// Equal responses, and responses in which one field and the body change.
fn responses(name: &str, script: &mut ThreadScript) -> Result<(), Box<dyn std::error::Error>> {
    let headers: [(&[u8], &[u8]); 6] = [
        (b"Server", b"nginx/1.26"),
        (b"Date", b"Sat, 01 Jan 2000 00:00:00 GMT"),
        (b"Content-Type", b"text/plain"),
        (b"Content-Length", b"12"),
        (b"Connection", b"keep-alive"),
        (b"X-Key", b"abcdefgh"),
    ];
    let begin = cpu_ns()?;
    for _ in 0..ROUNDS {
        script.response(200, headers, b"hello world\n")?;
    }
    print(name, "response, alike", begin)?;
    let begin = cpu_ns()?;
    for round in 0..ROUNDS {
        let digits = round.to_be_bytes().map(|byte| b'a' + byte % 26);
        let mut headers = headers;
        headers[5].1 = &digits;
        script.response(200, headers, &digits)?;
    }
    print(name, "response, one field and the body new", begin)?;
    Ok(())
}

fn print(name: &str, what: &str, begin: u64) -> Result<(), Box<dyn std::error::Error>> {
    println!("{name}: {what}: {} ns", (cpu_ns()? - begin) / u64::from(ROUNDS));
    Ok(())
}

/// CPU time of this thread, ns.
fn cpu_ns() -> Result<u64, Box<dyn std::error::Error>> {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    Ok(stat.split(' ').next().unwrap_or_default().parse()?)
}

fn loaded(name: &str, source: &str) -> Result<ThreadScript, Box<dyn std::error::Error>> {
    let program = Program { name: name.to_owned(), source: source.to_owned(), args: Vec::new() };
    let origin = Origin {
        url: "http://127.0.0.1:8080/".to_owned(),
        scheme: "http".to_owned(),
        host: "127.0.0.1".to_owned(),
        port: Some(8080),
        path: "/".to_owned(),
        method: "GET".to_owned(),
        headers: Vec::new(),
        body: None,
        addresses: Vec::new(),
    };
    let (_, mut threads) = load(&program, &origin, 1, Arc::new(|text| eprint!("{text}")), Arc::new(Nowhere))?;
    threads.pop().ok_or_else(|| "one thread was asked for".into())
}
