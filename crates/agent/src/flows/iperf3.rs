//! The flows of an iperf3 test, on either end: options of their sockets, roles in the order of opening, and the figures that
//! both ends exchange.

use std::io;
use std::net::{TcpStream, UdpSocket};
use std::sync::Arc;

use leadline_sys::net;
use leadline_transport::iperf3::{
    stream_id, ErrorNumber, Iperf3Parameters, Iperf3Protocol, Iperf3Results, Iperf3StreamResult,
};
use leadline_transport::SideReport;
use leadline_wire::FlowProgress;

use super::account::Account;
use super::Role;
use crate::atomic_option::AtomicOption;
use crate::metering::FlowCounters;

/// An open flow.
#[derive(Debug)]
pub enum FlowSocket {
    /// A TCP connection.
    Stream(TcpStream),
    /// A connected UDP socket.
    Datagram(UdpSocket),
}

/// One flow of a running test.
pub struct TestFlow {
    /// What this end does.
    pub role: Role,
    /// This end's counters.
    pub counters: Arc<FlowCounters>,
    /// How many bytes (TCP) or datagrams (UDP) the other end sent, once it has reported.
    pub expected: Arc<AtomicOption>,
}

/// Sets the options that a test's parameters name on one of its sockets; the error has iperf3's number for the option.
pub fn set_options(socket: &FlowSocket, asked: &Iperf3Parameters) -> Result<(), (ErrorNumber, io::Error)> {
    match socket {
        FlowSocket::Stream(stream) => {
            stream.set_nodelay(asked.nodelay).map_err(|error| (ErrorNumber::AcceptFlow, error))?;
            if let Some(name) = &asked.congestion {
                net::set_congestion(stream, name).map_err(|error| (ErrorNumber::SetCongestion, error))?;
            }
            set_common(stream, asked)
        }
        FlowSocket::Datagram(socket) => {
            if asked.dont_fragment {
                net::forbid_fragments(socket).map_err(|error| (ErrorNumber::SetDontFragment, error))?;
            }
            set_common(socket, asked)
        }
    }
}

fn set_common(socket: impl std::os::fd::AsFd, asked: &Iperf3Parameters) -> Result<(), (ErrorNumber, io::Error)> {
    if let Some(bytes) = asked.window.filter(|bytes| *bytes > 0) {
        net::set_buffers(&socket, bytes as usize).map_err(|error| (ErrorNumber::SetBuffer, error))?;
    }
    if let Some(value) = asked.tos.filter(|value| *value > 0) {
        let set = net::set_type_of_service(&socket, value as u32);
        set.map_err(|error| (ErrorNumber::SetTypeOfService, error))?;
    }
    if let Some(rate_bps) = asked.fqrate.filter(|rate| *rate > 0) {
        net::set_pacing(&socket, rate_bps / 8).map_err(|error| (ErrorNumber::SetPacing, error))?;
    }
    Ok(())
}

/// The circumstances of this end's results.
pub struct ResultsContext<'a> {
    /// The test.
    pub asked: &'a Iperf3Parameters,
    /// Length of the test without the omitted time, s.
    pub length_s: f64,
    /// The counters when the omitted time was over, if some was omitted.
    pub omitted: Option<&'a [FlowProgress]>,
    /// The other end's figures, if they are known already.
    pub theirs: Option<&'a Iperf3Results>,
    /// The congestion control of the flows.
    pub congestion: Option<String>,
}

