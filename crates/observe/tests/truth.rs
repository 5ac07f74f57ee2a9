//! Figures with a known value. CPU time: the observer attributes to a spinning process what the kernel accounts to
//! its cgroup. Loopback: the counters increase by exactly what is sent, in a network namespace without other senders.
//! A test that cannot run here is skipped with a printed reason.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use leadline_observe::{parse, CgroupPaths, Observer};
use leadline_wire::{NetworkSample, Observation};

const SPIN_CPU_S: f64 = 1.5;
const TOLERANCE: f64 = 0.03;
/// What two counts of hundredths of a second hide at most, s.
const TWO_TICKS_S: f64 = 0.02;
/// Ends a test on a machine that gives it no CPU; no result depends on it.
const PATIENCE: Duration = Duration::from_secs(120);

#[test]
fn cpu_of_a_process_in_user_mode_is_its_cgroups() {
    attributed_cpu_is_the_cgroups("user", "read go; while :; do :; done");
}

#[test]
fn cpu_of_a_process_in_the_kernel_is_its_cgroups() {
    attributed_cpu_is_the_cgroups("kernel", "read go; exec dd if=/dev/zero of=/dev/null bs=1 status=none");
}

fn attributed_cpu_is_the_cgroups(label: &str, script: &str) {
    let cgroup = match TestCgroup::make(label) {
        Ok(cgroup) => cgroup,
        Err(reason) => return println!("skipped: {reason}"),
    };
    let mut child = Spinner::start(script);
    if let Err(error) = fs::write(cgroup.path.join("cgroup.procs"), child.pid().to_string()) {
        return println!("skipped: cannot move a process into {}: {error}", cgroup.path.display());
    }
    let paths = CgroupPaths { v2: Some(cgroup.path.clone()), ..CgroupPaths::default() };
    let mut observer = Observer::open(&paths);
    let wanted = [("spin".to_string(), child.pid())];
    let mut sample = || cpu_of(&observer.sample(0, false, &wanted));

    let (process_before_s, cgroup_before_s) = sample();
    child.release();
    let began = Instant::now();
    while sample().1 - cgroup_before_s < SPIN_CPU_S {
        assert!(began.elapsed() < PATIENCE, "the machine gave the process no CPU");
        std::thread::sleep(Duration::from_millis(5));
    }
    // Both accounts stop with the process, so that they are read for the same moment.
    child.stop(began);
    let (process_s, cgroup_s) = sample();
    let (process_s, cgroup_s) = (process_s - process_before_s, cgroup_s - cgroup_before_s);
    println!("{label}: process {process_s:.3} s, cgroup {cgroup_s:.3} s");
    assert!((process_s - cgroup_s).abs() <= TOLERANCE * cgroup_s, "process {process_s} s, cgroup {cgroup_s} s");

    let stopped = &observer.sample(0, false, &wanted).processes[0];
    let exact_s = stopped.scheduled_s.expect("the kernel keeps the time of a process of one thread");
    let in_ticks_s = stopped.user_s + stopped.system_s;
    assert!((exact_s - in_ticks_s).abs() <= TWO_TICKS_S, "{exact_s} s, in ticks {in_ticks_s} s");

    child.end();
    assert!(observer.sample(0, false, &wanted).processes.is_empty(), "an ended process is omitted");
}

/// Returns the CPU time of the process, and of the cgroup, s.
fn cpu_of(observation: &Observation) -> (f64, f64) {
    let process = observation.processes.first().expect("the process is there");
    (process.user_s + process.system_s, observation.cgroup.expect("the cgroup is there").usage_s)
}

