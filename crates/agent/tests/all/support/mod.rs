//! An agent under test: the real binary with its stdin and stdout. Tests wait for conditions, with deadlines that only
//! a defect exceeds.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use leadline_wire::{ErrorReport, Event, FlowReport, Outcome};
use serde_json::{json, Value};

/// Only a defect takes this long.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// A running agent; killed when dropped.
pub struct Agent {
    child: Child,
    stdin: Option<ChildStdin>,
    events: Receiver<Event>,
}

impl Agent {
    /// Starts an agent and reads its hello.
    pub fn start() -> Self {
        let mut agent = Self::start_without_reader();
        let first = agent.next("hello");
        assert!(matches!(first, Event::Hello { protocol: leadline_wire::PROTOCOL_VERSION, .. }), "{first:?}");
        agent
    }

    /// Starts an agent; its first event has not been read.
    pub fn start_without_reader() -> Self {
        Self::spawn(&mut Command::new(env!("CARGO_BIN_EXE_leadline-agent")))
    }

    /// Start one with the command's arguments, environment and stderr.
    pub fn spawn(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (tell, events) = mpsc::channel();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                let event = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error} in {line}"));
                if tell.send(event).is_err() {
                    return;
                }
            }
        });
        Self { stdin: child.stdin.take(), child, events }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Writes bytes unchanged.
    pub fn write(&mut self, bytes: &[u8]) {
        self.stdin.as_mut().unwrap().write_all(bytes).unwrap();
    }

    pub fn send(&mut self, command: &Value) {
        self.write(format!("{command}\n").as_bytes());
    }

    pub fn prepare(&mut self, task: &str, workload: &Value) {
        self.send(&json!({"type": "prepare", "trial": "t", "task": task, "workload": workload}));
    }

    /// Returns the next event of any kind.
    pub fn next(&mut self, waited_for: &str) -> Event {
        self.events.recv_timeout(PATIENCE).unwrap_or_else(|error| panic!("waiting for {waited_for}: {error}"))
    }

    /// Returns the first event that the closure accepts. Others are skipped, except a task's failure, which panics
    /// unless the closure accepts it.
    pub fn wait<T>(&mut self, waited_for: &str, mut take: impl FnMut(&Event) -> Option<T>) -> T {
        loop {
            let event = self.next(waited_for);
            if let Some(value) = take(&event) {
                return value;
            }
            if let Event::Failed { error, .. } = event {
                panic!("waiting for {waited_for}: {error:?}");
            }
        }
    }

    pub fn failure(&mut self) -> ErrorReport {
        self.wait("a failure", |event| match event {
            Event::Failed { error, .. } => Some(error.clone()),
            _ => None,
        })
    }

    pub fn clock_works(&mut self) {
        self.send(&json!({"type": "clock", "id": 77}));
        self.wait("the clock", |event| matches!(event, Event::Clock { id: 77, .. }).then_some(()));
    }

    /// Starts a server on both loopback addresses; returns its session port.
    pub fn serve(&mut self) -> u16 {
        self.serve_with(60_000, 64)
    }

    pub fn serve_with(&mut self, longest_ms: u64, most_flows: u32) -> u16 {
        let bind = json!(["127.0.0.1", "::1"]);
        let workload = json!({"kind": "serve", "bind": bind, "port": 0, "http_port": null, "https_port": null, "answer": answer(),
            "longest_ms": longest_ms, "most_flows": most_flows});
        self.prepare("serve", &workload);
        self.prepared("serve").1.unwrap()
    }

    /// Returns the process id and the port of the task, once it is ready.
    pub fn prepared(&mut self, wanted: &str) -> (Option<u32>, Option<u16>) {
        self.wait("prepared", |event| match event {
            Event::Prepared { task, pid, port, .. } if task == wanted => Some((*pid, *port)),
            _ => None,
        })
    }

    /// Prepares and starts a load.
    pub fn begin(&mut self, task: &str, workload: &Value) {
        self.prepare(task, workload);
        self.prepared(task);
        self.send(&json!({"type": "start", "trial": "t", "at_ns": 0}));
    }

    pub fn finished(&mut self, wanted: &str) -> Outcome {
        self.wait("finished", |event| match event {
            Event::Finished { task, outcome, .. } if task == wanted => Some(outcome.clone()),
            _ => None,
        })
    }

    /// Runs one load from its preparation to its figures.
    pub fn run(&mut self, workload: &Value) -> Outcome {
        self.begin("load", workload);
        self.finished("load")
    }

    /// Waits until the load's counters have moved, on both sides if both report.
    pub fn moving(&mut self) {
        self.wait("progress", |event| match event {
            Event::Progress { flows, .. } => flows.iter().any(|flow| flow.received_bytes > 0).then_some(()),
            _ => None,
        });
    }

    /// Waits until each of this many flows has received something.
    pub fn all_moving(&mut self, count: usize) {
        let mut moved = std::collections::BTreeSet::new();
        self.wait("progress of all flows", |event| match event {
            Event::Progress { flows, .. } => {
                moved.extend(flows.iter().filter(|flow| flow.received_bytes > 0).map(|flow| flow.flow));
                (moved.len() == count).then_some(())
            }
            _ => None,
        });
    }

    /// Its stderr, if that is a pipe, to its end.
    pub fn stderr(&mut self) -> String {
        let mut text = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        text
    }

    /// Closes its stdin.
    pub fn hang_up(&mut self) {
        self.stdin = None;
    }

    /// Returns how the agent ended, and how long that took.
    pub fn ended(&mut self) -> (ExitStatus, Duration) {
        let began = Instant::now();
        let status = until("the agent's end", || self.child.try_wait().unwrap());
        (status, began.elapsed())
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([format!("-{name}"), self.child.id().to_string()]).status();
        assert!(sent.unwrap().success());
    }

    /// Waits until each of its threads is in this state of the kernel (proc_pid_stat(5)).
    pub fn until_all_threads(&self, what: &str, state: char) {
        until(&format!("all threads to {what}"), || {
            let mut threads = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
            let is_so = |thread: std::io::Result<std::fs::DirEntry>| {
                let stat = std::fs::read_to_string(thread.unwrap().path().join("stat")).unwrap_or_default();
                stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(state))
            };
            threads.all(is_so).then_some(())
        });
    }

    /// Returns the number of its threads and of its open files.
    pub fn weight(&self) -> (usize, usize) {
        let count = |folder| std::fs::read_dir(format!("/proc/{}/{folder}", self.child.id())).unwrap().count();
        (count("task"), count("fd"))
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Polls for a condition.
pub fn until<T>(waited_for: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(Instant::now() < deadline, "waiting for {waited_for}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a process has ended; one that has not been reaped has.
pub fn gone(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['Z', 'X']))
}

pub fn target(host: &str, port: u16) -> Value {
    json!({"host": host, "port": port, "ip_version": null})
}

pub fn target_of(address: SocketAddr) -> Value {
    target(&address.ip().to_string(), address.port())
}

pub fn tcp(target: &Value, changes: &Value) -> Value {
    with(
        json!({"kind": "tcp", "target": target, "flows": 1, "threads": 1, "direction": "up", "duration_ms": 1000,
            "warmup_ms": 0, "block_bytes": 65536, "rate_bps": null, "congestion": null, "bind": null, "interval_ms": 50}),
        changes,
    )
}

pub fn udp(target: &Value, changes: &Value) -> Value {
    with(
        json!({"kind": "udp", "target": target, "flows": 1, "threads": 1, "direction": "up", "duration_ms": 1000,
            "number": null, "warmup_ms": 0, "datagram_bytes": 200, "rate_pps": 300.0, "bind": null, "interval_ms": 50}),
        changes,
    )
}

pub fn rr(target: &Value, changes: &Value) -> Value {
    with(
        json!({"kind": "rr", "target": target, "protocol": "tcp", "flows": 1, "threads": 1, "duration_ms": 300,
            "number": null, "warmup_ms": 0, "request_bytes": 64, "response_bytes": 128, "timeout_ms": 20000,
            "bind": null, "interval_ms": 50}),
        changes,
    )
}

pub fn process(argv: &[&str], changes: &Value) -> Value {
    with(
        json!({"kind": "process", "name": "p", "argv": argv, "cwd": null, "env": {}, "log": null, "report": [""],
            "grace_ms": 60000}),
        changes,
    )
}

fn with(mut base: Value, changes: &Value) -> Value {
    for (key, value) in changes.as_object().unwrap() {
        base[key] = value.clone();
    }
    base
}

/// Returns a figure summed over all flows.
pub fn sum(outcome: &Outcome, figure: impl Fn(&FlowReport) -> u64) -> u64 {
    outcome.flows.iter().map(figure).sum()
}

/// Returns the default response of a responder.
pub fn answer() -> Value {
    serde_json::to_value(leadline_wire::HttpAnswer::default()).unwrap()
}