/// Returns this end's figures.
pub fn results(flows: &[TestFlow], account: &Account, context: &ResultsContext<'_>) -> Iperf3Results {
    let wall_s = account.load.wall_s.max(1e-9);
    let user: f64 = account.load.threads.iter().map(|thread| thread.user_s).sum();
    let system: f64 = account.load.threads.iter().map(|thread| thread.system_s).sum();
    let sends = flows.iter().any(|flow| flow.role == Role::Send);
    let is_tcp = context.asked.protocol() == Iperf3Protocol::Tcp;
    let mut rows: Vec<&SideReport> = account.rows.iter().collect();
    rows.sort_by_key(|row| row.flow);
    let streams = rows.into_iter().zip(flows).enumerate();
    Iperf3Results {
        cpu_util_total: 100.0 * (user + system) / wall_s,
        cpu_util_user: 100.0 * user / wall_s,
        cpu_util_system: 100.0 * system / wall_s,
        sender_has_retransmits: if sends { i64::from(is_tcp) } else { -1 },
        congestion_used: context.congestion.clone(),
        streams: streams.map(|(place, (row, flow))| stream_result(place, row, flow, context)).collect(),
    }
}

/// This end's row of one flow. Bytes are those after the omitted time; datagrams are all, with those of the omitted time
/// apart. A receiver knows what was lost at the end of a flow from the sender's count.
fn stream_result(place: usize, row: &SideReport, flow: &TestFlow, context: &ResultsContext<'_>) -> Iperf3StreamResult {
    let id = stream_id(place);
    let sends = flow.role == Role::Send;
    let received = row.received_units.unwrap_or(0);
    // Without the sender's count, gaps are all that is known.
    let missing = flow.counters.progress(0, true).missing_units.unwrap_or(0);
    let theirs = context.theirs.and_then(|theirs| theirs.stream(id));
    let reported = theirs.and_then(|theirs| u64::try_from(theirs.packets).ok());
    let sent = match flow.role {
        Role::Send => row.sent_units.unwrap_or(0),
        Role::Receive => reported.map_or(received + missing, |packets| packets.max(received)),
    };
    let before = context.omitted.and_then(|omitted| omitted.get(place)).map(|at| {
        let lost = at.missing_units.unwrap_or(0);
        if sends {
            (at.sent_bytes, at.sent_units.unwrap_or(0), 0)
        } else {
            (at.received_bytes, at.received_units.unwrap_or(0) + lost, lost)
        }
    });
    let (bytes_before, packets_before, lost_before) = before.unwrap_or_default();
    let bytes = if sends { row.sent_bytes } else { row.received_bytes };
    let lost = if sends { 0 } else { sent.saturating_sub(received) };
    Iperf3StreamResult {
        id,
        bytes: signed(bytes.saturating_sub(bytes_before)),
        retransmits: row.retransmits.filter(|_| sends).map_or(-1, signed),
        jitter: row.jitter_us.unwrap_or(0.0) / 1e6,
        errors: signed(lost),
        omitted_errors: Some(signed(lost_before)),
        packets: signed(sent),
        omitted_packets: Some(signed(packets_before)),
        start_time: 0.0,
        end_time: context.length_s,
    }
}

fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use leadline_sys::tcp::buffer_bytes;

    use super::*;

    #[test]
    fn options_of_a_test_act_on_its_sockets() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let flow = FlowSocket::Stream(stream.try_clone().unwrap());
        let before = (stream.nodelay().unwrap(), buffer_bytes(&stream));
        assert!(!before.0);
        let asked = Iperf3Parameters {
            tcp: true,
            nodelay: true,
            congestion: Some("reno".to_owned()),
            window: Some(40_000),
            tos: Some(40),
            fqrate: Some(8_000_000),
            ..Iperf3Parameters::default()
        };
        set_options(&flow, &asked).unwrap();
        assert!(stream.nodelay().unwrap());
        assert_eq!(net::congestion(&stream).as_deref(), Some("reno"));
        // The kernel counts its own overhead as much again.
        assert_eq!(buffer_bytes(&stream), (Some(80_000), Some(80_000)));
        assert_ne!(before.1, buffer_bytes(&stream));
        let wrong = Iperf3Parameters { congestion: Some("nonesuch".to_owned()), ..asked };
        assert_eq!(set_options(&flow, &wrong).unwrap_err().0, ErrorNumber::SetCongestion);
    }
}