#[test]
fn threads_are_all_counted_and_the_sum_does_not_fall_when_one_ends() {
    let mut observer = Observer::open(&CgroupPaths::default());
    let wanted = [("agent".to_string(), std::process::id()), ("gone".to_string(), u32::MAX)];
    let switches = |observer: &mut Observer| {
        observer.make_next_whole();
        let sample = observer.sample(0, false, &wanted);
        assert_eq!(sample.processes.len(), 1, "the other one does not exist");
        let process = &sample.processes[0];
        assert!(process.resident_bytes > 0);
        assert_eq!(process.scheduled_s, None, "one thread's time is not that of all");
        // Of a thread that ends meanwhile there may be switches and no wait.
        assert!(
            process.runnable_wait_s.is_none() || process.voluntary_switches.is_some(),
            "the waits of all threads are read with their switches"
        );
        process.voluntary_switches
    };
    // More than eight threads would be read in turns; the test runner has a few of its own.
    let (ask, asked) = std::sync::mpsc::channel::<()>();
    let (answer, answered) = std::sync::mpsc::channel();
    let worker = std::thread::spawn(move || asked.iter().for_each(|()| answer.send(()).expect("the test waits")));
    let before = first_known(|| switches(&mut observer));
    for _ in 0..200 {
        ask.send(()).expect("the worker runs");
        answered.recv().expect("the worker answers");
    }
    let during = first_known(|| switches(&mut observer));
    assert!(during > before, "a ping-pong makes threads wait: {before} then {during}");
    first_known(|| {
        observer.make_next_whole();
        let waited_s = observer.sample(0, false, &wanted).processes[0].runnable_wait_s;
        waited_s.map(|waited_s| (1e9 * waited_s) as u64)
    });
    drop(ask);
    worker.join().expect("the worker ends");
    let after = first_known(|| switches(&mut observer));
    assert!(after >= during, "{after} after {during}");
}

#[test]
fn process_waits_at_least_as_long_as_another_one_runs_on_its_cpu() {
    if !Command::new("taskset").arg("--version").output().is_ok_and(|output| output.status.success()) {
        return println!("skipped: there is no taskset");
    }
    let status = fs::read_to_string("/proc/thread-self/status").expect("there is a kernel");
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).expect("it has CPUs");
    let cpu = allowed.trim().split([',', '-']).next().expect("it has one CPU");
    let script = format!("taskset -cp {cpu} $$ >/dev/null; read go; while :; do :; done");
    let (mut first, mut second) = (Spinner::start(&script), Spinner::start(&script));
    let wanted = [("first".to_string(), first.pid()), ("second".to_string(), second.pid())];
    let mut observer = Observer::open(&CgroupPaths::default());
    let mut sample = || match &observer.sample(0, false, &wanted).processes[..] {
        [one, other] => one.runnable_wait_s.zip(other.scheduled_s),
        _ => None,
    };
    let Some((waited_before_s, used_before_s)) = sample() else {
        return println!("skipped: the kernel keeps no waits");
    };
    let began = Instant::now();
    first.release();
    second.release();
    while sample().is_some_and(|(_, used_s)| used_s - used_before_s < SPIN_CPU_S / 10.0) {
        assert!(began.elapsed() < PATIENCE, "the machine gave the process no CPU");
        std::thread::sleep(Duration::from_millis(5));
    }
    // The one that is observed has no more to wait for when it stops.
    second.stop(began);
    first.stop(began);
    let (waited_s, used_s) = sample().expect("both are there");
    let (waited_s, used_s) = (waited_s - waited_before_s, used_s - used_before_s);
    println!("waited {waited_s:.3} s, the other one ran {used_s:.3} s");
    // What the second one used before the first one began is what its shell needed to begin.
    assert!(waited_s >= used_s - TWO_TICKS_S, "{waited_s} s, and the other one ran {used_s} s");
}

fn first_known(sample: impl FnMut() -> Option<u64>) -> u64 {
    std::iter::repeat_with(sample).take(100).flatten().next().expect("switches are read in one of some samples")
}

