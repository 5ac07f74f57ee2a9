//! What a client asks for, as it is on the wire, and the ranges that a server accepts.

use serde::{Deserialize, Serialize};

use super::message::{as_number, encode, present, whole, Iperf3Error};

/// The transport of a test's flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Iperf3Protocol {
    /// A byte stream.
    Tcp,
    /// Datagrams.
    Udp,
}

/// The parameters of a test, by iperf3's names. What is absent was not asked for; unknown ones are ignored.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Iperf3Parameters {
    /// Whether the flows are TCP connections.
    #[serde(skip_serializing_if = "is_off")]
    pub tcp: bool,
    /// Whether the flows are UDP flows.
    #[serde(skip_serializing_if = "is_off")]
    pub udp: bool,
    /// Whether the flows are SCTP associations, which Leadline does not have.
    #[serde(skip_serializing_if = "is_off")]
    pub sctp: bool,
    /// Seconds at the start that do not count.
    #[serde(deserialize_with = "whole", skip_serializing_if = "Option::is_none")]
    pub omit: Option<u64>,
    /// Length of the test, s; 0 if bytes or blocks end it.
    #[serde(deserialize_with = "whole", skip_serializing_if = "Option::is_none")]
    pub time: Option<u64>,
    /// Payload after which the test ends, bytes.
    #[serde(deserialize_with = "whole", skip_serializing_if = "Option::is_none")]
    pub num: Option<u64>,
    /// Blocks after which the test ends.
    #[serde(deserialize_with = "whole", skip_serializing_if = "Option::is_none")]
    pub blockcount: Option<u64>,
    /// Maximum segment size, bytes.
    #[serde(rename = "MSS", deserialize_with = "whole", skip_serializing_if = "Option::is_none")]
    pub mss: Option<u64>,
    /// Whether small segments are sent at once.
    #[serde(skip_serializing_if = "is_off")]
    pub nodelay: bool,
    /// Flows in each direction.
    #[serde(deserialize_with = "whole", skip_serializing_if = "Option::is_none")]
    pub parallel: Option<u64>,
    /// Whether the server sends and the client receives.
    #[serde(skip_serializing_if = "is_off")]
    pub reverse: bool,
    /// Whether both send.
    #[serde(skip_serializing_if = "is_off")]
    pub bidirectional: bool,
    /// Socket buffers, bytes.
    #[serde(deserialize_with = "whole", skip_serializing_if = "Option::is_none")]
    pub window: Option<u64>,
    /// Bytes per write, or per datagram.
    #[serde(deserialize_with = "whole", skip_serializing_if = "Option::is_none")]
    pub len: Option<u64>,
    /// Rate of each flow, bit/s; 0 for as fast as possible.
    #[serde(deserialize_with = "whole", skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<u64>,
    /// Blocks or datagrams that a sender with a rate sends together.
    #[serde(deserialize_with = "whole", skip_serializing_if = "Option::is_none")]
    pub burst: Option<u64>,
    /// The CPU on which the server runs the test.
    #[serde(deserialize_with = "whole", skip_serializing_if = "Option::is_none")]
    pub server_affinity: Option<u64>,
    /// Rate that the kernel paces each connection at, bit/s.
    #[serde(deserialize_with = "whole", skip_serializing_if = "Option::is_none")]
    pub fqrate: Option<u64>,
    /// Whether the payload is sent without copying it.
    #[serde(deserialize_with = "present", serialize_with = "as_number", skip_serializing_if = "is_off")]
    pub zerocopy: bool,
    /// Whether receivers let the kernel discard what arrives (3.19 and newer).
    #[serde(deserialize_with = "present", serialize_with = "as_number", skip_serializing_if = "is_off")]
    pub skip_rx_copy: bool,
    /// The IP header's type of service.
    #[serde(rename = "TOS", deserialize_with = "whole", skip_serializing_if = "Option::is_none")]
    pub tos: Option<u64>,
    /// Whether datagrams over IPv4 must not be fragmented.
    #[serde(deserialize_with = "present", serialize_with = "as_number", skip_serializing_if = "is_off")]
    pub dont_fragment: bool,
    /// The name of the congestion control.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub congestion: Option<String>,
    /// The user's name of the test.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Whether the results shall contain the server's output.
    #[serde(deserialize_with = "present", serialize_with = "as_number", skip_serializing_if = "is_off")]
    pub get_server_output: bool,
    /// Whether a datagram's number has 64 bits.
    #[serde(deserialize_with = "present", serialize_with = "as_number", skip_serializing_if = "is_off")]
    pub udp_counters_64bit: bool,
    /// Whether the payload is a pattern that repeats.
    #[serde(deserialize_with = "present", serialize_with = "as_number", skip_serializing_if = "is_off")]
    pub repeating_payload: bool,
    /// Whether the flows are MPTCP connections (3.19 and newer).
    #[serde(skip_serializing_if = "is_off")]
    pub mptcp: bool,
    /// User name and password, encrypted with the server's key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authtoken: Option<String>,
    /// The client's version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_version: Option<String>,
}

