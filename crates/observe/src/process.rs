//! The observed processes. Owns each thread's last counts, so that the sum over a process's threads does not decrease
//! when a thread ends. A process that has vanished is omitted for good, because its id may belong to another process
//! by now.

use std::fs;
use std::io;

use leadline_wire::{ProcessSample, ThreadTime};

use crate::parse::process::{schedule, status, times, ProcessTimes, ThreadSchedule, ThreadStatus};
use crate::reread::{Buffer, Reread};

/// Threads besides the leader that are read in one full sample, on average. A process with more threads has its
/// context switches, its waits and its busiest thread in every second, third ... full sample, and `None` between.
const THREADS_PER_SAMPLE: usize = 64;
/// Above this number of threads, their context switches, waits and CPU times are not read, because each thread needs
/// three open files.
const THREADS_FOLLOWED: usize = 256;
/// How far the sum of two counts of hundredths of a second may be from the exact time that was read a little later, s.
const HIDDEN_BY_TICKS_S: f64 = 0.025;

/// All observed processes, in the caller's order.
#[derive(Debug, Default)]
pub struct Processes {
    followed: Vec<Process>,
}

impl Processes {
    /// Samples each of these processes and omits those that do not exist. Context switches are read if the sample is
    /// `whole`.
    pub fn sample(&mut self, wanted: &[(String, u32)], whole: bool, buffer: &mut Buffer) -> Vec<ProcessSample> {
        self.follow(wanted);
        self.followed.iter_mut().filter_map(|process| process.sample(whole, buffer)).collect()
    }

    fn follow(&mut self, wanted: &[(String, u32)]) {
        let followed = self.followed.iter().map(|process| (process.name.as_str(), process.pid));
        if followed.eq(wanted.iter().map(|(name, pid)| (name.as_str(), *pid))) {
            return;
        }
        let mut known = std::mem::take(&mut self.followed);
        let mut take = |(name, pid): &(String, u32)| {
            let index = known.iter().position(|process| process.pid == *pid && process.name == *name);
            index.map_or_else(|| Process::new(name, *pid), |index| known.swap_remove(index))
        };
        self.followed = wanted.iter().map(&mut take).collect();
    }
}

#[derive(Debug)]
struct Process {
    name: String,
    pid: u32,
    /// `stat` and the leader's `status`.
    files: Option<(Reread, Reread)>,
    /// What the scheduler keeps of the first thread, where it does.
    schedstat: Option<Reread>,
    vanished: bool,
    /// The threads besides the leader.
    threads: Vec<Thread>,
    /// The leader's own CPU time: its process's `stat` counts all threads.
    leader: Option<ThreadCpu>,
    /// The last counts of threads that have ended.
    ended: Switches,
    /// How long they had waited for a CPU, s.
    ended_waited_s: f64,
    samples: usize,
}

#[derive(Debug)]
struct Thread {
    tid: u32,
    status: Reread,
    seen: Switches,
    cpu: ThreadCpu,
    schedstat: Option<Reread>,
    /// How long it has waited for a CPU, s; `None` where the kernel keeps no such time.
    waited_s: Option<f64>,
}

/// A thread's CPU time, and by how much it grew between the last two readings.
#[derive(Debug)]
struct ThreadCpu {
    stat: Reread,
    total_s: f64,
    grown_s: f64,
}

impl ThreadCpu {
    fn open(pid: u32, tid: u32, buffer: &mut Buffer) -> io::Result<Self> {
        let mut cpu = Self { stat: Reread::open(format!("/proc/{pid}/task/{tid}/stat"))?, total_s: 0.0, grown_s: 0.0 };
        cpu.read(buffer)?;
        Ok(cpu)
    }

    fn read(&mut self, buffer: &mut Buffer) -> io::Result<()> {
        if let Some(times) = times(self.stat.read(buffer)?) {
            let total_s = times.user_s + times.system_s;
            self.grown_s = total_s - self.total_s;
            self.total_s = total_s;
        }
        Ok(())
    }
}

