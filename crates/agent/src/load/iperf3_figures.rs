//! A real iperf3 server's figures as rows of this end. Its bytes leave out the omitted time, its datagrams do not; what was
//! before it is completed here from this end's counters, as far as it can be known. Owns no connection.

use leadline_transport::iperf3::{
    stream_id, Iperf3Parameters, Iperf3Protocol, Iperf3Results, Iperf3ServerOutput, Iperf3StreamResult,
    MOST_OMITTED_SECONDS,
};
use leadline_transport::SideReport;
use leadline_wire::{FlowProgress, LoadReport, Side, ThreadReport};

use crate::flows::account::Account;
use crate::flows::iperf3::TestFlow;
use crate::flows::{Role, Span};
use crate::task::Task;

/// Returns the seconds at the start that the server leaves out of its figures. iperf3 has whole seconds only, and 600 at
/// most: a warm-up of another length stays in them.
pub fn omitted_s(warmup_ms: u64) -> u64 {
    let whole_s = warmup_ms / 1000;
    if warmup_ms % 1000 == 0 && whole_s <= MOST_OMITTED_SECONDS {
        whole_s
    } else {
        0
    }
}

/// The figures of a test's server.
pub struct ServerFigures<'a> {
    /// The test.
    pub asked: &'a Iperf3Parameters,
    /// What the server has sent.
    pub theirs: &'a Iperf3Results,
    /// The test's time at this end.
    pub span: Span,
}

/// One direction of a flow at the server: payload, bytes, with what was before the end of the omitted time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Moved {
    before: u64,
    total: u64,
}

impl ServerFigures<'_> {
    /// Returns the server's rows, as far as iperf3 tells them: bytes, datagrams and jitter; neither duplicates nor
    /// reordering. `omitted` has this end's counters when the omitted time was over, if it was.
    pub fn rows(&self, flows: &[TestFlow], local: &Account, omitted: Option<&[FlowProgress]>) -> Vec<SideReport> {
        let datagram_bytes = u64::from(self.asked.block_bytes());
        let is_udp = self.is_udp();
        let row = |(place, flow): (usize, &TestFlow)| {
            let theirs = self.theirs.stream(stream_id(place))?;
            let own = local.rows.iter().find(|row| row.flow as usize == place)?;
            let before = omitted.and_then(|omitted| omitted.get(place));
            let bytes = self.moved(flow.role, theirs, own, before)?.total;
            let common = SideReport { flow: own.flow, ..SideReport::default() };
            Some(match flow.role {
                Role::Send => SideReport {
                    received_bytes: bytes,
                    // Datagrams that arrived, whatever their numbers: all have one length.
                    received_units: is_udp.then(|| bytes / datagram_bytes),
                    jitter_us: is_udp.then_some(theirs.jitter * 1e6),
                    ..common
                },
                // When it sent is known only from what arrived.
                Role::Receive => SideReport {
                    sent_bytes: bytes,
                    sent_units: known(theirs.packets).filter(|_| is_udp),
                    retransmits: known(theirs.retransmits).filter(|_| !is_udp),
                    start_ns: own.start_ns,
                    end_ns: own.end_ns.map(|end_ns| end_ns.min(self.span.end_ns)),
                    ..common
                },
            })
        };
        flows.iter().enumerate().filter_map(row).collect()
    }

    /// Returns what the server's counters were at two instants, ns: at the end of the omitted time and at that of each
    /// flow. With them its bytes of the time between are as it counted them. Without an omitted time there are none.
    pub fn readings(
        &self,
        flows: &[TestFlow],
        local: &Account,
        rows: &[SideReport],
        omitted: Option<&[FlowProgress]>,
    ) -> Vec<(u64, FlowProgress)> {
        let own = |flow: u32| local.rows.iter().find(|row| row.flow == flow);
        let (Some(omitted), Some(began_ns)) = (omitted, local.rows.iter().filter_map(|row| row.start_ns).min()) else {
            return Vec::new();
        };
        let omitted_ns = began_ns.saturating_add(self.asked.omit_ns());
        let both = |row: &SideReport| {
            let (place, own) = (row.flow as usize, own(row.flow)?);
            let (flow, theirs) = (flows.get(place)?, self.theirs.stream(stream_id(place))?);
            let moved = self.moved(flow.role, theirs, own, omitted.get(place))?;
            let end_ns = own.end_ns?.min(self.span.end_ns);
            (omitted_ns < end_ns).then(|| {
                [(omitted_ns, moved.before), (end_ns, moved.total)]
                    .map(|(t_ns, bytes)| (t_ns, self.reading(row.flow, flow.role, bytes)))
            })
        };
        rows.iter().filter_map(both).flatten().collect()
    }

    /// Returns what the server moved of a flow; `None` if its count is none.
    ///
    /// iperf3 begins its count of bytes again when the omitted time is over; its datagrams have numbers, which go on. The
    /// bytes of a stream before that are unknown: at least what this end knows to have been moved by then, and no more
    /// than it has moved in all.
    fn moved(
        &self,
        role: Role,
        theirs: &Iperf3StreamResult,
        own: &SideReport,
        omitted: Option<&FlowProgress>,
    ) -> Option<Moved> {
        let counted = known(theirs.bytes)?;
        let Some(omitted) = omitted else { return Some(Moved { before: 0, total: counted }) };
        let before = if self.is_udp() {
            // What a receiver missed has a number too.
            let missed = if role == Role::Send { known(theirs.errors)? } else { 0 };
            let arrived = known(theirs.packets)?.saturating_sub(missed);
            arrived.saturating_mul(self.asked.block_bytes().into()).saturating_sub(counted)
        } else {
            match role {
                Role::Send => omitted.sent_bytes.min(own.sent_bytes.saturating_sub(counted)),
                Role::Receive => omitted.received_bytes.max(own.received_bytes.saturating_sub(counted)),
            }
        };
        Some(Moved { before, total: before.saturating_add(counted) })
    }

    fn reading(&self, flow: u32, role: Role, bytes: u64) -> FlowProgress {
        let units = self.is_udp().then(|| bytes / u64::from(self.asked.block_bytes()));
        let none = FlowProgress { flow, ..FlowProgress::default() };
        match role {
            Role::Send => FlowProgress { received_bytes: bytes, received_units: units, ..none },
            Role::Receive => FlowProgress { sent_bytes: bytes, sent_units: units, ..none },
        }
    }

    fn is_udp(&self) -> bool {
        self.asked.protocol() == Iperf3Protocol::Udp
    }
}

