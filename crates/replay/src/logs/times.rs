//! Times and durations as logs write them, as integers. Owns their patterns and no meaning: whether a time is that of a
//! request's begin or of its end is the format's.

/// One second, ns.
pub(super) const SECOND_NS: i64 = 1_000_000_000;
/// One millisecond, ns.
pub(super) const MS_NS: i64 = 1_000_000;
/// One microsecond, ns.
pub(super) const US_NS: i64 = 1_000;
/// The first day of 2200: later times are no times of a log.
const MAX_DAYS: i64 = 84_006;
const MONTHS: [&[u8; 3]; 12] =
    [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];

/// How a time, or a part of one, is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TimePattern {
    /// `29/Nov/2026:14:00:00 +0000`, with or without brackets around it.
    Clf,
    /// `29/Nov/2026:14:00:00.123`, in a zone that the log does not name.
    Haproxy,
    /// `2026-11-29T14:00:00.123Z`, with any number of decimals and any zone, or none.
    Iso,
    /// The same by a server that writes whole seconds.
    IsoSeconds,
    /// A number of units since 1970, with or without decimals.
    Number {
        /// The unit, ns.
        unit_ns: i64,
    },
    /// The decimals of a second alone.
    Fraction {
        /// Of how many digits.
        digits: usize,
    },
    /// What strftime writes, of fixed width.
    Parts(Vec<TimePart>),
}

/// A directive of strftime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TimePart {
    Year,
    Month,
    MonthName,
    Day,
    Hour,
    Minute,
    Second,
    Zone,
    Epoch,
    /// Other text of this many bytes.
    Other(usize),
}

/// A time as its parts are read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Moment {
    year: i64,
    month: i64,
    day: i64,
    second_of_day: i64,
    zone_s: i64,
    fraction_ns: i64,
    epoch_ns: Option<i64>,
    /// How exact it is, ns; 0 before anything was read.
    pub(super) precision_ns: i64,
}

impl Moment {
    /// ns since 1970, if the parts are those of a time.
    pub(super) fn ns(&self) -> Option<i64> {
        if let Some(epoch_ns) = self.epoch_ns {
            let is_time = (0..MAX_DAYS * 86_400 * SECOND_NS).contains(&epoch_ns);
            return is_time.then(|| epoch_ns + self.fraction_ns);
        }
        let is_date = (1..=12).contains(&self.month) && (1..=31).contains(&self.day) && self.year < 2200;
        let days = if is_date { count_days(self.year, self.month, self.day) } else { -1 };
        let seconds = days * 86_400 + self.second_of_day - self.zone_s;
        (days >= 0 && seconds >= 0).then(|| seconds * SECOND_NS + self.fraction_ns)
    }
}

impl TimePattern {
    /// How exact it usually is, ns: chooses between several times of a line.
    pub(super) fn usual_precision_ns(&self) -> i64 {
        match self {
            Self::Clf | Self::IsoSeconds | Self::Parts(_) => SECOND_NS,
            Self::Haproxy => MS_NS,
            // Mostly in milliseconds, but a number beside it surely is.
            Self::Iso => 10 * MS_NS,
            Self::Number { unit_ns } => (*unit_ns).min(MS_NS),
            Self::Fraction { digits } => scale(*digits),
        }
    }

    /// How many bytes it has, if always as many.
    pub(super) fn width(&self) -> Option<usize> {
        match self {
            Self::Parts(parts) => Some(parts.iter().map(|part| part.width()).sum()),
            Self::Fraction { digits } => Some(*digits),
            _ => None,
        }
    }

    /// Reads it into a moment; `None` if it is written otherwise.
    pub(super) fn read(&self, text: &[u8], moment: &mut Moment) -> Option<()> {
        match self {
            Self::Clf => read_clf(text, moment),
            Self::Haproxy => read_haproxy(text, moment),
            Self::Iso | Self::IsoSeconds => read_iso(text, moment),
            Self::Number { unit_ns } => {
                moment.epoch_ns = Some(read_decimal(text, *unit_ns)?);
                let decimals = memchr::memchr(b'.', text).map_or(0, |point| text.len() - point - 1);
                moment.precision_ns = (unit_ns / 10i64.pow(decimals.min(9) as u32)).max(1);
                Some(())
            }
            Self::Fraction { digits } => {
                moment.fraction_ns = read_number(text.get(..*digits)?)? * scale(*digits);
                moment.precision_ns = scale(*digits);
                Some(())
            }
            Self::Parts(parts) => read_parts(parts, text, moment),
        }
    }
}