#[test]
fn busiest_thread_is_the_one_that_spins() {
    let mut observer = Observer::open(&CgroupPaths::default());
    let wanted = [("agent".to_string(), std::process::id())];
    let stop = std::sync::atomic::AtomicBool::new(false);
    let (send_tid, receive_tid) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let path = std::fs::read_link("/proc/thread-self").expect("the kernel names the thread");
            let tid = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.parse::<u32>().ok());
            send_tid.send(tid.expect("the name is a number")).expect("the test waits");
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        let tid = receive_tid.recv().expect("the thread begins");
        let began = Instant::now();
        let found = std::iter::repeat_with(|| {
            // The kernel counts in ticks of 10 ms.
            std::thread::sleep(Duration::from_millis(50));
            observer.make_next_whole();
            observer.sample(0, false, &wanted).processes[0].busiest_thread
        })
        .take_while(|_| began.elapsed() < PATIENCE)
        .flatten()
        .find(|busiest| busiest.tid == tid && busiest.cpu_s > 0.0);
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        let busiest = found.expect("the thread that spins is the busiest one");
        assert!(busiest.cpu_s <= began.elapsed().as_secs_f64() + 1.0, "{busiest:?}");
    });
}

const INSIDE: &str = "LEADLINE_OBSERVE_TEST_INSIDE";
const DATAGRAMS: u64 = 100;
const DATAGRAM_BYTES: usize = 1000;
const IPV4_UDP_HEADER_BYTES: u64 = 28;
const IPV6_UDP_HEADER_BYTES: u64 = 48;

/// Runs this program again in a separate network namespace.
#[test]
fn loopback_counts_what_is_sent() {
    if std::env::var_os(INSIDE).is_some() {
        return loopback_inside();
    }
    let program = std::env::current_exe().expect("a test has a path");
    let arguments = ["-c", "ip link set lo up && exec \"$@\"", "sh"];
    for namespace in ["-n", "-rn"] {
        let mut command = Command::new("unshare");
        command.args([namespace, "sh"]).args(arguments).arg(&program);
        let probe = Command::new("unshare").args([namespace, "ip", "link", "set", "lo", "up"]).output();
        if !probe.is_ok_and(|output| output.status.success()) {
            continue;
        }
        command.args(["--exact", "loopback_counts_what_is_sent", "--nocapture"]).env(INSIDE, "1");
        let output = command.output().expect("unshare ran before");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        return;
    }
    println!("skipped: no network namespace can be made here (unshare, ip, and root or user namespaces)");
}

fn loopback_inside() {
    let mut observer = Observer::open(&CgroupPaths::default());
    let mut sample = || {
        observer.make_next_whole();
        observer.sample(0, false, &[]).network
    };

    let before = sample();
    assert_eq!(before.interfaces.len(), 1, "a new namespace has only lo: {before:?}");
    exchange_datagrams("127.0.0.1:0");
    let over_ipv4 = sample();
    let frame_bytes = DATAGRAM_BYTES as u64 + IPV4_UDP_HEADER_BYTES;
    assert_eq!(loopback_rise(&before, &over_ipv4), [DATAGRAMS, DATAGRAMS * frame_bytes]);
    assert_eq!(udp_rise(&before, &over_ipv4), [DATAGRAMS, DATAGRAMS, 0]);

    if fs::metadata("/proc/self/net/if_inet6").is_ok_and(|_| UdpSocket::bind("[::1]:0").is_ok()) {
        exchange_datagrams("[::1]:0");
        let over_ipv6 = sample();
        let frame_bytes = DATAGRAM_BYTES as u64 + IPV6_UDP_HEADER_BYTES;
        assert_eq!(loopback_rise(&over_ipv4, &over_ipv6), [DATAGRAMS, DATAGRAMS * frame_bytes]);
        assert_eq!(udp_rise(&over_ipv4, &over_ipv6), [DATAGRAMS, DATAGRAMS, 0]);
    } else {
        println!("skipped: no IPv6 on loopback");
    }

    let before = sample();
    let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback is up");
    socket.send_to(b"refused", "127.0.0.1:9").expect("sent");
    assert_eq!(udp_rise(&before, &sample()), [0, 1, 1]);

    connect_once(&mut sample);
}

fn exchange_datagrams(address: &str) {
    let receiver = UdpSocket::bind(address).expect("loopback is up");
    receiver.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let sender = UdpSocket::bind(address).expect("loopback is up");
    let target = receiver.local_addr().expect("it is bound");
    for _ in 0..DATAGRAMS {
        sender.send_to(&[7; DATAGRAM_BYTES], target).expect("sent");
        assert_eq!(receiver.recv(&mut [0; 2 * DATAGRAM_BYTES]).expect("received"), DATAGRAM_BYTES);
    }
}

