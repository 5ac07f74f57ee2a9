//! Profile tasks: perf(1) samples call stacks of the agent's processes on a software clock, which every virtual
//! machine has, until the task is stopped; its samples are folded into a line per stack. Owns perf's process and its
//! file. The file holds data of stacks: it has no name after perf has opened it, and disappears with its last reader.
//! A profile is not a measurement: profiled processes run slower.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use inferno::collapse::perf::{Folder, Options};
use inferno::collapse::Collapse;
use inferno::flamegraph;
use leadline_sys::clock::monotonic_ns;
use leadline_sys::poll::{Interest, Poll};
use leadline_sys::process::{signal_group, spawn_bound, Signal};
use leadline_wire::{ErrorReport, Event, ProfileSpec};
use tracing::info;

use crate::events::{input_error, system_error};
use crate::task::Task;
use crate::watch::Processes;

const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// How long perf may take to write its file after its end was requested.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of each stack that are stored for unwinding: few programs are built with frame pointers.
const STACK_BYTES: u32 = 16_384;
const MAX_HZ: u32 = 10_000;
/// Less than the longest line of the contract, and far more than profiles need.
const FOLDED_BYTES: usize = 4 << 20;
/// The fields of a sample that perf prints. Without its period each sample counts as one.
const FIELDS: &str = "comm,pid,tid,time,event,ip,sym,dso";
/// The maximum length of perf's error output in an error message, bytes.
const STDERR_BYTES: u64 = 2000;

/// Samples until the task is stopped or its processes have ended: sends `prepared`, returns `profiled`.
pub fn run(spec: &ProfileSpec, task: &Task, processes: &Processes) -> Result<Event, ErrorReport> {
    if !(1..=MAX_HZ).contains(&spec.frequency_hz) {
        return Err(input_error("bad_spec", format!("a profile takes 1 to {MAX_HZ} samples per second")));
    }
    let pids = pids_of(spec, processes)?;
    let folder = Folded::new().map_err(|error| system_error("making a folder for the profile", &error))?;
    let mut perf = start(spec, &pids, &folder.data())?;
    enable_events(&mut perf, task)?;
    let data = File::open(folder.data()).map_err(|error| system_error("opening the profile", &error))?;
    drop(folder);
    info!(trial = task.trial, task = task.name, pids = pids.join(","), spec.frequency_hz, "perf records");
    task.events.send(&Event::Prepared {
        trial: task.trial.clone(),
        task: task.name.clone(),
        t_ns: monotonic_ns(),
        pid: Some(perf.id()),
        port: None,
        http_port: None,
        https_port: None,
    });
    end(&mut perf, task)?;
    let stacks = fold(data)?;
    let (folded, samples, left_out) = most_frequent(&stacks);
    info!(trial = task.trial, task = task.name, samples, left_out, "profile is complete");
    let (trial, name) = (task.trial.clone(), task.name.clone());
    Ok(Event::Profiled { trial, task: name, t_ns: monotonic_ns(), samples, left_out, folded })
}

/// Draws folded stacks as a flame graph (SVG).
///
/// # Errors
///
/// There are no stacks, or the output cannot be written.
pub fn draw(title: &str, folded: impl Read, svg: impl Write) -> io::Result<()> {
    let mut options = flamegraph::Options::default();
    options.title = title.to_owned();
    options.count_name = "samples".to_owned();
    // The picture refers to no other file, and equal stacks give equal pictures.
    options.deterministic = true;
    flamegraph::from_reader(&mut options, BufReader::new(folded), svg)
}

fn pids_of(spec: &ProfileSpec, processes: &Processes) -> Result<Vec<String>, ErrorReport> {
    let running = processes.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let wanted = running.iter().filter(|(name, _)| spec.processes.contains(name));
    let pids: Vec<String> = wanted.map(|(_, pid)| pid.to_string()).collect();
    if pids.is_empty() {
        let names: Vec<&str> = running.iter().map(|(name, _)| name.as_str()).collect();
        let wanted = spec.processes.join(" or ");
        let message = format!("no process here is called {wanted}; there are {}", names.join(", "));
        return Err(input_error("no_such_process", message));
    }
    Ok(pids)
}

fn start(spec: &ProfileSpec, pids: &[String], data: &Path) -> Result<Child, ErrorReport> {
    let mut command = Command::new("perf");
    command
        .args(["record", "--quiet", "--event", "cpu-clock", "--freq", &spec.frequency_hz.to_string()])
        // Commands on stdin, responses on stdout. A thread that is created before the events are enabled would have
        // no name.
        .args(["--delay", "-1", "--control", "fd:0,1"])
        .args(["--call-graph", &format!("dwarf,{STACK_BYTES}"), "--pid", &pids.join(",")])
        .arg("--output")
        .arg(data)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    spawn_bound(&mut command).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            input_error("no_perf", "profiles are taken with perf, which is not installed (Debian: linux-perf)")
        }
        _ => system_error("starting perf", &error),
    })
}