impl TimePart {
    fn width(self) -> usize {
        match self {
            Self::Year => 4,
            Self::Month | Self::Day | Self::Hour | Self::Minute | Self::Second => 2,
            Self::MonthName => 3,
            Self::Zone => 5,
            Self::Epoch => 10,
            Self::Other(bytes) => bytes,
        }
    }
}

/// Reads a format of strftime whose directives have fixed widths.
pub(super) fn parse_strftime(text: &str) -> Result<TimePattern, String> {
    let mut parts = Vec::new();
    let mut rest = text.chars();
    while let Some(character) = rest.next() {
        if character != '%' {
            parts.push(TimePart::Other(character.len_utf8()));
            continue;
        }
        match rest.next() {
            Some('Y') => parts.push(TimePart::Year),
            Some('m') => parts.push(TimePart::Month),
            Some('b' | 'h') => parts.push(TimePart::MonthName),
            Some('d' | 'e') => parts.push(TimePart::Day),
            Some('H' | 'k') => parts.push(TimePart::Hour),
            Some('M') => parts.push(TimePart::Minute),
            Some('S') => parts.push(TimePart::Second),
            Some('z') => parts.push(TimePart::Zone),
            Some('s') => parts.push(TimePart::Epoch),
            Some('a' | 'Z' | 'j') => parts.push(TimePart::Other(3)),
            Some('%' | 'n' | 't' | 'u') => parts.push(TimePart::Other(1)),
            Some('F') => parts.extend(with_separator([TimePart::Year, TimePart::Month, TimePart::Day])),
            Some('T') => parts.extend(with_separator([TimePart::Hour, TimePart::Minute, TimePart::Second])),
            other => {
                let name = other.map_or_else(String::new, |name| name.to_string());
                return Err(format!("the time's directive %{name} has no fixed width: use %Y %m %b %d %H %M %S %z"));
            }
        }
    }
    Ok(TimePattern::Parts(parts))
}

fn with_separator([first, second, third]: [TimePart; 3]) -> [TimePart; 5] {
    [first, TimePart::Other(1), second, TimePart::Other(1), third]
}

fn read_parts(parts: &[TimePart], text: &[u8], moment: &mut Moment) -> Option<()> {
    let mut rest = text;
    for part in parts {
        let (field, after) = rest.split_at_checked(part.width())?;
        rest = after;
        // %e and %k pad with spaces.
        let number = || read_number(field.trim_ascii_start());
        match part {
            TimePart::Year => moment.year = number()?,
            TimePart::Month => moment.month = number()?,
            TimePart::MonthName => moment.month = read_month(field)?,
            TimePart::Day => moment.day = number()?,
            TimePart::Hour => moment.second_of_day += number()? * 3600,
            TimePart::Minute => moment.second_of_day += number()? * 60,
            TimePart::Second => moment.second_of_day += number()?,
            TimePart::Zone => moment.zone_s = read_zone(field)?,
            TimePart::Epoch => moment.epoch_ns = Some(number()?.checked_mul(SECOND_NS)?),
            TimePart::Other(_) => {}
        }
    }
    let has_time = parts.iter().any(|part| matches!(part, TimePart::Second | TimePart::Epoch));
    if has_time && moment.precision_ns == 0 {
        moment.precision_ns = SECOND_NS;
    }
    Some(())
}

fn read_clf(text: &[u8], moment: &mut Moment) -> Option<()> {
    let text = text.strip_prefix(b"[").unwrap_or(text);
    let text = text.strip_suffix(b"]").unwrap_or(text);
    read_civil(text, moment)?;
    moment.zone_s = if text.len() > 20 { read_zone(text.get(21..)?)? } else { 0 };
    moment.precision_ns = SECOND_NS;
    Some(())
}

fn read_haproxy(text: &[u8], moment: &mut Moment) -> Option<()> {
    read_civil(text, moment)?;
    (moment.fraction_ns, moment.precision_ns) = match &text[20..] {
        [] => (0, SECOND_NS),
        [b'.', decimals @ ..] => read_fraction(decimals)?,
        _ => return None,
    };
    moment.zone_s = 0;
    Some(())
}

/// `29/Nov/2026:14:00:00` and what follows.
fn read_civil(text: &[u8], moment: &mut Moment) -> Option<()> {
    let text: &[u8; 20] = text.first_chunk()?;
    let is_marked = text[2] == b'/' && text[6] == b'/' && text[11] == b':' && text[14] == b':' && text[17] == b':';
    moment.day = read_pair(text[0], text[1])?;
    moment.month = read_month(&text[3..6])?;
    moment.year = read_pair(text[7], text[8])? * 100 + read_pair(text[9], text[10])?;
    moment.second_of_day = read_clock([text[12], text[13], text[15], text[16], text[18], text[19]])?;
    is_marked.then_some(())
}