/// iperf3's own limits.
const MOST_FLOWS: u64 = 128;
const MOST_SECONDS: u64 = 86_400;
/// The longest omitted time.
pub const MOST_OMITTED_SECONDS: u64 = 600;
const LARGEST_BURST: u64 = 1000;
const LARGEST_BLOCK_BYTES: u64 = 1 << 20;
const LARGEST_DATAGRAM_BYTES: u64 = 65_507;
const DEFAULT_BLOCK_BYTES: u64 = 128 << 10;
const DEFAULT_DATAGRAM_BYTES: u64 = 1448;

impl Iperf3Parameters {
    /// The transport.
    pub fn protocol(&self) -> Iperf3Protocol {
        if self.udp {
            Iperf3Protocol::Udp
        } else {
            Iperf3Protocol::Tcp
        }
    }

    /// Flows in each direction.
    pub fn flows(&self) -> u32 {
        self.parallel.and_then(|flows| u32::try_from(flows).ok()).unwrap_or(1)
    }

    /// Bytes per write, or per datagram.
    pub fn block_bytes(&self) -> u32 {
        let by_default = if self.udp { DEFAULT_DATAGRAM_BYTES } else { DEFAULT_BLOCK_BYTES };
        self.len.filter(|bytes| *bytes > 0).unwrap_or(by_default).try_into().unwrap_or(u32::MAX)
    }

    /// Time at the start that does not count, ns.
    pub fn omit_ns(&self) -> u64 {
        self.omit.unwrap_or(0).saturating_mul(1_000_000_000)
    }

    /// The planned length with the omitted time, ns; `None` if bytes or blocks end the test.
    pub fn length_ns(&self) -> Option<u64> {
        let seconds = self.time.filter(|time| *time > 0)?;
        Some(seconds.saturating_add(self.omit.unwrap_or(0)).saturating_mul(1_000_000_000))
    }

    /// Payload after which the test ends, bytes; `None` if a time ends it.
    pub fn total_bytes(&self) -> Option<u64> {
        let blocks = self.blockcount.filter(|blocks| *blocks > 0);
        let of_blocks = blocks.map(|blocks| blocks.saturating_mul(self.block_bytes().into()));
        self.num.filter(|bytes| *bytes > 0).or(of_blocks)
    }

    /// Rate of each flow, bit/s; `None` for as fast as possible.
    pub fn rate_bps(&self) -> Option<u64> {
        self.bandwidth.filter(|rate| *rate > 0)
    }

    /// Blocks or datagrams that a sender with a rate sends together.
    pub fn burst(&self) -> u32 {
        self.burst.and_then(|burst| u32::try_from(burst).ok()).unwrap_or(1).max(1)
    }

    /// Checks each parameter against its range.
    ///
    /// # Errors
    /// The first one that is wrong.
    pub fn check(&self) -> Result<(), Iperf3Error> {
        if self.sctp || (self.tcp && self.udp) {
            return Err(Iperf3Error::UnknownProtocol);
        }
        if self.reverse && self.bidirectional {
            return Err(Iperf3Error::ReverseAndBoth);
        }
        let header = if self.udp_counters_64bit { 16 } else { 12 };
        let (size, sizes) = match self.protocol() {
            Iperf3Protocol::Tcp => ("len", (1, LARGEST_BLOCK_BYTES)),
            Iperf3Protocol::Udp => ("datagram len", (header, LARGEST_DATAGRAM_BYTES)),
        };
        let ranges = [
            ("parallel", self.parallel, (1, MOST_FLOWS)),
            ("time", self.time, (0, MOST_SECONDS)),
            ("omit", self.omit, (0, MOST_OMITTED_SECONDS)),
            (size, self.len.filter(|bytes| *bytes > 0), sizes),
            ("burst", self.burst, (0, LARGEST_BURST)),
            ("MSS", self.mss, (0, 32_767)),
            ("TOS", self.tos, (0, 255)),
            ("window", self.window, (0, 1 << 30)),
        ];
        for (name, value, (least, most)) in ranges {
            if let Some(value) = value.filter(|value| !(least..=most).contains(value)) {
                return Err(Iperf3Error::OutOfRange { name, value, least, most });
            }
        }
        Ok(())
    }

    /// The message that carries them.
    pub fn encode(&self) -> Vec<u8> {
        encode(self)
    }
}

