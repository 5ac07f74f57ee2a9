//! The loads. Each file drives one protocol's machine over real sockets; `Ready::run` is its whole life after the
//! start signal. All of them share `Task` (its name, its stop signal, its output of events) and `metering` (counters
//! and histograms that hot loops fill without locks).
//!
//! The phases of a load: `prepare` opens sockets and does handshakes, and may fail. `run` sleeps until `at_ns`,
//! starts its threads, reports progress each interval from the task's own thread, and returns the complete figures. A
//! stopped load returns its figures so far: an early end is not an error.

mod crypto;
pub mod http;
mod iperf3;
mod iperf3_control;
mod iperf3_figures;
mod net;
mod packets;
mod peer_claims;
mod rr;
mod scenario;
mod session;
mod session_runner;
mod tcp;
mod tunnel;
mod udp;

use leadline_wire::{ErrorReport, Workload};

pub use self::net::io_backend::try_io_uring;
use crate::events::input_error;
use crate::task::{Ready, Task};

/// Prepares a measuring workload.
pub fn prepare(workload: Workload, task: &Task) -> Result<Box<dyn Ready>, ErrorReport> {
    match workload {
        Workload::Tcp(spec) => tcp::prepare(*spec),
        Workload::Udp(spec) => udp::prepare(spec),
        Workload::Rr(spec) => rr::prepare(spec),
        Workload::Http(spec) => http::prepare(*spec, task),
        Workload::Scenario(spec) => scenario::prepare(*spec),
        Workload::Tunnel(spec) => tunnel::prepare(&spec),
        Workload::Crypto(spec) => crypto::prepare(spec),
        Workload::PacketGenerator(spec) => packets::prepare_generator(*spec),
        Workload::PacketReceiver(spec) => packets::prepare_receiver(*spec),
        Workload::Serve(_) | Workload::Process(_) | Workload::Profile(_) | Workload::Undo(_) | Workload::Emulate(_) => {
            Err(input_error("not_a_load", "this workload generates no load"))
        }
    }
}
