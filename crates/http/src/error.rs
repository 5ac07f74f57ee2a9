//! Every way in which a peer's message can be wrong, each with a stable name for counting.
//! Refuses to carry the offending bytes: an error is `Copy`, so that failing costs nothing on the measured path.

use thiserror::Error;

/// Why a message could not be understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
pub enum Malformed {
    /// The first line of a response is not `HTTP/1.x NNN`.
    #[error("the status line is not `HTTP/1.x` and three digits")]
    StatusLine,
    /// The first line of a request is not `METHOD TARGET HTTP/1.x`.
    #[error("the request line is not a method, a target and `HTTP/1.x`, one space apart")]
    RequestLine,
    /// A request target that is neither a path nor an `http://` URL.
    #[error("the request target is neither a path nor an http URL")]
    Target,
    /// A major version other than 1.
    #[error("the protocol version is not HTTP/1.x")]
    Version,
    /// The head is longer than we are willing to hold.
    #[error("the head is longer than 64 KiB")]
    HeadTooLong,
    /// A field line without a colon, or with something else than a token in front of it.
    #[error("a field line has no name that is a token, followed by a colon")]
    FieldLine,
    /// CR or NUL inside a line.
    #[error("a line of the head holds a bare CR or a NUL")]
    ControlCharacter,
    /// A field that decides on framing, continued on the next line (or any field of a request).
    #[error("a field is continued on the next line")]
    FoldedField,
    /// A `Content-Length` that is not a number below 2^64.
    #[error("Content-Length is not a number")]
    ContentLength,
    /// Several lengths that differ.
    #[error("there are several Content-Length values and they differ")]
    ContentLengthConflict,
    /// Both ways of framing at once.
    #[error("there is a Content-Length beside a Transfer-Encoding")]
    LengthAndCoding,
    /// `chunked` twice or not last, or a coding that leaves a request's end unknown.
    #[error("Transfer-Encoding does not end in one `chunked`")]
    TransferEncoding,
    /// HTTP/1.0 knows no transfer codings.
    #[error("an HTTP/1.0 message has a Transfer-Encoding")]
    TransferEncodingInHttp10,
    /// A chunk's size is not a hexadecimal number below 2^64.
    #[error("a chunk size is not a hexadecimal number")]
    ChunkSize,
    /// A chunk's first line, its extensions included, is longer than we are willing to read.
    #[error("a chunk size line is longer than 4 KiB")]
    ChunkLineTooLong,
    /// A chunk's data is not followed by the end of a line.
    #[error("a chunk does not end where its size says")]
    ChunkEnd,
    /// The trailer section is longer than we are willing to read.
    #[error("the trailer section is longer than 64 KiB")]
    TrailerTooLong,
    /// 101 where no upgrade was asked for.
    #[error("the protocol was switched without being asked")]
    UnexpectedUpgrade,
    /// Bytes that no request asked for.
    #[error("bytes arrived that no request had asked for")]
    UnsolicitedBytes,
    /// An HTTP/1.1 request without `Host`.
    #[error("there is no Host field")]
    MissingHost,
    /// A request with several `Host` fields.
    #[error("there are several Host fields")]
    RepeatedHost,
}

impl Malformed {
    /// Every cause, in the order of [`Malformed::index`].
    pub const ALL: [Malformed; 21] = [
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
        Malformed::UnsolicitedBytes,
        Malformed::MissingHost,
        Malformed::RepeatedHost,
    ];

    /// The cause's place in [`Malformed::ALL`], so that counting needs an array and no map.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The stable name under which the cause is counted.
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
            Malformed::UnsolicitedBytes => "malformed_unsolicited_bytes",
            Malformed::MissingHost => "malformed_missing_host",
            Malformed::RepeatedHost => "malformed_repeated_host",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Malformed;

    #[test]
    fn every_cause_has_its_own_name_and_place() {
        let names: std::collections::BTreeSet<_> = Malformed::ALL.iter().map(|cause| cause.name()).collect();
        assert_eq!(names.len(), Malformed::ALL.len());
        for (place, cause) in Malformed::ALL.iter().enumerate() {
            assert_eq!(cause.index(), place);
        }
    }
}
