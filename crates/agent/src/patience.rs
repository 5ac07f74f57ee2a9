//! How long a load waits for its server. Each wait has its own longest time; tests of silent servers shorten all of them.

use std::sync::OnceLock;
use std::time::Duration;

/// The environment variable with an upper limit of every wait for a server, ms; for tests.
const LIMIT: &str = "LEADLINE_PEER_PATIENCE_MS";

/// Returns how long to wait, where the longest time is this.
pub fn patience(longest: Duration) -> Duration {
    static LIMITED: OnceLock<Option<Duration>> = OnceLock::new();
    let limit = LIMITED.get_or_init(|| std::env::var(LIMIT).ok()?.parse().ok().map(Duration::from_millis));
    limit.map_or(longest, |limit| limit.min(longest))
}

/// The same in ns.
pub fn patience_ns(longest_ns: u64) -> u64 {
    patience(Duration::from_nanos(longest_ns)).as_nanos() as u64
}
