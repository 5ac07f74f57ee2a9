//! Why an operation of the system failed, as users read it. Owns the texts; the caller says what it tried.

use std::io;

/// How std begins the error of a name that was not resolved.
const LOOKUP: &str = "failed to lookup address information: ";

/// Returns the system's reason without its number, as in `connection refused`.
pub fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    let plain = text.rsplit_once(" (os error ").map_or(text.as_str(), |(plain, _)| plain);
    // Other texts are Leadline's own.
    if error.raw_os_error().is_some() {
        decapitalized(plain)
    } else {
        plain.to_owned()
    }
}

/// Returns why a name has no address.
pub fn unresolved(host: &str, error: &io::Error) -> String {
    let text = reason(error);
    // glibc's texts of EAI_NONAME, EAI_NODATA and EAI_AGAIN: std keeps no numbers.
    match text.strip_prefix(LOOKUP) {
        Some("Name or service not known" | "No address associated with hostname") => match zone_of(host) {
            Some(zone) => format!("there is no interface {zone}, which {host} names"),
            None => format!("the name {host} has no address"),
        },
        Some("Temporary failure in name resolution") => {
            format!("the name {host} cannot be looked up: no name server answers")
        }
        Some(other) => format!("the name {host} cannot be looked up: {}", decapitalized(other)),
        None => format!("the name {host} cannot be looked up: {text}"),
    }
}

/// Returns the interface that an IPv6 address names after its percent sign (RFC 4007, section 11).
fn zone_of(host: &str) -> Option<&str> {
    let (address, zone) = host.split_once('%')?;
    address.parse::<std::net::Ipv6Addr>().is_ok().then_some(zone)
}

/// Begins a text with a small letter, unless its first word is an abbreviation.
fn decapitalized(text: &str) -> String {
    let mut letters = text.chars();
    match (letters.next(), letters.next()) {
        (Some(first), Some(second)) if !second.is_uppercase() => {
            first.to_lowercase().chain(text.chars().skip(1)).collect()
        }
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_error_is_stated_without_its_number() {
        for (number, text) in [
            (libc::ECONNREFUSED, "connection refused"),
            (libc::ECONNRESET, "connection reset by peer"),
            (libc::EACCES, "permission denied"),
        ] {
            assert_eq!(reason(&io::Error::from_raw_os_error(number)), text);
        }
        let inner = io::Error::from_raw_os_error(libc::EACCES);
        let wrapped = io::Error::new(inner.kind(), format!("send buffer: {inner}"));
        assert_eq!(reason(&wrapped), "send buffer: Permission denied");
        assert_eq!(reason(&io::ErrorKind::TimedOut.into()), "timed out");
    }

    #[test]
    fn name_without_an_address_is_named() {
        let failed = |detail: &str| unresolved("a.invalid", &io::Error::other(format!("{LOOKUP}{detail}")));
        assert_eq!(failed("Name or service not known"), "the name a.invalid has no address");
        let unknown = io::Error::other(format!("{LOOKUP}Name or service not known"));
        assert_eq!(unresolved("fe80::1%eth7", &unknown), "there is no interface eth7, which fe80::1%eth7 names");
        assert_eq!(unresolved("a%eth7", &unknown), "the name a%eth7 has no address");
        assert_eq!(
            failed("Temporary failure in name resolution"),
            "the name a.invalid cannot be looked up: no name server answers"
        );
        assert_eq!(failed("Some failure"), "the name a.invalid cannot be looked up: some failure");
        let system = io::Error::from_raw_os_error(libc::EMFILE);
        assert_eq!(unresolved("a", &system), "the name a cannot be looked up: too many open files");
    }
}
