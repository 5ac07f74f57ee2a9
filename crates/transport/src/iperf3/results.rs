//! The figures that both ends exchange after a test.

use serde::{Deserialize, Serialize};

use super::message::{encode, signed};

/// One end's figures.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Iperf3Results {
    /// CPU time of this end, percent of one CPU over the test.
    pub cpu_util_total: f64,
    /// Its part in user mode.
    pub cpu_util_user: f64,
    /// Its part in the kernel.
    pub cpu_util_system: f64,
    /// Whether a sending end counts retransmissions: 1 or 0; -1 if it does not send.
    #[serde(deserialize_with = "signed")]
    pub sender_has_retransmits: i64,
    /// The congestion control of the flows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion_used: Option<String>,
    /// One row per flow.
    pub streams: Vec<Iperf3StreamResult>,
}

/// What a server printed. Only a server sends it, beside its figures: a server that parsed it would give each client
/// a way to occupy its memory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Iperf3ServerOutput {
    /// The output as text, if the client asked for it.
    #[serde(default, rename = "server_output_text", skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The same as a document.
    #[serde(default, rename = "server_output_json", skip_serializing_if = "Option::is_none")]
    pub document: Option<serde_json::Value>,
}

/// A server's figures with its output, as they are sent.
#[derive(Serialize)]
struct ServerMessage<'a> {
    #[serde(flatten)]
    results: &'a Iperf3Results,
    #[serde(flatten)]
    output: &'a Iperf3ServerOutput,
}

/// One flow, as one end saw it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Iperf3StreamResult {
    /// See [`stream_id`].
    #[serde(deserialize_with = "signed")]
    pub id: i64,
    /// Payload sent or received, bytes, without the omitted time.
    #[serde(deserialize_with = "signed")]
    pub bytes: i64,
    /// Retransmitted segments; -1 if unknown.
    #[serde(deserialize_with = "signed")]
    pub retransmits: i64,
    /// Interarrival jitter (RFC 3550), s.
    pub jitter: f64,
    /// Lost datagrams.
    #[serde(deserialize_with = "signed")]
    pub errors: i64,
    /// Datagrams lost in the omitted time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub omitted_errors: Option<i64>,
    /// Datagrams that the sender sent, as far as this end knows.
    #[serde(deserialize_with = "signed")]
    pub packets: i64,
    /// Datagrams of the omitted time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub omitted_packets: Option<i64>,
    /// When it began, s after the test's start.
    #[serde(default)]
    pub start_time: f64,
    /// When it ended, s after the test's start.
    #[serde(default)]
    pub end_time: f64,
}

impl Iperf3Results {
    /// The message that carries them.
    pub fn encode(&self) -> Vec<u8> {
        encode(self)
    }

    /// The message that carries a server's figures and its output.
    pub fn encode_with(&self, output: &Iperf3ServerOutput) -> Vec<u8> {
        encode(&ServerMessage { results: self, output })
    }

    /// The row of a flow.
    pub fn stream(&self, id: i64) -> Option<&Iperf3StreamResult> {
        self.streams.iter().find(|stream| stream.id == id)
    }
}

/// The number by which results name a flow, from its place in the order of opening: 1, 3, 4, 5 ...
pub fn stream_id(place: usize) -> i64 {
    let place = i64::try_from(place).unwrap_or(i64::MAX - 2);
    if place == 0 {
        1
    } else {
        place + 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_flow_has_the_number_three() {
        assert_eq!([0, 1, 2, 3].map(stream_id), [1, 3, 4, 5]);
    }

    #[test]
    fn results_of_a_real_client_are_understood() {
        // What iperf3 3.12 sends after a TCP test: no omitted counts, and a large number as a double.
        let text = r#"{"cpu_util_total":12.5,"cpu_util_user":0.5,"cpu_util_system":12,"sender_has_retransmits":18446744073709551615,
            "congestion_used":"cubic","streams":[{"id":1,"bytes":1e+15,"retransmits":0,"jitter":0,"errors":0,"packets":0,
            "start_time":0,"end_time":2.000211}]}"#;
        let results: Iperf3Results = serde_json::from_str(text).unwrap();
        assert_eq!(results.stream(1).unwrap().bytes, 1_000_000_000_000_000);
        assert_eq!(results.sender_has_retransmits, -1);
        assert_eq!((results.stream(3), results.streams[0].omitted_errors), (None, None));
        let again: Iperf3Results = serde_json::from_slice(&results.encode()[4..]).unwrap();
        assert_eq!(again, results);
    }

    #[test]
    fn results_without_a_required_figure_are_refused() {
        assert!(serde_json::from_str::<Iperf3Results>(r#"{"cpu_util_total":1,"streams":[]}"#).is_err());
    }
}
