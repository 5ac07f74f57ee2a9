//! A user's cookies (RFC 6265). Owns parsing of Set-Cookie, which requests a cookie is sent with, its expiry and the
//! bounds of a jar.

use std::fmt::Write as _;

use leadline_http::Url;

use crate::encoding::has_control;

/// The most cookies of a user; the oldest one makes room.
const MOST_COOKIES: usize = 300;
/// The longest name and value together, bytes (RFC 6265, 6.1); longer ones are not kept.
const LONGEST_BYTES: usize = 8192;

/// A cookie.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Cookie {
    name: Box<str>,
    value: Box<str>,
    domain: Box<str>,
    path: Box<str>,
    /// Whether only this host gets it, not its subdomains.
    host_only: bool,
    secure: bool,
    /// When it expires, s since 1970; with the user if absent.
    expires_s: Option<i64>,
}

/// The cookies of one user.
#[derive(Clone, Debug, Default)]
pub struct Jar(Vec<Cookie>);

/// Where a request goes, as far as cookies depend on it.
#[derive(Clone, Copy, Debug)]
pub struct Destination<'u> {
    /// The host, in lower case.
    pub host: &'u str,
    /// Path and query.
    pub target: &'u str,
    /// Whether it goes over TLS.
    pub is_https: bool,
    /// The time, s since 1970.
    pub now_s: i64,
}

impl<'u> Destination<'u> {
    /// Returns the destination of a request to this URL at this time, s since 1970.
    #[must_use]
    pub fn of(url: &'u Url, now_s: i64) -> Self {
        Self { host: &url.host, target: &url.target, is_https: url.is_https, now_s }
    }

    fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or("/")
    }

    /// The default path of cookies (RFC 6265, 5.1.4).
    fn default_path(&self) -> &str {
        match self.path().rfind('/') {
            None | Some(0) => "/",
            Some(last) => &self.path()[..last],
        }
    }
}

impl Jar {
    /// Whether there is no cookie.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Keeps the cookie of a Set-Cookie field; one that is malformed or of a foreign domain is ignored.
    pub fn receive(&mut self, field: &str, destination: &Destination<'_>) {
        let mut parts = field.split(';');
        let Some((name, value)) = parts.next().and_then(|pair| pair.split_once('=')) else { return };
        let (name, value) = (name.trim(), value.trim());
        if name.is_empty() || name.len() + value.len() > LONGEST_BYTES || has_control(field) {
            return;
        }
        let mut cookie = Cookie {
            name: name.into(),
            value: value.into(),
            domain: destination.host.into(),
            path: destination.default_path().into(),
            host_only: true,
            secure: false,
            expires_s: None,
        };
        let mut max_age = None;
        for attribute in parts {
            let (key, value) = attribute.split_once('=').unwrap_or((attribute, ""));
            let value = value.trim();
            match key.trim().to_ascii_lowercase().as_str() {
                "domain" if !value.is_empty() => {
                    let domain = value.trim_start_matches('.').to_ascii_lowercase();
                    if !is_in_domain(destination.host, &domain) {
                        return;
                    }
                    (cookie.domain, cookie.host_only) = (domain.into(), false);
                }
                "path" if value.starts_with('/') => cookie.path = value.into(),
                "secure" => cookie.secure = true,
                "max-age" => max_age = value.parse::<i64>().ok(),
                "expires" => cookie.expires_s = http_date(value),
                _ => {}
            }
        }
        if let Some(age) = max_age {
            cookie.expires_s = Some(destination.now_s.saturating_add(age.max(0)).saturating_sub(i64::from(age <= 0)));
        }
        self.keep(cookie, destination.now_s);
    }

    /// Sets a cookie of a domain and its subdomains; an empty value removes it.
    pub fn set(&mut self, name: &str, value: &str, domain: &str, path: &str) {
        let domain = domain.trim_start_matches('.').to_ascii_lowercase();
        let expires_s = value.is_empty().then_some(i64::MIN);
        let path = if path.starts_with('/') { path } else { "/" };
        let cookie = Cookie {
            name: name.into(),
            value: value.into(),
            domain: domain.into(),
            path: path.into(),
            host_only: false,
            secure: false,
            expires_s,
        };
        self.keep(cookie, i64::MIN + 1);
    }

    fn keep(&mut self, cookie: Cookie, now_s: i64) {
        let is_same =
            |other: &Cookie| (&other.name, &other.domain, &other.path) == (&cookie.name, &cookie.domain, &cookie.path);
        let is_expired = cookie.expires_s.is_some_and(|at_s| at_s < now_s);
        match self.0.iter().position(is_same) {
            Some(index) if is_expired => drop(self.0.remove(index)),
            Some(index) => self.0[index] = cookie,
            None if is_expired => {}
            None => {
                if self.0.len() >= MOST_COOKIES {
                    self.0.remove(0);
                }
                self.0.push(cookie);
            }
        }
    }

    /// Appends the value of the Cookie field of a request: longer paths first (RFC 6265, 5.4). Appends nothing if no
    /// cookie belongs to it.
    pub fn send(&self, destination: &Destination<'_>, out: &mut String) {
        let mut sent: Vec<&Cookie> = self.0.iter().filter(|cookie| cookie.belongs_to(destination)).collect();
        sent.sort_by_key(|cookie| std::cmp::Reverse(cookie.path.len()));
        for (number, cookie) in sent.into_iter().enumerate() {
            let separator = if number > 0 { "; " } else { "" };
            let _ = write!(out, "{separator}{}={}", cookie.name, cookie.value);
        }
    }

