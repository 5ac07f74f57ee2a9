//! How frames are distributed among flows, and what is different from flow to flow.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use leadline_wire::FieldOrder;

/// The places of a table from which a random number picks a flow by Zipf's law.
pub const TABLE_PLACES: usize = 1 << 20;

/// A table of flows, `TABLE_PLACES` long, in which each has places by Zipf's law: the share of flow `n`, from 0, is
/// proportional to 1 / (n + 1)^exponent. Flows of less than half a place may have none.
pub fn zipf_table(flows: u32, exponent: f64) -> Vec<u32> {
    let share = |flow: u32| (f64::from(flow) + 1.0).powf(-exponent);
    let whole: f64 = (0..flows).map(share).sum();
    let mut table = Vec::with_capacity(TABLE_PLACES);
    let mut so_far = 0.0;
    for flow in 0..flows {
        so_far += share(flow);
        let end = (so_far / whole * TABLE_PLACES as f64).round() as usize;
        table.resize(end.min(TABLE_PLACES), flow);
    }
    table.resize(TABLE_PLACES, flows.saturating_sub(1));
    table
}

/// A random number generator (xorshift64, Marsaglia 2003) that programs have too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Random(u64);

impl Random {
    /// Begins with a seed.
    pub fn new(seed: u64) -> Self {
        // Zero would stay zero.
        Self(mix(seed) | 1)
    }

    /// The state, which a program goes on with.
    pub fn state(self) -> u64 {
        self.0
    }

    /// The next number.
    #[inline]
    pub fn next_number(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// The next number below a bound.
    #[inline]
    pub fn below(&mut self, bound: u32) -> u32 {
        (((self.next_number() >> 32) * u64::from(bound)) >> 32) as u32
    }
}

/// A number whose bits depend on all bits of another one (splitmix64, Steele 2014).
fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

/// Numbers from a first one on, of which each flow has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range<T> {
    /// The first one.
    pub first: T,
    /// How many there are, at least 1.
    pub count: u128,
    /// How flows have them.
    pub order: FieldOrder,
}

impl<T> Range<T> {
    /// The place within the range of a flow; `field` sets fields of one flow apart.
    fn place(&self, flow: u64, seed: u64, field: u64) -> u128 {
        match self.order {
            FieldOrder::InTurn => u128::from(flow) % self.count,
            FieldOrder::Random => {
                let high = mix(seed ^ mix(flow) ^ field);
                (u128::from(high) << 64 | u128::from(mix(high))) % self.count
            }
        }
    }
}

impl Range<u16> {
    /// The flow's port or identifier.
    pub fn of(&self, flow: u64, seed: u64, field: u64) -> u16 {
        self.first.wrapping_add(self.place(flow, seed, field) as u16)
    }
}

impl Range<IpAddr> {
    /// The flow's address.
    pub fn of(&self, flow: u64, seed: u64, field: u64) -> IpAddr {
        let place = self.place(flow, seed, field);
        match self.first {
            IpAddr::V4(first) => Ipv4Addr::from(u32::from(first).wrapping_add(place as u32)).into(),
            IpAddr::V6(first) => Ipv6Addr::from(u128::from(first).wrapping_add(place)).into(),
        }
    }
}

/// How many flows differ if their fields have these ranges; `None` if that depends on random numbers.
pub fn count_different(counts: &[(u128, FieldOrder)]) -> Option<u128> {
    let is_random = |(count, order): &(u128, FieldOrder)| *count > 1 && *order == FieldOrder::Random;
    if counts.iter().any(is_random) {
        return None;
    }
    Some(counts.iter().fold(1, |all, (count, _)| all / greatest_common(all, *count) * count))
}

fn greatest_common(mut a: u128, mut b: u128) -> u128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zipf_shares_fall_as_asked() {
        let table = zipf_table(1000, 1.0);
        let share = |flow: u32| table.iter().filter(|of| **of == flow).count() as f64;
        assert_eq!(table.len(), TABLE_PLACES);
        for flow in [1, 9, 99] {
            let ratio = share(0) / share(flow) / f64::from(flow + 1);
            assert!((ratio - 1.0).abs() < 0.01, "{flow}: {ratio}");
        }
        assert!(zipf_table(3, 0.0).iter().filter(|of| **of == 2).count().abs_diff(TABLE_PLACES / 3) <= 1);
    }

    #[test]
    fn random_flows_are_even() {
        let mut random = Random::new(7);
        let mut counts = [0u32; 10];
        (0..100_000).for_each(|_| counts[random.below(10) as usize] += 1);
        assert!(counts.iter().all(|count| count.abs_diff(10_000) < 500), "{counts:?}");
    }

    #[test]
    fn ranges_give_their_values_in_turn_or_at_random() {
        let ports = Range { first: 1000u16, count: 3, order: FieldOrder::InTurn };
        assert_eq!([0, 1, 2, 3].map(|flow| ports.of(flow, 1, 1)), [1000, 1001, 1002, 1000]);
        let addresses = Range { first: "10.0.0.254".parse().unwrap(), count: 4, order: FieldOrder::Random };
        let mut seen: Vec<IpAddr> = (0..100).map(|flow| Range::<IpAddr>::of(&addresses, flow, 1, 1)).collect();
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), 4);
        assert_eq!(seen[3], "10.0.1.1".parse::<IpAddr>().unwrap());
    }

    #[test]
    fn different_flows_are_counted() {
        let (turn, random) = (FieldOrder::InTurn, FieldOrder::Random);
        assert_eq!(count_different(&[(4, turn), (6, turn), (1, random)]), Some(12));
        assert_eq!(count_different(&[(4, turn), (6, random)]), None);
    }
}
