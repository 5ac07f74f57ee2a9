//! The agent's facts about its host: those that `observe` reads from files, and those that need system calls.

use std::path::Path;

use leadline_observe::CgroupPaths;
use leadline_sys::{clock, host};
use leadline_wire::{Capability, Event, HostFacts, InterfaceFacts, InterfaceView, NetworkView, PROTOCOL_VERSION};

use crate::load::try_io_uring;

/// The agent's version.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The Cargo profile that built this agent: figures of a build with checks, or of a quick one, are not those of a
/// release.
pub const BUILD_PROFILE: &str = env!("LEADLINE_BUILD_PROFILE");

/// Returns the cgroup files that account for this host's CPU time.
pub fn cgroup_paths(cgroup: Option<&Path>) -> CgroupPaths {
    CgroupPaths { v2: cgroup.map(Path::to_path_buf), ..CgroupPaths::default() }
}

/// Returns the first event.
pub fn hello(cgroup: &CgroupPaths) -> Event {
    Event::Hello {
        t_ns: clock::monotonic_ns(),
        protocol: PROTOCOL_VERSION,
        agent_version: VERSION.to_owned(),
        build_profile: Some(BUILD_PROFILE.to_owned()),
        pid: std::process::id(),
        host: host_facts(),
        capabilities: capabilities(cgroup),
    }
}

fn host_facts() -> HostFacts {
    let mut facts = leadline_observe::facts();
    facts.clock.resolution_ns = clock::resolution_ns();
    if let Ok(wall) = clock::wall_clock() {
        facts.clock.synchronised = Some(wall.synchronised);
        facts.clock.max_error_us = Some(wall.max_error_us);
    }
    for interface in &mut facts.interfaces {
        if let Ok(offloads) = host::offloads(&interface.name) {
            let name = std::mem::take(&mut interface.name);
            let mtu = offloads.mtu.or(interface.mtu);
            let speed_bps = interface.speed_bps;
            *interface =
                InterfaceFacts { name, mtu, tso: offloads.tso, gso: offloads.gso, gro: offloads.gro, speed_bps };
        }
    }
    facts
}

fn capabilities(cgroup: &CgroupPaths) -> Vec<Capability> {
    let mut found = leadline_observe::capabilities(cgroup);
    // What the kernel's setting allows, a container's filter, an old kernel or an emulator may still refuse.
    for ring in found.iter_mut().filter(|capability| capability.name == "io_uring" && capability.available) {
        ring.reason = try_io_uring().err();
        ring.available = ring.reason.is_none();
    }
    found
}

/// Returns the current addresses and routes.
pub fn network_view() -> NetworkView {
    let mut interfaces: Vec<InterfaceView> = Vec::new();
    for entry in host::interface_addresses().unwrap_or_default() {
        let address = entry.address.map(|(address, prefix)| format!("{address}/{prefix}"));
        match interfaces.iter_mut().find(|seen| seen.name == entry.name) {
            Some(seen) => seen.addresses.extend(address),
            None => interfaces.push(InterfaceView {
                mtu: host::offloads(&entry.name).ok().and_then(|offloads| offloads.mtu),
                name: entry.name,
                up: entry.up,
                addresses: address.into_iter().collect(),
            }),
        }
    }
    NetworkView { interfaces, routes: leadline_observe::routes() }
}
