//! The interface of raw frames: whether it can be used, its own counters, and the Ethernet address of the next hop.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::time::{Duration, Instant};

use leadline_packet::frame::{MacAddress, BROADCAST};
use leadline_sys::interfaces::{interfaces, neighbours, Interface};
use leadline_wire::{ErrorReport, InterfaceCounts};

use crate::events::{input_error, system_error};

/// How long a neighbour may take to answer.
const ANSWER_PATIENCE: Duration = Duration::from_secs(3);
const ASK_AGAIN: Duration = Duration::from_millis(20);
/// The port of the datagram that makes the kernel ask for a neighbour's address (RFC 863).
const DISCARD_PORT: u16 = 9;
/// Ethernet's header, and two tags that an MTU does not count.
const HEADER_BYTES: u32 = 14;

/// Finds an interface that is up.
pub fn find(name: &str) -> Result<Interface, ErrorReport> {
    let all = interfaces().map_err(|error| system_error("reading the interfaces", &error))?;
    let names = || {
        let mut names: Vec<&str> = all.iter().map(|interface| interface.name.as_str()).collect();
        names.sort_unstable();
        names.join(", ")
    };
    let found = all.iter().find(|interface| interface.name == name);
    let found = found.ok_or_else(|| {
        input_error("no_interface", format!("there is no interface {name} on this host; it has {}", names()))
    })?;
    if !found.is_up {
        let message = format!("interface {name} is down; `ip link set {name} up` sets it up");
        return Err(input_error("interface_down", message));
    }
    Ok(found.clone())
}

/// Finds the interface by which packets to a destination leave.
pub fn find_route(destination: IpAddr) -> Result<Interface, ErrorReport> {
    let routes = routes();
    let best = routes.iter().filter(|route| contains(route, destination)).max_by_key(|route| route.prefix_bits);
    let best = best.ok_or_else(|| input_error("no_route", format!("this host has no route to {destination}")))?;
    find(&best.interface)
}

/// Finds the interface that has an address.
pub fn find_address(address: IpAddr) -> Result<Interface, ErrorReport> {
    let all = interfaces().map_err(|error| system_error("reading the interfaces", &error))?;
    let found = all.into_iter().find(|interface| interface.addresses.contains(&address));
    found.ok_or_else(|| input_error("no_interface", format!("no interface of this host has the address {address}")))
}

/// Refuses frames that do not fit the interface.
pub fn check_mtu(interface: &Interface, longest: u32, tags: u32) -> Result<(), ErrorReport> {
    let packet = longest.saturating_sub(HEADER_BYTES + 4 * tags);
    match interface.mtu {
        Some(mtu) if packet > mtu => {
            let name = &interface.name;
            let message = format!("frames of {longest} bytes need an MTU of {packet}; that of {name} is {mtu}");
            Err(input_error("mtu", message))
        }
        _ => Ok(()),
    }
}

/// A route out of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Route {
    interface: String,
    network: IpAddr,
    prefix_bits: u32,
    gateway: Option<IpAddr>,
}

/// Refuses the interface that has the default route, unless the user named it twice.
pub fn check_default_route(interface: &Interface, may_use_it: bool) -> Result<(), ErrorReport> {
    let is_default = |route: &Route| route.prefix_bits == 0 && route.interface == interface.name;
    if may_use_it || interface.is_loopback || !routes().iter().any(is_default) {
        return Ok(());
    }
    let name = &interface.name;
    let message = format!(
        "{name} has this host's default route, so that a flood of frames may cut it off; --yes-i-mean {name} allows it"
    );
    Err(input_error("default_route", message))
}

/// Returns the Ethernet address to which frames for a destination go: its own, or that of the gateway to it.
pub fn next_hop(interface: &Interface, destination: IpAddr) -> Result<MacAddress, ErrorReport> {
    let name = &interface.name;
    if interface.is_loopback {
        return Ok([0; 6]);
    }
    match destination {
        IpAddr::V4(address) if address.is_broadcast() => return Ok(BROADCAST),
        IpAddr::V4(address) if address.is_multicast() => {
            let [_, b, c, d] = address.octets();
            return Ok([0x01, 0x00, 0x5e, b & 0x7f, c, d]);
        }
        IpAddr::V6(address) if address.is_multicast() => {
            let octets = address.octets();
            return Ok([0x33, 0x33, octets[12], octets[13], octets[14], octets[15]]);
        }
        _ => {}
    }
    let hop = hop_to(&routes(), name, destination).ok_or_else(|| {
        let message = format!("{name} has no route to {destination}; name the next hop's MAC address (--dst-mac)");
        input_error("no_route", message)
    })?;
    let deadline = Instant::now() + ANSWER_PATIENCE;
    loop {
        let known = neighbours().map_err(|error| system_error("reading the neighbours", &error))?;
        let found = known.iter().find(|known| known.interface == interface.index && known.address == hop);
        if let Some(neighbour) = found {
            return Ok(neighbour.mac);
        }
        if Instant::now() >= deadline {
            let message = format!("{hop} does not answer on {name}, so that its MAC address is unknown (--dst-mac)");
            return Err(input_error("no_neighbour", message));
        }
        ask_for(interface, hop);
        std::thread::sleep(ASK_AGAIN);
    }
}

/// Makes the kernel ask for a neighbour's Ethernet address, by a datagram to it.
fn ask_for(interface: &Interface, hop: IpAddr) {
    let Some(own) = interface.addresses.iter().find(|own| own.is_ipv4() == hop.is_ipv4()) else { return };
    if let Ok(socket) = UdpSocket::bind((*own, 0)) {
        let _ = socket.send_to(&[], (hop, DISCARD_PORT));
    }
}