impl Thread {
    fn read(&mut self, buffer: &mut Buffer) -> io::Result<ThreadStatus> {
        let parsed = status(self.status.read(buffer)?);
        self.cpu.read(buffer)?;
        if let Some(file) = &self.schedstat {
            self.waited_s = read_waited_s(file, buffer)?;
        }
        Ok(parsed)
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Switches {
    voluntary: u64,
    involuntary: u64,
}

impl Switches {
    fn of(status: ThreadStatus) -> Option<Self> {
        Some(Self { voluntary: status.voluntary_switches?, involuntary: status.involuntary_switches? })
    }

    fn add(&mut self, other: Self) {
        self.voluntary += other.voluntary;
        self.involuntary += other.involuntary;
    }
}

impl Process {
    fn new(name: &str, pid: u32) -> Self {
        Self {
            name: name.to_string(),
            pid,
            files: None,
            schedstat: Reread::open(format!("/proc/{pid}/schedstat")).ok(),
            vanished: false,
            threads: Vec::new(),
            leader: None,
            ended: Switches::default(),
            ended_waited_s: 0.0,
            samples: 0,
        }
    }

    fn sample(&mut self, whole: bool, buffer: &mut Buffer) -> Option<ProcessSample> {
        if self.vanished {
            return None;
        }
        match self.read(whole, buffer) {
            Ok(sample) => sample,
            Err(error) => {
                self.vanished = is_vanished(&error);
                None
            }
        }
    }

    fn read(&mut self, whole: bool, buffer: &mut Buffer) -> io::Result<Option<ProcessSample>> {
        let (stat_file, status_file) = match self.files.take() {
            Some(files) => files,
            None => self.open()?,
        };
        let times = times(stat_file.read(buffer)?);
        let leader = status(status_file.read(buffer)?);
        self.files = Some((stat_file, status_file));
        let Some(times) = times.filter(|times| times.threads > 0) else { return Ok(None) };

        let others = times.threads as usize - 1;
        let due = whole && self.samples % others.div_ceil(THREADS_PER_SAMPLE).max(1) == 0;
        self.samples += usize::from(whole);
        // A leader that has ended before its threads has no memory any more; another thread then reports it.
        let leader_ended = leader.resident_bytes.is_none() && others > 0;
        let mut resident_bytes = leader.resident_bytes;
        let switches = if due || leader_ended {
            self.others(others, &mut resident_bytes, buffer).and_then(|mut sum| {
                sum.add(Switches::of(leader)?);
                Some(sum)
            })
        } else {
            None
        };
        let schedule = self.schedstat.as_ref().and_then(|file| schedule(file.read(buffer).ok()?));
        let busiest_thread = if switches.is_some() && others > 0 { self.busiest_thread(buffer) } else { None };
        Ok(Some(ProcessSample {
            name: self.name.clone(),
            pid: self.pid,
            user_s: times.user_s,
            system_s: times.system_s,
            scheduled_s: schedule.and_then(|schedule| exact_s(times, schedule)),
            runnable_wait_s: schedule.filter(|_| others == 0 || switches.is_some()).and_then(|one| self.waited_s(one)),
            // None of its threads has memory: a zombie or a kernel thread, whose resident memory is truly 0.
            resident_bytes: resident_bytes.unwrap_or(0),
            threads: times.threads,
            voluntary_switches: switches.map(|switches| switches.voluntary),
            involuntary_switches: switches.map(|switches| switches.involuntary),
            busiest_thread,
        }))
    }

    /// Returns how long all threads have waited for a CPU, those that have ended as far as they were sampled.
    fn waited_s(&self, leader: ThreadSchedule) -> Option<f64> {
        let others = self.threads.iter().map(|thread| thread.waited_s).sum::<Option<f64>>()?;
        Some(leader.waited_s + others + self.ended_waited_s)
    }

    /// Returns the thread whose CPU time grew most since the reading before; the other threads have just been read.
    fn busiest_thread(&mut self, buffer: &mut Buffer) -> Option<ThreadTime> {
        match &mut self.leader {
            Some(leader) => leader.read(buffer).ok()?,
            None => self.leader = Some(ThreadCpu::open(self.pid, self.pid, buffer).ok()?),
        }
        let leader = self.leader.iter().map(|cpu| (self.pid, cpu));
        let all = leader.chain(self.threads.iter().map(|thread| (thread.tid, &thread.cpu)));
        all.max_by(|one, other| one.1.grown_s.total_cmp(&other.1.grown_s))
            .map(|(tid, cpu)| ThreadTime { tid, cpu_s: cpu.total_s })
    }

    fn open(&self) -> io::Result<(Reread, Reread)> {
        Ok((Reread::open(format!("/proc/{}/stat", self.pid))?, Reread::open(format!("/proc/{}/status", self.pid))?))
    }

    /// Returns the switches of all threads besides the leader, including ended threads as far as they were sampled.
    /// `None` if some cannot be read.
    fn others(&mut self, count: usize, resident_bytes: &mut Option<u64>, buffer: &mut Buffer) -> Option<Switches> {
        if count > THREADS_FOLLOWED {
            return None;
        }
        let known = self.threads.len();
        self.reread(resident_bytes, buffer)?;
        // As many threads as before, all of them alive: these are all threads.
        if self.threads.len() != known || known != count {
            self.find_threads(resident_bytes, buffer)?;
        }
        let mut sum = self.ended;
        self.threads.iter().for_each(|thread| sum.add(thread.seen));
        Some(sum)
    }

    fn reread(&mut self, resident_bytes: &mut Option<u64>, buffer: &mut Buffer) -> Option<()> {
        let mut readable = Some(());
        let (ended, ended_waited_s) = (&mut self.ended, &mut self.ended_waited_s);
        self.threads.retain_mut(|thread| match thread.read(buffer) {
            Ok(parsed) => {
                *resident_bytes = resident_bytes.or(parsed.resident_bytes);
                match Switches::of(parsed) {
                    Some(switches) => thread.seen = switches,
                    None => readable = None,
                }
                true
            }
            Err(error) => {
                if !is_vanished(&error) {
                    readable = None;
                    return true;
                }
                ended.add(thread.seen);
                *ended_waited_s += thread.waited_s.unwrap_or(0.0);
                false
            }
        });
        readable
    }

    /// Opens the threads that are not known yet.
    fn find_threads(&mut self, resident_bytes: &mut Option<u64>, buffer: &mut Buffer) -> Option<()> {
        for entry in fs::read_dir(format!("/proc/{}/task", self.pid)).ok()? {
            let name = entry.ok()?.file_name();
            let tid = name.to_str()?.parse::<u32>().ok()?;
            if tid == self.pid || self.threads.iter().any(|thread| thread.tid == tid) {
                continue;
            }
            let opened = Reread::open(format!("/proc/{}/task/{tid}/status", self.pid)).and_then(|file| {
                let parsed = status(file.read(buffer)?);
                let schedstat = Reread::open(format!("/proc/{}/task/{tid}/schedstat", self.pid)).ok();
                let waited_s = schedstat.as_ref().and_then(|file| read_waited_s(file, buffer).ok()?);
                let cpu = ThreadCpu::open(self.pid, tid, buffer)?;
                Ok((parsed, Thread { tid, status: file, seen: Switches::default(), cpu, schedstat, waited_s }))
            });
            match opened {
                Ok((parsed, thread)) => {
                    *resident_bytes = resident_bytes.or(parsed.resident_bytes);
                    self.threads.push(Thread { seen: Switches::of(parsed)?, ..thread });
                }
                Err(error) if is_vanished(&error) => {}
                Err(_) => return None,
            }
        }
        Some(())
    }
}

/// Returns the first thread's exact CPU time if it is the whole process's: there is no other thread, and none that has
/// ended took more than the ticks hide.
fn exact_s(times: ProcessTimes, first: ThreadSchedule) -> Option<f64> {
    let in_ticks_s = times.user_s + times.system_s;
    (times.threads == 1 && (first.used_s - in_ticks_s).abs() <= HIDDEN_BY_TICKS_S).then_some(first.used_s)
}

/// Reads how long a thread has waited for a CPU, s; `None` where the kernel keeps no such time, or it has not run yet.
fn read_waited_s(file: &Reread, buffer: &mut Buffer) -> io::Result<Option<f64>> {
    Ok(schedule(file.read(buffer)?).map(|schedule| schedule.waited_s))
}

/// Returns true if the process or thread no longer exists (ENOENT when opening, ESRCH when reading), as opposed to a
/// file that could not be opened this time.
fn is_vanished(error: &io::Error) -> bool {
    const ESRCH: i32 = 3;
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(ESRCH)
}
