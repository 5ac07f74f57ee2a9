//! The thread that reads a replay's source.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{sync_channel, Receiver};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use leadline_replay::Cause;
use leadline_scenario::replay::{AnswerUse, ReplayRequest};
use leadline_scenario::Program;
use leadline_sys::clock::monotonic_ns;
use leadline_wire::scenario::Replay;
use leadline_wire::{ErrorReport, ThreadReport};

use super::causes::add_causes;
use super::dispatch::{follows, Dispatch, Dispatched};
use super::open::{self, Opened};
use crate::events::input_error;
use crate::metering::ThreadMeter;

/// Batches that are read ahead for each thread.
const BATCHES_AHEAD: usize = 8;

/// A source that is being read.
pub struct Reader {
    /// What is read, for each thread.
    pub inboxes: Vec<Receiver<Vec<ReplayRequest>>>,
    /// What recorded answers are used for.
    pub answers: AnswerUse,
    is_over: Arc<AtomicBool>,
    /// When the replay begins, ns.
    start_ns: Arc<OnceLock<u64>>,
    thread: Option<JoinHandle<(ReadReport, ThreadReport)>>,
}

impl Drop for Reader {
    /// Ends the thread of a replay that does not run.
    fn drop(&mut self) {
        self.is_over.store(true, Relaxed);
    }
}

/// What a reader came to.
pub struct ReadReport {
    pub dispatched: Dispatched,
    /// The format.
    pub format: String,
    /// What distinguished sessions.
    pub sessions_by: String,
    /// Why reading ended before the source's end.
    pub broken_off: Option<String>,
    /// Whether requests are sent as they come.
    pub follows: bool,
}

impl Reader {
    /// Opens a source and begins to read it.
    pub fn open(replay: &Replay, program: &Arc<Program>, threads: u32) -> Result<Self, ErrorReport> {
        let (outboxes, inboxes) = (0..threads).map(|_| sync_channel(BATCHES_AHEAD)).unzip();
        let is_over = Arc::new(AtomicBool::new(false));
        let start_ns = Arc::new(OnceLock::new());
        let dispatch = Dispatch::new(replay, program, outboxes, Arc::clone(&is_over), Arc::clone(&start_ns));
        let dispatch = dispatch.map_err(|message| input_error("bad_replay", message))?;
        let source = replay.source.clone();
        let needs = open::SourceNeeds {
            seed: program.seed,
            keeps_answer_bodies: replay.compares || replay.correlates,
            is_over: Arc::clone(&is_over),
            targets: [Some(&replay.target), replay.against.as_ref()].into_iter().flatten().cloned().collect(),
        };
        let follows = follows(&source);
        // One that is written while it is read may have nothing yet: it is opened by the thread.
        let opened = if follows { None } else { Some(open::open(&source, &needs, &mut || true).map_err(bad_source)?) };
        let own_is_over = Arc::clone(&is_over);
        let thread = std::thread::spawn(move || {
            let meter = ThreadMeter::begin("replay-reader".to_owned(), monotonic_ns());
            let opened = opened.map_or_else(|| open::open(&source, &needs, &mut || !own_is_over.load(Relaxed)), Ok);
            let report = match opened {
                Ok(opened) => read(opened, dispatch, follows),
                Err(message) => ReadReport {
                    dispatched: dispatch.finish(),
                    format: "an unknown format".to_owned(),
                    sessions_by: "nothing".to_owned(),
                    broken_off: Some(message),
                    follows,
                },
            };
            (report, meter.end(monotonic_ns()))
        });
        let answers = AnswerUse { compares: replay.compares, correlates: replay.correlates };
        Ok(Self { inboxes, answers, is_over, start_ns, thread: Some(thread) })
    }

    /// Says when the replay begins.
    pub fn begin(&self, at_ns: u64) {
        let _ = self.start_ns.set(at_ns);
    }

    /// Waits for its end; it ends when nothing takes its requests any more. Its thread's figures are over the time since
    /// the start, as those of the others: most of a short source is read before.
    pub fn join(mut self, at_ns: u64) -> (ReadReport, ThreadReport) {
        self.is_over.store(true, Relaxed);
        self.inboxes.clear();
        let thread = self.thread.take().expect("a reader is joined once");
        let (report, thread) = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let since_start_s = monotonic_ns().saturating_sub(at_ns) as f64 / 1e9;
        (report, ThreadReport { wall_s: thread.wall_s.max(since_start_s), ..thread })
    }
}

fn bad_source(message: String) -> ErrorReport {
    input_error("bad_source", message)
}

/// Reads a source to its end, or until no more is wanted.
fn read(mut opened: Opened, mut dispatch: Dispatch, follows: bool) -> ReadReport {
    let mut broken_off = None;
    while dispatch.is_wanted() {
        // What was read is passed on before a source is waited for.
        match opened.next(|| dispatch.flush().is_continue() && dispatch.is_wanted()) {
            Ok(Some(recorded)) => {
                // Within other sources than logs one waits: nothing is kept back.
                let flushes = follows && !opened.is_log;
                if dispatch.take(recorded).is_break() || (flushes && dispatch.flush().is_break()) {
                    break;
                }
            }
            Ok(None) => break,
            Err(error) => {
                broken_off = Some(error.to_string());
                break;
            }
        }
    }
    let sessions_by = opened.sessions_by();
    let mut dispatched = dispatch.finish();
    add_causes(&mut dispatched.left_out, opened.causes());
    dispatched.reordered = opened.causes().count(Cause::OutOfOrder);
    ReadReport { dispatched, format: opened.format, sessions_by, broken_off, follows }
}
