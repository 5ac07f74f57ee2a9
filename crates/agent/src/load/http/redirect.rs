//! Which request follows from a redirect (RFC 9110, 15.4). Followed are those that stay on the same server: connections go
//! to one, and load goes only where its user pointed it.

use leadline_http::RequestTemplate;

use super::plan::RequestSource;

/// The request that follows from an answer to `source` with this status and Location; `None` where the answer stands.
pub fn next(source: &RequestSource, status: u16, location: &[u8]) -> Option<RequestTemplate> {
    // "If a user agent changes the method": for 301 and 302 as all browsers do, for 303 as it says, from all but GET and
    // HEAD to GET; for 307 and 308 it must not.
    let keeps = matches!(source.method.as_str(), "GET" | "HEAD") || matches!(status, 307 | 308);
    let (method, body) = match status {
        301 | 302 | 303 | 307 | 308 if keeps => (source.method.as_str(), source.body.as_deref()),
        301..=303 => ("GET", None),
        _ => return None,
    };
    let url = source.url.join(std::str::from_utf8(location).ok()?).ok()?;
    if !url.has_origin_of(&source.url) {
        return None;
    }
    source.template(method, &url, body).ok()
}

#[cfg(test)]
mod tests {
    use leadline_http::Url;

    use super::*;

    fn follow(method: &str, status: u16, location: &str) -> Option<String> {
        let source = RequestSource {
            url: Url::parse("http://a/x/y").unwrap(),
            method: method.to_owned(),
            headers: vec![("X".to_owned(), "1".to_owned())],
            body: (method == "POST").then(|| b"body".to_vec()),
            is_proxied: false,
        };
        let next = next(&source, status, location.as_bytes())?;
        Some(String::from_utf8(next.bytes().to_vec()).unwrap())
    }

    #[test]
    fn methods_and_bodies() {
        assert_eq!(follow("GET", 302, "z").unwrap(), "GET /x/z HTTP/1.1\r\nHost: a\r\nX: 1\r\n\r\n");
        assert!(follow("HEAD", 301, "/z").unwrap().starts_with("HEAD /z "));
        assert_eq!(follow("POST", 303, "/z").unwrap(), "GET /z HTTP/1.1\r\nHost: a\r\nX: 1\r\n\r\n");
        assert!(follow("POST", 307, "http://a/z").unwrap().ends_with("\r\n\r\nbody"));
    }

    #[test]
    fn what_is_not_followed() {
        assert_eq!(follow("GET", 304, "/z"), None);
        assert_eq!(follow("GET", 300, "/z"), None);
        assert_eq!(follow("GET", 302, "http://b/"), None, "another server");
        assert_eq!(follow("GET", 302, "https://a/"), None, "another port");
        assert_eq!(follow("GET", 302, "/a b"), None, "no URL");
    }
}
