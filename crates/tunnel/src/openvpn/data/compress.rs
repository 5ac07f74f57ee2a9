//! The bytes before a payload if compression was negotiated. Owns the framings, and decompresses an older peer's data
//! into a buffer of at most the tunnel's packet size. Never compresses, like OpenVPN 2.7: the length of compressed
//! data reveals its content despite encryption.

use super::error::DataError;
use super::lzo;

/// Uncompressed.
const PLAIN: u8 = 0xFA;
/// Uncompressed, with the payload's first byte at the end.
const PLAIN_SWAPPED: u8 = 0xFB;
const LZO: u8 = 0x66;
/// LZ4, with the payload's first byte at the end.
const LZ4_SWAPPED: u8 = 0x69;
/// Version 2: a header exists only if the first byte is this; the next byte is its kind.
const V2: u8 = 0x50;
const V2_PLAIN: u8 = 0;
const V2_LZ4: u8 = 1;

/// Compression framing of payloads, by the options that select it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Framing {
    /// No framing: no compression was negotiated.
    #[default]
    None,
    /// `comp-lzo no`.
    Stub,
    /// `compress` or `compress stub`.
    StubSwap,
    /// `compress stub-v2`.
    StubV2,
    /// `comp-lzo`, `comp-lzo yes`, `comp-lzo adaptive`, `compress lzo`.
    Lzo,
    /// `compress lz4`.
    Lz4,
    /// `compress lz4-v2`.
    Lz4V2,
}

impl Framing {
    /// Every framing.
    pub const ALL: [Self; 7] =
        [Self::None, Self::Stub, Self::StubSwap, Self::StubV2, Self::Lzo, Self::Lz4, Self::Lz4V2];

    /// Overhead of most payloads, bytes.
    #[must_use]
    pub fn overhead(self) -> usize {
        match self {
            Self::None | Self::StubV2 | Self::Lz4V2 => 0,
            Self::Stub | Self::StubSwap | Self::Lzo | Self::Lz4 => 1,
        }
    }

    /// Appends a nonempty `payload` with its framing.
    pub(super) fn frame(self, payload: &[u8], out: &mut Vec<u8>) {
        match self {
            Self::None => out.extend_from_slice(payload),
            Self::Stub | Self::Lzo => {
                out.push(PLAIN);
                out.extend_from_slice(payload);
            }
            Self::StubSwap | Self::Lz4 => {
                out.push(PLAIN_SWAPPED);
                out.extend_from_slice(&payload[1..]);
                out.push(payload[0]);
            }
            Self::StubV2 | Self::Lz4V2 => {
                if payload[0] == V2 {
                    out.extend_from_slice(&[V2, V2_PLAIN]);
                }
                out.extend_from_slice(payload);
            }
        }
    }

    /// Returns the payload of a peer's framed data: in place, or in `buffer` if it was compressed, with at most
    /// `largest` bytes.
    pub(super) fn unframe<'p>(
        self,
        framed: &'p mut [u8],
        buffer: &'p mut Vec<u8>,
        largest: usize,
    ) -> Result<&'p mut [u8], DataError> {
        let first = *framed.first().ok_or(DataError::Framing)?;
        let payload = match (self, first) {
            (Self::None, _) => framed,
            (Self::Stub | Self::Lzo, PLAIN) => &mut framed[1..],
            (Self::Lzo, LZO) => decompressed(&framed[1..], buffer, largest, lzo::decompress)?,
            (Self::StubSwap | Self::Lz4, PLAIN_SWAPPED) => unswapped(framed),
            (Self::Lz4, LZ4_SWAPPED) => decompressed(unswapped(framed), buffer, largest, lz4)?,
            (Self::StubV2 | Self::Lz4V2, V2) => match (self, framed.get(1)) {
                (_, Some(&V2_PLAIN)) => &mut framed[2..],
                (Self::Lz4V2, Some(&V2_LZ4)) => decompressed(&framed[2..], buffer, largest, lz4)?,
                _ => return Err(DataError::Framing),
            },
            (Self::StubV2 | Self::Lz4V2, _) => framed,
            _ => return Err(DataError::Framing),
        };
        if payload.is_empty() {
            return Err(DataError::Framing);
        }
        Ok(payload)
    }
}

/// Moves the last byte to the place of the mark.
fn unswapped(framed: &mut [u8]) -> &mut [u8] {
    let last = framed.len() - 1;
    framed[0] = framed[last];
    &mut framed[..last]
}

fn decompressed<'b>(
    compressed: &[u8],
    buffer: &'b mut Vec<u8>,
    largest: usize,
    decompress: fn(&[u8], &mut [u8]) -> Option<usize>,
) -> Result<&'b mut [u8], DataError> {
    // The buffer is kept, because a peer that compresses one packet compresses most.
    buffer.resize(largest, 0);
    let length = decompress(compressed, buffer).ok_or(DataError::Framing)?;
    Ok(&mut buffer[..length])
}

