//! Numbers of sessions: the same from run to run, whatever the machine.

const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0000_0100_0000_01b3;

/// Returns the number of the session that these parts name (FNV-1a, with a mark behind each part).
pub(crate) fn number_session(parts: &[&[u8]]) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(PRIME);
    parts.iter().fold(BASIS, |hash, part| step(part.iter().fold(hash, |hash, byte| step(hash, *byte)), 0xff))
}

#[cfg(test)]
mod tests {
    use super::number_session;

    #[test]
    fn parts_do_not_run_into_each_other() {
        assert_ne!(number_session(&[b"ab", b"c"]), number_session(&[b"a", b"bc"]));
        assert_eq!(number_session(&[b"a"]), number_session(&[b"a"]));
    }
}
