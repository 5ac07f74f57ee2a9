//! The controlled agent: reads commands, owns the tasks, and ends with its stdin.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::fd::AsFd;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use leadline_sys::clock::monotonic_ns;
use leadline_sys::process;
use leadline_sys::reason::reason;
use leadline_wire::{Command, ErrorReport, Event, UndoSpec, Workload, LINE_LIMIT_BYTES};
use tracing::{debug, info, warn};

use crate::control_signal::ControlSignal;
use crate::controller::{Reach, ReachableInput};
use crate::events::{input_error, system_error, Events, LAST_PATIENCE};
use crate::load;
use crate::task::Task;
use crate::undo::Undo;
use crate::watch::{self, Order, Processes, Watch};
use crate::{emulate, facts, links, process as process_task, profile, serve, wake_up};

/// Runs commands until `shutdown` or the end of stdin.
pub fn run(cgroup: Option<&Path>) -> io::Result<()> {
    process::die_with_parent()?;
    // Emulators lack it: what a process leaves behind in a session of its own then outlives the agent.
    if let Err(error) = process::adopt_orphans() {
        warn!(reason = reason(&error), "orphans are not adopted");
    }
    process::ignore_interrupts();
    if let Some(directory) = cgroup {
        let context =
            |error: io::Error| io::Error::new(error.kind(), format!("joining {}: {error}", directory.display()));
        process::join_cgroup(directory).map_err(context)?;
    }
    let events = Events::on_stdout();
    let cgroup = facts::cgroup_paths(cgroup);
    events.send(&facts::hello(&cgroup));
    info!(version = facts::VERSION, profile = facts::BUILD_PROFILE, "agent started");
    watch::start_heartbeat(events.clone());
    links::start(events.clone());
    let reach = Reach::new()?;
    let processes: Processes = Arc::new(Mutex::new(vec![("agent".to_owned(), std::process::id())]));
    let mut agent = Agent {
        watch: Watch::start(events.clone(), cgroup, Arc::clone(&processes)),
        events,
        processes,
        tasks: BTreeMap::new(),
        undo: Undo::default(),
        reach: Arc::clone(&reach),
    };
    // Not `io::stdin`, whose buffer hides from a poll what has been read.
    let stdin = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    agent.read_commands(BufReader::new(ReachableInput::new(stdin, reach)?));
    agent.end();
    info!("agent ends");
    Ok(())
}

struct Agent {
    events: Events,
    watch: Watch,
    processes: Processes,
    tasks: BTreeMap<(String, String), Running>,
    undo: Undo,
    reach: Arc<Reach>,
}

struct Running {
    signal: Arc<ControlSignal>,
    /// Set before the task's last event is sent: a reader of that event may use the task's name again.
    over: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

/// The maximum number of tasks at once: a bound on the threads that commands can create.
const MOST_TASKS: usize = 4096;

/// The time that tasks may take to end in order once the agent ends, and to abort after that.
const ORDERLY: Duration = Duration::from_millis(1500);
const LAST: Duration = Duration::from_millis(500);

impl Agent {
    fn read_commands(&mut self, mut input: impl BufRead) {
        let mut line = Vec::new();
        loop {
            line.clear();
            match input.by_ref().take(LINE_LIMIT_BYTES as u64).read_until(b'\n', &mut line) {
                Ok(read) if read > 0 => {}
                _ => return info!("stdin has ended: shutting down"),
            }
            let received_ns = monotonic_ns();
            if line.len() >= LINE_LIMIT_BYTES && line.last() != Some(&b'\n') {
                let message = format!("a line longer than {LINE_LIMIT_BYTES} bytes");
                self.refuse(None, None, input_error("line_too_long", message));
                // The rest of the line is not a command, whatever it contains.
                if skip_line(&mut input).is_err() {
                    return;
                }
                continue;
            }
            match Command::from_json(&line) {
                Ok(Command::Shutdown {}) => return info!("shutting down as commanded"),
                Ok(command) => self.carry_out(command, received_ns),
                Err(error) => self.refuse(None, None, input_error("bad_command", format!("not a command: {error}"))),
            }
        }
    }

