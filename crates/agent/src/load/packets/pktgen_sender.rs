//! The kernel's packet generator (pktgen), by its files in /proc: one device, the interface on a thread of the kernel, for
//! each share. The threads send; this process starts and stops them, reads what they did, and takes its devices away again
//! however the load ends. A killed agent's threads stop with it, as the write that started them does.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use leadline_packet::pktgen::settings::{delay_ns, DevicePlan, Setting};
use leadline_packet::pktgen::status::{DeviceStatus, ThreadStatus};
use leadline_sys::clock::{monotonic_ns, sleep_until};
use leadline_sys::usage::allowed_cpus;
use leadline_wire::{ErrorReport, SizeCount, ThreadReport};

use super::path::NoPath;
use super::sender::{Frames, Sender, Sent, Share};
use crate::control_signal::ControlSignal;
use crate::events::{input_error, system_error};
use crate::flows::Span;
use crate::metering::FlowCounters;

/// Of this thread's network namespace: each has threads of its own.
const FOLDER: &str = "/proc/thread-self/net/pktgen";
/// How late a stop may be seen, and how often the devices' counts are read, ns.
const TURN_NS: u64 = 5_000_000;
const COUNT_NS: u64 = 100_000_000;
/// A thread takes its devices away within 0.1 s, unless another task keeps it from its CPU.
const REMOVAL_PATIENCE: Duration = Duration::from_secs(3);
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// Shorter waits for the next frame use the CPU (`spin` in the kernel's pktgen).
const SPIN_BELOW_NS: u64 = 100_000;
/// ENOTSUPP, which libc does not have.
const NOT_SUPPORTED: i32 = 524;

/// The devices of a generator.
pub struct PktgenSender {
    devices: Devices,
    counters: FlowCounters,
    ended: Mutex<Vec<DeviceStatus>>,
}

/// Devices on threads, which are without them when this is dropped.
#[derive(Default)]
struct Devices(Vec<Device>);

struct Device {
    thread: String,
    name: String,
    delay_ns: u64,
    number: Option<u64>,
    frame_bytes: u32,
}

/// Refuses where there is no pktgen, or no right to use it.
pub fn require_pktgen() -> Result<(), NoPath> {
    match OpenOptions::new().write(true).open(format!("{FOLDER}/pgctrl")) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            Err(NoPath::new("no_pktgen", "pktgen can be used by root alone"))
        }
        Err(_) => Err(NoPath::new(
            "no_pktgen",
            "the kernel's packet generator is not here: `modprobe pktgen` loads it where the kernel has it \
             (CONFIG_NET_PKTGEN); --via xdp needs no module",
        )),
    }
}

impl PktgenSender {
    /// Adds a device for each share, and sets it up.
    pub fn open(frames: &Arc<Frames>, shares: &[Share]) -> Result<Self, ErrorReport> {
        let bad_frame = |error: leadline_packet::frame::PlanError| input_error("bad_frame", error.to_string());
        let name = &frames.interface.name;
        if frames.spec.new_flows_per_s.is_some() {
            return Err(input_error("bad_frame", "pktgen does not replace flows by new ones"));
        }
        let delay_ns = delay_ns(frames.spec.rate_pps, frames.spec.threads).map_err(bad_frame)?;
        let plans: Vec<Vec<Setting>> = shares
            .iter()
            .map(|share| {
                DevicePlan {
                    plan: &frames.plan,
                    flows: &frames.spec.flows,
                    own: frames.own,
                    thread: share.thread,
                    threads: share.threads,
                    number: share.number,
                    delay_ns,
                    burst: frames.spec.batch,
                    further: &frames.spec.pktgen,
                }
                .settings()
            })
            .collect::<Result<_, _>>()
            .map_err(bad_frame)?;
        let threads = choose_threads(shares.len())?;
        let mut devices = Devices::default();
        for ((thread, share), settings) in threads.iter().zip(shares).zip(&plans) {
            let device = Device {
                thread: thread.clone(),
                name: format!("{name}@{}", share.thread),
                delay_ns,
                number: share.number,
                frame_bytes: frames.plan.sizes[0].bytes,
            };
            add_device(&device, name)?;
            devices.0.push(device);
            set_up(&devices.0[devices.0.len() - 1], settings, frames.plan.sizes.len() > 1)?;
        }
        Ok(Self { devices, counters: FlowCounters::default(), ended: Mutex::default() })
    }

