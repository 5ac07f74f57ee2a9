//! Rates in messages, as people read them.

/// Returns a rate in the largest unit that it reaches, with all of its digits: two rates that differ read differently.
pub fn format_rate(rate_bps: u64) -> String {
    let (unit_bps, unit) = match rate_bps {
        0..1_000 => (1, "bit/s"),
        1_000..1_000_000 => (1_000, "kbit/s"),
        1_000_000..1_000_000_000 => (1_000_000, "Mbit/s"),
        _ => (1_000_000_000, "Gbit/s"),
    };
    let digits = unit_bps.to_string().len() - 1;
    let (whole, rest) = (rate_bps / unit_bps, rate_bps % unit_bps);
    if rest == 0 {
        return format!("{whole} {unit}");
    }
    format!("{whole}.{} {unit}", format!("{rest:0digits$}").trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_the_unit_that_they_reach_and_all_digits() {
        let texts = [0, 999, 1_000, 1_500, 10_000_000, 10_000_001, 1_000_000_000, u64::MAX].map(format_rate);
        let expected = ["0 bit/s", "999 bit/s", "1 kbit/s", "1.5 kbit/s", "10 Mbit/s", "10.000001 Mbit/s", "1 Gbit/s"];
        assert_eq!(texts[..7], expected);
        assert_eq!(texts[7], "18446744073.709551615 Gbit/s");
    }
}