fn read_iso(text: &[u8], moment: &mut Moment) -> Option<()> {
    let head: &[u8; 19] = text.first_chunk()?;
    let is_marked = head[4] == b'-' && head[7] == b'-' && matches!(head[10], b'T' | b't' | b' ' | b'_');
    if !is_marked || head[13] != b':' || head[16] != b':' {
        return None;
    }
    moment.year = read_pair(head[0], head[1])? * 100 + read_pair(head[2], head[3])?;
    moment.month = read_pair(head[5], head[6])?;
    moment.day = read_pair(head[8], head[9])?;
    moment.second_of_day = read_clock([head[11], head[12], head[14], head[15], head[17], head[18]])?;
    let rest = &text[19..];
    let zone_at = rest.iter().position(|byte| matches!(byte, b'Z' | b'z' | b'+' | b'-')).unwrap_or(rest.len());
    let (decimals, zone) = rest.split_at(zone_at);
    (moment.fraction_ns, moment.precision_ns) = match decimals {
        [] => (0, SECOND_NS),
        [b'.' | b',', digits @ ..] => read_fraction(digits)?,
        _ => return None,
    };
    moment.zone_s = if matches!(zone, [] | [b'Z' | b'z']) { 0 } else { read_zone(zone)? };
    Some(())
}

/// The decimals of a second, ns, and their precision.
fn read_fraction(digits: &[u8]) -> Option<(i64, i64)> {
    let kept = &digits[..digits.len().min(9)];
    let unit_ns = scale(kept.len());
    Some((read_number(kept)? * unit_ns, unit_ns))
}

/// The value of a last decimal of a second, ns.
fn scale(digits: usize) -> i64 {
    10i64.pow(9 - digits.min(9) as u32)
}

fn read_clock([h1, h2, m1, m2, s1, s2]: [u8; 6]) -> Option<i64> {
    let (hour, minute, second) = (read_pair(h1, h2)?, read_pair(m1, m2)?, read_pair(s1, s2)?);
    // 60: a leap second.
    (hour < 24 && minute < 60 && second <= 60).then_some(hour * 3600 + minute * 60 + second)
}

/// `+0100`, `-03:30`, `+01`: seconds to the east.
fn read_zone(text: &[u8]) -> Option<i64> {
    let (sign, digits) = match text {
        [b'+', digits @ ..] => (1, digits),
        [b'-', digits @ ..] => (-1, digits),
        _ => return None,
    };
    let (hours, minutes) = match *digits {
        [h1, h2, m1, m2] | [h1, h2, b':', m1, m2] => (read_pair(h1, h2)?, read_pair(m1, m2)?),
        [h1, h2] => (read_pair(h1, h2)?, 0),
        _ => return None,
    };
    (hours < 24 && minutes < 60).then_some(sign * (hours * 3600 + minutes * 60))
}

fn read_month(name: &[u8]) -> Option<i64> {
    MONTHS.iter().position(|month| name.eq_ignore_ascii_case(*month)).map(|index| index as i64 + 1)
}

#[inline]
fn read_pair(tens: u8, ones: u8) -> Option<i64> {
    let (tens, ones) = (tens.wrapping_sub(b'0'), ones.wrapping_sub(b'0'));
    (tens < 10 && ones < 10).then(|| i64::from(tens) * 10 + i64::from(ones))
}

/// Up to 18 digits.
pub(super) fn read_number(text: &[u8]) -> Option<i64> {
    if text.is_empty() || text.len() > 18 {
        return None;
    }
    text.iter().try_fold(0, |value: i64, byte| {
        let digit = byte.wrapping_sub(b'0');
        (digit < 10).then(|| value * 10 + i64::from(digit))
    })
}

/// A number of units, with or without decimals, ns; decimals below 1 ns are left out.
pub(super) fn read_decimal(text: &[u8], unit_ns: i64) -> Option<i64> {
    let point = text.iter().position(|byte| *byte == b'.').unwrap_or(text.len());
    if text.is_empty() {
        return None;
    }
    let whole_ns = if point == 0 { 0 } else { read_number(&text[..point])?.checked_mul(unit_ns)? };
    let decimals = match text.get(point + 1..) {
        None => return Some(whole_ns),
        Some([]) if point == 0 => return None,
        Some([]) => return Some(whole_ns),
        Some(decimals) => &decimals[..decimals.len().min(9)],
    };
    // At most 10^9 times a unit of at most 10^9 ns.
    whole_ns.checked_add(read_number(decimals)? * unit_ns / 10i64.pow(decimals.len() as u32))
}