    /// Adds what the devices have sent since the last time.
    fn count(&self, statuses: &[DeviceStatus]) {
        let (mut frames, mut bytes) = (0, 0);
        for (device, status) in self.devices.0.iter().zip(statuses) {
            frames += status.sent;
            bytes += device.bytes(status);
        }
        let (known_frames, known_bytes) = self.so_far();
        self.counters.sent(bytes.saturating_sub(known_bytes), frames.saturating_sub(known_frames));
    }
}

impl Device {
    fn path(&self) -> String {
        format!("{FOLDER}/{}", self.name)
    }

    fn status(&self) -> io::Result<DeviceStatus> {
        let text = std::fs::read_to_string(self.path())?;
        DeviceStatus::parse(&text).map_err(|error| io::Error::other(format!("{}: {error}", self.name)))
    }

    /// Frames by length; none where those of a mix that the interface refused are not known from the others.
    fn sizes(&self, status: &DeviceStatus) -> Vec<SizeCount> {
        if status.mix.is_empty() {
            return vec![SizeCount { bytes: self.frame_bytes, frames: status.sent }];
        }
        let counts = status.mix_counts.iter().filter(|_| status.errors == 0);
        counts.map(|(bytes, frames)| SizeCount { bytes: *bytes, frames: *frames }).collect()
    }

    /// Bytes of the frames that the interface took. A mix counts refused ones, too, which have the mean length.
    fn bytes(&self, status: &DeviceStatus) -> u64 {
        if status.mix.is_empty() {
            return status.sent * u64::from(self.frame_bytes);
        }
        let (bytes, frames) = status.mix_counts.iter().fold((0u128, 0u128), |(bytes, all), (length, frames)| {
            (bytes + u128::from(*length) * u128::from(*frames), all + u128::from(*frames))
        });
        (bytes * u128::from(status.sent) / frames.max(1)).try_into().unwrap_or(u64::MAX)
    }

    /// Frames that were due in a run, of which the first is due at once.
    fn due(&self, status: &DeviceStatus) -> Option<u64> {
        let elapsed_ns = status.stopped_us.saturating_sub(status.started_us).saturating_mul(1000);
        let due = elapsed_ns.checked_div(self.delay_ns)? + 1;
        Some(self.number.map_or(due, |number| due.min(number)))
    }
}

/// The first threads, if none of all has a device: to start is to start them all.
fn choose_threads(count: usize) -> Result<Vec<String>, ErrorReport> {
    let files = std::fs::read_dir(FOLDER).map_err(|error| system_error("reading the files of pktgen", &error))?;
    let names = files.filter_map(|file| file.ok()?.file_name().into_string().ok());
    let mut found: Vec<(u32, String)> =
        names.filter_map(|name| Some((name.strip_prefix("kpktgend_")?.parse().ok()?, name))).collect();
    found.sort_unstable();
    for (_, name) in &found {
        let devices = read_thread(name).map_err(|error| system_error("reading a thread of pktgen", &error))?.devices;
        if !devices.is_empty() {
            let message = format!(
                "pktgen is in use: its thread {name} has {}; `echo rem_device_all > /proc/net/pktgen/{name}` frees it",
                devices.join(", ")
            );
            return Err(input_error("busy", message));
        }
    }
    let allowed = allowed_cpus();
    found.retain(|(cpu, _)| allowed.contains(cpu));
    if found.len() < count {
        let message = format!("{count} threads: pktgen has {}, one for each CPU that this agent may use", found.len());
        return Err(input_error("bad_spec", message));
    }
    Ok(found.into_iter().take(count).map(|(_, name)| name).collect())
}

