//! Pure parsers of the kernel's text files: bytes in, wire types out. They do no I/O, never panic on any input, and
//! omit what they cannot read. Formats: proc(5), the kernel's Documentation/filesystems/proc.rst, accounting/psi.rst,
//! admin-guide/cgroup-v2.rst and cgroup-v1/cpuacct.rst.

pub mod cgroup;
pub mod hardware;
pub mod host;
pub mod machine;
pub mod network;
pub mod process;
pub mod routes;

/// Ticks per second of the times in /proc (USER_HZ): 100 on every architecture for which Rust builds Linux programs.
const TICKS_PER_S: f64 = 100.0;

/// Converts ticks to seconds.
fn seconds(ticks: u64) -> f64 {
    ticks as f64 / TICKS_PER_S
}

/// Returns the lines of a text, without their ends.
fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty())
}

/// Returns the fields of a line, separated by spaces and tabs.
fn fields(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|byte| matches!(byte, b' ' | b'\t')).filter(|field| !field.is_empty())
}

/// Parses a whole field as a decimal number; no sign, no rest, no overflow.
fn decimal(field: &[u8]) -> Option<u64> {
    if field.is_empty() {
        return None;
    }
    field.iter().try_fold(0u64, |value, byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

/// Parses a whole field as a hexadecimal number, without a prefix.
fn hexadecimal(field: &[u8]) -> Option<u64> {
    if field.is_empty() || field.len() > 16 {
        return None;
    }
    field.iter().try_fold(0u64, |value, byte| {
        let digit = char::from(*byte).to_digit(16)?;
        Some(value << 4 | u64::from(digit))
    })
}

/// Returns the first number after a label, as in `label 17` or `Label:   17 kB`.
fn labelled(text: &[u8], label: &[u8]) -> Option<u64> {
    lines(text).find_map(|line| number_after(line, label))
}

/// Returns the number that follows the label in this line.
fn number_after(line: &[u8], label: &[u8]) -> Option<u64> {
    let rest = line.strip_prefix(label)?;
    if !matches!(rest.first(), Some(b' ' | b'\t')) {
        return None;
    }
    decimal(fields(rest).next()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_must_fill_their_field() {
        assert_eq!(decimal(b"18446744073709551615"), Some(u64::MAX));
        for wrong in [&b""[..], b"-1", b"+1", b"1.0", b"18446744073709551616", b"0x1"] {
            assert_eq!(decimal(wrong), None);
        }
        assert_eq!(hexadecimal(b"ffffFFFFffffFFFF"), Some(u64::MAX));
        for wrong in [&b""[..], b"-1", b"g", b"00000000000000001"] {
            assert_eq!(hexadecimal(wrong), None);
        }
    }

    #[test]
    fn a_label_must_match_a_whole_word() {
        assert_eq!(labelled(b"usage_usec_x 1\nusage_usec 2\n", b"usage_usec"), Some(2));
        assert_eq!(labelled(b"usage_usec x\n", b"usage_usec"), None);
    }
}