/// Returns the server's CPU time, which iperf3 tells as a share of the test's length, for its whole process.
pub fn receiver(theirs: &Iperf3Results, length_s: f64) -> Option<LoadReport> {
    let known = [theirs.cpu_util_user, theirs.cpu_util_system].iter().all(|percent| (0.0..1e6).contains(percent));
    known.then(|| LoadReport {
        side: Side::Peer,
        wall_s: length_s,
        threads: vec![ThreadReport {
            name: "iperf3".to_owned(),
            user_s: theirs.cpu_util_user / 100.0 * length_s,
            system_s: theirs.cpu_util_system / 100.0 * length_s,
            runnable_wait_s: None,
            spun_s: None,
            wall_s: length_s,
        }],
        pushback: 0,
        late_p99_us: None,
        socket_drops: None,
        engine: None,
        engine_reason: None,
        machine: None,
        quota: None,
    })
}

/// Sends what the server printed, line by line; a document in lines of its own.
pub fn send_server_output(output: &Iperf3ServerOutput, task: &Task) {
    let document = output.document.as_ref().and_then(|found| serde_json::to_string_pretty(found).ok());
    let Some(text) = document.or_else(|| output.text.clone()) else { return };
    for line in text.lines() {
        // A control character of the server would be the terminal's.
        let shown: String = line.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
        task.output(&shown);
    }
}

fn known(count: i64) -> Option<u64> {
    u64::try_from(count).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: Span = Span { at_ns: 0, end_ns: 3_000_000_000 };

    /// What the server moved, if it counted these bytes, datagrams and losses.
    fn moved(role: Role, udp: bool, theirs: (i64, i64, i64), own: (u64, u64), is_over: bool) -> Option<Moved> {
        let asked = Iperf3Parameters { tcp: !udp, udp, omit: Some(1), len: Some(100), ..Default::default() };
        let results = Iperf3Results::default();
        let figures = ServerFigures { asked: &asked, theirs: &results, span: SPAN };
        let (bytes, packets, errors) = theirs;
        let theirs = Iperf3StreamResult { id: 1, bytes, packets, errors, ..Default::default() };
        let (before, total) = own;
        let own = SideReport { sent_bytes: total, received_bytes: total, ..Default::default() };
        let omitted = FlowProgress { sent_bytes: before, received_bytes: before, ..Default::default() };
        figures.moved(role, &theirs, &own, is_over.then_some(&omitted))
    }

    #[test]
    fn bytes_of_the_omitted_time_are_those_that_this_end_moved_by_then() {
        let is = |before, total| Some(Moved { before, total });
        // Of 5000 bytes, 1000 were sent by then.
        assert_eq!(moved(Role::Send, false, (4000, 0, 0), (1000, 5000), true), is(1000, 5000));
        // Some were under way at that instant: the server counts them.
        assert_eq!(moved(Role::Send, false, (4100, 0, 0), (1000, 5000), true), is(900, 5000));
        // It has not read all.
        assert_eq!(moved(Role::Send, false, (3900, 0, 0), (1000, 5000), true), is(1000, 4900));
        assert_eq!(moved(Role::Receive, false, (4000, 0, 0), (1000, 5000), true), is(1000, 5000));
        // What it has sent last did not arrive in time, or its omitted time was over later than here.
        assert_eq!(moved(Role::Receive, false, (4200, 0, 0), (1000, 5000), true), is(1000, 5200));
        assert_eq!(moved(Role::Receive, false, (3800, 0, 0), (1000, 5000), true), is(1200, 5000));
        // The test ended within the omitted time.
        assert_eq!(moved(Role::Send, false, (700, 0, 0), (0, 700), false), is(0, 700));
    }

    #[test]
    fn datagrams_of_the_omitted_time_have_numbers() {
        let is = |before, total| Some(Moved { before, total });
        // 50 datagrams of 100 bytes had numbers, 4 did not arrive, and 30 arrived later.
        assert_eq!(moved(Role::Send, true, (3000, 50, 4), (0, 0), true), is(1600, 4600));
        assert_eq!(moved(Role::Receive, true, (3000, 50, 0), (0, 0), true), is(2000, 5000));
        // Counts that contradict each other do not wrap.
        assert_eq!(moved(Role::Send, true, (3000, 5, 9), (0, 0), true), is(0, 3000));
        assert_eq!(moved(Role::Send, true, (3000, -1, 0), (0, 0), true), None);
        assert_eq!(moved(Role::Send, true, (-1, 5, 0), (0, 0), false), None);
    }
}