/// Enables perf's events: it has opened its events and its file when it answers.
fn enable_events(perf: &mut Child, task: &Task) -> Result<(), ErrorReport> {
    let mut answer = String::new();
    let request = perf.stdin.as_mut().map(|control| control.write_all(b"enable\n"));
    let stdout = perf.stdout.take();
    if let Some(stdout) = &stdout {
        if !wait_for_output(stdout, task).map_err(|error| system_error("waiting for perf", &error))? {
            let _ = perf.kill();
            let _ = perf.wait();
            return Err(input_error("stopped", "stopped before perf had begun"));
        }
    }
    let response = stdout.map(|stdout| BufReader::new(stdout).read_line(&mut answer));
    match (request, response) {
        (Some(Ok(())), Some(Ok(_))) if answer.starts_with("ack") => Ok(()),
        _ => {
            // After any other answer perf still runs; if it has closed its output, it is about to end.
            if !answer.is_empty() {
                let _ = perf.kill();
            }
            Err(refused_error(perf))
        }
    }
}

/// Waits until perf writes output or ends; returns false if the task was stopped before.
fn wait_for_output(stdout: &ChildStdout, task: &Task) -> io::Result<bool> {
    let mut poll = Poll::new(1)?;
    poll.add(stdout, 0, Interest::Read)?;
    while !task.signal.stopped() {
        if poll.wait(Some(monotonic_ns() + POLL_INTERVAL.as_nanos() as u64))?.next().is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Waits for the stop, and until perf has written its file.
fn end(perf: &mut Child, task: &Task) -> Result<(), ErrorReport> {
    let waiting = |error: io::Error| system_error("waiting for perf", &error);
    let mut stopped: Option<Instant> = None;
    while perf.try_wait().map_err(waiting)?.is_none() {
        match stopped {
            None if task.signal.stopped() => {
                stopped = Some(Instant::now());
                signal_group(perf.id(), Signal::Terminate).map_err(waiting)?;
            }
            Some(since) if task.signal.abandoned() || since.elapsed() > WRITE_TIMEOUT => {
                signal_group(perf.id(), Signal::Kill).map_err(waiting)?;
                perf.wait().map_err(waiting)?;
                let message = format!("perf had not written its samples {} s after its end", WRITE_TIMEOUT.as_secs());
                return Err(input_error("perf_too_slow", message));
            }
            _ => {}
        }
        thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}

fn refused_error(perf: &mut Child) -> ErrorReport {
    let stderr_text = perf.stderr.take().map(stderr_head).unwrap_or_default();
    let _ = perf.wait();
    let reason = first_line(&stderr_text);
    let message = format!("perf does not record: {reason} (kernel.perf_event_paranoid has to allow it)");
    input_error("perf_refused", message)
}

/// Returns the first bytes of a process's stderr; also reads the rest, so that the process can continue.
fn stderr_head(stderr: ChildStderr) -> String {
    let mut stderr_text = Vec::new();
    let mut stderr = stderr.take(STDERR_BYTES);
    // Output that cannot be read is left out.
    let _ = stderr.read_to_end(&mut stderr_text);
    let _ = io::copy(&mut stderr.into_inner(), &mut io::sink());
    String::from_utf8_lossy(&stderr_text).into_owned()
}

fn first_line(stderr_text: &str) -> &str {
    stderr_text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("no message")
}

/// Makes perf print its samples, and counts equal stacks.
fn fold(data: File) -> Result<BTreeMap<String, u64>, ErrorReport> {
    let mut command = Command::new("perf");
    // Inlined functions would cost a minute of debug information per second of profile.
    command.args(["script", "--no-inline", "--fields", FIELDS, "--input", "/proc/self/fd/0"]);
    command.stdin(data).stdout(Stdio::piped()).stderr(Stdio::piped());
    let reading = |error: io::Error| system_error("reading the profile", &error);
    let mut script = spawn_bound(&mut command).map_err(reading)?;
    let stderr_text = script.stderr.take().map(|stderr| thread::spawn(move || stderr_head(stderr)));
    let samples = script.stdout.take().map(collapse);
    let status = script.wait().map_err(reading)?;
    let stderr_text = stderr_text.and_then(|stderr_text| stderr_text.join().ok()).unwrap_or_default();
    check_exit(status, &stderr_text)?;
    let folded = samples.transpose().map_err(reading)?.unwrap_or_default();
    Ok(folded.lines().map_while(Result::ok).filter_map(|line| stack(&line)).collect())
}

/// Checks perf's exit status: the output of a failed perf is incomplete.
fn check_exit(status: ExitStatus, stderr_text: &str) -> Result<(), ErrorReport> {
    if status.success() {
        return Ok(());
    }
    let message = format!("perf cannot read what it recorded ({status}): {}", first_line(stderr_text));
    Err(input_error("profile_unreadable", message))
}

fn collapse(samples: ChildStdout) -> io::Result<Vec<u8>> {
    let mut folded = Vec::new();
    let mut samples = BufReader::new(samples);
    if !samples.fill_buf()?.is_empty() {
        let mut options = Options::default();
        options.nthreads = 1;
        Folder::from(options).collapse(samples, &mut folded)?;
    }
    Ok(folded)
}

fn stack(line: &str) -> Option<(String, u64)> {
    let (stack, count) = line.rsplit_once(' ')?;
    Some((stack.to_owned(), count.parse().ok()?))
}

/// Returns as many stacks as a line may hold, the most frequent ones, ordered by name; and the number of samples in
/// them and in the others.
fn most_frequent(stacks: &BTreeMap<String, u64>) -> (String, u64, u64) {
    let mut by_count: Vec<(&String, u64)> = stacks.iter().map(|(stack, count)| (stack, *count)).collect();
    by_count.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let (mut bytes, mut kept, mut left_out) = (0, Vec::new(), 0);
    for (stack, count) in by_count {
        let line = format!("{stack} {count}\n");
        if bytes + line.len() > FOLDED_BYTES {
            left_out += count;
            continue;
        }
        bytes += line.len();
        kept.push((line, count));
    }
    kept.sort();
    let samples = kept.iter().map(|(_, count)| count).sum();
    (kept.into_iter().map(|(line, _)| line).collect(), samples, left_out)
}

/// The folder of this task, which is removed when dropped.
struct Folded(PathBuf);

impl Folded {
    fn new() -> io::Result<Self> {
        let name = format!("leadline-profile-{}-{}", std::process::id(), leadline_sys::process::random_u64()?);
        let path = std::env::temp_dir().join(name);
        // Stacks hold any data of the program: only the owner may read them.
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(path))
    }

    fn data(&self) -> PathBuf {
        self.0.join("perf.data")
    }
}

impl Drop for Folded {
    fn drop(&mut self) {
        // If this fails, the system's cleaning of temporary folders removes it.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    fn spec(processes: &[&str], frequency_hz: u32) -> ProfileSpec {
        ProfileSpec { processes: processes.iter().map(|&name| name.to_owned()).collect(), frequency_hz }
    }

    #[test]
    fn only_known_processes_are_profiled() {
        let processes: Processes =
            Arc::new(Mutex::new(vec![("agent".into(), 7), ("vpn".into(), 8), ("vpn".into(), 9)]));
        assert_eq!(pids_of(&spec(&["vpn", "init"], 99), &processes).unwrap(), ["8", "9"]);
        let unknown = pids_of(&spec(&["init"], 99), &processes).unwrap_err();
        assert_eq!(unknown.message, "no process here is called init; there are agent, vpn, vpn");
        assert!(pids_of(&spec(&[], 99), &processes).is_err());
    }

    #[test]
    fn samples_that_were_cut_off_are_an_error_and_not_none() {
        let folder = Folded::new().unwrap();
        fs::write(folder.data(), b"PERFILE2, and then nothing").unwrap();
        let data = File::open(folder.data()).unwrap();
        let path = folder.data();
        drop(folder);
        assert!(!path.parent().unwrap().exists(), "the file with data of stacks has no name any more");
        match fold(data) {
            Err(error) if error.message.contains("No such file") => println!("skipped: perf is not installed"),
            found => assert_eq!(found.unwrap_err().code, "profile_unreadable"),
        }
    }

    #[test]
    fn the_rarest_stacks_are_left_out_of_a_line_that_is_too_long() {
        let long = "f;".repeat(1000);
        let stacks: BTreeMap<String, u64> = (0..3000).map(|number| (format!("{long}{number:04}"), number)).collect();
        let (folded, samples, left_out) = most_frequent(&stacks);
        assert!(folded.len() <= FOLDED_BYTES && folded.contains(";2999 2999\n"));
        assert!(!folded.contains(";0000 0\n"));
        assert_eq!(samples + left_out, (0..3000).sum::<u64>());
        assert!(samples > left_out);
    }

    #[test]
    fn stacks_are_drawn() {
        let mut svg = Vec::new();
        draw("a & b", &b"main;work 9\nmain;<rest> 1\n"[..], &mut svg).unwrap();
        let svg = String::from_utf8(svg).unwrap();
        assert!(svg.contains("<svg") && svg.contains("a &amp; b") && svg.contains("work (9 samples, 90.00%)"));
        assert!(svg.contains("&lt;rest&gt;"));
        assert!(draw("nothing", &b""[..], io::sink()).is_err());
    }
}