/// Days since 1970 of a date of the Gregorian calendar (Hinnant's `days_from_civil`); a day past its month's end is one
/// of the next month.
fn count_days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pattern: &TimePattern, text: &str) -> Option<(i64, i64)> {
        let mut moment = Moment::default();
        pattern.read(text.as_bytes(), &mut moment)?;
        Some((moment.ns()?, moment.precision_ns))
    }

    #[test]
    fn times_of_each_pattern_are_read() {
        let at_ns = 1_764_424_923 * SECOND_NS;
        let iso = TimePattern::Iso;
        let date = parse_strftime("%d/%b/%Y:%H:%M:%S %z").expect("it is a format");
        for (pattern, text, ns, precision_ns) in [
            (&TimePattern::Clf, "29/Nov/2025:14:02:03 +0000", at_ns, SECOND_NS),
            (&TimePattern::Clf, "[29/Nov/2025:17:32:03 +0330]", at_ns, SECOND_NS),
            (&TimePattern::Clf, "29/Nov/2025:09:02:03 -0500", at_ns, SECOND_NS),
            (&TimePattern::Haproxy, "29/Nov/2025:14:02:03.123", at_ns + 123 * MS_NS, MS_NS),
            (&iso, "2025-11-29T14:02:03Z", at_ns, SECOND_NS),
            (&iso, "2025-11-29T15:02:03+01:00", at_ns, SECOND_NS),
            (&iso, "2025-11-29 14:02:03,5", at_ns + 500 * MS_NS, 100 * MS_NS),
            (&iso, "2025-11-29T14:02:03.1234567891Z", at_ns + 123_456_789, 1),
            (&TimePattern::Number { unit_ns: SECOND_NS }, "1764424923.123", at_ns + 123 * MS_NS, MS_NS),
            (&TimePattern::Number { unit_ns: SECOND_NS }, "1764424923", at_ns, SECOND_NS),
            (&TimePattern::Number { unit_ns: US_NS }, "1764424923000042", at_ns + 42_000, US_NS),
            (&date, "29/Nov/2025:14:02:03 +0000", at_ns, SECOND_NS),
            (&parse_strftime("%F %T").expect("it is a format"), "2025-11-29 14:02:03", at_ns, SECOND_NS),
            (&parse_strftime("%s").expect("it is a format"), "1764424923", at_ns, SECOND_NS),
        ] {
            assert_eq!(read(pattern, text), Some((ns, precision_ns)), "{text}");
        }
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for (pattern, text) in [
            (TimePattern::Clf, "29/Nov/2025:14:02:03 +0"),
            (TimePattern::Clf, "29/Foo/2025:14:02:03 +0000"),
            (TimePattern::Clf, "29/Nov/2025:24:02:03 +0000"),
            (TimePattern::Clf, "-"),
            (TimePattern::Clf, "29/Nov/0026:14:02:03 +0000"),
            (TimePattern::Haproxy, "29/Nov/9999:14:02:03.123"),
            (TimePattern::Number { unit_ns: 1 }, "999999999999999999999"),
            (TimePattern::Haproxy, "29/Nov/2025:14:02:03.x"),
            (TimePattern::Iso, "2025-13-29T14:02:03Z"),
            (TimePattern::Iso, "2025-11-29T14:02:03.Z"),
            (TimePattern::Iso, "0000-00-00T00:00:00Z"),
            (TimePattern::Number { unit_ns: SECOND_NS }, "-"),
            (TimePattern::Number { unit_ns: SECOND_NS }, "999999999999999999"),
            (TimePattern::Number { unit_ns: SECOND_NS }, "."),
        ] {
            assert_eq!(read(&pattern, text), None, "{text}");
        }
        assert!(parse_strftime("%c").is_err());
    }

    #[test]
    fn decimals_are_exact() {
        assert_eq!(read_decimal(b"0.123", SECOND_NS), Some(123 * MS_NS));
        assert_eq!(read_decimal(b"12", MS_NS), Some(12 * MS_NS));
        assert_eq!(read_decimal(b".5", SECOND_NS), Some(SECOND_NS / 2));
        assert_eq!(read_decimal(b"5.", SECOND_NS), Some(5 * SECOND_NS));
        for text in ["", "-1", "1e3", "1.2.3", "-"] {
            assert_eq!(read_decimal(text.as_bytes(), SECOND_NS), None, "{text}");
        }
    }
}
