//! wrk's scripts as a source of requests. `leadline_wrk_lua` owns the Lua states; this module connects them to
//! sockets, to the load's threads and to the agent's events.

use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leadline_http::client::{Capture, Script};
use leadline_http::{RequestSet, RequestTemplate};
use leadline_stats::Histogram;
use leadline_sys::clock::monotonic_ns;
use leadline_sys::connect::Remote;
use leadline_sys::reason::unresolved;
use leadline_wire::{ErrorReport, Event, HttpScript, HttpSpec, Outcome};
use leadline_wrk_lua::{Main, Network, Origin, Program, Summary, ThreadScript};

use super::plan::{Destination, Plan};
use crate::events::input_error;
use crate::task::Task;

/// The script of one thread.
pub struct Scripted(ThreadScript);

impl Script for Scripted {
    fn batch(&self) -> u32 {
        self.0.batch()
    }

    fn wants_responses(&self) -> bool {
        self.0.has_response()
    }

    fn address(&self) -> Option<SocketAddr> {
        self.0.address()
    }

    fn has_stopped(&self) -> bool {
        self.0.stopped()
    }

    fn request(&mut self, out: &mut Vec<u8>) -> Result<(), String> {
        match self.0.constant() {
            Some(bytes) => {
                out.extend_from_slice(bytes);
                Ok(())
            }
            None => self.0.request(out).map_err(|error| error.to_string()),
        }
    }

    fn delay_ms(&mut self) -> Result<u64, String> {
        if self.0.has_delay() {
            self.0.delay_ms().map_err(|error| error.to_string())
        } else {
            Ok(0)
        }
    }

    fn on_response(&mut self, status: u16, response: &Capture) -> Result<(), String> {
        if !self.0.has_response() {
            return Ok(());
        }
        if response.is_cut() {
            return Err("an answer was longer than the 64 MiB that a script is shown".to_owned());
        }
        self.0.response(status, response.fields(), response.body()).map_err(|error| error.to_string())
    }
}

/// The script of a load: one state per thread, and the main state, which reports at the end.
pub struct LoadScripts {
    main: Main,
    printed: Arc<ScriptOutput>,
    /// One for each thread; `None` if the script always makes the same request and is therefore not run.
    pub threads: Option<Vec<Scripted>>,
}

impl LoadScripts {
    /// Runs the script's file, `setup` and `init`. If a script always makes the same request, the plan sends it
    /// without the script.
    pub fn new(
        script: &HttpScript,
        spec: &HttpSpec,
        plan: &mut Plan,
        threads: usize,
        task: &Task,
    ) -> Result<Self, ErrorReport> {
        let HttpScript { name, source, args } = script.clone();
        let printed = Arc::new(ScriptOutput { task: task.clone(), line: Mutex::default() });
        let printer = Arc::clone(&printed);
        let output = Arc::new(move |text: &str| printer.write(text));
        let origin = origin(spec, plan)?;
        let (main, scripts) =
            leadline_wrk_lua::load(&Program { name, source, args }, &origin, threads, output, Arc::new(HostNetwork))
                .map_err(|error| input_error("bad_script", error.to_string()))?;
        let constant = scripts.first().and_then(|first| first.constant().map(<[u8]>::to_vec));
        let first_address = scripts.first().and_then(ThreadScript::address);
        let is_silent = |script: &ThreadScript| !script.has_response() && !script.has_delay();
        let constant = constant.filter(|bytes| {
            let says_the_same = |script: &ThreadScript| script.constant() == Some(bytes) && is_silent(script);
            scripts.iter().all(|script| says_the_same(script) && script.address() == first_address)
        });
        let threads = match constant {
            Some(bytes) => {
                let requests = RequestSet::new([(RequestTemplate::from_bytes(bytes), 1)])
                    .map_err(|error| input_error("bad_script", error.to_string()))?;
                plan.replace_requests(requests, first_address);
                None
            }
            None => Some(scripts.into_iter().map(Scripted).collect()),
        };
        Ok(Self { main, printed, threads })
    }

    /// Runs the script's `done`, and sends its last line.
    pub fn done(mut self, outcome: &mut Outcome, duration_ns: u64, latency: &Histogram, rates: &Histogram) {
        let summary = summary(outcome, duration_ns);
        if let Err(error) = self.main.done(&summary, latency, rates) {
            *outcome.errors.entry("script_error".to_owned()).or_insert(0) += 1;
            outcome.error_examples.entry("script_error".to_owned()).or_insert_with(|| error.to_string());
        }
        self.printed.finish();
    }
}