    /// Returns the value of a cookie with that name.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<&str> {
        self.0.iter().rev().find(|cookie| &*cookie.name == name).map(|cookie| &*cookie.value)
    }

    /// Returns the memory that the cookies occupy, bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let texts = |cookie: &Cookie| cookie.name.len() + cookie.value.len() + cookie.domain.len() + cookie.path.len();
        self.0.capacity() * size_of::<Cookie>() + self.0.iter().map(texts).sum::<usize>()
    }
}

impl Cookie {
    fn belongs_to(&self, destination: &Destination<'_>) -> bool {
        let path = destination.path();
        let is_host = if self.host_only {
            *destination.host == *self.domain
        } else {
            is_in_domain(destination.host, &self.domain)
        };
        let is_path = path
            .strip_prefix(&*self.path)
            .is_some_and(|rest| rest.is_empty() || self.path.ends_with('/') || rest.starts_with('/'));
        is_host
            && is_path
            && (destination.is_https || !self.secure)
            && self.expires_s.is_none_or(|at_s| at_s >= destination.now_s)
    }
}

/// Whether a host is a domain or lies in it (RFC 6265, 5.1.3).
fn is_in_domain(host: &str, domain: &str) -> bool {
    host == domain
        || host.strip_suffix(domain).is_some_and(|before| before.ends_with('.'))
            && host.parse::<std::net::IpAddr>().is_err()
            && domain.contains('.')
}

/// Parses a date such as `Wed, 21 Oct 2015 07:28:00 GMT` (RFC 6265, 5.1.1, in the forms that servers send).
pub fn http_date(text: &str) -> Option<i64> {
    const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
    let (mut day, mut month, mut year, mut time) = (None, None, None, None);
    for token in text.split(|c: char| !c.is_ascii_alphanumeric() && c != ':').filter(|token| !token.is_empty()) {
        let lower = token.to_ascii_lowercase();
        if token.contains(':') {
            let mut parts = token.split(':').map(|part| part.parse::<i64>().ok());
            time = Some((parts.next()??, parts.next()??, parts.next().flatten().unwrap_or(0)));
        } else if let Some(index) = MONTHS.iter().position(|name| lower.starts_with(name)) {
            month = Some(index as i64 + 1);
        } else if let Ok(number) = token.parse::<i64>() {
            match (day, token.len()) {
                (None, 1 | 2) => day = Some(number),
                (_, 4) => year = Some(number),
                (Some(_), 2) => year = Some(if number < 70 { 2000 + number } else { 1900 + number }),
                _ => {}
            }
        }
    }
    let (hour, minute, second) = time?;
    let days = crate::calendar::days_since_1970(year?, month?, day?);
    Some(days * 86_400 + hour * 3600 + minute * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::{http_date, Destination, Jar};

    const fn at<'u>(host: &'u str, target: &'u str) -> Destination<'u> {
        Destination { host, target, is_https: false, now_s: 1_000 }
    }

    fn sent(jar: &Jar, destination: Destination<'_>) -> String {
        let mut out = String::new();
        jar.send(&destination, &mut out);
        out
    }

    #[test]
    fn cookies_return_to_their_host_and_path() {
        let mut jar = Jar::default();
        jar.receive("a=1", &at("shop.test", "/cart/add?x=/y/z"));
        jar.receive("b=2; Path=/", &at("shop.test", "/"));
        jar.receive("c=3; Domain=.test.org; Path=/; HttpOnly", &at("www.test.org", "/"));
        jar.receive("d=4; Domain=other.org", &at("shop.test", "/"));
        jar.receive("e=5; Secure; Path=/", &at("shop.test", "/"));
        assert_eq!(sent(&jar, at("shop.test", "/cart/list")), "a=1; b=2");
        assert_eq!(sent(&jar, at("shop.test", "/cartoon")), "b=2");
        assert_eq!(sent(&jar, at("test.org", "/")), "c=3");
        assert_eq!(sent(&jar, at("xtest.org", "/")), "");
        assert_eq!(sent(&jar, Destination { is_https: true, ..at("shop.test", "/") }), "b=2; e=5");
        assert_eq!(jar.value("b"), Some("2"));
    }

    #[test]
    fn cookies_expire_and_are_replaced() {
        let mut jar = Jar::default();
        let home = at("a.test", "/");
        jar.receive("a=1; Max-Age=10", &home);
        jar.receive("b=1; Expires=Thu, 01 Jan 1970 00:20:00 GMT", &home);
        jar.receive("c=1", &home);
        jar.receive("c=2", &home);
        assert_eq!(sent(&jar, home), "a=1; b=1; c=2");
        assert_eq!(sent(&jar, Destination { now_s: 1_100, ..home }), "b=1; c=2");
        jar.receive("c=; Max-Age=0", &home);
        jar.receive("b=; Expires=Thu, 01-Jan-70 00:00:01 GMT", &home);
        assert_eq!(sent(&jar, home), "a=1");
    }

    #[test]
    fn dates_of_servers_are_read() {
        assert_eq!(http_date("Wed, 21 Oct 2015 07:28:00 GMT"), Some(1_445_412_480));
        assert_eq!(http_date("Wednesday, 21-Oct-15 07:28:00 GMT"), Some(1_445_412_480));
        assert_eq!(http_date("never"), None);
    }

    #[test]
    fn jar_is_bounded() {
        let mut jar = Jar::default();
        for number in 0..1000 {
            jar.receive(&format!("c{number}=x"), &at("a.test", "/"));
        }
        jar.receive(&format!("big={}", "x".repeat(10_000)), &at("a.test", "/"));
        assert!(jar.value("c0").is_none() && jar.value("c999").is_some() && jar.value("big").is_none());
    }
}
