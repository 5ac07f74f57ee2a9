//! How a server responds: its default behaviour, which a request's query may change. Owns the query's syntax, the
//! bound of each value, the random delays, the distribution of errors, and the stalls of the whole server. Draws only
//! from its own seeded generator, so a run can be repeated.

use crate::fields::decimal;

/// Default body size, bytes.
pub const DEFAULT_BODY_BYTES: u64 = 12;

/// Maximum body size that a query can request, bytes.
pub const LARGEST_BODY_BYTES: u64 = 1 << 30;

/// Maximum mean delay that a query can request, ns.
pub const LONGEST_DELAY_NS: u64 = 3_600_000_000_000;

const STATUS: &str = "status is a final status code, 200 to 599";
const SIZE: &str = "size is a number of bytes, at most 1073741824";
const DELAY: &str = "delay is a time like 5ms, 250us or 1.5s, at most 3600s";
const SHAPE: &str = "shape is constant, uniform or exponential";
const ERRORS: &str = "errors is a share between 0 and 1, with at most 9 decimals";
const CHUNKED: &str = "chunked is 1 or 0";
const CLOSE: &str = "close is the number of answers after which the connection closes";

/// A response's status, size, delay and framing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Behaviour {
    /// Final status code, 200 to 599.
    pub status: u16,
    /// Body size, bytes, at most [`LARGEST_BODY_BYTES`].
    pub body_bytes: u64,
    /// Whether the body is sent in chunks to clients that support them.
    pub chunked: bool,
    /// Mean time between request and response, ns, at most [`LONGEST_DELAY_NS`].
    pub delay_ns: u64,
    /// Distribution of the delay.
    pub shape: DelayShape,
    /// Share of requests that get status 500 instead of `status`.
    pub errors: Share,
    /// Number of responses after which the connection is closed.
    pub close_after: Option<u64>,
}

/// Distribution of delays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DelayShape {
    /// Always the mean.
    Constant,
    /// Uniform from 0 to twice the mean.
    Uniform,
    /// Exponential.
    Exponential,
}

/// A share of a whole, in units of 10^-9, so that decimal fractions are exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share(u32);

impl Default for Behaviour {
    fn default() -> Self {
        Self {
            status: 200,
            body_bytes: DEFAULT_BODY_BYTES,
            chunked: false,
            delay_ns: 0,
            shape: DelayShape::Constant,
            errors: Share::default(),
            close_after: None,
        }
    }
}

impl Behaviour {
    /// Returns the behaviour if every value is within its bounds.
    ///
    /// # Errors
    /// One line that names the value and its bounds.
    pub fn checked(self) -> Result<Self, &'static str> {
        let flaws = [
            (!(200..=599).contains(&self.status), STATUS),
            (self.body_bytes > LARGEST_BODY_BYTES, SIZE),
            (self.delay_ns > LONGEST_DELAY_NS, DELAY),
            (self.close_after == Some(0), CLOSE),
        ];
        flaws.iter().find(|(is_flawed, _)| *is_flawed).map_or(Ok(self), |(_, message)| Err(message))
    }

    /// Applies a query such as `status=503&size=1000&delay=5ms&shape=exponential&errors=0.01&chunked=1&close=1`.
    /// Ignores names that it does not know.
    ///
    /// # Errors
    /// One line that says which value is wrong and what is allowed.
    pub fn with_query(mut self, query: &[u8]) -> Result<Self, &'static str> {
        for pair in query.split(|&byte| byte == b'&') {
            let name_end = pair.iter().position(|&byte| byte == b'=').unwrap_or(pair.len());
            let (name, value) = (&pair[..name_end], pair.get(name_end + 1..).unwrap_or_default());
            match name {
                b"status" => self.status = decimal(value).and_then(|code| code.try_into().ok()).ok_or(STATUS)?,
                b"size" => self.body_bytes = decimal(value).ok_or(SIZE)?,
                b"delay" => self.delay_ns = duration_ns(value).ok_or(DELAY)?,
                b"shape" => self.shape = DelayShape::named(value).ok_or(SHAPE)?,
                b"errors" => self.errors = Share::parse(value).ok_or(ERRORS)?,
                b"chunked" => self.chunked = flag(value).ok_or(CHUNKED)?,
                b"close" => {
                    let answers = if value.is_empty() { Some(1) } else { decimal(value) };
                    self.close_after = Some(answers.ok_or(CLOSE)?).filter(|answers| *answers > 0);
                }
                _ => {}
            }
        }
        self.checked()
    }
}

