//! The histograms of a fleet. Owns their names and numbers; who records what is said beside each.

/// The histograms, in the order of their names. All are in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// From when an arrival's attempt was due to when it was configured.
    Connect,
    /// From its first reset to the first answer.
    Answer,
    /// From there to the end of TLS's handshake.
    Tls,
    /// From there until both halves of the keys were there.
    Keys,
    /// From there until all pushed options were there.
    Push,
    /// From there until the first data packet came back.
    FirstData,
    /// As `Connect`, of attempts that the action `reconnect` made.
    Reconnect,
    /// From a client's first failure until it was configured after all.
    Recovered,
    /// From when new keys were due to be negotiated until they were there.
    Renegotiate,
    /// From when an attempt was due to its first reset's sending.
    Late,
    /// Round trips inside of the tunnels before the unsettled clients arrived, while they did, and once they had.
    PingBefore,
    PingDuring,
    PingAfter,
    /// From when a ping was due to its sending.
    PingLate,
    /// Traffic: from when a packet or request was due to its answer; where nothing is answered, to its arrival.
    Latency,
    /// Traffic: from when it was sent to its answer.
    Service,
    /// Traffic: from when it was due to its sending.
    TrafficLate,
    /// Traffic: ages of requests that had no answer when they were given up or the time was over, from when they were due.
    LatencyCensored,
    /// The same from when they were sent.
    ServiceCensored,
}

/// Names of the histograms, in the order of [`Metric`].
pub const METRICS: &[&str] = &[
    "connect",
    "answer",
    "tls",
    "keys",
    "push",
    "first_data",
    "reconnect",
    "recovered",
    "renegotiate",
    "late",
    "ping_before",
    "ping_during",
    "ping_after",
    "ping_late",
    "latency",
    "service",
    "traffic_late",
    "latency_censored",
    "service_censored",
];
