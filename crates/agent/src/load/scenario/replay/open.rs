//! Opens the source of a replay and finds out what it is: a log, unless its first bytes or the given format say something
//! else. Every source's requests are put in the order of their times.

mod capture;

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Cursor, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use flate2::read::MultiGzDecoder;
use leadline_replay::gor::GorSource;
use leadline_replay::har::HarSource;
use leadline_replay::jtl::JtlSource;
use leadline_replay::packets::{PacketSource, ReassemblyOptions};
use leadline_replay::{Causes, Log, LogFormat, OrderLimits, Ordered, Recorded, Source, SourceError};
use leadline_sys::clock::{monotonic_ns, realtime_ns};
use leadline_wire::scenario::ReplaySource;

use self::capture::LiveCapture;

/// Bytes by which a source is recognised, at most.
const HEAD_BYTES: usize = 4096;
/// Within which the requests of a source that is followed are put in order, ns of its time: as long as they are kept back.
const FOLLOWED_WINDOW_NS: i64 = 1_000_000_000;
/// A first request that is older than this is not of now: the source is passed on as a whole, ns.
const OLD_NS: i64 = 120_000_000_000;
/// How often a source that is followed is looked at, ms.
const LOOK_MS: u64 = 5;
/// How long a request of a live capture waits for its answer, ns: a session's later ones wait behind it.
const LIVE_ANSWER_WAIT_NS: u64 = 500_000_000;

/// The bytes of a source, what was read of them first.
type Input = Box<dyn Read + Send>;

/// What opening a source needs to know.
pub struct SourceNeeds {
    /// Seed of the times within whole seconds.
    pub seed: u64,
    /// Whether the bodies of answers are used.
    pub keeps_answer_bodies: bool,
    /// Set once nothing is wanted any more: the source then ends.
    pub is_over: Arc<AtomicBool>,
    /// Where requests go: a live capture leaves those out.
    pub targets: Vec<String>,
}

/// A source that can be read, in the order of its requests' times.
pub struct Opened {
    source: Ordered<Begun>,
    sessions_by: SessionsBy,
    follows: bool,
    /// Whether it is a log, which is read without waiting within a line.
    pub is_log: bool,
    /// Its format.
    pub format: String,
}

/// What distinguishes sessions.
enum SessionsBy {
    Fixed(&'static str),
    Named(String),
}

/// A source of which the first request may have been read, to see how old it is.
struct Begun {
    first: Option<Recorded>,
    source: Box<dyn Source>,
}

impl Source for Begun {
    fn next(&mut self) -> Result<Option<Recorded>, SourceError> {
        match self.first.take() {
            Some(first) => Ok(Some(first)),
            None => self.source.next(),
        }
    }

    fn causes(&self) -> &Causes {
        self.source.causes()
    }
}

impl Opened {
    /// The next request. `idle` is called while a source that is followed has none; if it returns false, that is the end.
    pub fn next(&mut self, mut idle: impl FnMut() -> bool) -> Result<Option<Recorded>, SourceError> {
        if !self.follows {
            // The time of a file stands still while its reader is held back.
            return Source::next(&mut self.source);
        }
        loop {
            match self.source.poll(monotonic_ns())? {
                Poll::Ready(found) => return Ok(found),
                Poll::Pending if idle() => std::thread::sleep(Duration::from_millis(LOOK_MS)),
                Poll::Pending => return Ok(None),
            }
        }
    }

    /// What gave no request so far.
    pub fn causes(&self) -> &Causes {
        self.source.causes()
    }

