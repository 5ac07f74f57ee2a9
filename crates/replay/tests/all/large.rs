//! A large capture, made while it is read: how much memory reading takes, and how long.

use std::io::{self, Read};

use leadline_replay::packets::{PacketSource, ReassemblyOptions};
use leadline_replay::Source;

use crate::packets::{answer, request};
use crate::wire::{pcap_header, push_record, Frame, Random, Talk};

const FILE_BYTES: u64 = 1 << 30;
/// Connections that are open at a time.
const OPEN: usize = 2000;

/// A capture of many connections whose frames alternate.
struct Made {
    random: Random,
    open: Vec<std::vec::IntoIter<Frame>>,
    bytes: Vec<u8>,
    at: usize,
    made_bytes: u64,
    now_ns: u64,
    requests: u64,
    /// Whether connections never end, with holes and without answers.
    is_hostile: bool,
}

impl Made {
    fn new(is_hostile: bool) -> Self {
        let (random, bytes) = (Random(1), pcap_header(1));
        Self { random, open: Vec::new(), bytes, at: 0, made_bytes: 0, now_ns: 1_000_000_000, requests: 0, is_hostile }
    }

    fn talk(&mut self) -> std::vec::IntoIter<Frame> {
        let mut talk = Talk::new(1024 + self.random.below(60_000) as u16, 0, self.random.next() as u32);
        let [low, high] = [self.random.below(256), self.random.below(256)];
        talk.ends[0].0 = format!("10.1.{low}.{high}").parse().expect("the address is valid");
        talk.frames.clear();
        talk.shake_hands();
        if self.is_hostile {
            let body = self.random.below(20_000) as usize * 2 + 1;
            talk.send(0, &request("/a"));
            talk.send(0, format!("PUT /b HTTP/1.1\r\nHost: a\r\nContent-Length: {body}\r\n\r\n").as_bytes());
            talk.send(0, &vec![b'x'; body / 2]);
            talk.next[0] = talk.next[0].wrapping_add(1);
            talk.send(0, &vec![b'x'; body / 2]);
            self.requests += 2;
            return talk.frames.into_iter();
        }
        for number in 0..5 {
            talk.send(0, &request(&format!("/path/to/number/{number}")));
            talk.send(1, &answer(&"0123456789abcdef".repeat(self.random.below(800) as usize)));
            self.requests += 1;
        }
        if self.random.below(20) > 0 {
            talk.close();
        }
        if self.random.below(5) == 0 {
            talk.frames.remove(5 + self.random.below(10) as usize);
        }
        talk.frames.into_iter()
    }

    fn make(&mut self) {
        self.bytes.clear();
        self.at = 0;
        while self.open.len() < OPEN {
            let talk = self.talk();
            self.open.push(talk);
        }
        while self.bytes.len() < 1 << 20 {
            let place = self.random.below(OPEN as u64) as usize;
            self.now_ns += 10_000;
            match self.open[place].next() {
                Some(frame) => push_record(&mut self.bytes, self.now_ns, &frame.bytes, frame.original_bytes),
                None => self.open[place] = self.talk(),
            }
        }
        self.made_bytes += self.bytes.len() as u64;
    }
}

impl Read for Made {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.at == self.bytes.len() {
            if self.made_bytes >= FILE_BYTES {
                return Ok(0);
            }
            self.make();
        }
        let bytes = into.len().min(self.bytes.len() - self.at);
        into[..bytes].copy_from_slice(&self.bytes[self.at..self.at + bytes]);
        self.at += bytes;
        Ok(bytes)
    }
}

/// How long this thread has run so far, s: what others did meanwhile does not count.
fn busy_s() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|ns| ns.parse::<f64>().ok()).map_or(f64::NAN, |ns| ns / 1e9)
}

fn peak_kib() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or("VmHWM unknown").to_owned()
}

/// Reads a capture to its end; returns its requests and what gave none.
fn read(is_hostile: bool) -> (u64, u64, u64) {
    let mut alone = Made::new(is_hostile);
    let begun_s = busy_s();
    io::copy(&mut alone, &mut io::sink()).expect("it can be made");
    let (making_s, made) = (busy_s() - begun_s, peak_kib());
    drop(alone);
    let mut capture = Made::new(is_hostile);
    let begun_s = busy_s();
    let mut source = PacketSource::open(&mut capture, ReassemblyOptions::default()).expect("it is a capture");
    let mut requests = 0u64;
    while source.next().expect("it can be read").is_some() {
        requests += 1;
    }
    let reading_s = busy_s() - begun_s - making_s;
    let (counts, causes) = (source.counts().clone(), source.causes().clone());
    println!("made alone in {making_s:.1} s, {made}; with reading {}", peak_kib());
    println!("{requests} requests, {:.0} MB/s", FILE_BYTES as f64 / 1e6 / reading_s);
    println!("{counts:?} {causes:?}");
    (requests, causes.iter().map(|(_, count)| count).sum(), capture.requests)
}

#[test]
#[ignore = "reads 1 GB: run it by its name, optimised, for figures"]
fn a_capture_of_1_gb_is_read_in_little_memory() {
    let (requests, lost, made) = read(false);
    assert!(requests > 100_000 && requests + lost <= made);
}

#[test]
#[ignore = "reads 1 GB: run it by its name, optimised, for figures"]
fn a_hostile_capture_of_1_gb_is_read_in_little_memory() {
    let (requests, lost, made) = read(true);
    assert!(requests > 5_000 && requests + lost <= made, "{requests} {lost} {made}");
}