impl DelayShape {
    fn named(text: &[u8]) -> Option<Self> {
        match text {
            b"constant" => Some(DelayShape::Constant),
            b"uniform" => Some(DelayShape::Uniform),
            b"exponential" => Some(DelayShape::Exponential),
            _ => None,
        }
    }

    /// Draws one delay, ns.
    pub(crate) fn draw(self, mean_ns: u64, random: &mut Random) -> u64 {
        match self {
            DelayShape::Constant => mean_ns,
            DelayShape::Uniform => {
                let values = u128::from(mean_ns) * 2 + 1;
                ((u128::from(random.next()) * values) >> 64) as u64
            }
            // 53 bits, so every value lies between 2^-53 and 1 and has a logarithm.
            DelayShape::Exponential => {
                let uniform = ((random.next() >> 11) + 1) as f64 / (1u64 << 53) as f64;
                (-uniform.ln() * mean_ns as f64) as u64
            }
        }
    }
}

impl Share {
    /// Number of parts in the whole.
    pub(crate) const WHOLE: u64 = 1_000_000_000;

    /// A share from a ratio between 0 and 1, rounded to nine decimals.
    #[must_use]
    pub fn from_ratio(ratio: f64) -> Option<Self> {
        (0.0..=1.0).contains(&ratio).then(|| Self((ratio * Self::WHOLE as f64).round() as u32))
    }

    fn parse(text: &[u8]) -> Option<Self> {
        fixed(text).filter(|parts| *parts <= Self::WHOLE).map(|parts| Self(parts as u32))
    }

    /// The share in units of 1 / [`Share::WHOLE`].
    pub(crate) fn parts(self) -> u64 {
        u64::from(self.0)
    }
}

/// Periodic stalls of the whole server. The first one begins `every_ns` after the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stalls {
    every_ns: u64,
    length_ns: u64,
}

impl Stalls {
    /// Creates stalls of `length_ns` that begin every `every_ns`; `None` unless each ends before the next begins.
    #[must_use]
    pub fn new(every_ns: u64, length_ns: u64) -> Option<Self> {
        (length_ns > 0 && length_ns < every_ns).then_some(Self { every_ns, length_ns })
    }

    /// End of the stall that contains `since_start_ns`, ns since the start.
    #[must_use]
    pub fn end(&self, since_start_ns: u64) -> Option<u64> {
        let begun_ns = self.begun(since_start_ns) * self.every_ns;
        (begun_ns > 0 && since_start_ns - begun_ns < self.length_ns).then(|| begun_ns + self.length_ns)
    }

    /// Beginning of the next stall, ns since the start.
    #[must_use]
    pub fn next(&self, since_start_ns: u64) -> u64 {
        (self.begun(since_start_ns) + 1).saturating_mul(self.every_ns)
    }

    /// Number of stalls that have begun.
    #[must_use]
    pub fn begun(&self, since_start_ns: u64) -> u64 {
        since_start_ns / self.every_ns
    }
}

/// A pseudo-random number generator (splitmix64): the same seed gives the same numbers.
#[derive(Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }
}

fn flag(text: &[u8]) -> Option<bool> {
    match text {
        b"" | b"1" => Some(true),
        b"0" => Some(false),
        _ => None,
    }
}

/// Parses a time with its unit (`250us`, `5ms`, `1.5s`) into ns; 0 needs no unit. `None` if the text is not a time.
#[must_use]
pub fn duration_ns(text: &[u8]) -> Option<u64> {
    let digits = text.iter().position(u8::is_ascii_alphabetic).unwrap_or(text.len());
    let unit_ns: u64 = match &text[digits..] {
        b"us" => 1_000,
        b"ms" => 1_000_000,
        b"s" => 1_000_000_000,
        b"" if text == b"0" => 1,
        _ => return None,
    };
    u64::try_from(u128::from(fixed(&text[..digits])?) * u128::from(unit_ns) / u128::from(Share::WHOLE)).ok()
}

/// Parses a decimal number with up to nine decimals, in units of 10^-9.
fn fixed(text: &[u8]) -> Option<u64> {
    let point = text.iter().position(|&byte| byte == b'.');
    let (whole, fraction) = match point {
        Some(at) => (&text[..at], &text[at + 1..]),
        None => (text, &b"0"[..]),
    };
    if fraction.len() > 9 {
        return None;
    }
    let scale = 10u64.pow(9 - fraction.len() as u32);
    decimal(whole)?.checked_mul(Share::WHOLE)?.checked_add(decimal(fraction)? * scale)
}

