//! Counts the requests in the string that a script's `request` returns; the load expects as many responses. Counts as
//! wrk does and is more lenient than the responder's parser: a script may send invalid requests on purpose, such as
//! one without Host. Only the end of each request has to be certain.

/// What is wrong with a string of requests, and its position (from 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotRequests {
    pub(crate) what: &'static str,
    pub(crate) line: usize,
    pub(crate) column: usize,
}

/// Counts complete requests. A truncated request at the end is ignored if another one is complete, as in wrk.
///
/// # Errors
/// The position of a malformed request, or that no request is complete.
pub(crate) fn count(text: &[u8]) -> Result<u32, NotRequests> {
    let mut reader = Reader { text, at: 0 };
    let mut requests = 0;
    loop {
        match reader.request() {
            Ok(true) => requests += 1,
            Ok(false) if requests > 0 => return Ok(requests),
            Ok(false) => return Err(reader.wrong("the request is incomplete", text.len())),
            Err((what, at)) => return Err(reader.wrong(what, at)),
        }
    }
}

struct Reader<'a> {
    text: &'a [u8],
    at: usize,
}

enum Framing {
    Bytes(usize),
    Chunked,
}

type Wrong = (&'static str, usize);

impl<'a> Reader<'a> {
    /// Reads one request; returns whether it is complete.
    fn request(&mut self) -> Result<bool, Wrong> {
        while matches!(self.text.get(self.at), Some(b'\r' | b'\n')) {
            self.at += 1;
        }
        let begin = self.at;
        let Some(line) = self.line() else { return Ok(false) };
        request_line(line).map_err(|what| (what, begin))?;
        let mut framing = Framing::Bytes(0);
        loop {
            let begin = self.at;
            let Some(line) = self.line() else { return Ok(false) };
            if line.is_empty() {
                break;
            }
            if let Some(declared) = field(line).map_err(|what| (what, begin))? {
                framing = declared;
            }
        }
        match framing {
            Framing::Bytes(bytes) => Ok(self.skip(bytes)),
            Framing::Chunked => self.chunks(),
        }
    }

    fn chunks(&mut self) -> Result<bool, Wrong> {
        loop {
            let begin = self.at;
            let Some(line) = self.line() else { return Ok(false) };
            let digits = line.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
            let Some(bytes) = number(digits, 16) else { return Err(("no chunk size", begin)) };
            if bytes > 0 {
                if !self.skip(bytes) {
                    return Ok(false);
                }
                let begin = self.at;
                match self.line() {
                    None => return Ok(false),
                    Some([]) => continue,
                    Some(_) => return Err(("a chunk is longer than its size", begin)),
                }
            }
            while let Some(trailer) = self.line() {
                if trailer.is_empty() {
                    return Ok(true);
                }
            }
            return Ok(false);
        }
    }

    /// Reads the next line without its end, if it is complete.
    fn line(&mut self) -> Option<&'a [u8]> {
        let rest = &self.text[self.at..];
        let end = rest.iter().position(|byte| *byte == b'\n')?;
        self.at += end + 1;
        let line = &rest[..end];
        Some(line.strip_suffix(b"\r").unwrap_or(line))
    }

    fn skip(&mut self, bytes: usize) -> bool {
        let there = bytes <= self.text.len() - self.at;
        self.at = if there { self.at + bytes } else { self.text.len() };
        there
    }

    fn wrong(&self, what: &'static str, at: usize) -> NotRequests {
        let before = &self.text[..at];
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        let column = before.iter().rev().take_while(|byte| **byte != b'\n').count() + 1;
        NotRequests { what, line, column }
    }
}

fn request_line(line: &[u8]) -> Result<(), &'static str> {
    let mut words = line.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
    match (words.next(), words.next(), words.next(), words.next()) {
        (Some(method), Some(_), Some(version), None)
            if method.iter().all(u8::is_ascii_graphic) && version.starts_with(b"HTTP/") =>
        {
            Ok(())
        }
        _ => Err("no request line"),
    }
}