fn origin(spec: &HttpSpec, plan: &Plan) -> Result<Origin, ErrorReport> {
    let Some((request, source)) = spec.requests.first().zip(plan.settings.sources.first()) else {
        return Err(input_error("bad_http", "a script needs a URL"));
    };
    let url = &source.url;
    // wrk passes a port to the script only if the URL contains one.
    let authority =
        request.url.split("://").nth(1).unwrap_or_default().split(['/', '?', '#']).next().unwrap_or_default();
    let names_port = authority.rsplit_once(':').is_some_and(|(before, port)| {
        !port.is_empty()
            && port.bytes().all(|byte| byte.is_ascii_digit())
            && (before.ends_with(']') || !before.contains(':'))
    });
    Ok(Origin {
        url: request.url.clone(),
        scheme: if url.is_https { "https" } else { "http" }.to_owned(),
        host: url.host.to_string(),
        port: names_port.then_some(url.port),
        path: if source.is_proxied { url.absolute() } else { url.target.to_string() },
        method: source.method.clone(),
        headers: source.headers.clone(),
        body: source.body.as_deref().map(<[u8]>::to_vec),
        addresses: match &plan.route.destination {
            Destination::Resolved(Remote::Inet(address), lookup) if spec.route.proxy.is_none() => {
                lookup.as_ref().map_or_else(|| vec![*address], |lookup| lookup.addresses.all().to_vec())
            }
            _ => Vec::new(),
        },
    })
}

/// Returns the outcome in wrk's five classes of errors.
fn summary(outcome: &Outcome, duration_ns: u64) -> Summary {
    let count = |name: &str| outcome.counts.get(name).copied().unwrap_or(0);
    let mut summary = Summary {
        duration_us: duration_ns / 1000,
        requests: count("responses"),
        bytes: count("bytes"),
        status: (4..10).map(|class| count(&format!("status_{class}xx"))).sum(),
        ..Summary::default()
    };
    for (name, failed) in &outcome.errors {
        let class = match name.as_str() {
            "response_timeout" => &mut summary.timeout,
            "closed_early" | "reset" | "tls_truncated" => &mut summary.read,
            "no_buffer_space" | "message_too_long" => &mut summary.write,
            name if name.starts_with("malformed_") => &mut summary.read,
            _ => &mut summary.connect,
        };
        *class += failed;
    }
    summary
}

/// The output of a script, as one event for each line.
struct ScriptOutput {
    task: Task,
    line: Mutex<String>,
}

/// A longer line is sent in pieces of this size, bytes.
const LINE_BYTES: usize = 4096;

impl ScriptOutput {
    fn write(&self, text: &str) {
        let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        for piece in text.split_inclusive('\n') {
            line.push_str(piece);
            if line.ends_with('\n') || line.len() >= LINE_BYTES {
                self.send_line(&std::mem::take(&mut *line));
            }
        }
    }

    fn finish(&self) {
        let line = std::mem::take(&mut *self.line.lock().unwrap_or_else(PoisonError::into_inner));
        if !line.is_empty() {
            self.send_line(&line);
        }
    }

    fn send_line(&self, line: &str) {
        self.task.events.send(&Event::Output {
            trial: self.task.trial.clone(),
            task: self.task.name.clone(),
            t_ns: monotonic_ns(),
            line: line.strip_suffix('\n').unwrap_or(line).to_owned(),
        });
    }
}

/// This host's network, for `wrk.lookup` and `wrk.connect`.
struct HostNetwork;

/// The time limit for a connection that a script opens.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

impl Network for HostNetwork {
    fn lookup(&self, host: &str, service: &str) -> Result<Vec<SocketAddr>, String> {
        let port = match service {
            "http" => 80,
            "https" => 443,
            number => number.parse().map_err(|_| format!("{number} is no port; a number, http or https"))?,
        };
        (host, port).to_socket_addrs().map(Iterator::collect).map_err(|error| unresolved(host, &error))
    }

    fn connect(&self, address: SocketAddr) -> bool {
        TcpStream::connect_timeout(&address, CONNECT_TIMEOUT).is_ok()
    }
}
