//! Process tasks: children of the agent that are watched, whose chosen lines become events, and that never outlive it.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use leadline_sys::clock::monotonic_ns;
use leadline_sys::process::{signal_group, spawn_bound, Signal};
use leadline_wire::{ErrorReport, Event, ProcessSpec};

use crate::events::{input_error, system_error};
use crate::load::Task;
use crate::watch::Processes;

/// The longest line that is looked at as a whole, bytes; the rest of a longer one is the next line.
const LINE_BYTES: u64 = 4096;
const TURN: Duration = Duration::from_millis(20);

/// Start the process and stay with it until it has ended: tells `prepared`, `output` and `exited`.
pub fn run(spec: &ProcessSpec, task: &Task, processes: &Processes) -> Result<(), ErrorReport> {
    let mut child = spawn(spec)?;
    let pid = child.id();
    lock(processes).push((spec.name.clone(), pid));
    task.events.say(&Event::Prepared {
        trial: task.trial.clone(),
        task: task.name.clone(),
        t_ns: monotonic_ns(),
        pid: Some(pid),
        port: None,
        http_port: None,
    });
    let readers = read_output(spec, &mut child, task);
    let result = stay(spec, &mut child, task);
    lock(processes).retain(|(_, other)| *other != pid);
    // What a process leaves running holds its pipes open; its group has been killed, so the pipes end.
    for reader in readers? {
        let _ = reader.join();
    }
    let (status, expected) = result.map_err(|error| system_error(&format!("waiting for {}", spec.name), &error))?;
    task.events.say(&Event::Exited {
        trial: task.trial.clone(),
        task: task.name.clone(),
        t_ns: monotonic_ns(),
        code: status.code(),
        signal: status.signal(),
        expected,
    });
    Ok(())
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

/// Wait for the end, or bring it about when the task is stopped.
fn stay(spec: &ProcessSpec, child: &mut Child, task: &Task) -> io::Result<(ExitStatus, bool)> {
    let pid = child.id();
    let (tell, ended) = mpsc::channel();
    // One thread blocks in wait(2) on the child's pid while this one watches the gate.
    let waiter = wait_in_thread(pid, tell);
    let mut stopping: Option<Instant> = None;
    let mut killed = false;
    loop {
        match ended.recv_timeout(TURN) {
            Ok(()) => break,
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
            Err(mpsc::RecvTimeoutError::Timeout) => {}
        }
        match stopping {
            None if task.gate.stopped() => {
                stopping = Some(Instant::now());
                signal_group(pid, Signal::Terminate)?;
            }
            Some(since) if !killed && since.elapsed() >= Duration::from_millis(spec.grace_ms.into()) => {
                killed = true;
                signal_group(pid, Signal::Kill)?;
            }
            _ => {}
        }
    }
    let _ = waiter.join();
    let status = child.wait()?;
    // Helpers that the process left behind in its group go with it.
    signal_group(pid, Signal::Kill)?;
    Ok((status, stopping.is_some()))
}

/// Tells when a child has ended, without reaping it.
fn wait_in_thread(pid: u32, tell: mpsc::Sender<()>) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        leadline_sys::process::await_exit(pid);
        let _ = tell.send(());
    })
}

fn read_output(spec: &ProcessSpec, child: &mut Child, task: &Task) -> Result<Vec<thread::JoinHandle<()>>, ErrorReport> {
    let open = |path: &String| OpenOptions::new().create(true).append(true).open(path);
    let log = spec.log.as_ref().map(open).transpose();
    let log = log.map_err(|error| {
        // The child runs already; without its log it must not go on.
        let _ = signal_group(child.id(), Signal::Kill);
        system_error(&format!("opening the log of {}", spec.name), &error)
    })?;
    let mut readers = Vec::new();
    let outputs: [Option<Box<dyn Read + Send>>; 2] = [
        child.stdout.take().map(|pipe| Box::new(pipe) as Box<dyn Read + Send>),
        child.stderr.take().map(|pipe| Box::new(pipe) as Box<dyn Read + Send>),
    ];
    for pipe in outputs.into_iter().flatten() {
        let log = log.as_ref().map(File::try_clone).transpose();
        let log = log.map_err(|error| system_error(&format!("opening the log of {}", spec.name), &error))?;
        let (report, task) = (spec.report.clone(), task.clone());
        readers.push(thread::spawn(move || follow(pipe, log, &report, &task)));
    }
    Ok(readers)
}

/// Copy one pipe to the log, whole lines at a time, and tell the lines that were asked for.
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
            task.events.say(&Event::Output { trial: task.trial.clone(), task: task.name.clone(), t_ns, line });
        }
    }
}

fn lock(processes: &Processes) -> std::sync::MutexGuard<'_, Vec<(String, u32)>> {
    processes.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
