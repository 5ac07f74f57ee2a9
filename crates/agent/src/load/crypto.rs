//! The cost of a VPN's protocol in memory: sealing and opening packets, ciphers and HMACs alone, and complete
//! handshakes. One thread, no socket. Owns the order of the figures and their clocks; `arena` owns the memory over
//! which packets are spread. It measures what the specification lists, for the specified time, and judges nothing.

mod arena;

use leadline_sys::clock::monotonic_ns;
use leadline_sys::usage::thread_cpu_s;
use leadline_tunnel::openvpn::data::{DataCipher, DataError, DataOptions, LARGEST_PAYLOAD};
use leadline_tunnel::openvpn::digest::Digest;
use leadline_tunnel::openvpn::handshake_bench::{self, HandshakeBench};
use leadline_tunnel::openvpn::raw_cipher::{RawCipher, TRIPLE_DES};
use leadline_tunnel::openvpn::role::Role as End;
use leadline_wire::{Counts, CryptoReport, CryptoSpec, ErrorReport, FlowProgress, LoadReport, NoCounts, Outcome, Side};

use self::arena::{Packets, Payloads, LONGEST};
use crate::events::{input_error, system_error};
use crate::metering::ThreadMeter;
use crate::task::{Ready, Task};

/// The maximum memory over which packets are spread, bytes: up to twice as much is allocated.
const MOST_SPREAD: u64 = 256 << 20;
/// The work between two clock reads, bytes.
const PIECE_BYTES: usize = 1 << 20;
const PIECE_PACKETS: usize = 1024;
/// Packets are opened in place, each one once, so that all packets of a piece must exist beforehand. This many are
/// few enough for a cache, and enough to make two clock reads, about 0.7 us, a small part of the measured time.
const OPENED_BYTES: usize = 256 << 10;
const OPENED_PACKETS: usize = 256;

/// The measurement of one figure.
#[derive(Clone, Copy)]
enum Measurement {
    Seal(DataOptions, u32),
    Open(DataOptions, u32),
    Cipher(DataCipher, u32),
    TripleDes(u32),
    Hmac(Digest, u32),
    Handshake,
}

struct ReadyCrypto {
    spec: CryptoSpec,
    figures: Vec<Measurement>,
    bench: Option<HandshakeBench>,
}

/// Determines the figures, and creates the certificates for handshakes.
pub fn prepare(spec: CryptoSpec) -> Result<Box<dyn Ready>, ErrorReport> {
    if spec.duration_ms == 0 {
        return Err(input_error("bad_spec", "a figure is measured for at least 1 ms"));
    }
    if spec.spread_bytes > MOST_SPREAD {
        return Err(input_error("bad_spread", format!("packets are spread over at most {MOST_SPREAD} bytes")));
    }
    if let Some(size) = spec.sizes.iter().find(|size| !(1..=LONGEST).contains(size)) {
        return Err(input_error("bad_size", format!("a payload has 1 to {LONGEST} bytes, not {size}")));
    }
    let figures = figures(&spec)?;
    if figures.is_empty() {
        return Err(input_error("bad_spec", "there is nothing to measure: name ciphers, digests or handshakes"));
    }
    let making = |error: String| system_error("the handshakes' certificates", &std::io::Error::other(error));
    let bench = spec.handshakes.then(HandshakeBench::new).transpose().map_err(making)?;
    Ok(Box::new(ReadyCrypto { spec, figures, bench }))
}

/// Returns the measurements, in order.
fn figures(spec: &CryptoSpec) -> Result<Vec<Measurement>, ErrorReport> {
    let digests = spec.digests.iter().map(|name| Digest::from_name(name).ok_or_else(|| unknown("digest", name)));
    let digests: Vec<Digest> = digests.collect::<Result<_, _>>()?;
    let mut figures = Vec::new();
    for name in &spec.ciphers {
        if name.eq_ignore_ascii_case(TRIPLE_DES) {
            figures.extend(spec.sizes.iter().map(|size| Measurement::TripleDes(*size)));
            continue;
        }
        let cipher = DataCipher::from_name(name).ok_or_else(|| unknown("cipher", name))?;
        let one = [Digest::default()];
        for digest in if cipher.is_aead() { &one[..] } else { &digests[..] } {
            let options = DataOptions {
                digest: Some(*digest),
                peer_id: Some(0),
                largest_payload: LARGEST_PAYLOAD,
                ..DataOptions::new(cipher)
            };
            figures.extend(spec.sizes.iter().map(|size| Measurement::Seal(options, *size)));
            figures.extend(spec.sizes.iter().map(|size| Measurement::Open(options, *size)));
        }
        figures.extend(spec.sizes.iter().map(|size| Measurement::Cipher(cipher, *size)));
    }
    for digest in digests {
        figures.extend(spec.sizes.iter().map(|size| Measurement::Hmac(digest, *size)));
    }
    figures.extend(spec.handshakes.then_some(Measurement::Handshake));
    Ok(figures)
}

