//! Link types (the registry of LINKTYPE values): those that are read, and the names of others, for the line that refuses
//! them.

use super::error::CaptureError;

/// What the frames of an interface begin with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkType {
    /// IEEE 802.3 Ethernet.
    #[default]
    Ethernet,
    /// Nothing: IP itself.
    Ip,
    /// The address family in four bytes, as loopbacks of BSD have it.
    Loopback,
    /// Linux cooked, of the interface "any".
    Cooked,
    /// Linux cooked, version 2.
    Cooked2,
}

/// Which link types a reader accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Accepted {
    /// Ethernet alone: what can be sent again.
    Ethernet,
    /// All that [`LinkType`] has.
    WithIp,
}

impl Accepted {
    /// Returns the link type of a number, or refuses it by its name.
    pub(super) fn check(self, number: u32) -> Result<LinkType, CaptureError> {
        let link = match number {
            1 => Some(LinkType::Ethernet),
            12 | 14 | 101 | 228 | 229 => Some(LinkType::Ip),
            0 | 108 => Some(LinkType::Loopback),
            113 => Some(LinkType::Cooked),
            276 => Some(LinkType::Cooked2),
            _ => None,
        };
        let wanted = match self {
            Self::Ethernet => "Ethernet (1)",
            Self::WithIp => "Ethernet, raw IP, BSD loopback and Linux cooked",
        };
        link.filter(|link| self == Self::WithIp || *link == LinkType::Ethernet).ok_or(CaptureError::LinkType {
            number,
            name: name_of(number),
            wanted,
        })
    }
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
