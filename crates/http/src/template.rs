//! Builds the bytes of a request once, before the load starts. Owns which fields are added (Host, Content-Length).
//! Refuses a method, header or value that would change the request's meaning.

use thiserror::Error;

use crate::fields::is_token;
use crate::{Method, RequestEvent, RequestParser, Url};

/// A request that is ready to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestTemplate {
    bytes: Vec<u8>,
    expects_no_body: bool,
}

/// Why a request cannot be built.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TemplateError {
    /// The method is not a token.
    #[error("`{0}` is not a request method; a method is one word such as GET")]
    Method(String),
    /// A method without ordinary responses.
    #[error("CONNECT opens a tunnel and cannot be measured as a request")]
    Connect,
    /// A header name that is not a token.
    #[error("`{0}` is not a header name")]
    HeaderName(String),
    /// A header value with a control character.
    #[error("the value of header `{0}` holds a line break, a NUL or another control character")]
    HeaderValue(String),
    /// A header that is computed from the body.
    #[error("header `{0}` is set from the body and cannot be given")]
    Reserved(String),
}

impl RequestTemplate {
    /// Builds a request. `Host` comes from the URL unless the headers contain it. `Content-Length` comes from the
    /// body; POST, PUT and PATCH without a body send 0 (RFC 9110, 8.6).
    ///
    /// # Errors
    /// Which method or header is invalid.
    pub fn new<'h>(
        method: &str,
        url: &Url,
        headers: impl IntoIterator<Item = (&'h str, &'h str)>,
        body: Option<&[u8]>,
    ) -> Result<Self, TemplateError> {
        if !is_token(method.as_bytes()) {
            return Err(TemplateError::Method(method.to_owned()));
        }
        if method == "CONNECT" {
            return Err(TemplateError::Connect);
        }
        let mut fields = String::new();
        let mut has_host = false;
        for (name, value) in headers {
            check_header(name, value)?;
            has_host |= name.eq_ignore_ascii_case("host");
            fields.push_str(&format!("{name}: {value}\r\n"));
        }
        let host = if has_host { String::new() } else { format!("Host: {}\r\n", url.authority()) };
        let length = match body {
            Some(body) => format!("Content-Length: {}\r\n", body.len()),
            None if matches!(method, "POST" | "PUT" | "PATCH") => "Content-Length: 0\r\n".to_owned(),
            None => String::new(),
        };
        let mut bytes = format!("{method} {} HTTP/1.1\r\n{host}{fields}{length}\r\n", url.target).into_bytes();
        bytes.extend_from_slice(body.unwrap_or_default());
        Ok(Self { bytes, expects_no_body: method == "HEAD" })
    }

    /// Wraps the bytes of an existing request.
    #[must_use]
    pub fn from_bytes(bytes: Vec<u8>) -> Self {
        let expects_no_body = expects_no_body(&bytes);
        Self { bytes, expects_no_body }
    }

    /// The request's bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether the responses have no body, as those to HEAD.
    #[must_use]
    pub fn expects_no_body(&self) -> bool {
        self.expects_no_body
    }
}

/// Whether the response to `request` has no body, as that to HEAD.
#[must_use]
pub fn expects_no_body(request: &[u8]) -> bool {
    request.starts_with(b"HEAD ")
}

/// Evaluates [`expects_no_body`] for each request of a batch, the first one in the lowest bit. `None` if the batch
/// has more requests than bits and they differ.
#[must_use]
pub fn expect_no_bodies(batch: &[u8]) -> Option<u64> {
    if !batch.windows(5).any(|window| window == b"HEAD ") {
        return Some(0);
    }
    let of_first = if expects_no_body(batch) { u64::MAX } else { 0 };
    let mut parser = RequestParser::default();
    let (mut mask, mut number, mut at, mut is_mixed) = (of_first, 0u32, 0, false);
    // Bytes that are not a valid request are up to the script; the requests before them are still evaluated.
    while let Ok(fed) = parser.feed(&batch[at..]) {
        at += fed.consumed;
        if let Some(RequestEvent::Request(request)) = fed.event {
            let expects_none = request.method == Method::Head;
            is_mixed |= expects_none != (of_first != 0);
            match 1u64.checked_shl(number) {
                Some(bit) if expects_none => mask |= bit,
                Some(bit) => mask &= !bit,
                None if is_mixed => return None,
                None => {}
            }
            number += 1;
        }
        if at >= batch.len() || (fed.consumed == 0 && fed.event.is_none()) {
            break;
        }
    }
    Some(mask)
}

fn check_header(name: &str, value: &str) -> Result<(), TemplateError> {
    if !is_token(name.as_bytes()) {
        return Err(TemplateError::HeaderName(name.to_owned()));
    }
    if value.bytes().any(|byte| byte.is_ascii_control() && byte != b'\t') {
        return Err(TemplateError::HeaderValue(name.to_owned()));
    }
    if ["content-length", "transfer-encoding", "upgrade"].iter().any(|reserved| name.eq_ignore_ascii_case(reserved)) {
        return Err(TemplateError::Reserved(name.to_owned()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{RequestTemplate, TemplateError};
    use crate::Url;

    fn built(method: &str, headers: &[(&str, &str)], body: Option<&str>) -> Result<String, TemplateError> {
        let url = Url::parse("http://a:81/x?y").unwrap();
        let template = RequestTemplate::new(method, &url, headers.iter().copied(), body.map(str::as_bytes))?;
        Ok(String::from_utf8(template.bytes().to_vec()).unwrap())
    }

    #[test]
    fn bytes() {
        assert_eq!(built("GET", &[], None).unwrap(), "GET /x?y HTTP/1.1\r\nHost: a:81\r\n\r\n");
        assert_eq!(
            built("GET", &[("host", "b"), ("Connection", "close")], None).unwrap(),
            "GET /x?y HTTP/1.1\r\nhost: b\r\nConnection: close\r\n\r\n"
        );
        assert_eq!(
            built("POST", &[("X", "é")], Some("body")).unwrap(),
            "POST /x?y HTTP/1.1\r\nHost: a:81\r\nX: é\r\nContent-Length: 4\r\n\r\nbody"
        );
        assert!(built("PUT", &[], None).unwrap().contains("Content-Length: 0\r\n"));
    }

    #[test]
    fn invalid_requests_are_refused() {
        assert!(matches!(built("G T", &[], None), Err(TemplateError::Method(_))));
        assert_eq!(built("CONNECT", &[], None), Err(TemplateError::Connect));
        assert!(matches!(built("GET", &[("a b", "c")], None), Err(TemplateError::HeaderName(_))));
        assert!(matches!(built("GET", &[("a", "b\r\nc: d")], None), Err(TemplateError::HeaderValue(_))));
        assert!(matches!(built("GET", &[("Content-length", "3")], None), Err(TemplateError::Reserved(_))));
    }
}
