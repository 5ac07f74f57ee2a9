//! Parsers of routes: /proc/net/route (IPv4, main table) and /proc/net/ipv6_route (IPv6, all tables). Owns the
//! decision which rows are routes that traffic to another host may take; the others are omitted.

use std::net::{Ipv4Addr, Ipv6Addr};

use leadline_wire::RouteView;

use super::{fields, hexadecimal, lines};

// linux/route.h and linux/ipv6_route.h
const UP: u64 = 0x1;
const GATEWAY: u64 = 0x2;
const REJECT: u64 = 0x200;
const ANYCAST: u64 = 0x0010_0000;
const CACHE: u64 = 0x0100_0000;
const LOCAL: u64 = 0x8000_0000;

/// Returns the IPv4 routes that are up. Rows that refuse (unreachable, blackhole) have no interface and are omitted.
pub fn ipv4(route: &[u8]) -> Vec<RouteView> {
    lines(route).filter_map(ipv4_row).collect()
}

fn ipv4_row(line: &[u8]) -> Option<RouteView> {
    let mut columns = fields(line);
    let interface = columns.next()?;
    let destination = ipv4_address(columns.next()?)?;
    let gateway = ipv4_address(columns.next()?)?;
    let flags = hexadecimal(columns.next()?)?;
    // RefCnt, Use and Metric are between.
    let mask = u32::from(ipv4_address(columns.nth(3)?)?);
    let contiguous = mask.leading_ones() + mask.trailing_zeros().min(32) >= 32;
    if flags & UP == 0 || flags & REJECT != 0 || !contiguous {
        return None;
    }
    Some(RouteView {
        destination: format!("{destination}/{}", mask.leading_ones()),
        gateway: (flags & GATEWAY != 0).then(|| gateway.to_string()),
        interface: String::from_utf8_lossy(interface).into_owned(),
    })
}

/// Parses an address. The kernel prints its four bytes as one number in the machine's byte order.
fn ipv4_address(field: &[u8]) -> Option<Ipv4Addr> {
    if field.len() != 8 {
        return None;
    }
    let number = u32::try_from(hexadecimal(field)?).ok()?;
    Some(Ipv4Addr::from(number.to_ne_bytes()))
}

/// Returns the IPv6 routes that are up and lead off this host: without the rows for its own addresses, anycast,
/// multicast, `lo`, cached exceptions, refusals, and routes for some source addresses only.
pub fn ipv6(ipv6_route: &[u8]) -> Vec<RouteView> {
    lines(ipv6_route).filter_map(ipv6_row).collect()
}

fn ipv6_row(line: &[u8]) -> Option<RouteView> {
    let mut columns = fields(line);
    let destination = ipv6_address(columns.next()?)?;
    let prefix_length = hexadecimal(columns.next()?)?;
    let source_length = hexadecimal(columns.nth(1)?)?;
    let gateway = ipv6_address(columns.next()?)?;
    // Metric, RefCnt and Use are between.
    let flags = hexadecimal(columns.nth(3)?)?;
    let interface = columns.next()?;
    let useless = flags & (REJECT | ANYCAST | CACHE | LOCAL) != 0 || destination.is_multicast() || interface == b"lo";
    if flags & UP == 0 || useless || source_length != 0 || prefix_length > 128 {
        return None;
    }
    Some(RouteView {
        destination: format!("{destination}/{prefix_length}"),
        gateway: (flags & GATEWAY != 0).then(|| gateway.to_string()),
        interface: String::from_utf8_lossy(interface).into_owned(),
    })
}

fn ipv6_address(field: &[u8]) -> Option<Ipv6Addr> {
    if field.len() != 32 {
        return None;
    }
    let (high, low) = (hexadecimal(&field[..16])?, hexadecimal(&field[16..])?);
    Some(Ipv6Addr::from(u128::from(high) << 64 | u128::from(low)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(destination: &str, gateway: Option<&str>, interface: &str) -> RouteView {
        RouteView { destination: destination.into(), gateway: gateway.map(Into::into), interface: interface.into() }
    }

    /// Prints an address like this machine's kernel.
    fn printed(address: [u8; 4]) -> String {
        format!("{:08X}", u32::from_ne_bytes(address))
    }

    fn row(interface: &str, destination: [u8; 4], gateway: [u8; 4], flags: &str, mask: [u8; 4]) -> String {
        let (destination, gateway, mask) = (printed(destination), printed(gateway), printed(mask));
        format!("{interface}\t{destination}\t{gateway}\t{flags}\t0\t0\t0\t{mask}\t0\t0\t0      \n")
    }

    #[test]
    fn ipv4_routes() {
        let text = [
            "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT   \n".to_string(),
            row("eth0", [0; 4], [192, 0, 2, 1], "0003", [0; 4]),
            row("wan", [10, 81, 0, 0], [0; 4], "0001", [255, 255, 0, 0]),
            row("wan", [10, 85, 3, 7], [10, 81, 0, 1], "0007", [255; 4]),
            row("down", [10, 86, 0, 0], [0; 4], "0000", [255, 255, 0, 0]),
            row("*", [10, 87, 0, 0], [0; 4], "0201", [255, 255, 0, 0]),
            row("odd", [10, 88, 0, 0], [0; 4], "0001", [255, 0, 255, 0]),
        ]
        .concat();
        let expected = [
            view("0.0.0.0/0", Some("192.0.2.1"), "eth0"),
            view("10.81.0.0/16", None, "wan"),
            view("10.85.3.7/32", Some("10.81.0.1"), "wan"),
        ];
        assert_eq!(ipv4(text.as_bytes()), expected);
    }

    #[test]
    fn ipv6_routes_that_lead_off_the_host() {
        let zero = "0".repeat(32);
        let row = |destination: &str, length: &str, source: &str, gateway: &str, flags: &str, interface: &str| {
            format!(
                "{destination} {length} {zero} {source} {gateway} 00000400 00000001 00000000 {flags} {interface:>8}\n"
            )
        };
        let segment = "fd810000000000000000000000000000";
        let gateway = "fd810000000000000000000000000001";
        let text = [
            row(segment, "40", "00", &zero, "00000001", "wan"),
            row(&zero, "00", "00", gateway, "00000003", "wan"),
            row(gateway, "80", "00", &zero, "80200001", "wan"),
            row(segment, "80", "00", &zero, "00300001", "wan"),
            row("ff000000000000000000000000000000", "08", "00", &zero, "00000001", "wan"),
            row(&zero, "00", "00", &zero, "00200200", "lo"),
            row("fd900000000000000000000000000000", "40", "00", &zero, "00000000", "wan"),
            row("fd910000000000000000000000000000", "40", "40", gateway, "00000003", "wan"),
        ]
        .concat();
        let expected = [view("fd81::/64", None, "wan"), view("::/0", Some("fd81::1"), "wan")];
        assert_eq!(ipv6(text.as_bytes()), expected);
    }
}
