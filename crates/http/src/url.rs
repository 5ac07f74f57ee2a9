//! The URLs of a load (RFC 3986, and RFC 9110, 4.2). Owns their parts, parsed once, and the resolution of a
//! redirect's reference. Refuses credentials and characters that need percent-encoding.

use std::net::Ipv6Addr;
use std::sync::Arc;

use thiserror::Error;

/// A parsed `http://` or `https://` URL.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Url {
    /// Whether its scheme is `https`.
    pub is_https: bool,
    /// Host name or address, IPv6 without brackets.
    pub host: Arc<str>,
    /// Port; 80 or 443 if the URL has none.
    pub port: u16,
    /// Path and query as in the request line; `/` if the URL has none.
    pub target: Arc<str>,
}

/// Why a URL is invalid.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum UrlError {
    /// The URL does not begin with `http://` or `https://`.
    #[error("`{0}` does not begin with http:// or https://; write http://HOST[:PORT]/PATH")]
    Scheme(String),
    /// The URL has no host.
    #[error("`{0}` has no host; write http://HOST[:PORT]/PATH")]
    NoHost(String),
    /// The URL has a user name or a password.
    #[error("credentials in a URL are not supported; send an Authorization header")]
    Credentials,
    /// The host is neither a name nor an address.
    #[error("`{0}` is neither a host name nor an address; IPv6 is written http://[::1]/")]
    Host(String),
    /// The port is not a number from 1 to 65535.
    #[error("`{0}` is not a port; a port is a number from 1 to 65535")]
    Port(String),
    /// A character that a request line cannot carry.
    #[error("the path or query holds {0:?}, which has to be percent-encoded")]
    Character(char),
}

impl Url {
    /// Parses a URL; the fragment is dropped because it is never sent to a server.
    ///
    /// # Errors
    /// Which part is wrong and what is correct.
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        let (scheme, rest) = text.split_once("://").ok_or_else(|| UrlError::Scheme(text.to_owned()))?;
        let is_https = scheme.eq_ignore_ascii_case("https");
        if !is_https && !scheme.eq_ignore_ascii_case("http") {
            return Err(UrlError::Scheme(text.to_owned()));
        }
        let (authority, tail) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        if authority.contains('@') {
            return Err(UrlError::Credentials);
        }
        let (host, port) = split_authority(authority, default_port(is_https))?;
        if host.is_empty() {
            return Err(UrlError::NoHost(text.to_owned()));
        }
        Ok(Self { is_https, host: host.into(), port, target: target(tail)?.into() })
    }

    /// Resolves a reference (of a Location field) against this URL (RFC 3986, 5.2).
    ///
    /// # Errors
    /// Which part of the result is wrong.
    pub fn join(&self, reference: &str) -> Result<Self, UrlError> {
        let is_scheme = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if reference.split_once("://").is_some_and(|(before, _)| is_scheme(before)) {
            return Self::parse(reference);
        }
        if reference.starts_with("//") {
            return Self::parse(&format!("{}:{reference}", self.scheme()));
        }
        let (path, _) = self.target.split_at(self.target.find('?').unwrap_or(self.target.len()));
        let whole = match reference.as_bytes().first() {
            None | Some(b'#') => self.target.to_string(),
            Some(b'/') => reference.to_owned(),
            Some(b'?') => format!("{path}{reference}"),
            Some(_) => format!("{}/{reference}", path.rsplit_once('/').map_or("", |(folder, _)| folder)),
        };
        Ok(Self { target: without_dots(&target(&whole)?).into(), ..self.clone() })
    }

    /// Returns the same URL with its host in lower case (RFC 3986, 6.2.2.1), so that equal servers have equal names.
    #[must_use]
    pub fn with_lower_host(self) -> Self {
        if self.host.bytes().any(|byte| byte.is_ascii_uppercase()) {
            return Self { host: self.host.to_ascii_lowercase().into(), ..self };
        }
        self
    }

    /// Whether both URLs lead to the same server.
    #[must_use]
    pub fn has_origin_of(&self, other: &Self) -> bool {
        (self.is_https, self.port) == (other.is_https, other.port) && self.host.eq_ignore_ascii_case(&other.host)
    }

    /// The whole URL, as in a request to a proxy.
    #[must_use]
    pub fn absolute(&self) -> String {
        format!("{}{}", self.origin(), self.target)
    }

    /// Scheme, host and port, as in the Origin field.
    #[must_use]
    pub fn origin(&self) -> String {
        format!("{}://{}", self.scheme(), self.authority())
    }

    fn scheme(&self) -> &'static str {
        if self.is_https {
            "https"
        } else {
            "http"
        }
    }

    /// Host and port, IPv6 in brackets, as in CONNECT.
    #[must_use]
    pub fn host_and_port(&self) -> String {
        let host = &self.host;
        if host.contains(':') {
            format!("[{host}]:{}", self.port)
        } else {
            format!("{host}:{}", self.port)
        }
    }

    /// Host and port as in the Host field: IPv6 in brackets, without the default port.
    #[must_use]
    pub fn authority(&self) -> String {
        let whole = self.host_and_port();
        let port = if self.is_https { ":443" } else { ":80" };
        whole.strip_suffix(port).filter(|_| self.port == default_port(self.is_https)).unwrap_or(&whole).to_owned()
    }
}