fn lz4(compressed: &[u8], out: &mut [u8]) -> Option<usize> {
    lz4_flex::block::decompress_into(compressed, out).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LARGEST: usize = 1600;

    fn unframed(framing: Framing, framed: &[u8]) -> Result<Vec<u8>, DataError> {
        framing.unframe(&mut framed.to_vec(), &mut Vec::new(), LARGEST).map(|payload| payload.to_vec())
    }

    /// A payload as an old peer compresses it, with the framing's mark.
    fn compressed(framing: Framing, payload: &[u8]) -> Vec<u8> {
        match framing {
            Framing::Lzo => [&[LZO], &lzokay_native::compress(payload).expect("compressed")[..]].concat(),
            Framing::Lz4 => {
                let mut framed = lz4_flex::block::compress(payload);
                framed.push(framed[0]);
                framed[0] = LZ4_SWAPPED;
                framed
            }
            _ => [&[V2, V2_LZ4], &lz4_flex::block::compress(payload)[..]].concat(),
        }
    }

    #[test]
    fn compression_bytes_are_where_openvpn_puts_them() {
        let framed = |framing: Framing, payload: &[u8]| {
            let mut out = Vec::new();
            framing.frame(payload, &mut out);
            out
        };
        assert_eq!(framed(Framing::None, b"abc"), b"abc");
        assert_eq!(framed(Framing::Stub, b"abc"), b"\xfaabc");
        assert_eq!(framed(Framing::Lzo, b"abc"), b"\xfaabc");
        assert_eq!(framed(Framing::StubSwap, b"abc"), b"\xfbbca");
        assert_eq!(framed(Framing::Lz4, b"a"), b"\xfba");
        assert_eq!(framed(Framing::StubV2, b"abc"), b"abc");
        assert_eq!(framed(Framing::Lz4V2, b"\x50bc"), b"\x50\0\x50bc");
    }

    #[test]
    fn compressed_payload_is_opened_up_to_the_largest_packet() {
        for framing in [Framing::Lzo, Framing::Lz4, Framing::Lz4V2] {
            let largest = [7; LARGEST];
            assert_eq!(unframed(framing, &compressed(framing, &largest)).expect("compressed"), largest, "{framing:?}");
            let bomb = compressed(framing, &[0; 60_000]);
            assert!(bomb.len() < 600);
            assert_eq!(unframed(framing, &bomb), Err(DataError::Framing), "{framing:?}");
            assert_eq!(unframed(Framing::StubSwap, &bomb), Err(DataError::Framing));
        }
    }

    #[test]
    fn unknown_compression_bytes_and_empty_payloads_are_refused() {
        for framing in Framing::ALL {
            assert_eq!(unframed(framing, b""), Err(DataError::Framing));
        }
        for (framing, framed) in [
            (Framing::Stub, &b"\xfa"[..]),
            (Framing::Stub, b"\xfba"),
            (Framing::StubSwap, b"\xfb"),
            (Framing::StubSwap, b"\xfaa"),
            (Framing::StubV2, b"\x50"),
            (Framing::StubV2, b"\x50\0"),
            (Framing::StubV2, b"\x50\x01a"),
            (Framing::Lz4V2, b"\x50\x02a"),
            (Framing::Lz4V2, b"\x50\x01"),
            (Framing::Lz4, b"\x69"),
            (Framing::Lzo, b"\x66"),
            (Framing::Lzo, b"\x69a"),
        ] {
            assert_eq!(unframed(framing, framed), Err(DataError::Framing), "{framing:?} {framed:x?}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_payloads_never_exceed_the_largest(
            framing in prop::sample::select(Framing::ALL.to_vec()),
            mark in prop::sample::select(vec![PLAIN, PLAIN_SWAPPED, LZO, LZ4_SWAPPED, V2]),
            bytes in prop::collection::vec(any::<u8>(), 0..1200),
        ) {
            let framed = [&[mark], &bytes[..]].concat();
            if let Ok(payload) = unframed(framing, &framed) {
                prop_assert!(payload.len() <= LARGEST && !payload.is_empty());
            }
        }

        #[test]
        fn compressed_payload_round_trips(
            framing in prop::sample::select(vec![Framing::Lzo, Framing::Lz4, Framing::Lz4V2]),
            piece in prop::collection::vec(any::<u8>(), 1..50),
            times in 1..30_usize,
        ) {
            let payload = piece.repeat(times);
            prop_assert_eq!(unframed(framing, &compressed(framing, &payload)).expect("compressed"), payload);
        }
    }
}