fn hop_to(routes: &[Route], interface: &str, destination: IpAddr) -> Option<IpAddr> {
    let fits = |route: &&Route| route.interface == interface && contains(route, destination);
    let best = routes.iter().filter(fits).max_by_key(|route| route.prefix_bits)?;
    Some(best.gateway.unwrap_or(destination))
}

fn contains(route: &Route, address: IpAddr) -> bool {
    let same = |a: u128, b: u128, width: u32| {
        let shift = width - route.prefix_bits.min(width);
        a.checked_shr(shift).unwrap_or(0) == b.checked_shr(shift).unwrap_or(0)
    };
    match (route.network, address) {
        (IpAddr::V4(a), IpAddr::V4(b)) => same(u32::from(a).into(), u32::from(b).into(), 32),
        (IpAddr::V6(a), IpAddr::V6(b)) => same(a.into(), b.into(), 128),
        _ => false,
    }
}

/// The routes of this thread's network namespace.
fn routes() -> Vec<Route> {
    let read = |name: &str| fs::read_to_string(format!("/proc/thread-self/net/{name}")).unwrap_or_default();
    let mut routes: Vec<Route> = read("route").lines().skip(1).filter_map(route_v4).collect();
    routes.extend(read("ipv6_route").lines().filter_map(route_v6));
    routes
}

/// `eth0 00000000 0102A8C0 0003 0 0 0 00000000 ...`: addresses as numbers of this machine's order.
fn route_v4(line: &str) -> Option<Route> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let number = |at: usize| u32::from_str_radix(fields.get(at)?, 16).ok();
    let address = |at: usize| Some(Ipv4Addr::from(number(at)?.to_ne_bytes()));
    const UP: u32 = 1;
    const GATEWAY: u32 = 2;
    let flags = number(3).filter(|flags| flags & UP != 0)?;
    Some(Route {
        interface: (*fields.first()?).to_owned(),
        network: address(1)?.into(),
        prefix_bits: u32::from(address(7)?).count_ones(),
        gateway: address(2).filter(|_| flags & GATEWAY != 0).map(IpAddr::V4),
    })
}

/// `(network) (bits) (source) (bits) (gateway) (metric) (references) (uses) (flags) (interface)`, all as hex.
fn route_v6(line: &str) -> Option<Route> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let address = |at: usize| Some(Ipv6Addr::from(u128::from_str_radix(fields.get(at)?, 16).ok()?));
    let number = |at: usize| u32::from_str_radix(fields.get(at)?, 16).ok();
    const REJECT: u32 = 0x200;
    number(8).filter(|flags| flags & REJECT == 0)?;
    let interface = (*fields.get(9)?).to_owned();
    let gateway = address(4).filter(|gateway| !gateway.is_unspecified()).map(IpAddr::V6);
    (interface != "lo").then_some(())?;
    Some(Route { interface, network: address(0)?.into(), prefix_bits: number(1)?, gateway })
}

/// Returns an interface's own counters.
pub fn counts(name: &str) -> InterfaceCounts {
    let text = fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix(name)?.strip_prefix(':'));
    let numbers: Vec<u64> =
        line.unwrap_or_default().split_whitespace().filter_map(|number| number.parse().ok()).collect();
    let at = |place: usize| numbers.get(place).copied();
    InterfaceCounts { rx_packets: at(1), rx_dropped: at(3), tx_packets: at(9), tx_dropped: at(11) }
}

/// By how much counters grew.
pub fn grown(before: InterfaceCounts, after: InterfaceCounts) -> InterfaceCounts {
    let more = |before: Option<u64>, after: Option<u64>| Some(after?.saturating_sub(before?));
    InterfaceCounts {
        rx_packets: more(before.rx_packets, after.rx_packets),
        rx_dropped: more(before.rx_dropped, after.rx_dropped),
        tx_packets: more(before.tx_packets, after.tx_packets),
        tx_dropped: more(before.tx_dropped, after.tx_dropped),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_are_read_and_the_longest_prefix_holds() {
        let lines = "wan\t00000000\t0101000A\t0003\t0\t0\t0\t00000000\t0\t0\t0\n\
                     wan\t0001000A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n\
                     lan\t0001000A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0";
        let mut routes: Vec<Route> = lines.lines().filter_map(route_v4).collect();
        routes.extend(route_v6(
            "fd000000000000000000000000000000 40 00000000000000000000000000000000 00 \
             fe800000000000000000000000000001 00000400 00000000 00000000 00000003 wan",
        ));
        let hop = |to: &str| hop_to(&routes, "wan", to.parse().unwrap()).map(|hop| hop.to_string());
        assert_eq!(hop("10.0.1.9"), Some("10.0.1.9".to_owned()));
        assert_eq!(hop("192.0.2.1"), Some("10.0.1.1".to_owned()));
        assert_eq!(hop("fd00::5"), Some("fe80::1".to_owned()));
        assert_eq!(hop("fe00::5"), None);
        assert_eq!(hop_to(&routes, "lan", "192.0.2.1".parse().unwrap()), None);
    }

    #[test]
    fn unknown_interface_is_named_with_the_known_ones() {
        let error = find("no-such-one").unwrap_err();
        assert!(error.message.contains("no-such-one") && error.message.contains("lo"), "{}", error.message);
    }

    #[test]
    fn loopback_has_counters() {
        assert!(counts("lo").rx_packets.is_some());
        assert_eq!(counts("no-such-one"), InterfaceCounts::default());
    }
}
