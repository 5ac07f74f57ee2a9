//! The kernel's figures of one end of a connection: samples for the counters, and their summary for the report.

use std::net::TcpStream;

use leadline_sys::tcp::{self, TcpInfo};
use leadline_wire::TcpReport;

use crate::flows::Role;
use crate::metering::FlowCounters;

/// The series of samples is reported for flows with lower numbers than this: a bound on what many flows cost.
const SERIES_FLOWS: u32 = 64;
/// The summary is reported for flows with lower numbers than this: a report of all flows is one message.
const SUMMARY_FLOWS: u32 = 1024;

/// Samples of one end of a connection. The connection is older than the test: what it counted before does not belong to it.
#[derive(Default)]
pub struct KernelView {
    before: Option<TcpInfo>,
    latest: Option<TcpInfo>,
    rtt_us: Mean,
    rtt_variance_us: Mean,
    congestion_window_bytes: Mean,
    pacing_bps: Mean,
    delivery_bps: Mean,
    receive_rtt_us: Mean,
    receive_window_bytes: Mean,
}

impl KernelView {
    /// Stores what the connection counted before the test.
    pub fn begin(&mut self, socket: &TcpStream) {
        self.before = tcp::tcp_info(socket).ok();
    }

    /// Samples the connection, and publishes the sample.
    pub fn sample(&mut self, socket: &TcpStream, role: Role, flow: u32, counters: &FlowCounters) {
        let Ok(info) = tcp::tcp_info(socket) else { return };
        self.take(info, role);
        if role == Role::Send {
            counters.kernel(self.retransmits(), info.rtt_us);
            counters.path(info.rtt_variance_us, info.congestion_window_bytes, info.path_mtu_bytes);
        }
        if flow < SERIES_FLOWS {
            let since = self.before.unwrap_or_default();
            match role {
                Role::Send => counters.sending_end(&info, &since),
                Role::Receive => counters.receiving_end(&info, &since),
            }
        }
    }

    fn take(&mut self, info: TcpInfo, role: Role) {
        self.latest = Some(info);
        match role {
            Role::Send => {
                self.rtt_us.add(Some(info.rtt_us.into()));
                self.rtt_variance_us.add(Some(info.rtt_variance_us.into()));
                self.congestion_window_bytes.add(Some(info.congestion_window_bytes));
                self.pacing_bps.add(info.pacing_bps);
                self.delivery_bps.add(info.delivery_bps.filter(|bps| *bps > 0));
            }
            Role::Receive => {
                self.receive_rtt_us.add(Some(info.receive_rtt_us.into()).filter(|us| *us > 0));
                self.receive_window_bytes.add(info.receive_window_bytes.map(u64::from));
            }
        }
    }

    /// Mean of the sampled round-trip times, µs.
    pub fn rtt_mean_us(&self) -> Option<f64> {
        self.rtt_us.value()
    }

    /// Segments retransmitted during the test; `None` before the first sample.
    pub fn retransmits(&self) -> Option<u64> {
        self.grown(|info| Some(info.retransmits.into()))
    }

    /// Returns the summary; `None` without a sample, or for a flow beyond those that have one.
    pub fn report(&self, socket: &TcpStream, role: Role, flow: u32) -> Option<TcpReport> {
        let latest = self.latest.filter(|_| flow < SUMMARY_FLOWS)?;
        let (send_buffer_bytes, receive_buffer_bytes) = tcp::buffer_bytes(socket);
        let seconds = |us: Option<u64>| us.map(|us| us as f64 / 1e6);
        let common = TcpReport {
            rtt_idle_us: self.before.and_then(|info| info.rtt_min_us).map(f64::from),
            rtt_min_us: latest.rtt_min_us.map(f64::from),
            mss_bytes: Some(latest.mss_bytes.into()).filter(|bytes| *bytes > 0),
            send_buffer_bytes,
            receive_buffer_bytes,
            ..TcpReport::default()
        };
        Some(match role {
            Role::Send => TcpReport {
                samples: self.rtt_us.count,
                rtt_mean_us: self.rtt_us.value(),
                rtt_max_us: (self.rtt_us.count > 0).then_some(self.rtt_us.most as f64),
                rtt_variance_us: self.rtt_variance_us.value(),
                congestion_window_bytes: self.congestion_window_bytes.value(),
                pacing_bps: self.pacing_bps.value(),
                delivery_bps: self.delivery_bps.value(),
                busy_s: seconds(self.grown(|info| info.busy_us)),
                receiver_limited_s: seconds(self.grown(|info| info.receiver_limited_us)),
                send_buffer_limited_s: seconds(self.grown(|info| info.send_buffer_limited_us)),
                sent_bytes: self.grown(|info| info.sent_bytes),
                retransmitted_bytes: self.grown(|info| info.retransmitted_bytes),
                ..common
            },
            Role::Receive => TcpReport {
                samples: self.receive_window_bytes.count,
                receive_rtt_us: self.receive_rtt_us.value(),
                receive_window_bytes: self.receive_window_bytes.value(),
                out_of_order: self.grown(|info| info.out_of_order.map(u64::from)),
                ..common
            },
        })
    }

    /// The growth of a counter during the test.
    fn grown(&self, read: impl Fn(&TcpInfo) -> Option<u64>) -> Option<u64> {
        let (latest, before) = (self.latest.as_ref()?, self.before.as_ref()?);
        Some(read(latest)?.saturating_sub(read(before)?))
    }
}

/// The mean and the largest of samples.
#[derive(Default)]
struct Mean {
    sum: u128,
    count: u64,
    most: u64,
}

impl Mean {
    fn add(&mut self, value: Option<u64>) {
        if let Some(value) = value {
            self.sum += u128::from(value);
            self.count += 1;
            self.most = self.most.max(value);
        }
    }

    fn value(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum as f64 / self.count as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retransmits_before_the_start_are_not_counted() {
        let info = |rtt_us, retransmits| TcpInfo { rtt_us, retransmits, ..TcpInfo::default() };
        let mut kernel = KernelView { before: Some(info(0, 7)), ..KernelView::default() };
        assert_eq!(kernel.retransmits(), None);
        kernel.take(info(100, 7), Role::Send);
        kernel.take(info(300, 9), Role::Send);
        assert_eq!((kernel.retransmits(), kernel.rtt_mean_us()), (Some(2), Some(200.0)));
        assert_eq!(kernel.rtt_us.most, 300);
    }
}
