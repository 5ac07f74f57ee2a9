//! The request that follows from a redirect (RFC 9110, 15.4). Only redirects to the same server are followed: all
//! connections go to one server, and load goes only to the server that the user named.

use std::sync::Arc;

use super::settings::RequestSource;
use crate::RequestTemplate;

/// Header fields that describe a body. RFC 9110, 15.4: "If the request method has been changed to GET or HEAD, remove
/// content-specific header fields, including (but not limited to)" these.
const CONTENT_FIELDS: [&str; 7] = [
    "content-encoding",
    "content-language",
    "content-location",
    "content-type",
    "content-length",
    "digest",
    "last-modified",
];

/// Returns the request, and its bytes, that follows from a response to `source` with this status and Location; `None`
/// if the redirect is not followed. `source` is the redirected request, which may itself follow from a redirect.
pub fn next(source: &RequestSource, status: u16, location: &[u8]) -> Option<(RequestSource, RequestTemplate)> {
    let method = source.method.as_str();
    let keeps = match status {
        // "A user agent MAY change the request method from POST to GET", and all of them do; other methods stay.
        301 | 302 => method != "POST",
        // "A retrieval request targeting that URI": GET or HEAD, and no body.
        303 => false,
        307 | 308 => true,
        _ => return None,
    };
    let url = source.url.join(std::str::from_utf8(location).ok()?).ok()?;
    if !url.has_origin_of(&source.url) {
        return None;
    }
    let is_content = |name: &str| CONTENT_FIELDS.iter().any(|field| name.eq_ignore_ascii_case(field));
    let next = RequestSource {
        url,
        method: if keeps || method == "HEAD" { method } else { "GET" }.to_owned(),
        headers: source.headers.iter().filter(|(name, _)| keeps || !is_content(name)).cloned().collect(),
        body: source.body.as_ref().filter(|_| keeps).map(Arc::clone),
        is_proxied: source.is_proxied,
    };
    let template = next.template().ok()?;
    Some((next, template))
}

#[cfg(test)]
mod tests {
    use crate::Url;

    use super::*;

    fn source(method: &str) -> RequestSource {
        let headers = [("X", "1"), ("Content-Type", "text/plain")];
        RequestSource {
            url: Url::parse("http://a/x/y").unwrap(),
            method: method.to_owned(),
            headers: headers.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec(),
            body: (method != "GET" && method != "HEAD").then(|| b"body".as_slice().into()),
            is_proxied: false,
        }
    }

    /// Returns the last request after all of these redirects.
    fn follow(method: &str, redirects: &[(u16, &str)]) -> Option<String> {
        let (mut source, mut bytes) = (source(method), None);
        for (status, location) in redirects {
            let (next, template) = next(&source, *status, location.as_bytes())?;
            (source, bytes) = (next, Some(template.bytes().to_vec()));
        }
        Some(String::from_utf8(bytes?).unwrap())
    }

    #[test]
    fn methods_and_bodies_follow_rfc_9110() {
        const FIELDS: &str = "HTTP/1.1\r\nHost: a\r\nX: 1\r\n";
        let get = format!("GET /x/z {FIELDS}\r\n");
        let kept = |method: &str| format!("{method} /x/z {FIELDS}Content-Type: text/plain\r\n");
        for status in [301, 302, 303] {
            assert_eq!(follow("POST", &[(status, "z")]).unwrap(), get, "{status}");
        }
        for method in ["PUT", "DELETE", "PATCH"] {
            assert_eq!(follow(method, &[(303, "z")]).unwrap(), get, "{method}");
            for status in [301, 302, 307, 308] {
                let expected = format!("{}Content-Length: 4\r\n\r\nbody", kept(method));
                assert_eq!(follow(method, &[(status, "z")]).unwrap(), expected, "{method} {status}");
            }
        }
        for status in [307, 308] {
            let expected = format!("{}Content-Length: 4\r\n\r\nbody", kept("POST"));
            assert_eq!(follow("POST", &[(status, "z")]).unwrap(), expected, "{status}");
        }
        for status in [301, 302, 303, 307, 308] {
            assert!(follow("GET", &[(status, "/z")]).unwrap().starts_with("GET /z "), "{status}");
            assert!(follow("HEAD", &[(status, "/z")]).unwrap().starts_with("HEAD /z "), "{status}");
        }
    }

    #[test]
    fn redirect_chain_continues_from_its_last_request() {
        assert!(follow("GET", &[(302, "/p/q/"), (302, "z")]).unwrap().starts_with("GET /p/q/z HTTP/1.1\r\n"));
        assert!(follow("GET", &[(302, "/p?q"), (302, "?r")]).unwrap().starts_with("GET /p?r HTTP/1.1\r\n"));
        let fetched = follow("POST", &[(303, "/p/q"), (307, "z")]).unwrap();
        assert_eq!(fetched, "GET /p/z HTTP/1.1\r\nHost: a\r\nX: 1\r\n\r\n");
        let posted = follow("POST", &[(307, "/p/q"), (308, "z")]).unwrap();
        assert!(posted.starts_with("POST /p/z ") && posted.ends_with("\r\n\r\nbody"), "{posted}");
    }

    #[test]
    fn unsupported_redirects_are_not_followed() {
        for (status, location, why) in [
            (304, "/z", "no redirect"),
            (300, "/z", "a choice for a person"),
            (302, "http://b/", "another server"),
            (302, "https://a/", "another port"),
            (302, "/a b", "no URL"),
        ] {
            assert_eq!(follow("GET", &[(status, location)]), None, "{why}");
        }
    }
}