/// Parses a header field and returns the body framing that it sets, if any.
fn field(line: &[u8]) -> Result<Option<Framing>, &'static str> {
    if matches!(line[0], b' ' | b'\t') {
        return Ok(None);
    }
    let Some(colon) = line.iter().position(|byte| *byte == b':') else { return Err("no header field") };
    let (name, value) = (line[..colon].trim_ascii_end(), line[colon + 1..].trim_ascii());
    if name.eq_ignore_ascii_case(b"content-length") {
        return match number(value, 10) {
            Some(bytes) => Ok(Some(Framing::Bytes(bytes))),
            None => Err("no length in Content-Length"),
        };
    }
    let coded = name.eq_ignore_ascii_case(b"transfer-encoding");
    let last = value.rsplit(|byte| *byte == b',').next().unwrap_or_default().trim_ascii();
    Ok((coded && last.eq_ignore_ascii_case(b"chunked")).then_some(Framing::Chunked))
}

fn number(digits: &[u8], radix: u32) -> Option<usize> {
    // Rejects a sign, which `from_str_radix` would accept.
    let text = std::str::from_utf8(digits).ok().filter(|text| text.chars().all(|c| c.is_digit(radix)))?;
    usize::from_str_radix(text, radix).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(text: &str) -> (&'static str, usize, usize) {
        let wrong = count(text.as_bytes()).unwrap_err();
        (wrong.what, wrong.line, wrong.column)
    }

    #[test]
    fn requests_are_counted_with_every_body_framing() {
        assert_eq!(count(b"GET / HTTP/1.1\r\n\r\n"), Ok(1));
        assert_eq!(count(b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET /b HTTP/1.1\nHost: a\n\n\r\n"), Ok(2));
        let post = "POST / HTTP/1.1\r\ncontent-length: 5\r\n\r\nGET /";
        assert_eq!(count(format!("{post}{post}{post}").as_bytes()), Ok(3));
        let chunks = "PUT / HTTP/1.1\r\nTransfer-Encoding: gzip, Chunked\r\n\r\n5;x=y\r\nabc\r\n\r\nA\r\n0123456789\r\n0\r\nT: a\r\n\r\n";
        assert_eq!(count(format!("{chunks}{post}{chunks}").as_bytes()), Ok(3));
    }

    #[test]
    fn truncated_request_is_not_counted() {
        assert_eq!(count(b"GET / HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n"), Ok(1));
        let whole = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
        assert_eq!(count(whole), Ok(1));
        for end in 0..whole.len() {
            let cut = count(&whole[..end]).unwrap_err();
            assert_eq!(cut.what, "the request is incomplete", "cut at {end}");
        }
        assert_eq!(count(b"POST / HTTP/1.1\r\nContent-Length: 18446744073709551615\r\n\r\n").unwrap_err().line, 4);
    }

    #[test]
    fn malformed_requests_are_refused_with_their_position() {
        assert_eq!(wrong(""), ("the request is incomplete", 1, 1));
        assert_eq!(wrong("hello\n"), ("no request line", 1, 1));
        assert_eq!(wrong("GET / HTTP/1.1\r\nHost\r\n\r\n"), ("no header field", 2, 1));
        assert_eq!(wrong("GET / HTTP/1.1\r\n\r\nGET /a b HTTP/1.1\r\n\r\n"), ("no request line", 3, 1));
        let length = "POST / HTTP/1.1\r\nContent-Length: +1\r\n\r\na";
        assert_eq!(wrong(length), ("no length in Content-Length", 2, 1));
        let chunk = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert_eq!(wrong(&format!("{chunk}x\r\n")), ("no chunk size", 4, 1));
        assert_eq!(wrong(&format!("{chunk}1\r\nab\r\n")), ("a chunk is longer than its size", 5, 2));
    }
}