    /// What distinguishes its sessions, in words.
    pub fn sessions_by(&self) -> String {
        match &self.sessions_by {
            SessionsBy::Fixed(words) => (*words).to_owned(),
            SessionsBy::Named(words) => words.clone(),
        }
    }
}

/// Opens a source. `idle` is called while one that is followed has nothing to recognise it by; if it returns false, it
/// is given up.
///
/// # Errors
/// What is wrong, where, and what would be right.
pub fn open(source: &ReplaySource, needs: &SourceNeeds, idle: &mut dyn FnMut() -> bool) -> Result<Opened, String> {
    let limits = |port: Option<u16>| ReassemblyOptions {
        ports: port.into_iter().collect(),
        keeps_answer_bodies: needs.keeps_answer_bodies,
        ..ReassemblyOptions::default()
    };
    match source {
        ReplaySource::File { path, format, follows, port } => {
            let waits = Arc::new(AtomicBool::new(!*follows));
            let file = open_file(path, *follows, (Arc::clone(&waits), Arc::clone(&needs.is_over)));
            let file = file.map_err(|error| format!("{path}: {error}"))?;
            let found = recognise(file, format.as_deref(), limits(*port), &waits, idle);
            let opened = found.and_then(|found| in_order(found, *follows, needs.seed, idle));
            opened.map_err(|error| format!("{path}: {error}"))
        }
        ReplaySource::Capture { device, port } => {
            let options = ReassemblyOptions { answer_wait_ns: LIVE_ANSWER_WAIT_NS, ..limits(Some(*port)) };
            let capture = LiveCapture::open(device, *port, &needs.targets, options);
            let capture = capture.map_err(|error| format!("{device}: {error}"))?;
            let found = Found::new(capture, format!("packets of {device}"), SessionsBy::Fixed("connection"));
            in_order(found, true, needs.seed, idle).map_err(|error| format!("{device}: {error}"))
        }
    }
}

/// A source that was recognised.
struct Found {
    source: Box<dyn Source>,
    format: String,
    sessions_by: SessionsBy,
    is_log: bool,
}

impl Found {
    fn new(source: impl Source + 'static, format: String, sessions_by: SessionsBy) -> Self {
        Self { source: Box::new(source), format, sessions_by, is_log: false }
    }
}

fn open_file(
    path: &str,
    follows: bool,
    (waits, is_over): (Arc<AtomicBool>, Arc<AtomicBool>),
) -> Result<Input, SourceError> {
    // Of this descriptor alone, also where it is another process's stdin: waiting for a pipe can then be ended.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    let kind = file.metadata()?.file_type();
    if kind.is_dir() {
        return Err(SourceError::Format("this is a folder; name a file in it".to_owned()));
    }
    let grows = follows && !kind.is_fifo() && !kind.is_socket() && !kind.is_char_device();
    Ok(Box::new(SourceFile { file, grows, waits, is_over }))
}

/// Finds out what a file is.
fn recognise(
    mut input: Input,
    format: Option<&str>,
    limits: ReassemblyOptions,
    waits: &AtomicBool,
    idle: &mut dyn FnMut() -> bool,
) -> Result<Found, SourceError> {
    let mut head = read_head(&mut input, idle)?;
    if head.starts_with(&[0x1f, 0x8b]) {
        input = Box::new(MultiGzDecoder::new(Cursor::new(head).chain(input)));
        head = read_head(&mut input, idle)?;
    }
    let kind = format.unwrap_or_else(|| kind_of(&head));
    if matches!(kind, "gor" | "pcap" | "har" | "jtl") {
        waits.store(true, Relaxed);
    }
    let input: Input = Box::new(Cursor::new(head).chain(input));
    Ok(match kind {
        "gor" => {
            let source = GorSource::new(BufReader::new(input), limits.keeps_answer_bodies);
            Found::new(source, ".gor".to_owned(), SessionsBy::Fixed("connection"))
        }
        "pcap" => {
            let source = PacketSource::open(BufReader::with_capacity(1 << 18, input), limits)?;
            Found::new(source, "packets".to_owned(), SessionsBy::Fixed("connection"))
        }
        "har" => {
            let source = HarSource::read(input)?;
            Found::new(source, "HAR".to_owned(), SessionsBy::Fixed("connection, else the page"))
        }
        "jtl" => {
            let source = JtlSource::open(BufReader::new(input))?;
            Found::new(source, "JTL".to_owned(), SessionsBy::Fixed("thread"))
        }
        _ => {
            let log = Log::open(input, format.map(LogFormat::parse).transpose()?)?;
            let (name, sessions_by) = (log.format().name().to_owned(), log.session_basis());
            Found { is_log: true, ..Found::new(log, name, SessionsBy::Named(sessions_by)) }
        }
    })
}

/// The kind of a source by its first bytes; a log if they say nothing.
fn kind_of(head: &[u8]) -> &'static str {
    const MAGIC: [[u8; 4]; 5] = [
        [0xa1, 0xb2, 0xc3, 0xd4],
        [0xd4, 0xc3, 0xb2, 0xa1],
        [0xa1, 0xb2, 0x3c, 0x4d],
        [0x4d, 0x3c, 0xb2, 0xa1],
        [0x0a, 0x0d, 0x0d, 0x0a],
    ];
    if MAGIC.iter().any(|magic| head.starts_with(magic)) {
        return "pcap";
    }
    let text = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head).trim_ascii_start();
    let first = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let mut words = first.split(|byte| *byte == b' ');
    let is_kind = words.next().is_some_and(|kind| matches!(kind, b"1" | b"2" | b"3"));
    let is_id = words.next().is_some_and(|id| id.len() >= 20 && id.iter().all(u8::is_ascii_hexdigit));
    if is_kind && is_id {
        return "gor";
    }
    let squeezed: Vec<u8> = text.iter().filter(|byte| !byte.is_ascii_whitespace()).take(9).copied().collect();
    if squeezed == b"{\"log\":{\"" {
        return "har";
    }
    let is_xml = text.starts_with(b"<") && text.windows(12).any(|part| part == b"<testResults");
    if is_xml || first.starts_with(b"timeStamp,") {
        return "jtl";
    }
    "log"
}