    fn carry_out(&mut self, command: Command, received_ns: u64) {
        match command {
            Command::Prepare { trial, task, workload: Workload::Undo(spec) } => self.register_undo(trial, task, spec),
            Command::Prepare { trial, task, workload } => self.prepare(trial, task, workload),
            Command::Start { trial, at_ns } => {
                info!(trial, at_ns, "tasks are to start");
                self.of_trial(&trial, None).for_each(|running| running.signal.start_at(at_ns));
            }
            Command::Stop { trial, task } => {
                info!(trial, task, "tasks are to stop");
                self.of_trial(&trial, task.as_deref()).for_each(|running| running.signal.stop());
                if let Some(task) = task {
                    self.undo.take_back((trial, task));
                }
            }
            Command::Observe { trial, period_ms, machine, pids, programs, soak } => {
                debug!(trial, period_ms, machine, soak, "host is observed");
                let period_ns = (period_ms > 0).then(|| u64::from(period_ms) * 1_000_000);
                self.watch.order(Order { trial, period_ns, machine, pids, programs, soak, ..Order::default() });
            }
            Command::WakeUp { id } => {
                let events = self.events.clone();
                // Commands are read on while it sleeps and wakes.
                thread::spawn(move || {
                    let found = wake_up::measure();
                    events.send(&Event::WakeUp { id, t_ns: monotonic_ns(), found });
                });
            }
            Command::Inspect { id } => {
                self.events.send(&Event::Network { id, t_ns: monotonic_ns(), view: facts::network_view() });
            }
            Command::Clock { id } => {
                self.events.send(&Event::Clock { id, received_ns, sent_ns: monotonic_ns() });
            }
            Command::Heartbeat {} => {
                // The parent of a remote agent is a server of SSH, which ends with the connection: stdin ends then, and
                // the agent in order, with the descendants that the kernel would leave.
                process::outlive_parent();
                self.reach.watch();
            }
            Command::Shutdown {} => {}
        }
    }

    fn prepare(&mut self, trial: String, name: String, workload: Workload) {
        self.tasks.retain(|_, running| !running.over.load(Ordering::Acquire));
        let key = (trial.clone(), name.clone());
        if self.tasks.contains_key(&key) || self.tasks.len() >= MOST_TASKS {
            let error =
                input_error("task_exists", format!("task {name} of trial {trial} runs already, or too many do"));
            return self.refuse(Some(trial), Some(name), error);
        }
        debug!(trial, task = name, kind = kind(&workload), "task is to be prepared");
        let signal = Arc::new(ControlSignal::default());
        let task = Task { trial, name, signal: Arc::clone(&signal), events: self.events.clone() };
        let processes = Arc::clone(&self.processes);
        let over = Arc::new(AtomicBool::new(false));
        let raise = Arc::clone(&over);
        let body = move || {
            let run = AssertUnwindSafe(|| run_task(workload, &task, &processes));
            let ran =
                catch_unwind(run).unwrap_or_else(|_| Err(system_error("this task", &io::Error::other("a defect"))));
            if ran.is_err() {
                // A task that failed half-way through its start may have threads already, which would serve on.
                task.signal.abandon();
            }
            let last = ran.unwrap_or_else(|error| {
                let (trial, name) = (Some(task.trial.clone()), Some(task.name.clone()));
                Some(Event::Failed { trial, task: name, t_ns: monotonic_ns(), error })
            });
            log_end(&task, last.as_ref());
            raise.store(true, Ordering::Release);
            if let Some(event) = last {
                task.events.send(&event);
            }
        };
        match thread::Builder::new().spawn(body) {
            Ok(thread) => drop(self.tasks.insert(key, Running { signal, over, thread })),
            Err(error) => self.refuse(Some(key.0), Some(key.1), system_error("starting a thread", &error)),
        }
    }

    fn register_undo(&mut self, trial: String, name: String, spec: UndoSpec) {
        let key = (trial.clone(), name.clone());
        let registered = if self.tasks.contains_key(&key) {
            Err(input_error("task_exists", format!("task {name} of trial {trial} runs already")))
        } else {
            self.undo.register(key, spec)
        };
        match registered {
            Ok(()) => {
                let task = Task { trial, name, signal: Arc::default(), events: self.events.clone() };
                send_prepared(&task, None, None, None);
            }
            Err(error) => self.refuse(Some(trial), Some(name), error),
        }
    }

