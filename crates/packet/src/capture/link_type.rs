//! Names of link types (the registry of LINKTYPE values), for the line that refuses them.

use super::error::CaptureError;

/// IEEE 802.3 Ethernet.
const ETHERNET: u32 = 1;

/// Accepts Ethernet alone.
pub(super) fn require_ethernet(number: u32) -> Result<(), CaptureError> {
    if number == ETHERNET {
        return Ok(());
    }
    Err(CaptureError::LinkType { number, name: name_of(number) })
}

fn name_of(number: u32) -> &'static str {
    match number {
        0 => "BSD loopback",
        9 | 50 => "PPP",
        12 | 14 | 101 => "raw IP",
        51 => "PPPoE",
        105 => "IEEE 802.11",
        108 => "OpenBSD loopback",
        113 => "Linux cooked, of the interface \"any\"",
        127 => "IEEE 802.11 with radiotap",
        147..=162 => "private use",
        189 | 220 => "USB",
        195 | 230 => "IEEE 802.15.4",
        201 => "Bluetooth",
        227 => "CAN",
        228 => "raw IPv4",
        229 => "raw IPv6",
        239 => "netfilter log",
        253 => "netlink",
        276 => "Linux cooked 2, of the interface \"any\"",
        _ => "unknown here",
    }
}
