//! Process tasks: children of the agent that it watches, that send selected lines as events, and that never outlive
//! it.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use leadline_sys::clock::monotonic_ns;
use leadline_sys::process::{await_exit, signal_group, spawn_bound, usage_of_ended, Signal};
use leadline_wire::{ErrorReport, Event, ExitUsage, ProcessSpec};
use tracing::{info, warn};

use crate::events::{input_error, system_error};
use crate::task::Task;
use crate::watch::Processes;

/// The maximum length of a line, bytes; the rest of a longer one is the next line.
const LINE_BYTES: u64 = 4096;
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// How long a pipe of an ended process is read further.
const PIPE_DRAIN_TIME: Duration = Duration::from_secs(1);

/// Starts the process and waits for its end: sends `prepared` and `output`, returns `exited`. The child is bound to
/// the calling thread, which therefore does not return before the child has ended.
pub fn run(spec: &ProcessSpec, task: &Task, processes: &Processes) -> Result<Event, ErrorReport> {
    // The log is opened first: a process without its log would have to be killed again.
    let open = |path: &String| OpenOptions::new().create(true).append(true).open(path);
    let doing = || format!("opening the log of {}", spec.name);
    let log = spec.log.as_ref().map(open).transpose().map_err(|error| system_error(&doing(), &error))?;
    let logs = [log.as_ref().map(File::try_clone).transpose().map_err(|error| system_error(&doing(), &error))?, log];
    let mut child = spawn(spec)?;
    let pid = child.id();
    info!(trial = task.trial, task = task.name, process = spec.name, pid, "process started");
    lock(processes).push((spec.name.clone(), pid));
    task.events.send(&Event::Prepared {
        trial: task.trial.clone(),
        task: task.name.clone(),
        t_ns: monotonic_ns(),
        pid: Some(pid),
        port: None,
        http_port: None,
        https_port: None,
    });
    let ends = read_output(spec, &mut child, logs, task);
    let result = wait_for_exit(spec, &mut child, task);
    lock(processes).retain(|(_, other)| *other != pid);
    // The group has been killed, and its pipes end with it; a helper in a separate session may hold them without end.
    let _ = ends.recv_timeout(PIPE_DRAIN_TIME);
    let (status, expected, usage) =
        result.map_err(|error| system_error(&format!("waiting for {}", spec.name), &error))?;
    info!(
        trial = task.trial,
        task = task.name,
        process = spec.name,
        pid,
        code = status.code(),
        signal = status.signal(),
        expected,
        "process exited"
    );
    Ok(Event::Exited {
        trial: task.trial.clone(),
        task: task.name.clone(),
        t_ns: monotonic_ns(),
        code: status.code(),
        signal: status.signal(),
        expected,
        usage,
    })
}

fn spawn(spec: &ProcessSpec) -> Result<Child, ErrorReport> {
    let Some((program, arguments)) = spec.argv.split_first() else {
        return Err(input_error("bad_spec", format!("{}: no program is named", spec.name)));
    };
    let mut command = Command::new(program);
    command.args(arguments).envs(&spec.env).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    if let Some(directory) = &spec.cwd {
        command.current_dir(directory);
    }
    spawn_bound(&mut command).map_err(|error| system_error(&format!("starting {program}"), &error))
}

/// How a process ended, whether that was asked for, and what it used.
type Ended = (ExitStatus, bool, Option<ExitUsage>);

/// Waits for the end, or causes it when the task is stopped.
fn wait_for_exit(spec: &ProcessSpec, child: &mut Child, task: &Task) -> io::Result<Ended> {
    let pid = child.id();
    let (exited, ended) = mpsc::channel();
    // A thread blocks in wait(2) on the child's pid, without reaping it, while this one watches the signal.
    thread::Builder::new().spawn(move || {
        await_exit(pid);
        let _ = exited.send(());
    })?;
    let mut stopping: Option<Instant> = None;
    let mut killed = false;
    while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(POLL_INTERVAL) {
        let grace = if task.signal.abandoned() { Duration::ZERO } else { Duration::from_millis(spec.grace_ms.into()) };
        match stopping {
            None if task.signal.stopped() => {
                stopping = Some(Instant::now());
                // If the agent may not signal it (it runs as another user), the agent still waits for it.
                let _ = signal_group(pid, Signal::Terminate);
            }
            Some(since) if !killed && since.elapsed() >= grace => {
                killed = true;
                warn!(process = spec.name, pid, "process does not end when asked: it is killed");
                signal_group(pid, Signal::Kill)?;
            }
            _ => {}
        }
    }
    // This also kills helpers in the process's group; the group's number is reserved until the process is reaped.
    let _ = signal_group(pid, Signal::Kill);
    let usage = usage_of_ended(pid).map(|used| ExitUsage {
        user_s: used.user_s,
        system_s: used.system_s,
        max_resident_bytes: used.max_resident_bytes,
    });
    Ok((child.wait()?, stopping.is_some(), usage))
}

/// Follows both outputs; the returned channel is disconnected when both have ended.
fn read_output(spec: &ProcessSpec, child: &mut Child, logs: [Option<File>; 2], task: &Task) -> mpsc::Receiver<()> {
    let (following, ends) = mpsc::channel();
    let outputs: [Option<Box<dyn Read + Send>>; 2] = [
        child.stdout.take().map(|pipe| Box::new(pipe) as Box<dyn Read + Send>),
        child.stderr.take().map(|pipe| Box::new(pipe) as Box<dyn Read + Send>),
    ];
    for (pipe, log) in outputs.into_iter().zip(logs) {
        let Some(pipe) = pipe else { continue };
        let (report, task, following) = (spec.report.clone(), task.clone(), following.clone());
        // Without a thread the pipe is closed: the process gets an error when it writes, and its exit is reported.
        let _ = thread::Builder::new().spawn(move || {
            follow(pipe, log, &report, &task);
            drop(following);
        });
    }
    ends
}

/// Copies one pipe to the log, complete lines at a time, and sends the requested lines.
fn follow(pipe: Box<dyn Read + Send>, mut log: Option<File>, report: &[String], task: &Task) {
    let mut pipe = BufReader::new(pipe);
    let mut line = Vec::new();
    loop {
        line.clear();
        match pipe.by_ref().take(LINE_BYTES).read_until(b'\n', &mut line) {
            Ok(read) if read > 0 => {}
            _ => return,
        }
        let t_ns = monotonic_ns();
        if let Some(file) = &mut log {
            // A full disk ends the log, not the measurement.
            if file.write_all(&line).is_err() {
                log = None;
            }
        }
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end_matches(['\n', '\r']);
        if report.iter().any(|wanted| text.contains(wanted.as_str())) {
            let line = text.to_owned();
            task.events.send(&Event::Output { trial: task.trial.clone(), task: task.name.clone(), t_ns, line });
        }
    }
}

fn lock(processes: &Processes) -> std::sync::MutexGuard<'_, Vec<(String, u32)>> {
    processes.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
