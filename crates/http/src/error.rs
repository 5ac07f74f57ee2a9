//! Every way in which a peer's message can be wrong, each with a stable name for counting. An error does not carry
//! the offending bytes: it is `Copy`, so a failure costs nothing on the measured path.

use thiserror::Error;

/// Why a message is malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
#[error("{}", self.explanation())]
pub enum Malformed {
    /// The first line of a response is not `HTTP/1.x NNN`.
    StatusLine,
    /// The first line of a request is not `METHOD TARGET HTTP/1.x`.
    RequestLine,
    /// A request target that is neither a path nor an `http://` URL.
    Target,
    /// A major version other than 1.
    Version,
    /// The head is longer than [`crate::HEAD_LIMIT_BYTES`].
    HeadTooLong,
    /// A field line without a colon, or whose name is not a token.
    FieldLine,
    /// CR or NUL inside a line.
    ControlCharacter,
    /// A folded field that determines framing (or any folded field of a request).
    FoldedField,
    /// A `Content-Length` that is not a number below 2^64.
    ContentLength,
    /// Several `Content-Length` values that differ.
    ContentLengthConflict,
    /// Both `Content-Length` and `Transfer-Encoding`.
    LengthAndCoding,
    /// `chunked` is repeated or not last, or a coding leaves the end of a request unknown.
    TransferEncoding,
    /// A transfer coding in HTTP/1.0, which has none.
    TransferEncodingInHttp10,
    /// A chunk's size is not a hexadecimal number below 2^64.
    ChunkSize,
    /// A chunk's first line, its extensions included, is longer than the limit.
    ChunkLineTooLong,
    /// A chunk's data is not followed by the end of a line.
    ChunkEnd,
    /// The trailer section is longer than [`crate::HEAD_LIMIT_BYTES`].
    TrailerTooLong,
    /// Status 101 although the request asked for no upgrade.
    UnexpectedUpgrade,
    /// More interim responses than [`crate::INTERIM_LIMIT`].
    TooManyInterim,
    /// Bytes that answer no request.
    UnsolicitedBytes,
    /// An HTTP/1.1 request without `Host`.
    MissingHost,
    /// A request with several `Host` fields.
    RepeatedHost,
}

impl Malformed {
    /// Every cause, in the order of [`Malformed::index`].
    pub const ALL: [Malformed; 22] = [
        Malformed::StatusLine,
        Malformed::RequestLine,
        Malformed::Target,
        Malformed::Version,
        Malformed::HeadTooLong,
        Malformed::FieldLine,
        Malformed::ControlCharacter,
        Malformed::FoldedField,
        Malformed::ContentLength,
        Malformed::ContentLengthConflict,
        Malformed::LengthAndCoding,
        Malformed::TransferEncoding,
        Malformed::TransferEncodingInHttp10,
        Malformed::ChunkSize,
        Malformed::ChunkLineTooLong,
        Malformed::ChunkEnd,
        Malformed::TrailerTooLong,
        Malformed::UnexpectedUpgrade,
        Malformed::TooManyInterim,
        Malformed::UnsolicitedBytes,
        Malformed::MissingHost,
        Malformed::RepeatedHost,
    ];

    /// The cause's index in [`Malformed::ALL`], so that counters are an array.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The stable name of the cause's counter.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Malformed::StatusLine => "malformed_status_line",
            Malformed::RequestLine => "malformed_request_line",
            Malformed::Target => "malformed_target",
            Malformed::Version => "malformed_version",
            Malformed::HeadTooLong => "malformed_head_too_long",
            Malformed::FieldLine => "malformed_field_line",
            Malformed::ControlCharacter => "malformed_control_character",
            Malformed::FoldedField => "malformed_folded_field",
            Malformed::ContentLength => "malformed_content_length",
            Malformed::ContentLengthConflict => "malformed_content_length_conflict",
            Malformed::LengthAndCoding => "malformed_length_and_coding",
            Malformed::TransferEncoding => "malformed_transfer_encoding",
            Malformed::TransferEncodingInHttp10 => "malformed_transfer_encoding_in_http10",
            Malformed::ChunkSize => "malformed_chunk_size",
            Malformed::ChunkLineTooLong => "malformed_chunk_line_too_long",
            Malformed::ChunkEnd => "malformed_chunk_end",
            Malformed::TrailerTooLong => "malformed_trailer_too_long",
            Malformed::UnexpectedUpgrade => "malformed_unexpected_upgrade",
            Malformed::TooManyInterim => "malformed_too_many_interim",
            Malformed::UnsolicitedBytes => "malformed_unsolicited_bytes",
            Malformed::MissingHost => "malformed_missing_host",
            Malformed::RepeatedHost => "malformed_repeated_host",
        }
    }
    /// A description of the cause, without a full stop, as an example of the error.
    #[must_use]
    pub const fn explanation(self) -> &'static str {
        match self {
            Malformed::StatusLine => "the status line is not `HTTP/1.x` and three digits",
            Malformed::RequestLine => "the request line is not a method, a target and `HTTP/1.x`, one space apart",
            Malformed::Target => "the request target is neither a path nor an http URL",
            Malformed::Version => "the protocol version is not HTTP/1.x",
            Malformed::HeadTooLong => "the head is longer than 64 KiB",
            Malformed::FieldLine => "a field line has no name that is a token, followed by a colon",
            Malformed::ControlCharacter => "a line of the head holds a bare CR or a NUL",
            Malformed::FoldedField => "a field is continued on the next line",
            Malformed::ContentLength => "Content-Length is not a number",
            Malformed::ContentLengthConflict => "there are several Content-Length values and they differ",
            Malformed::LengthAndCoding => "there is a Content-Length beside a Transfer-Encoding",
            Malformed::TransferEncoding => "Transfer-Encoding does not end in one `chunked`",
            Malformed::TransferEncodingInHttp10 => "an HTTP/1.0 message has a Transfer-Encoding",
            Malformed::ChunkSize => "a chunk size is not a hexadecimal number",
            Malformed::ChunkLineTooLong => "a chunk size line is longer than 4 KiB",
            Malformed::ChunkEnd => "a chunk does not end where its size says",
            Malformed::TrailerTooLong => "the trailer section is longer than 64 KiB",
            Malformed::UnexpectedUpgrade => "the server switched protocols although the request asked for no upgrade",
            Malformed::TooManyInterim => "more than 16 interim (1xx) responses came before a response",
            Malformed::UnsolicitedBytes => "bytes arrived that answer no request",
            Malformed::MissingHost => "there is no Host field",
            Malformed::RepeatedHost => "there are several Host fields",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Malformed;

    #[test]
    fn every_cause_has_a_unique_name_and_index() {
        let names: std::collections::BTreeSet<_> = Malformed::ALL.iter().map(|cause| cause.name()).collect();
        assert_eq!(names.len(), Malformed::ALL.len());
        let sentences: std::collections::BTreeSet<_> = Malformed::ALL.iter().map(|cause| cause.explanation()).collect();
        assert_eq!(sentences.len(), Malformed::ALL.len());
        assert!(Malformed::TooManyInterim.explanation().contains(&crate::INTERIM_LIMIT.to_string()));
        for (place, cause) in Malformed::ALL.iter().enumerate() {
            assert_eq!(cause.index(), place);
        }
    }
}
