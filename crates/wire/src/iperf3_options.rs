//! What a test against a real `iperf3 -s` asks of it, beyond what every server of a test is asked for.

use serde::{Deserialize, Serialize};

use crate::schema::JsonSchema;

/// The options of a test against a real `iperf3 -s`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Iperf3Options {
    /// Local port of the first flow; each further flow has the next one. The host's choice if absent.
    #[serde(default)]
    pub local_port: Option<u16>,
    /// Whether the server sends what it printed: its lines become `output` events.
    #[serde(default)]
    pub server_output: bool,
    /// Whether both ends send the digits 0 to 9 again and again.
    #[serde(default)]
    pub repeating_payload: bool,
    /// Whether the numbers of datagrams have 32 bits instead of 64.
    #[serde(default)]
    pub short_counters: bool,
}
