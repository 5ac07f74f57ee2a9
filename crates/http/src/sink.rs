//! What receives the content of a response while it is parsed. Owns the interface; the parsers of heads and bodies call it.

/// Who wants to see what a response holds, as it comes and before it is known to end well.
pub trait Sink {
    /// Whether it wants to be told of heads.
    const WANTS_HEADS: bool = true;

    /// A head begins. What came before it, if that was no whole response, was an interim response's.
    fn status(&mut self, _status: u16) {}

    /// A header field: its name as it was sent, its value without the white space around it. An empty name continues the
    /// value before it. Trailer fields are not told.
    fn field(&mut self, _name: &[u8], _value: &[u8]) {}

    /// The next part of the body, without chunk framing; never empty.
    fn body(&mut self, _bytes: &[u8]) {}
}

/// Nobody.
impl Sink for () {
    const WANTS_HEADS: bool = false;
}
