//! An LZO1X decompressor. Writes no byte past its output buffer, reads no byte past its input, and never panics.

/// Decompresses `compressed` into `out`; returns the number of bytes. `None`: the data is invalid, truncated,
/// followed by other bytes, or longer than `out`.
pub(super) fn decompress(compressed: &[u8], out: &mut [u8]) -> Option<usize> {
    let mut stream = Stream { compressed, read: 0, out, written: 0 };
    stream.run()?;
    (stream.read == compressed.len()).then_some(stream.written)
}

/// Number of literals that the previous instruction copied, as far as it affects the next one: 4 means "four or
/// more".
const MANY: usize = 4;

struct Stream<'a> {
    compressed: &'a [u8],
    read: usize,
    out: &'a mut [u8],
    written: usize,
}

impl Stream<'_> {
    /// Executes the instructions up to the end marker.
    fn run(&mut self) -> Option<()> {
        let mut literals = self.first()?;
        loop {
            let instruction = usize::from(self.byte()?);
            if instruction < 16 && literals == 0 {
                let length = 3 + self.length(instruction, 15)?;
                self.copy_literals(length)?;
                literals = MANY;
                continue;
            }
            let (length, distance, following) = match instruction {
                64.. => {
                    let distance = (usize::from(self.byte()?) << 3) + (instruction >> 2 & 7) + 1;
                    ((instruction >> 5) + 1, distance, instruction & 3)
                }
                32.. => {
                    let length = 2 + self.length(instruction & 31, 31)?;
                    let word = self.word()?;
                    (length, (word >> 2) + 1, word & 3)
                }
                16.. => {
                    let length = 2 + self.length(instruction & 7, 7)?;
                    let word = self.word()?;
                    let distance = (instruction & 8) << 11 | word >> 2;
                    if distance == 0 {
                        return Some(());
                    }
                    (length, distance + 16_384, word & 3)
                }
                _ => {
                    let near = (usize::from(self.byte()?) << 2) + (instruction >> 2) + 1;
                    let (length, distance) = if literals == MANY { (3, near + 2048) } else { (2, near) };
                    (length, distance, instruction & 3)
                }
            };
            self.copy_match(length, distance)?;
            self.copy_literals(following)?;
            literals = following;
        }
    }

    /// A first byte above 17 is a run of literals; any other one is an instruction.
    fn first(&mut self) -> Option<usize> {
        let run = usize::from(*self.compressed.first()?);
        if run <= 17 {
            return Some(0);
        }
        self.read = 1;
        self.copy_literals(run - 17)?;
        Some((run - 17).min(MANY))
    }

    /// Reads a variable length: 0 in the instruction means `base`, plus 255 for each following zero byte, plus the
    /// byte after them.
    fn length(&mut self, in_instruction: usize, base: usize) -> Option<usize> {
        if in_instruction != 0 {
            return Some(in_instruction);
        }
        let mut length = base;
        loop {
            match self.byte()? {
                // No overflow is possible: each 255 takes a byte of the packet.
                0 => length += 255,
                last => return Some(length + usize::from(last)),
            }
        }
    }

    fn byte(&mut self) -> Option<u8> {
        let byte = *self.compressed.get(self.read)?;
        self.read += 1;
        Some(byte)
    }

    fn word(&mut self) -> Option<usize> {
        let low = usize::from(self.byte()?);
        Some(low | usize::from(self.byte()?) << 8)
    }

    fn copy_literals(&mut self, length: usize) -> Option<()> {
        let from = self.compressed.get(self.read..self.read + length)?;
        self.out.get_mut(self.written..self.written + length)?.copy_from_slice(from);
        self.read += length;
        self.written += length;
        Some(())
    }

    /// Copies `length` bytes from `distance` before the end; source and destination may overlap.
    fn copy_match(&mut self, length: usize, distance: usize) -> Option<()> {
        let from = self.written.checked_sub(distance)?;
        if length > self.out.len() - self.written {
            return None;
        }
        for index in from..from + length {
            self.out[index + distance] = self.out[index];
        }
        self.written += length;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn opened(compressed: &[u8], room: usize) -> Option<Vec<u8>> {
        let mut out = vec![0; room];
        let length = decompress(compressed, &mut out)?;
        out.truncate(length);
        Some(out)
    }

    /// Streams that liblzo 2.10 created from the same text: `lzo1x_999_compress`, and `lzo1x_1_15_compress` as
    /// OpenVPN calls it.
    #[test]
    fn liblzo_streams_are_decompressed() {
        let text = [b"0123456789", &b"AB".repeat(30)[..], b"0123456789xyz", &[0; 400], b"0123456789end"].concat();
        let thorough = b"\x1d0123456789AB \x19\x04\0(\x14\x01\x01xyz\0 \0o\0\0(s\x06end\x11\0\0";
        let quick = b"\x090123456789AB \x19\x04\0(\x14\x01\x01xyz\0 \0l\0\0\r\0\0\x000123456789end\x11\0\0";
        for stream in [&thorough[..], quick] {
            assert_eq!(opened(stream, text.len()).as_deref(), Some(&text[..]));
            assert_eq!(opened(stream, text.len() - 1), None, "the buffer is one byte too small");
            assert_eq!(opened(&[stream, b"x"].concat(), text.len()), None, "one byte follows the end");
            for length in 0..stream.len() {
                assert_eq!(opened(&stream[..length], text.len()), None, "cut at {length}");
            }
        }
    }

    #[test]
    fn match_before_the_start_is_refused() {
        for stream in [&b"\x15abcd\x40\x01\x11\0\0"[..], b"\x40\0\x11\0\0", b"\x12a\x04\0\x11\0\0", b"\x21\xff\xff"] {
            assert_eq!(opened(stream, 1600), None, "{stream:x?}");
        }
    }

    proptest! {
        #[test]
        fn compressed_data_is_restored(
            pieces in prop::collection::vec((prop::collection::vec(any::<u8>(), 1..40), 1..60_usize), 1..60),
        ) {
            let text: Vec<u8> = pieces.into_iter().flat_map(|(piece, times)| piece.repeat(times)).collect();
            let compressed = lzokay_native::compress(&text).expect("compressed");
            let room = text.len();
            prop_assert_eq!(opened(&compressed, room), Some(text));
        }

        #[test]
        fn arbitrary_streams_stay_within_the_output_bound(stream in prop::collection::vec(any::<u8>(), 0..600), room in 0..2000_usize) {
            if let Some(out) = opened(&stream, room) {
                prop_assert!(out.len() <= room);
            }
        }
    }
}