fn default_port(is_https: bool) -> u16 {
    if is_https {
        443
    } else {
        80
    }
}

fn split_authority(authority: &str, default_port: u16) -> Result<(&str, u16), UrlError> {
    let (host, port) = if let Some(literal) = authority.strip_prefix('[') {
        let (address, after) = literal.split_once(']').ok_or_else(|| UrlError::Host(authority.to_owned()))?;
        address.parse::<Ipv6Addr>().map_err(|_| UrlError::Host(address.to_owned()))?;
        match after {
            "" => (address, None),
            _ => (address, Some(after.strip_prefix(':').ok_or_else(|| UrlError::Host(authority.to_owned()))?)),
        }
    } else {
        let (host, port) = authority.split_once(':').map_or((authority, None), |(host, port)| (host, Some(port)));
        if port.is_some_and(|port| port.contains(':'))
            || !host.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_'))
        {
            return Err(UrlError::Host(authority.to_owned()));
        }
        (host, port)
    };
    let port = match port {
        // RFC 3986, 3.2.3: an empty port means the default port.
        None | Some("") => default_port,
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            digits.parse().ok().filter(|&port| port != 0).ok_or_else(|| UrlError::Port(digits.to_owned()))?
        }
        Some(other) => return Err(UrlError::Port(other.to_owned())),
    };
    Ok((host, port))
}

fn target(tail: &str) -> Result<String, UrlError> {
    let tail = tail.split('#').next().unwrap_or_default();
    if let Some(character) = tail.chars().find(|character| !character.is_ascii_graphic()) {
        return Err(UrlError::Character(character));
    }
    Ok(if tail.starts_with('/') { tail.to_owned() } else { format!("/{tail}") })
}

