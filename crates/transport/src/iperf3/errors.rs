//! iperf3's error numbers: those that a server sends, and what a number of a real server means.

use super::message::Iperf3Error;

/// Why a server gives a test up, by iperf3's number; its client prints iperf3's own text for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum ErrorNumber {
    /// The test is longer than the server allows.
    Duration = 5,
    /// There are more flows than the server allows.
    Flows = 6,
    /// The TCP block is too long, or empty.
    BlockSize = 7,
    /// The socket buffers are too large.
    BufferSize = 8,
    /// The maximum segment size is too large.
    SegmentSize = 10,
    /// The omitted time is too long.
    Omit = 12,
    /// The burst is too long.
    Burst = 15,
    /// The datagram is too long or too short.
    DatagramSize = 20,
    /// The type of service is none.
    TypeOfService = 21,
    /// The test is both reversed and bidirectional.
    ReverseAndBoth = 25,
    /// The rate is higher than the server allows, or none.
    Rate = 27,
    /// The server has no room for another client.
    Accept = 104,
    /// The client's message cannot be understood.
    Message = 110,
    /// The parameters cannot be read.
    Parameters = 114,
    /// The client's results cannot be read.
    Results = 117,
    /// The socket buffers could not be set.
    SetBuffer = 124,
    /// The type of service could not be set.
    SetTypeOfService = 125,
    /// The protocol is none that the server has.
    Protocol = 131,
    /// The test cannot run on the CPU that the client names.
    Affinity = 132,
    /// The congestion control could not be set.
    SetCongestion = 134,
    /// The kernel's pacing could not be set.
    SetPacing = 140,
    /// The client's user or password is wrong or missing.
    Authentication = 142,
    /// Nothing came from the client for too long.
    Silence = 144,
    /// Fragmentation could not be forbidden.
    SetDontFragment = 145,
    /// The flows could not be created.
    CreateFlows = 200,
    /// The flows did not arrive.
    AcceptFlow = 204,
}

impl ErrorNumber {
    /// The number on the wire.
    pub fn number(self) -> i32 {
        self as i32
    }

    /// The number for what is wrong with a client's message.
    pub fn of(error: &Iperf3Error) -> Self {
        match error {
            Iperf3Error::UnexpectedState(_) => Self::Message,
            Iperf3Error::TooLong { .. } | Iperf3Error::Invalid(_) => Self::Parameters,
            Iperf3Error::UnknownProtocol => Self::Protocol,
            Iperf3Error::ReverseAndBoth => Self::ReverseAndBoth,
            Iperf3Error::OutOfRange { name, .. } => match *name {
                "parallel" => Self::Flows,
                "time" => Self::Duration,
                "omit" => Self::Omit,
                "len" => Self::BlockSize,
                "datagram len" => Self::DatagramSize,
                "burst" => Self::Burst,
                "MSS" => Self::SegmentSize,
                "TOS" => Self::TypeOfService,
                "window" => Self::BufferSize,
                _ => Self::Parameters,
            },
        }
    }
}

/// What a server's error number means; `None` for one that no version before 3.22 sends.
pub fn meaning(number: i32) -> Option<&'static str> {
    Some(match number {
        5 => "the test is longer than the server allows",
        6 => "there are more flows than the server allows",
        7 => "the block size is out of range",
        8 => "the socket buffers are too large",
        10 => "the maximum segment size is too large",
        12 => "the omitted time is too long",
        15 => "the burst is too long",
        20 => "the datagram size is out of range",
        21 => "the type of service is none",
        27 => "the total rate is higher than the server allows",
        34 => "the server writes to a file, which it cannot over UDP",
        37 => "the test is longer than the server allows",
        104 => "the server cannot accept another client",
        107 | 108 | 111 | 112 => "the server's control connection failed",
        110 => "the server received an unknown message",
        114 => "the server cannot read the parameters",
        116 | 117 => "the results could not be exchanged",
        119 => "the client has terminated",
        120 => "the server has terminated",
        121 => "the server is busy with another test",
        122 => "the server cannot turn Nagle's algorithm off",
        123 => "the server cannot set the maximum segment size",
        124 | 130 | 141 => "the server cannot set the socket buffers",
        125 | 126 => "the server cannot set the type of service",
        127 => "the server cannot set the flow label",
        131 => "the server does not have this protocol",
        132 => "the server cannot run the test on the CPU that was named",
        134 => "the server does not have this congestion control",
        140 => "the server cannot pace its connections",
        142 => "the server requires a user and a password, or does not accept these",
        144 => "the server received nothing for too long",
        145 => "the server cannot forbid fragmentation",
        160 => "the time that the server allows a test is over",
        200..=208 => "the server could not create a flow, or lost one",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::parameters::Iperf3Parameters;
    use super::*;

    #[test]
    fn wrong_parameter_is_named_by_its_number() {
        for (text, number) in [
            (r#"{"tcp":true,"parallel":129}"#, 6),
            (r#"{"tcp":true,"time":86401}"#, 5),
            (r#"{"tcp":true,"omit":601}"#, 12),
            (r#"{"tcp":true,"len":1048577}"#, 7),
            (r#"{"udp":true,"len":11}"#, 20),
            (r#"{"tcp":true,"burst":1001}"#, 15),
            (r#"{"tcp":true,"MSS":32768}"#, 10),
            (r#"{"tcp":true,"TOS":256}"#, 21),
            (r#"{"tcp":true,"window":2147483648}"#, 8),
            (r#"{"sctp":true}"#, 131),
            (r#"{"tcp":true,"reverse":true,"bidirectional":true}"#, 25),
        ] {
            let asked: Iperf3Parameters = serde_json::from_str(text).unwrap();
            let error = asked.check().unwrap_err();
            assert_eq!(ErrorNumber::of(&error).number(), number, "{text}");
        }
    }
}