fn unknown(what: &str, name: &str) -> ErrorReport {
    let ciphers = DataCipher::ALL.iter().map(|cipher| cipher.name()).chain([TRIPLE_DES]);
    let names: Vec<&str> = match what {
        "cipher" => ciphers.collect(),
        _ => Digest::ALL.iter().map(|digest| digest.name()).collect(),
    };
    input_error(&format!("unknown_{what}"), format!("no {what} is called {name}; there are {}", names.join(", ")))
}

impl Ready for ReadyCrypto {
    fn run(self: Box<Self>, at_ns: u64, task: &Task) -> Result<Outcome, ErrorReport> {
        task.signal.sleep_until(at_ns);
        let began_ns = monotonic_ns();
        let meter = ThreadMeter::begin("crypto", began_ns);
        let mut reports = Vec::new();
        let mut bytes = 0;
        for (done, what) in (1..).zip(&self.figures) {
            if task.signal.stopped() {
                break;
            }
            let made = self
                .measure(*what, task)
                .map_err(|name| system_error("sealing and opening packets", &std::io::Error::other(name)))?;
            reports.extend(made);
            bytes += reports.last().map_or(0, |report| report.operations * u64::from(report.bytes.unwrap_or(0)));
            let row = FlowProgress {
                flow: 0,
                sent_bytes: bytes,
                received_bytes: 0,
                sent_units: Some(done),
                received_units: None,
                ..FlowProgress::default()
            };
            task.progress(Side::Local, monotonic_ns(), vec![row], Vec::new());
        }
        let end_ns = monotonic_ns();
        Ok(outcome(reports, meter, began_ns, end_ns))
    }
}

impl ReadyCrypto {
    fn measure(&self, what: Measurement, task: &Task) -> Result<Vec<CryptoReport>, String> {
        let mut watch = Stopwatch::new(self.spec.duration_ms);
        let spread = self.spec.spread_bytes as usize;
        let going_on = |watch: &Stopwatch| !watch.is_done() && !task.signal.stopped();
        let text = |error: DataError| error.to_string();
        match what {
            Measurement::Seal(options, size) => {
                let mut packets = Packets::new(&options, size, spread, 1).map_err(text)?;
                while going_on(&watch) {
                    packets.renew_keys().map_err(text)?;
                    watch.time(|| packets.seal_piece(piece(size))).map_err(text)?;
                }
                Ok(vec![watch.report("seal", algorithm(&options), Some(size))])
            }
            Measurement::Open(options, size) => {
                let fewest = (OPENED_BYTES / size as usize).clamp(1, OPENED_PACKETS);
                let mut packets = Packets::new(&options, size, spread, fewest).map_err(text)?;
                while going_on(&watch) {
                    packets.renew_keys().map_err(text)?;
                    packets.seal_lap().map_err(text)?;
                    while going_on(&watch) && !packets.is_opened() {
                        watch.time(|| packets.open_piece(piece(size))).map_err(text)?;
                    }
                }
                Ok(vec![watch.report("open", algorithm(&options), Some(size))])
            }
            Measurement::Cipher(cipher, size) => {
                let raw = RawCipher::cipher(cipher).map_err(text)?;
                raw_figure(raw, ("cipher", cipher.name()), size, spread, &mut watch, &going_on)
            }
            Measurement::TripleDes(size) => {
                raw_figure(RawCipher::triple_des(), ("cipher", TRIPLE_DES), size, spread, &mut watch, &going_on)
            }
            Measurement::Hmac(digest, size) => {
                raw_figure(RawCipher::hmac(digest), ("hmac", digest.name()), size, spread, &mut watch, &going_on)
            }
            Measurement::Handshake => {
                self.bench.as_ref().map_or(Ok(Vec::new()), |bench| handshakes(bench, self.spec.duration_ms, &going_on))
            }
        }
    }
}

fn raw_figure(
    mut raw: RawCipher,
    (what, name): (&str, &str),
    size: u32,
    spread: usize,
    watch: &mut Stopwatch,
    going_on: &dyn Fn(&Stopwatch) -> bool,
) -> Result<Vec<CryptoReport>, String> {
    let mut payloads = Payloads::new(raw.needs(size as usize), spread);
    while going_on(watch) {
        watch.time(|| payloads.each_of(piece(size), |payload| raw.run(payload))).map_err(|error| error.to_string())?;
    }
    Ok(vec![watch.report(what, name.to_owned(), Some(size))])
}

