//! The receiver of a message's content while it is parsed. Owns the interface; the parsers of heads and bodies call it.

/// A receiver of a message's head and body while they arrive, before the message is known to be complete.
pub trait Sink {
    /// Whether the sink receives heads.
    const WANTS_HEADS: bool = true;

    /// The head of a request begins: its method and its target, as they were sent.
    fn request(&mut self, _method: &[u8], _target: &[u8]) {}

    /// The head of a response begins. Earlier fields that completed no response belong to an interim response.
    fn status(&mut self, _status: u16) {}

    /// The reason phrase of a head, which may be empty.
    fn reason(&mut self, _reason: &[u8]) {}

    /// A header field: the name as it was sent, and the value without surrounding white space. An empty name
    /// continues the previous value. Trailer fields are not passed.
    fn field(&mut self, _name: &[u8], _value: &[u8]) {}

    /// The next part of the body, without chunk framing; never empty.
    fn body(&mut self, _bytes: &[u8]) {}
}

/// A sink that ignores everything.
impl Sink for () {
    const WANTS_HEADS: bool = false;
}
