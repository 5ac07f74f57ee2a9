//! The parts of a response that a script or a redirect reads. Owns the size limits of what is kept.

use crate::Sink;

/// The header fields of a response and, if requested, its body.
#[derive(Debug)]
pub struct Capture {
    keeps_body: bool,
    /// Names and values, concatenated.
    text: Vec<u8>,
    /// For each field, the offset of its name, of its value, and of its end in `text`.
    fields: Vec<(usize, usize, usize)>,
    body: Vec<u8>,
    is_cut: bool,
}

/// Maximum body size that a script receives, bytes.
const CAPTURE_LIMIT_BYTES: usize = 64 << 20;
/// A larger buffer is freed after its response, bytes.
const KEPT_BYTES: usize = 256 << 10;

impl Capture {
    /// Creates an empty capture of header fields and, with `keeps_body`, of the body.
    #[must_use]
    pub fn new(keeps_body: bool) -> Self {
        Self { keeps_body, text: Vec::new(), fields: Vec::new(), body: Vec::new(), is_cut: false }
    }

    /// The name and value of each field.
    pub fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.fields.iter().map(|&(from, middle, to)| (&self.text[from..middle], &self.text[middle..to]))
    }

    /// The value of the last field with this name.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&[u8]> {
        self.fields().filter(|(own, _)| own.eq_ignore_ascii_case(name.as_bytes())).last().map(|(_, value)| value)
    }

    /// The body, up to the limit.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// Whether the body was longer than the limit.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    fn clear(&mut self) {
        self.text.clear();
        self.fields.clear();
        self.body.clear();
        self.body.shrink_to(KEPT_BYTES);
        self.is_cut = false;
    }
}

impl Sink for Capture {
    fn status(&mut self, _status: u16) {
        self.clear();
    }

    fn field(&mut self, name: &[u8], value: &[u8]) {
        let from = self.text.len();
        self.text.extend_from_slice(name);
        self.text.extend_from_slice(value);
        let to = self.text.len();
        match self.fields.last_mut() {
            Some(last) if name.is_empty() => last.2 = to,
            _ => self.fields.push((from, from + name.len(), to)),
        }
    }

    fn body(&mut self, bytes: &[u8]) {
        if self.keeps_body {
            let room = CAPTURE_LIMIT_BYTES - self.body.len();
            self.body.extend_from_slice(&bytes[..bytes.len().min(room)]);
            self.is_cut |= bytes.len() > room;
        }
    }
}
