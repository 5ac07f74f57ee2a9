//! Reports interfaces that lose their carrier or are set down, and come back: the kernel tells each change when it
//! happens, so that no period of sampling hides one.

use std::collections::BTreeMap;
use std::io;
use std::thread;

use leadline_sys::clock::monotonic_ns;
use leadline_sys::links::{LinkMonitor, LinkState};
use leadline_wire::Event;
use tracing::{info, warn};

use crate::events::Events;

/// Reports changes until the process ends.
pub fn start(events: Events) {
    thread::spawn(move || {
        if let Err(error) = run(&events) {
            warn!(%error, "interfaces are not watched");
        }
    });
}

fn run(events: &Events) -> io::Result<()> {
    let mut monitor = LinkMonitor::open()?;
    let mut known = KnownLinks::default();
    let mut states = Vec::new();
    monitor.request_all()?;
    loop {
        match monitor.read(&mut states) {
            Ok(is_last) => {
                let t_ns = monotonic_ns();
                for state in states.drain(..) {
                    if known.take(&state) {
                        events.send(&event(state, t_ns));
                    }
                }
                known.is_complete |= is_last;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // Changes came faster than they were read, and the kernel dropped some: the states as they are now tell.
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => monitor.request_all()?,
            Err(error) => return Err(error),
        }
    }
}

fn event(state: LinkState, t_ns: u64) -> Event {
    let LinkState { name, is_up, has_carrier, carrier_losses, is_removed, .. } = state;
    info!(name, is_up, has_carrier, is_removed, "an interface has changed");
    Event::Link { t_ns, name, is_up, has_carrier, carrier_losses, is_removed }
}

/// The interfaces and their last states.
#[derive(Default)]
struct KnownLinks {
    states: BTreeMap<u32, LinkState>,
    /// Whether the states at the beginning are known: what is new then is a change.
    is_complete: bool,
}

impl KnownLinks {
    /// Stores a state; returns whether it is a change.
    fn take(&mut self, state: &LinkState) -> bool {
        let before = if state.is_removed {
            self.states.remove(&state.interface)
        } else {
            self.states.insert(state.interface, state.clone())
        };
        match before {
            Some(before) => before != *state,
            None => self.is_complete && !state.is_removed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(interface: u32, is_up: bool, has_carrier: bool, losses: u32) -> LinkState {
        let name = format!("eth{interface}");
        LinkState { interface, name, is_up, has_carrier, carrier_losses: Some(losses), is_removed: false }
    }

    #[test]
    fn only_changes_are_reported() {
        let mut known = KnownLinks::default();
        assert!(!known.take(&link(2, true, true, 1)), "that is how it was at the beginning");
        known.is_complete = true;
        assert!(!known.take(&link(2, true, true, 1)), "an address was added");
        assert!(known.take(&link(2, true, false, 2)));
        assert!(known.take(&link(2, true, true, 2)));
        assert!(known.take(&link(2, true, true, 3)), "it lost its carrier and had it again before the kernel said so");
        assert!(known.take(&link(3, false, false, 0)), "a new one");
        let gone = LinkState { is_removed: true, is_up: false, has_carrier: false, ..link(3, false, false, 0) };
        assert!(known.take(&gone));
        assert!(!known.take(&gone), "it was not there");
    }
}