/// Measures handshakes one after another, and the share of each end.
fn handshakes(
    bench: &HandshakeBench,
    duration_ms: u64,
    going_on: &dyn Fn(&Stopwatch) -> bool,
) -> Result<Vec<CryptoReport>, String> {
    let mut both = Stopwatch::new(duration_ms);
    let (mut client, mut server) = (Stopwatch::new(duration_ms), Stopwatch::new(duration_ms));
    while going_on(&both) {
        let (mut client_lap, mut server_lap) = (Lap::default(), Lap::default());
        let mut last = Instant::now();
        let connected = both.time_making(|| {
            bench.connect(&mut |end| {
                let now = Instant::now();
                match end {
                    End::Client => client_lap.add(&last, &now),
                    End::Server => server_lap.add(&last, &now),
                }
                last = now;
            })
        });
        // Dropping both ends is not part of the measured time.
        drop(connected?);
        client.add(1, client_lap);
        server.add(1, server_lap);
    }
    let report = |watch: &Stopwatch, what| watch.report(what, handshake_bench::DESCRIPTION.to_owned(), None);
    Ok(vec![report(&both, "handshake"), report(&client, "handshake_client"), report(&server, "handshake_server")])
}

fn algorithm(options: &DataOptions) -> String {
    let cipher = options.cipher.name();
    match options.digest.filter(|_| !options.cipher.is_aead()) {
        None => cipher.to_owned(),
        Some(digest) => format!("{cipher}+{}", digest.name()),
    }
}

/// Returns the number of packets between two clock reads.
fn piece(size: u32) -> usize {
    (PIECE_BYTES / size as usize).clamp(1, PIECE_PACKETS)
}

/// An instant on both clocks.
#[derive(Clone, Copy)]
struct Instant {
    cpu_s: f64,
    wall_ns: u64,
}

impl Instant {
    fn now() -> Self {
        Self { cpu_s: thread_cpu_s(), wall_ns: monotonic_ns() }
    }
}

/// A duration on both clocks.
#[derive(Clone, Copy, Default)]
struct Lap {
    cpu_s: f64,
    wall_ns: u64,
}

impl Lap {
    fn add(&mut self, from: &Instant, to: &Instant) {
        self.cpu_s += to.cpu_s - from.cpu_s;
        self.wall_ns += to.wall_ns - from.wall_ns;
    }
}

/// Adds up the time and the operations of the measured work.
struct Stopwatch {
    enough_ns: u64,
    operations: u64,
    lap: Lap,
}

impl Stopwatch {
    fn new(duration_ms: u64) -> Self {
        Self { enough_ns: duration_ms.saturating_mul(1_000_000), operations: 0, lap: Lap::default() }
    }

    fn is_done(&self) -> bool {
        self.lap.wall_ns >= self.enough_ns
    }

    /// Runs work that returns its number of operations.
    fn time<E>(&mut self, run: impl FnOnce() -> Result<u64, E>) -> Result<(), E> {
        let began = Instant::now();
        let operations = run()?;
        let mut lap = Lap::default();
        lap.add(&began, &Instant::now());
        self.add(operations, lap);
        Ok(())
    }

    /// Runs one operation with a result, which the caller drops if it does not need it.
    fn time_making<T, E>(&mut self, run: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let mut made = None;
        self.time(|| {
            made = Some(run()?);
            Ok(1)
        })?;
        Ok(made.expect("it was made"))
    }

    fn add(&mut self, operations: u64, lap: Lap) {
        self.operations += operations;
        self.lap.cpu_s += lap.cpu_s;
        self.lap.wall_ns += lap.wall_ns;
    }

    fn report(&self, what: &str, algorithm: String, bytes: Option<u32>) -> CryptoReport {
        CryptoReport {
            what: what.to_owned(),
            algorithm,
            bytes,
            operations: self.operations,
            cpu_ns: (self.lap.cpu_s * 1e9) as u64,
            wall_ns: self.lap.wall_ns,
        }
    }
}