fn read_thread(name: &str) -> io::Result<ThreadStatus> {
    let text = std::fs::read_to_string(format!("{FOLDER}/{name}"))?;
    ThreadStatus::parse(&text).map_err(|error| io::Error::other(format!("{name}: {error}")))
}

/// Writes a command at once, as pktgen reads it; a part of it is a failure, and of the rest nothing is tried.
fn write_command(path: &str, line: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).open(path)?;
    match file.write(line.as_bytes())? {
        written if written == line.len() => Ok(()),
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "it took a part of the command")),
    }
}

fn add_device(device: &Device, interface: &str) -> Result<(), ErrorReport> {
    let line = format!("add_device {}\n", device.name);
    write_command(&format!("{FOLDER}/{}", device.thread), &line).map_err(|error| match error.raw_os_error() {
        Some(libc::EINVAL) => {
            input_error("no_pktgen", format!("pktgen sends frames of Ethernet; {interface} has none"))
        }
        Some(libc::ENETDOWN) => input_error("interface_down", format!("interface {interface} is down")),
        Some(libc::EBUSY) => input_error("busy", format!("pktgen has {} already", device.name)),
        _ => system_error(&format!("adding {interface} to pktgen"), &error),
    })
}

/// Gives a device its commands, and checks what came of them: the write, then the answer, then the parameters.
fn set_up(device: &Device, settings: &[Setting], is_mix: bool) -> Result<(), ErrorReport> {
    let read = || device.status().map_err(|error| system_error("reading a device of pktgen", &error));
    for setting in settings {
        let written = write_command(&device.path(), &setting.line());
        let answer = read()?.result;
        match written {
            Ok(()) => setting.check(&answer).map_err(|error| input_error("bad_pktgen", error.to_string()))?,
            Err(error) => return Err(input_error("bad_pktgen", refusal(setting, &error, &answer))),
        }
    }
    let status = read()?;
    let lengths = (status.min_frame_bytes, status.max_frame_bytes);
    let is_as_asked = status.count == device.number.unwrap_or(0)
        && status.delay_ns == device.delay_ns
        && if is_mix { !status.mix.is_empty() } else { lengths == (device.frame_bytes, device.frame_bytes) };
    if !is_as_asked {
        let message = format!("pktgen has other parameters than asked for: {status:?}");
        return Err(input_error("bad_pktgen", message));
    }
    if is_mix && status.repeats_numbers() {
        let message = "pktgen does not say how many frames of each size it sent if it copies them (clone_skb, --batch)";
        return Err(input_error("bad_pktgen", message));
    }
    Ok(())
}

/// Why a command's write failed. A failed one may leave the answer to the command before.
fn refusal(setting: &Setting, error: &io::Error, answer: &str) -> String {
    let line = setting.line();
    let why = match error.raw_os_error() {
        Some(NOT_SUPPORTED) => "the driver takes no copies of a frame".to_owned(),
        _ if !answer.starts_with("OK") => answer.lines().next().unwrap_or_default().to_owned(),
        _ => leadline_sys::reason::reason(error),
    };
    format!("pktgen does not take {:?}: {why}", line.trim_end())
}

impl Drop for Devices {
    fn drop(&mut self) {
        for device in &self.0 {
            let _ = write_command(&format!("{FOLDER}/{}", device.thread), "rem_device_all\n");
        }
        // The threads do it later; the next load, which may be at once, finds them free.
        let deadline = Instant::now() + REMOVAL_PATIENCE;
        let is_held = |device: &Device| read_thread(&device.thread).is_ok_and(|status| !status.devices.is_empty());
        while self.0.iter().any(is_held) && Instant::now() < deadline {
            std::thread::sleep(LOOK_AGAIN);
        }
    }
}