#[cfg(test)]
mod tests {
    use super::{Behaviour, DelayShape, Random, Share, Stalls};

    fn parsed(query: &str) -> Result<Behaviour, &'static str> {
        Behaviour::default().with_query(query.as_bytes())
    }

    #[test]
    fn query_changes_the_named_values() {
        let all = parsed("status=503&size=1000&delay=5ms&shape=exponential&errors=0.01&chunked=1&close=2&x=1");
        let expected = Behaviour {
            status: 503,
            body_bytes: 1000,
            chunked: true,
            delay_ns: 5_000_000,
            shape: DelayShape::Exponential,
            errors: Share::from_ratio(0.01).unwrap(),
            close_after: Some(2),
        };
        assert_eq!(all, Ok(expected));
        assert_eq!(expected.with_query(b"chunked=0&close=0&delay=0").unwrap().close_after, None);
        assert_eq!(parsed(""), Ok(Behaviour::default()));
        let flags = parsed("chunked&close").unwrap();
        assert!(flags.chunked && flags.close_after == Some(1));
        for (text, ns) in [("1.5s", 1_500_000_000), ("250us", 250_000), ("0.5us", 500), ("3600s", 3_600_000_000_000)] {
            assert_eq!(parsed(&format!("delay={text}")).unwrap().delay_ns, ns, "{text}");
        }
    }

    #[test]
    fn out_of_bounds_value_is_named() {
        let cases = [
            ("status", &["199", "600", "", "+200", "70000"][..]),
            ("size", &["1073741825", "-1", "", "1k"]),
            ("delay", &["5", "ms", "5m", "1e3ms", "3601s", "99999999999999999999s", ".5s", "1.s", "1.0000000001s"]),
            ("shape", &["normal", "", "Uniform"]),
            ("errors", &["1.1", "-0", "nan", "", "1e-3", "0.0000000001"]),
            ("chunked", &["yes", "2"]),
            ("close", &["x", "-1"]),
        ];
        for (name, values) in cases {
            for value in values {
                let refused = parsed(&format!("{name}={value}")).unwrap_err();
                assert!(refused.starts_with(&format!("{name} is ")), "{name}={value}: {refused}");
            }
        }
    }

    #[test]
    fn shares_are_decimal() {
        for (text, ratio) in [("0.01", 0.01), ("1", 1.0), ("0", 0.0), ("0.333333333", 0.333_333_333)] {
            assert_eq!(Share::parse(text.as_bytes()), Share::from_ratio(ratio));
        }
        assert_eq!(Share::from_ratio(0.1).unwrap().parts(), 100_000_000);
        for wrong in [-0.1, 1.1, f64::NAN] {
            assert_eq!(Share::from_ratio(wrong), None);
        }
    }

    #[test]
    fn drawn_delays_have_their_mean_and_shape() {
        let mut random = Random(7);
        let mean_ns = 1_000_000u64;
        let mut draw =
            |shape: DelayShape| -> Vec<u64> { (0..100_000).map(|_| shape.draw(mean_ns, &mut random)).collect() };
        let mean = |drawn: &[u64]| drawn.iter().sum::<u64>() as f64 / drawn.len() as f64 / mean_ns as f64;
        assert!(draw(DelayShape::Constant).iter().all(|ns| *ns == mean_ns));
        let uniform = draw(DelayShape::Uniform);
        assert!((mean(&uniform) - 1.0).abs() < 0.01 && uniform.iter().all(|ns| *ns <= 2 * mean_ns));
        let exponential = draw(DelayShape::Exponential);
        assert!((mean(&exponential) - 1.0).abs() < 0.02);
        // P(X > mean) = 1/e for an exponential distribution.
        let beyond = exponential.iter().filter(|ns| **ns > mean_ns).count() as f64 / exponential.len() as f64;
        assert!((beyond - (-1f64).exp()).abs() < 0.01);
    }

    #[test]
    fn stalls_follow_their_schedule() {
        let stalls = Stalls::new(5_000, 1_000).unwrap();
        let cases =
            [(0, None, 5_000), (4_999, None, 5_000), (5_000, Some(6_000), 10_000), (5_999, Some(6_000), 10_000)];
        for (at, end, next) in cases {
            assert_eq!((stalls.end(at), stalls.next(at)), (end, next), "{at}");
        }
        assert_eq!((stalls.end(6_000), stalls.end(10_000), stalls.begun(10_999)), (None, Some(11_000), 2));
        assert_eq!((Stalls::new(5, 5), Stalls::new(5, 0), Stalls::new(0, 0)), (None, None, None));
    }
}