/// Removes the dot segments of a target's path (RFC 3986, 5.2.4).
fn without_dots(target: &str) -> String {
    let (path, query) = target.split_at(target.find('?').unwrap_or(target.len()));
    let mut kept: Vec<&str> = Vec::new();
    let mut segments = path.split('/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        let is_last = segments.peek().is_none();
        match segment {
            "." | ".." => {
                if segment == ".." {
                    kept.pop();
                }
                if is_last {
                    kept.push("");
                }
            }
            _ => kept.push(segment),
        }
    }
    format!("/{}{query}", kept.join("/"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Url, UrlError};

    fn parts(text: &str) -> (String, u16, String, String) {
        let url = Url::parse(text).unwrap();
        let authority = url.authority();
        (url.host.to_string(), url.port, url.target.to_string(), authority)
    }

    fn owned(host: &str, port: u16, target: &str, authority: &str) -> (String, u16, String, String) {
        (host.to_owned(), port, target.to_owned(), authority.to_owned())
    }

    #[test]
    fn valid_urls_are_parsed() {
        assert_eq!(parts("http://a"), owned("a", 80, "/", "a"));
        assert_eq!(parts("HTTP://a.b_c-d:8080/x/y?z=1&q#f"), owned("a.b_c-d", 8080, "/x/y?z=1&q", "a.b_c-d:8080"));
        assert_eq!(parts("http://10.0.0.1:80?x"), owned("10.0.0.1", 80, "/?x", "10.0.0.1"));
        assert_eq!(parts("http://[::1]"), owned("::1", 80, "/", "[::1]"));
        assert_eq!(parts("http://[fd81::2]:8080/"), owned("fd81::2", 8080, "/", "[fd81::2]:8080"));
        assert_eq!(parts("http://a:/#/x"), owned("a", 80, "/", "a"));
    }

    #[test]
    fn https_urls_use_port_443() {
        assert_eq!(parts("https://a"), owned("a", 443, "/", "a"));
        assert_eq!(parts("HTTPS://a:80/"), owned("a", 80, "/", "a:80"));
        assert_eq!(Url::parse("https://[::1]:443/x?y").unwrap().absolute(), "https://[::1]/x?y");
        assert_eq!(Url::parse("http://a/").unwrap().host_and_port(), "a:80");
        assert_eq!(Url::parse("https://[::1]:80/x").unwrap().origin(), "https://[::1]:80");
    }

    #[test]
    fn host_may_be_put_in_lower_case() {
        let url = Url::parse("http://A.Test:81/X").unwrap();
        assert_eq!(url.absolute(), "http://A.Test:81/X");
        assert_eq!(url.with_lower_host().absolute(), "http://a.test:81/X");
    }

    #[test]
    fn references_are_resolved() {
        let base = Url::parse("http://a:81/b/c/d?q").unwrap();
        for (reference, whole) in [
            ("g", "http://a:81/b/c/g"),
            ("./g/", "http://a:81/b/c/g/"),
            ("/g?x=a://b", "http://a:81/g?x=a://b"),
            ("?y", "http://a:81/b/c/d?y"),
            ("", "http://a:81/b/c/d?q"),
            ("#f", "http://a:81/b/c/d?q"),
            ("../../../g", "http://a:81/g"),
            ("..", "http://a:81/b/"),
            (".", "http://a:81/b/c/"),
            ("//h/g", "http://h/g"),
            ("https://h/../g", "https://h/../g"),
        ] {
            let joined = base.join(reference).unwrap();
            assert_eq!(joined.absolute(), whole, "{reference}");
            assert_eq!(joined.has_origin_of(&base), whole.starts_with("http://a:81/"), "{reference}");
        }
        assert!(base.join("ftp://x/").is_err() && base.join("/a b").is_err());
    }

    #[test]
    fn invalid_urls_are_refused() {
        assert!(matches!(Url::parse("a:80/x"), Err(UrlError::Scheme(_))));
        assert!(matches!(Url::parse("ftp://a"), Err(UrlError::Scheme(_))));
        assert!(matches!(Url::parse("http:///x"), Err(UrlError::NoHost(_))));
        assert!(matches!(Url::parse("http://:80"), Err(UrlError::NoHost(_))));
        assert_eq!(Url::parse("http://u:p@a/"), Err(UrlError::Credentials));
        for host in ["::1", "[::1", "[::1]x", "[fe80::1%25eth0]", "[a]", "a b", "a:1:2", "ä"] {
            assert!(matches!(Url::parse(&format!("http://{host}/")), Err(UrlError::Host(_))), "{host}");
        }
        for port in ["0", "65536", "x", "+1", "-1"] {
            assert!(matches!(Url::parse(&format!("http://a:{port}/")), Err(UrlError::Port(_))), "{port}");
        }
        assert_eq!(Url::parse("http://a/x y"), Err(UrlError::Character(' ')));
        assert_eq!(Url::parse("http://a/x\r\ny"), Err(UrlError::Character('\r')));
        assert_eq!(Url::parse("http://a/é"), Err(UrlError::Character('é')));
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(text in ".{0,60}") {
            let _ = Url::parse(&text);
            let _ = Url::parse(&format!("http://{text}"));
            let joined = Url::parse("http://a/b/c?d").unwrap().join(&text);
            prop_assert!(joined.map_or(true, |url| url.target.starts_with('/')));
        }
    }
}