fn is_off(flag: &bool) -> bool {
    !flag
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Iperf3Parameters {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn real_client_is_understood() {
        // What iperf3 3.12 sends for `-u -b 10M -t 3 -P 2 -R`.
        let text = r#"{"udp":true,"omit":0,"time":3,"num":0,"blockcount":0,"parallel":2,"reverse":true,"len":1448,
            "bandwidth":10000000,"pacing_timer":1000,"client_version":"3.12"}"#;
        let asked = parse(text);
        assert!(asked.check().is_ok());
        assert_eq!((asked.protocol(), asked.flows(), asked.block_bytes()), (Iperf3Protocol::Udp, 2, 1448));
        assert_eq!((asked.length_ns(), asked.rate_bps()), (Some(3_000_000_000), Some(10_000_000)));
        assert!(!asked.udp_counters_64bit && !asked.get_server_output);
    }

    #[test]
    fn marks_count_by_their_presence_and_numbers_by_their_value() {
        let asked = parse(r#"{"tcp":true,"udp_counters_64bit":0,"get_server_output":1,"bandwidth":1e+15,"len":0}"#);
        assert!(asked.udp_counters_64bit && asked.get_server_output && !asked.repeating_payload);
        assert_eq!((asked.bandwidth, asked.block_bytes()), (Some(1_000_000_000_000_000), 131_072));
        assert_eq!(asked.length_ns(), None, "without a time, bytes end the test");
    }

    #[test]
    fn marks_are_written_as_newer_servers_read_them() {
        // Since 3.18 a server ignores a mark of another type: these are numbers, the others are true.
        let all = Iperf3Parameters {
            tcp: true,
            nodelay: true,
            reverse: true,
            mptcp: true,
            zerocopy: true,
            skip_rx_copy: true,
            get_server_output: true,
            udp_counters_64bit: true,
            repeating_payload: true,
            ..Iperf3Parameters::default()
        };
        let text = String::from_utf8(all.encode().split_off(4)).unwrap();
        for name in ["zerocopy", "skip_rx_copy", "get_server_output", "udp_counters_64bit", "repeating_payload"] {
            assert!(text.contains(&format!(r#""{name}":1"#)), "{name} in {text}");
        }
        for name in ["tcp", "nodelay", "reverse", "mptcp"] {
            assert!(text.contains(&format!(r#""{name}":true"#)), "{name} in {text}");
        }
        assert_eq!(parse(&text), all);
    }

    #[test]
    fn newest_client_is_understood() {
        // What iperf3 3.21 sends for `-u -b 10M -t 3 --gsro`.
        let asked = parse(
            r#"{"udp":true,"omit":0,"time":3,"num":0,"blockcount":0,"parallel":1,"len":1448,"bandwidth":10000000,
            "pacing_timer":1000,"gso":1,"gso_dg_size":1448,"gso_bf_size":65160,"gro":1,"gro_bf_size":65160,
            "dont_fragment":1,"flowlabel":7,"extra_data":"x","congestion_used":"cubic","client_version":"3.21"}"#,
        );
        assert!(asked.check().is_ok() && asked.udp && asked.dont_fragment);
        let asked = parse(r#"{"tcp":true,"mptcp":true,"skip_rx_copy":1,"server_affinity":1,"burst":10}"#);
        assert_eq!((asked.mptcp, asked.server_affinity, asked.burst()), (true, Some(1), 10));
    }

    #[test]
    fn what_is_sent_is_what_is_read() {
        let asked = Iperf3Parameters { tcp: true, time: Some(10), parallel: Some(3), ..Iperf3Parameters::default() };
        assert_eq!(parse(std::str::from_utf8(&asked.encode()[4..]).unwrap()), asked);
    }

    #[test]
    fn hostile_parameters_are_refused() {
        for text in
            [r#"{"parallel":-1}"#, r#"{"time":1.5}"#, r#"{"len":1e300}"#, r#"{"tcp":1}"#, r#"{"time":"x"}"#, "5"]
        {
            assert!(serde_json::from_str::<Iperf3Parameters>(text).is_err(), "{text}");
        }
        for text in [
            r#"{"parallel":129}"#,
            r#"{"parallel":0}"#,
            r#"{"time":86401}"#,
            r#"{"len":1048577}"#,
            r#"{"tcp":true,"burst":1001}"#,
            r#"{"udp":true,"len":11}"#,
            r#"{"udp":true,"len":65508}"#,
            r#"{"sctp":true}"#,
            r#"{"reverse":true,"bidirectional":true}"#,
        ] {
            assert!(parse(text).check().is_err(), "{text}");
        }
    }
}
