//! The histograms of a fleet: those of the clients (`leadline_tunnel::client::effects::Metric`), then those of their
//! traffic. Owns their names and numbers.

use leadline_tunnel::client::effects;

/// The histograms of the traffic, numbered after the clients' own. All are in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// From when a packet or request was due to its response; to its arrival if there are no responses.
    Latency = effects::METRICS as isize,
    /// From when it was sent to its response.
    Service,
    /// From when it was due to when it was sent.
    TrafficLate,
    /// Ages of requests without a response when they were given up or the time was over, from when they were due.
    LatencyCensored,
    /// The same ages, from when the requests were sent.
    ServiceCensored,
}

/// The names of the histograms, in the order of their numbers.
pub const METRICS: &[&str] = &[
    "connect",
    "answer",
    "tls",
    "keys",
    "push",
    "ike_up",
    "ip_assigned",
    "child_up",
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_has_its_name() {
        let client_metrics = [effects::Metric::Connect, effects::Metric::Late, effects::Metric::PingLate];
        assert_eq!(client_metrics.map(|metric| METRICS[metric as usize]), ["connect", "late", "ping_late"]);
        assert_eq!(
            (METRICS[Metric::Latency as usize], METRICS.len()),
            ("latency", Metric::ServiceCensored as usize + 1)
        );
    }
}