/// Starts all threads; returns when they have stopped.
fn start(mut control: File) -> io::Result<()> {
    const START: &[u8] = b"start\n";
    match control.write(START)? {
        written if written == START.len() => Ok(()),
        _ => Err(io::Error::other("pktgen did not start")),
    }
}

impl Sender for PktgenSender {
    fn send(&self, span: Span, signal: &ControlSignal) -> io::Result<()> {
        let control = OpenOptions::new().write(true).open(format!("{FOLDER}/pgctrl"))?;
        let starter = std::thread::Builder::new().name("pktgen".to_owned()).spawn(move || start(control))?;
        let statuses = || self.devices.0.iter().map(Device::status).collect::<io::Result<Vec<_>>>();
        let (mut count_ns, mut is_stopping) = (span.at_ns, false);
        while !starter.is_finished() {
            let now_ns = monotonic_ns();
            if now_ns >= span.end_ns || signal.stopped() {
                // Again and again: a thread that was about to start takes the first one for an old one.
                write_command(&format!("{FOLDER}/pgctrl"), "stop\n")?;
                is_stopping = true;
            } else if now_ns >= count_ns {
                count_ns = now_ns + COUNT_NS;
                self.count(&statuses()?);
            }
            let turn_ns = now_ns + if is_stopping { 4 * TURN_NS } else { TURN_NS };
            sleep_until(if is_stopping { turn_ns } else { turn_ns.min(span.end_ns) });
        }
        starter.join().map_err(|_| io::Error::other("the thread that started pktgen panicked"))??;
        let ended = statuses()?;
        self.count(&ended);
        for (device, status) in self.devices.0.iter().zip(&ended) {
            let result = status.run_result();
            if result.is_none_or(|result| result.fragments < 0 && result.sent == 0) && !is_stopping {
                let answer = status.result.lines().next().unwrap_or_default();
                return Err(io::Error::other(format!("pktgen on {} sent nothing: {answer:?}", device.name)));
            }
        }
        *self.ended.lock().unwrap_or_else(PoisonError::into_inner) = ended;
        Ok(())
    }

    fn due(&self, _: u64) -> Option<u64> {
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        self.devices.0.iter().zip(&*ended).map(|(device, status)| device.due(status)).sum()
    }

    fn so_far(&self) -> (u64, u64) {
        (self.counters.sent_units(), self.counters.sent_bytes())
    }

    fn report(&self) -> Sent {
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let times = |time: fn(&DeviceStatus) -> u64| ended.iter().map(time).filter(|us| *us > 0).map(|us| us * 1000);
        Sent {
            frames: self.counters.sent_units(),
            pushback: ended.iter().map(|status| status.errors).sum(),
            first_ns: times(|status| status.started_us).min(),
            last_ns: times(|status| status.stopped_us).max(),
            by_size: self.devices.0.iter().zip(&*ended).flat_map(|(device, status)| device.sizes(status)).collect(),
            ..Sent::default()
        }
    }

    /// By pktgen's own figures: what it did not wait is its work. Shorter waits use the CPU, too.
    fn kernel_threads(&self) -> Vec<ThreadReport> {
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let report = |(device, status): (&Device, &DeviceStatus)| {
            let result = status.run_result()?;
            let spun_s = status.idle_us as f64 / 1e6;
            let is_spinning = device.delay_ns > 0 && device.delay_ns < SPIN_BELOW_NS;
            Some(ThreadReport {
                name: device.thread.clone(),
                user_s: 0.0,
                system_s: result.busy_us as f64 / 1e6 + if is_spinning { spun_s } else { 0.0 },
                runnable_wait_s: None,
                spun_s: is_spinning.then_some(spun_s),
                wall_s: result.elapsed_us as f64 / 1e6,
            })
        };
        self.devices.0.iter().zip(&*ended).filter_map(report).collect()
    }
}