fn connect_once(mut sample: impl FnMut() -> NetworkSample) {
    let before = sample().tcp.expect("TCP is there");
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback is up");
    let mut client = TcpStream::connect(listener.local_addr().expect("it is bound")).expect("connected");
    let (mut server, _) = listener.accept().expect("accepted");
    client.write_all(b"lead").expect("written");
    server.read_exact(&mut [0; 4]).expect("read");
    let after = sample().tcp.expect("TCP is there");
    assert_eq!(after.active_opens - before.active_opens, 1);
    assert_eq!(after.passive_opens - before.passive_opens, 1);
    assert_eq!(after.established - before.established, 2);
    assert_eq!(
        (after.retransmitted_segments, after.listen_drops),
        (before.retransmitted_segments, before.listen_drops)
    );
}

/// Returns the increase of packets and bytes, which are the same in both directions on loopback.
fn loopback_rise(before: &NetworkSample, after: &NetworkSample) -> [u64; 2] {
    let (before, after) = (&before.interfaces[0], &after.interfaces[0]);
    let received = [after.rx_packets - before.rx_packets, after.rx_bytes - before.rx_bytes];
    assert_eq!(received, [after.tx_packets - before.tx_packets, after.tx_bytes - before.tx_bytes]);
    received
}

/// Returns the increase of datagrams received, sent, and sent to a port without a listener.
fn udp_rise(before: &NetworkSample, after: &NetworkSample) -> [u64; 3] {
    let (before, after) = (before.udp.expect("UDP is there"), after.udp.expect("UDP is there"));
    assert_eq!(before.in_errors, after.in_errors);
    [
        after.in_datagrams - before.in_datagrams,
        after.out_datagrams - before.out_datagrams,
        after.no_ports - before.no_ports,
    ]
}

/// A version 2 cgroup that is removed at the end.
struct TestCgroup {
    path: PathBuf,
}

impl TestCgroup {
    fn make(label: &str) -> Result<Self, String> {
        let mounts = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"];
        let mount = mounts.iter().map(Path::new).find(|mount| mount.join("cgroup.controllers").exists());
        let mount = mount.ok_or("no cgroup2 is mounted where it usually is")?;
        let path = mount.join(format!("leadline-observe-{label}-{}", std::process::id()));
        fs::create_dir(&path).map_err(|error| format!("cannot make {}: {error}", path.display()))?;
        Ok(Self { path })
    }
}

impl Drop for TestCgroup {
    fn drop(&mut self) {
        // A process that was just killed may still be leaving.
        let removed = (0..1000).any(|_| {
            std::thread::sleep(Duration::from_millis(1));
            fs::remove_dir(&self.path).is_ok()
        });
        if !removed {
            println!("could not remove {}", self.path.display());
        }
    }
}

/// A child that waits for a line and then spins; killed at the end.
struct Spinner {
    child: Child,
}

impl Spinner {
    fn start(script: &str) -> Self {
        let child = Command::new("sh").args(["-c", script]).stdin(Stdio::piped()).spawn().expect("there is a shell");
        Self { child }
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    fn release(&mut self) {
        self.child.stdin.take().expect("released once").write_all(b"go\n").expect("the child reads");
    }

    fn stop(&self, began: Instant) {
        let status = Command::new("kill").args(["-STOP", &self.pid().to_string()]).status();
        assert!(status.expect("there is kill").success());
        let is_stopped = || {
            let stat = fs::read(format!("/proc/{}/stat", self.pid())).expect("the child is there");
            parse::process::times(&stat).is_some_and(|times| times.state == 'T')
        };
        while !is_stopped() {
            assert!(began.elapsed() < PATIENCE, "the process did not stop");
            std::thread::yield_now();
        }
    }

    fn end(&mut self) {
        self.child.kill().expect("it is ours");
        self.child.wait().expect("it is ours");
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        // Already reaped when the test went well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