/// Puts a source's requests in the order of their times.
fn in_order(found: Found, follows: bool, seed: u64, idle: &mut dyn FnMut() -> bool) -> Result<Opened, SourceError> {
    let Found { mut source, format, sessions_by, is_log } = found;
    let mut limits = OrderLimits::default();
    let mut first = None;
    if follows {
        first = wait_for(|| source.next(), idle)?;
        let age_ns = first.as_ref().map_or(0, |first| realtime_ns() as i64 - first.start_ns);
        if age_ns < OLD_NS {
            limits.window_ns = FOLLOWED_WINDOW_NS;
        }
    }
    let source = Ordered::new(Begun { first, source }, limits, seed);
    Ok(Opened { source, sessions_by, follows, is_log, format })
}

/// Tries until something is there, or until `idle` gives up.
fn wait_for<T>(
    mut attempt: impl FnMut() -> Result<T, SourceError>,
    idle: &mut dyn FnMut() -> bool,
) -> Result<T, SourceError> {
    loop {
        match attempt() {
            Err(SourceError::Io(error)) if error.kind() == io::ErrorKind::WouldBlock && idle() => {
                std::thread::sleep(Duration::from_millis(LOOK_MS));
            }
            Err(SourceError::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(SourceError::Format("nothing was written to it".to_owned()));
            }
            other => return other,
        }
    }
}

/// Reads what a source is recognised by: as much as is there, and at least a line of one that is followed.
fn read_head(input: &mut Input, idle: &mut dyn FnMut() -> bool) -> Result<Vec<u8>, SourceError> {
    let mut head = vec![0; HEAD_BYTES];
    let mut length = 0;
    while length < HEAD_BYTES {
        let has_line = head[..length].contains(&b'\n');
        let read = || match input.read(&mut head[length..]) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && has_line => Ok(Some(0)),
            other => Ok(Some(other?)),
        };
        match wait_for(read, idle)? {
            Some(0) => break,
            Some(count) => length += count,
            None => {}
        }
    }
    head.truncate(length);
    Ok(head)
}

/// A file or a pipe; a file that grows has no end.
struct SourceFile {
    file: File,
    grows: bool,
    /// Whether a read waits for what is not there yet: what reads logs can go on later, what reads the rest cannot.
    waits: Arc<AtomicBool>,
    is_over: Arc<AtomicBool>,
}

impl SourceFile {
    fn read_now(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.file.read(buffer)? {
            0 if self.grows && !buffer.is_empty() => Err(io::ErrorKind::WouldBlock.into()),
            count => Ok(count),
        }
    }
}

impl Read for SourceFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.is_over.load(Relaxed) {
                return Ok(0);
            }
            match self.read_now(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && self.waits.load(Relaxed) => {
                    std::thread::sleep(Duration::from_millis(LOOK_MS));
                }
                other => return other,
            }
        }
    }
}
