//! What one sample costs in CPU time: in a tight loop, and ten times a second, where caches have gone cold.
//! Usage: cost [SECONDS], 5 by default. Judged by /proc/thread-self/schedstat, which counts ns on a CPU.

use std::error::Error;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use leadline_observe::{CgroupPaths, Observer};

const PERIOD: Duration = Duration::from_millis(100);
const TIGHT_SAMPLES: u32 = 5000;

fn main() -> Result<(), Box<dyn Error>> {
    let seconds = std::env::args().nth(1).map_or(Ok(5), |text| text.parse::<u32>())?;
    let v2 = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"].map(Into::into).into_iter();
    let v2 = v2.clone().find(|folder: &std::path::PathBuf| folder.join("cpu.stat").exists());
    let mut observer = Observer::open(&CgroupPaths { v2, ..CgroupPaths::default() });
    let processes =
        [("agent".to_string(), std::process::id()), ("parent".to_string(), std::os::unix::process::parent_id())];
    for machine in [true, false] {
        // The loop also passes times a tenth of a second apart, because the observer reads some files less often.
        let mut now_ns = 0;
        let mut sample = || {
            now_ns += PERIOD.as_nanos() as u64;
            drop(std::hint::black_box(observer.sample(now_ns, machine, &processes)));
        };
        sample();
        let tight_us = cost_us(TIGHT_SAMPLES, &mut sample)?;
        let paced_us = cost_us(seconds * 10, || {
            let due = Instant::now() + PERIOD;
            sample();
            thread::sleep(due.saturating_duration_since(Instant::now()));
        })?;
        let share = paced_us * 10.0 / 1e6 * 100.0;
        println!(
            "machine {machine:5}: {tight_us:6.1} us a sample in a loop, {paced_us:6.1} us at 10 Hz = {share:.3} % of a core"
        );
    }
    Ok(())
}

/// CPU time of this thread per call, µs.
fn cost_us(calls: u32, mut call: impl FnMut()) -> Result<f64, Box<dyn Error>> {
    let before_ns = cpu_time_ns()?;
    (0..calls).for_each(|_| call());
    Ok((cpu_time_ns()? - before_ns) as f64 / f64::from(calls) / 1000.0)
}

fn cpu_time_ns() -> Result<u64, Box<dyn Error>> {
    // The kernel brings the figure up to date when the thread yields.
    thread::yield_now();
    let text = fs::read_to_string("/proc/thread-self/schedstat")?;
    Ok(text.split(' ').next().ok_or("schedstat is empty")?.parse()?)
}
