//! What a replay counts beside its figures.

use leadline_stats::Histogram;

use super::differences::Differences;

/// What a replay counts beside its figures.
#[derive(Clone, Debug, Default)]
pub struct ReplayCounts {
    /// What differed between answers.
    pub differences: Differences,
    /// From when requests were due until they were sent, ns.
    pub behind: Histogram,
    /// Requests that waited for the answer before them.
    pub waited: u64,
    /// Requests that had not been read when they were due.
    pub read_late: u64,
    /// Values that were replaced.
    pub replaced: u64,
    /// Sessions that began.
    pub sessions: u64,
}