fn outcome(reports: Vec<CryptoReport>, meter: ThreadMeter, began_ns: u64, end_ns: u64) -> Outcome {
    let generator = LoadReport {
        side: Side::Local,
        wall_s: (end_ns - began_ns) as f64 / 1e9,
        threads: vec![meter.end(end_ns)],
        pushback: 0,
        late_p99_us: None,
        socket_drops: None,
        engine: None,
        engine_reason: None,
        machine: None,
        quota: None,
    };
    Outcome {
        flows: Vec::new(),
        histograms: Vec::new(),
        errors: std::collections::BTreeMap::new(),
        error_examples: std::collections::BTreeMap::new(),
        generator,
        receiver: None,
        counts: Counts::None(NoCounts {}),
        tunnel: None,
        crypto: Some(reports),
        scenario: None,
        packets: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(ciphers: &[&str], digests: &[&str], sizes: &[u32]) -> CryptoSpec {
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        CryptoSpec {
            ciphers: names(ciphers),
            digests: names(digests),
            sizes: sizes.to_vec(),
            duration_ms: 1,
            handshakes: false,
            spread_bytes: 10_000,
        }
    }

    fn run(spec: CryptoSpec) -> Vec<CryptoReport> {
        let events = crate::events::Events::to(Box::new(std::io::sink()));
        let task = Task { trial: "t".into(), name: "crypto".into(), signal: std::sync::Arc::default(), events };
        prepare(spec).unwrap().run(0, &task).unwrap().crypto.unwrap()
    }

    #[test]
    fn every_figure_reports_its_operations() {
        let mut spec = spec(&["aes-256-gcm", "AES-128-CBC", "DES-EDE3-CBC"], &["SHA1", "SHA256"], &[1, 1400]);
        spec.handshakes = true;
        let reports = run(spec);
        let names: Vec<String> = reports
            .iter()
            .filter(|report| report.bytes != Some(1))
            .map(|report| format!("{} {}", report.what, report.algorithm))
            .collect();
        let handshake = |what: &str| format!("{what} {}", handshake_bench::DESCRIPTION);
        let expected = [
            "seal AES-256-GCM".to_owned(),
            "open AES-256-GCM".to_owned(),
            "cipher AES-256-GCM".to_owned(),
            "seal AES-128-CBC+SHA1".to_owned(),
            "open AES-128-CBC+SHA1".to_owned(),
            "seal AES-128-CBC+SHA256".to_owned(),
            "open AES-128-CBC+SHA256".to_owned(),
            "cipher AES-128-CBC".to_owned(),
            "cipher DES-EDE3-CBC".to_owned(),
            "hmac SHA1".to_owned(),
            "hmac SHA256".to_owned(),
            handshake("handshake"),
            handshake("handshake_client"),
            handshake("handshake_server"),
        ];
        assert_eq!(names, expected);
        assert!(reports.iter().all(|report| report.operations > 0 && report.wall_ns > 0), "{reports:?}");
        let ns = |what: &str| reports.iter().find(|report| report.what == what).map(|report| report.wall_ns).unwrap();
        assert!(ns("handshake_client") + ns("handshake_server") <= ns("handshake"));
    }

    #[test]
    fn little_memory_does_not_shorten_the_timed_span() {
        // Only one packet of 1400 bytes fits; many packets are still sealed between two clock reads.
        let reports = run(CryptoSpec { spread_bytes: 2048, ..spec(&["AES-256-GCM"], &[], &[1400]) });
        let done: Vec<u64> = reports.iter().map(|report| report.operations).collect();
        let fewest = [piece(1400), OPENED_BYTES / 1400, piece(1400)].map(|count| count as u64);
        assert!(done.iter().zip(fewest).all(|(done, fewest)| *done >= fewest && done % fewest == 0), "{done:?}");
    }

    #[test]
    fn dropping_results_is_not_timed() {
        struct Made<'d>(&'d std::cell::Cell<bool>);
        impl Drop for Made<'_> {
            fn drop(&mut self) {
                self.0.set(true);
            }
        }
        let dropped = std::cell::Cell::new(false);
        let mut watch = Stopwatch::new(1);
        let made = watch.time_making(|| Ok::<_, String>(Made(&dropped))).unwrap();
        assert_eq!((watch.operations, dropped.get()), (1, false));
        drop(made);
    }

    #[test]
    fn unknown_algorithms_are_refused_with_the_known_ones() {
        let refused = |spec: CryptoSpec| prepare(spec).err().map(|error| error.message).unwrap_or_default();
        assert!(refused(spec(&["BF-CBC"], &[], &[64])).contains("no cipher is called BF-CBC; there are AES-128-GCM"));
        assert!(refused(spec(&[], &["MD5"], &[64])).contains("there are SHA1, SHA256"));
        assert!(refused(spec(&["AES-256-GCM"], &[], &[0])).contains("1 to"));
        assert!(refused(spec(&["AES-256-GCM"], &[], &[])).contains("nothing to measure"));
        let spread = CryptoSpec { spread_bytes: 1 << 40, ..spec(&["AES-256-GCM"], &[], &[64]) };
        assert!(refused(spread).contains("at most"));
        let endless = CryptoSpec { duration_ms: 0, ..spec(&["AES-256-GCM"], &[], &[64]) };
        assert!(refused(endless).contains("1 ms"));
    }
}
