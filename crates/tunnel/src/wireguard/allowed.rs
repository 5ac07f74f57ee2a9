//! Finds the peer of an address by the longest matching prefix. One sorted table per prefix length, longest first: a
//! lookup costs one binary search per distinct length (one to three in practice) and allocates nothing.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// An address with a prefix length, as in `10.83.0.1/16`; the bits after the prefix are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefix {
    /// The address, with its host bits.
    pub address: IpAddr,
    /// Number of significant leading bits: 0 to 32 (IPv4) or 0 to 128 (IPv6).
    pub length: u8,
}

/// An invalid prefix.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not ADDRESS/LENGTH, like 10.83.0.1/16 or fd83::1/64")]
pub struct BadPrefix {
    text: String,
}

/// A prefix that two peers claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("allowed_ips {prefix} is assigned to peers[{first}] and to peers[{second}]")]
pub struct Conflict {
    /// The prefix, as written for the second peer.
    pub prefix: Prefix,
    /// Index of the first peer.
    pub first: usize,
    /// Index of the second peer.
    pub second: usize,
}

/// A table from addresses to peer indices.
#[derive(Debug, Clone, Default)]
pub struct AllowedAddresses {
    v4: Vec<Table>,
    v6: Vec<Table>,
}

/// All prefixes of one length; keys are the prefix bits, left-aligned and sorted.
#[derive(Debug, Clone)]
struct Table {
    mask: u128,
    length: u8,
    entries: Vec<(u128, u32)>,
}

impl AllowedAddresses {
    /// Builds the table from each peer's prefixes, in the order of the peers.
    ///
    /// # Errors
    /// A prefix that two peers claim: the kernel would silently assign it to the later one.
    pub fn new<'a>(peers: impl IntoIterator<Item = &'a [Prefix]>) -> Result<Self, Conflict> {
        let mut all = Self::default();
        for (peer, prefixes) in peers.into_iter().enumerate() {
            for prefix in prefixes {
                all.insert(*prefix, peer)?;
            }
        }
        Ok(all)
    }

    /// Index of the peer with the longest prefix that contains the address.
    pub fn peer(&self, address: IpAddr) -> Option<usize> {
        let (tables, bits) = match address {
            IpAddr::V4(_) => (&self.v4, aligned(address)),
            IpAddr::V6(_) => (&self.v6, aligned(address)),
        };
        tables.iter().find_map(|table| {
            let key = bits & table.mask;
            let index = table.entries.binary_search_by_key(&key, |entry| entry.0).ok()?;
            Some(table.entries[index].1 as usize)
        })
    }

    fn insert(&mut self, prefix: Prefix, peer: usize) -> Result<(), Conflict> {
        let tables = if prefix.address.is_ipv4() { &mut self.v4 } else { &mut self.v6 };
        // Longest first, so the comparison is reversed.
        let place = match tables.binary_search_by(|table| prefix.length.cmp(&table.length)) {
            Ok(place) => place,
            Err(place) => {
                let table = Table { mask: mask(prefix.length), length: prefix.length, entries: Vec::new() };
                tables.insert(place, table);
                place
            }
        };
        let table = &mut tables[place];
        let key = aligned(prefix.address) & table.mask;
        match table.entries.binary_search_by_key(&key, |entry| entry.0) {
            Ok(index) if table.entries[index].1 as usize == peer => Ok(()),
            Ok(index) => Err(Conflict { prefix, first: table.entries[index].1 as usize, second: peer }),
            Err(free) => {
                table.entries.insert(free, (key, peer as u32));
                Ok(())
            }
        }
    }
}

impl FromStr for Prefix {
    type Err = BadPrefix;

    /// Without a length, the prefix is a single address, as in `wg`'s files.
    fn from_str(text: &str) -> Result<Self, BadPrefix> {
        let bad = || BadPrefix { text: text.to_string() };
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| bad())?;
        let longest = if address.is_ipv4() { 32 } else { 128 };
        let length = match length {
            Some(digits) => digits.parse().map_err(|_| bad())?,
            None => longest,
        };
        if length > longest {
            return Err(bad());
        }
        Ok(Self { address, length })
    }
}

impl TryFrom<String> for Prefix {
    type Error = BadPrefix;

    fn try_from(text: String) -> Result<Self, BadPrefix> {
        text.parse()
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.address, self.length)
    }
}

fn aligned(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(four) => u128::from(u32::from(four)) << 96,
        IpAddr::V6(six) => u128::from(six),
    }
}

fn mask(length: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn prefixes(texts: &[&str]) -> Vec<Prefix> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn table(peers: &[&[&str]]) -> AllowedAddresses {
        let peers: Vec<Vec<Prefix>> = peers.iter().map(|texts| prefixes(texts)).collect();
        AllowedAddresses::new(peers.iter().map(Vec::as_slice)).unwrap()
    }

    #[test]
    fn longest_prefix_wins() {
        let table = table(&[&["0.0.0.0/0", "::/0"], &["10.83.0.0/16", "fd83::/64"], &["10.83.0.7/32", "fd83::7/128"]]);
        for (address, peer) in
            [("9.9.9.9", 0), ("10.83.0.8", 1), ("10.83.0.7", 2), ("fd84::1", 0), ("fd83::8", 1), ("fd83::7", 2)]
        {
            assert_eq!(table.peer(address.parse().unwrap()), Some(peer), "{address}");
        }
    }

    #[test]
    fn address_without_prefix_has_no_peer_and_families_are_separate() {
        let table = table(&[&["10.0.0.0/8"]]);
        assert_eq!(table.peer("11.0.0.1".parse().unwrap()), None);
        assert_eq!(table.peer("a00::1".parse().unwrap()), None);
    }

    #[test]
    fn host_bits_are_ignored_and_conflicts_named() {
        let (first, second) = (prefixes(&["10.83.0.1/16"]), prefixes(&["10.83.9.9/16"]));
        let conflict = AllowedAddresses::new([first.as_slice(), second.as_slice()]).unwrap_err();
        assert_eq!(conflict.to_string(), "allowed_ips 10.83.9.9/16 is assigned to peers[0] and to peers[1]");
    }

    #[test]
    fn bad_prefixes_are_refused() {
        for text in ["", "10.0.0.0/33", "fd00::/129", "10.0.0/8", "10.0.0.0/", "10.0.0.0/-1", "x/8"] {
            assert!(text.parse::<Prefix>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn lookup_agrees_with_a_linear_search(
            entries in proptest::collection::vec((any::<u32>(), 0u8..=32), 0..40),
            probes in proptest::collection::vec(any::<u32>(), 1..40),
        ) {
            let mut known = std::collections::BTreeSet::new();
            let peers: Vec<Vec<Prefix>> = entries
                .iter()
                .filter(|(bits, length)| known.insert((aligned(IpAddr::V4((*bits).into())) & mask(*length), *length)))
                .map(|(bits, length)| vec![Prefix { address: IpAddr::V4((*bits).into()), length: *length }])
                .collect();
            let table = AllowedAddresses::new(peers.iter().map(Vec::as_slice)).unwrap();
            let near = entries.iter().map(|(bits, _)| bits ^ 1);
            for probe in probes.iter().copied().chain(near) {
                let address = IpAddr::V4(probe.into());
                let expected = peers
                    .iter()
                    .enumerate()
                    .filter(|(_, prefix)| (aligned(address) ^ aligned(prefix[0].address)) & mask(prefix[0].length) == 0)
                    .max_by_key(|(_, prefix)| prefix[0].length)
                    .map(|(peer, _)| peer);
                prop_assert_eq!(table.peer(address), expected);
            }
        }
    }
}