    fn of_trial<'a>(&'a self, trial: &'a str, task: Option<&'a str>) -> impl Iterator<Item = &'a Running> {
        let fits = move |(of, name): &(String, String)| of == trial && task.is_none_or(|task| task == name);
        self.tasks.iter().filter(move |(key, _)| fits(key)).map(|(_, running)| running)
    }

    fn refuse(&self, trial: Option<String>, task: Option<String>, error: ErrorReport) {
        // Its message may repeat a piece of the command, which may be a secret.
        warn!(trial, task, code = error.code, "command refused");
        self.events.send(&Event::Failed { trial, task, t_ns: monotonic_ns(), error });
    }

    /// Stops every task. Tasks that have not ended after `ORDERLY` are aborted, and those that still run after `LAST`
    /// end with the process: an unanswered connection attempt must not keep the agent running. Then what the host was
    /// changed by is undone.
    fn end(self) {
        self.watch.order(Order::default());
        self.tasks.values().for_each(|running| running.signal.stop());
        self.await_ends(ORDERLY);
        let running = self.tasks.values().filter(|running| !running.thread.is_finished()).count();
        if running > 0 {
            warn!(tasks = running, "tasks that have not ended are abandoned");
        }
        self.tasks.values().for_each(|running| running.signal.abandon());
        self.await_ends(LAST);
        process::kill_descendants(LAST_PATIENCE);
        self.undo.run();
    }

    fn await_ends(&self, patience: Duration) {
        let deadline = Instant::now() + patience;
        while self.tasks.values().any(|running| !running.thread.is_finished()) && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Reads to the end of a line and discards it.
fn skip_line(input: &mut impl BufRead) -> io::Result<()> {
    loop {
        let piece = input.fill_buf()?;
        if piece.is_empty() {
            return Ok(());
        }
        match piece.iter().position(|byte| *byte == b'\n') {
            Some(end) => {
                input.consume(end + 1);
                return Ok(());
            }
            None => {
                let length = piece.len();
                input.consume(length);
            }
        }
    }
}

/// Runs one task on its own thread; returns its last event, if its kind has one.
fn run_task(workload: Workload, task: &Task, processes: &Processes) -> Result<Option<Event>, ErrorReport> {
    match workload {
        Workload::Process(spec) => process_task::run(&spec, task, processes).map(Some),
        Workload::Profile(spec) => profile::run(&spec, task, processes).map(Some),
        Workload::Serve(spec) => {
            let server = serve::start(&spec, &task.signal)?;
            send_prepared(task, server.port, server.http_port, server.https_port);
            // A server has no start: it answers from now on until it is stopped.
            task.signal.wait_for_stop();
            server.join();
            Ok(None)
        }
        Workload::Emulate(spec) => {
            let emulator = emulate::start(&spec, &task.signal)?;
            send_prepared(task, None, None, None);
            emulator.report(spec.interval_ms, task);
            Ok(None)
        }
        load => {
            let ready = load::prepare(load, task)?;
            send_prepared(task, None, None, None);
            let Some(at_ns) = task.signal.wait_for_start() else {
                return Err(input_error("stopped", "stopped before it began"));
            };
            send_started(at_ns, task);
            let outcome = ready.run(at_ns, task)?;
            let (trial, name) = (task.trial.clone(), task.name.clone());
            Ok(Some(Event::Finished { trial, task: name, t_ns: monotonic_ns(), outcome }))
        }
    }
}

fn send_prepared(task: &Task, port: Option<u16>, http_port: Option<u16>, https_port: Option<u16>) {
    info!(trial = task.trial, task = task.name, port, http_port, https_port, "task prepared");
    let (trial, name) = (task.trial.clone(), task.name.clone());
    task.events.send(&Event::Prepared {
        trial,
        task: name,
        t_ns: monotonic_ns(),
        pid: None,
        port,
        http_port,
        https_port,
    });
}

/// Returns the name of a workload in the log.
fn kind(workload: &Workload) -> &'static str {
    match workload {
        Workload::Serve(_) => "serve",
        Workload::Tcp(_) => "tcp",
        Workload::Udp(_) => "udp",
        Workload::Rr(_) => "rr",
        Workload::Http(_) => "http",
        Workload::Scenario(_) => "scenario",
        Workload::Tunnel(_) => "tunnel",
        Workload::Crypto(_) => "crypto",
        Workload::Process(_) => "process",
        Workload::Profile(_) => "profile",
        Workload::Undo(_) => "undo",
        Workload::Emulate(_) => "emulate",
        Workload::PacketGenerator(_) => "packet_generator",
        Workload::PacketReceiver(_) => "packet_receiver",
    }
}

fn log_end(task: &Task, last: Option<&Event>) {
    let Task { trial, name, .. } = task;
    match last {
        Some(Event::Failed { error: ErrorReport { blame, code, message }, .. }) => {
            warn!(trial, task = name, ?blame, code, reason = message, "task failed");
        }
        _ => info!(trial, task = name, "task ended"),
    }
}

/// Sends `started` a moment before the start, so that writing the line does not disturb the load; `t_ns` is when the
/// load begins.
fn send_started(at_ns: u64, task: &Task) {
    info!(trial = task.trial, task = task.name, at_ns, "task started");
    let (trial, name) = (task.trial.clone(), task.name.clone());
    task.events.send(&Event::Started { trial, task: name, due_ns: at_ns, t_ns: at_ns.max(monotonic_ns()) });
}
