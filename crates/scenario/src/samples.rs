//! Single requests and transactions in batches. Owns the size of a batch; what becomes of a closed one is the caller's.

use std::collections::VecDeque;

use leadline_wire::scenario::{SampleBatch, SampleFailure, SampleName, SampleOpening, SampleTransaction};

use super::program::Program;

/// The rows of a batch.
const BATCH_ROWS: usize = 2000;
/// The longest message of a failure, bytes.
const MESSAGE_BYTES: usize = 1000;

/// Cuts a long message between two characters.
fn cut(message: &mut String) {
    if message.len() > MESSAGE_BYTES {
        let end = (0..=MESSAGE_BYTES).rev().find(|end| message.is_char_boundary(*end));
        message.truncate(end.unwrap_or(0));
    }
}

/// What opening a connection took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Opening {
    /// Resolving the name, ns, if it was not known.
    pub dns_ns: Option<u64>,
    /// The TCP handshake, ns.
    pub connect_ns: u64,
    /// The TLS handshake, ns, if there was one.
    pub tls_ns: Option<u64>,
}

impl Opening {
    /// Adds a further connection, such as that of a redirect to another host.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let sum = |one: Option<u64>, two: Option<u64>| one.map_or(two, |one| Some(one + two.unwrap_or(0)));
        Self {
            dns_ns: sum(self.dns_ns, other.dns_ns),
            connect_ns: self.connect_ns + other.connect_ns,
            tls_ns: sum(self.tls_ns, other.tls_ns),
        }
    }
}

/// A request or transaction that has ended.
#[derive(Debug, Default)]
pub struct Sample {
    /// Index of its label.
    pub label: u32,
    /// The user's number.
    pub user: u32,
    /// When it was wanted or began, ns.
    pub due_ns: u64,
    /// From then to its end, ns.
    pub elapsed_ns: u64,
    /// From then to sent, ns.
    pub before_sent_ns: Option<u64>,
    /// From sent to the first byte, ns.
    pub first_byte_ns: Option<u64>,
    /// Status code.
    pub status: Option<u16>,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Bytes received.
    pub received_bytes: u64,
    /// Users of its population.
    pub group_active: u32,
    /// Users of the test.
    pub all_active: u32,
    /// Its URL, if it is wanted.
    pub url: Option<String>,
    /// Why it failed.
    pub failure: Option<(String, String)>,
    /// The connection that was opened for it.
    pub opening: Option<Opening>,
    /// Of a transaction: waits in it in ns, its requests, and those that failed.
    pub transaction: Option<(u64, u32, u32)>,
}

/// The samples of a thread that have not been taken yet.
#[derive(Debug)]
pub struct Samples {
    /// Whether requests have their URL.
    pub with_urls: bool,
    open: SampleBatch,
    closed: VecDeque<SampleBatch>,
    /// By label: 1 + its place among the names of the open batch, 0 if it is not there.
    places: Vec<u32>,
}

impl Samples {
    /// Returns a place for samples.
    #[must_use]
    pub fn new(program: &Program, with_urls: bool) -> Self {
        let places = vec![0; program.labels.len()];
        Self { with_urls, open: SampleBatch::default(), closed: VecDeque::new(), places }
    }

    /// Adds a sample.
    pub fn add(&mut self, program: &Program, sample: Sample) {
        let batch = &mut self.open;
        let row = batch.name.len() as u32;
        let place = &mut self.places[sample.label as usize];
        if *place == 0 {
            let label = &program.labels[sample.label as usize];
            let population = program.populations[label.population as usize].name.clone();
            let (name, tags) = (label.name.to_string(), label.tags.clone());
            batch.names.push(SampleName { name, kind: label.kind, population, tags });
            *place = batch.names.len() as u32;
        }
        batch.name.push(*place - 1);
        batch.user.push(sample.user);
        batch.due_ns.push(sample.due_ns);
        batch.elapsed_ns.push(sample.elapsed_ns);
        batch.before_sent_ns.push(sample.before_sent_ns);
        batch.first_byte_ns.push(sample.first_byte_ns);
        batch.status.push(sample.status);
        batch.sent_bytes.push(sample.sent_bytes);
        batch.received_bytes.push(sample.received_bytes);
        batch.group_active.push(sample.group_active);
        batch.all_active.push(sample.all_active);
        if self.with_urls {
            batch.urls.push(sample.url);
        }
        if let Some((cause, mut message)) = sample.failure {
            cut(&mut message);
            batch.failures.push(SampleFailure { row, cause, message });
        }
        if let Some(Opening { dns_ns, connect_ns, tls_ns }) = sample.opening {
            batch.openings.push(SampleOpening { row, dns_ns, connect_ns, tls_ns });
        }
        if let Some((waits_ns, requests, failed)) = sample.transaction {
            batch.transactions.push(SampleTransaction { row, waits_ns, requests, failed });
        }
        if batch.name.len() >= BATCH_ROWS {
            self.close();
        }
    }

    /// Closes the open batch, if it has a row.
    pub fn close(&mut self) {
        if !self.open.name.is_empty() {
            self.closed.push_back(std::mem::take(&mut self.open));
            self.places.fill(0);
        }
    }

    /// Takes the next closed batch.
    pub fn take(&mut self) -> Option<SampleBatch> {
        self.closed.pop_front()
    }
}
