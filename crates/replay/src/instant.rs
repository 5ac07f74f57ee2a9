//! Times as ISO 8601 has them.

const SECOND_NS: i64 = 1_000_000_000;

/// Parses a date with a time of day, and perhaps a zone (else UTC); returns ns since 1970 and how exact they are, ns.
pub(crate) fn parse_instant(text: &str) -> Option<(i64, u32)> {
    let (date, time) = text.trim().split_once(['T', 't', ' '])?;
    let mut date = date.splitn(3, '-').map(|part| part.parse::<i64>().ok());
    let [year, month, day] = [date.next()??, date.next()??, date.next()??];
    let at = time.find(['Z', 'z', '+', '-']).unwrap_or(time.len());
    let (clock, zone) = time.split_at(at);
    let mut clock = clock.trim_end().splitn(3, ':');
    let [hour, minute] = [clock.next()?.parse::<i64>().ok()?, clock.next()?.parse::<i64>().ok()?];
    let seconds = clock.next().unwrap_or("0");
    let (second, fraction) = seconds.split_once(['.', ',']).unwrap_or((seconds, ""));
    let second: i64 = second.parse().ok()?;
    let ranges = [(1970, 2200, year), (1, 12, month), (1, 31, day), (0, 23, hour), (0, 59, minute), (0, 60, second)];
    if ranges.iter().any(|(low, high, value)| value < low || value > high) {
        return None;
    }
    if !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let digits = &fraction[..fraction.len().min(9)];
    let unit_ns = 10u32.pow(9 - digits.len() as u32);
    let fraction_ns = digits.parse::<i64>().unwrap_or(0) * i64::from(unit_ns);
    let seconds = days_since_1970(year, month, day) * 86400 + hour * 3600 + minute * 60 + second - zone_seconds(zone)?;
    Some((seconds * SECOND_NS + fraction_ns, unit_ns))
}

fn zone_seconds(zone: &str) -> Option<i64> {
    let Some(offset) = zone.strip_prefix(['+', '-']) else { return matches!(zone, "" | "Z" | "z").then_some(0) };
    let digits: String = offset.chars().filter(|digit| *digit != ':').collect();
    if digits.len() > 4 || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let (hours, minutes) = digits.split_at_checked(2)?;
    let minutes = if minutes.is_empty() { 0 } else { minutes.parse::<i64>().ok()? };
    let seconds = hours.parse::<i64>().ok()? * 3600 + minutes * 60;
    Some(if zone.starts_with('-') { -seconds } else { seconds })
}

/// The days of the Gregorian calendar, with years that begin in March.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    year * 365 + year / 4 - year / 100 + year / 400 + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::parse_instant;

    #[test]
    fn instants_are_exact() {
        let second = 1_704_164_645_000_000_000;
        let cases = [
            ("1970-01-01T00:00:00Z", (0, 1_000_000_000)),
            ("2024-01-02T03:04:05.678Z", (second + 678_000_000, 1_000_000)),
            ("2024-01-02T05:04:05.6+02:00", (second + 600_000_000, 100_000_000)),
            ("2024-01-01T21:34:05.1234567891-0530", (second + 123_456_789, 1)),
            ("2024-01-02 03:04:05", (second, 1_000_000_000)),
            ("2024-02-29T00:00:00Z", (1_709_164_800_000_000_000, 1_000_000_000)),
        ];
        for (text, expected) in cases {
            assert_eq!(parse_instant(text), Some(expected), "{text}");
        }
        for text in [
            "",
            "T",
            "2024-13-01T00:00:00Z",
            "2024-01-01",
            "2024-01-01T25:00:00Z",
            "2024-01-01T00:00:00.xZ",
            "9999-01-01T0:0:0Z",
        ] {
            assert_eq!(parse_instant(text), None, "{text}");
        }
    }
}
