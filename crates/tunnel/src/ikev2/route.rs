//! Which client a datagram belongs to, for sockets that many clients share: SPIs tell them apart.

use super::message::HEADER_BYTES;

/// How a datagram travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Path {
    /// UDP port 500: IKE without a marker.
    Port500,
    /// UDP port 4500 (RFC 3948): IKE after four zero bytes, ESP, keepalives.
    Port4500,
    /// IP protocol 50: ESP.
    RawEsp,
}

/// What a datagram is, from its first bytes alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// A message of IKE for the client with this SPI.
    Ike {
        /// The SPI that this end chose.
        spi: u64,
    },
    /// An ESP packet for the client that receives by this SPI.
    Esp {
        /// The SPI that this end chose.
        spi: u32,
    },
    /// A keepalive, or too short for anything.
    Nothing,
}

/// Length of the marker before IKE on port 4500, bytes.
pub const MARKER_BYTES: usize = 4;

/// Finds what a datagram is.
#[must_use]
pub fn route(path: Path, datagram: &[u8]) -> Route {
    let ike = match (path, datagram.first_chunk::<MARKER_BYTES>()) {
        (Path::Port500, _) => datagram,
        (Path::Port4500, Some([0, 0, 0, 0])) => &datagram[MARKER_BYTES..],
        (_, Some(spi)) => {
            // RFC 3948, section 2.3: a keepalive is one byte.
            let is_esp = datagram.len() >= crate::esp::HEADER_BYTES;
            return if is_esp { Route::Esp { spi: u32::from_be_bytes(*spi) } } else { Route::Nothing };
        }
        (_, None) => return Route::Nothing,
    };
    let Some(header) = ike.first_chunk::<HEADER_BYTES>() else { return Route::Nothing };
    // Of both SPIs, the sender's role says which one is ours.
    let at = if header[19] & super::message::FLAG_INITIATOR != 0 { 8 } else { 0 };
    Route::Ike { spi: u64::from_be_bytes(*header[at..].first_chunk().expect("a header")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_and_first_bytes_identify_a_datagram() {
        let mut ike = [0; 32];
        ike[4..12].copy_from_slice(&7u64.to_be_bytes());
        ike[12..20].copy_from_slice(&8u64.to_be_bytes());
        assert_eq!(route(Path::Port4500, &ike), Route::Ike { spi: 7 });
        assert_eq!(route(Path::Port500, &ike[4..]), Route::Ike { spi: 7 });
        ike[4 + 19] = 8;
        assert_eq!(route(Path::Port500, &ike[4..]), Route::Ike { spi: 8 });
        let esp = [0, 0, 1, 0, 0, 0, 0, 1];
        assert_eq!(route(Path::Port4500, &esp), Route::Esp { spi: 256 });
        assert_eq!(route(Path::RawEsp, &esp), Route::Esp { spi: 256 });
        for short in [&[0xFF][..], &[], &[0; 4], &[0; 20], &esp[..7]] {
            assert_eq!(route(Path::Port4500, short), Route::Nothing);
            assert_eq!(route(Path::Port500, short), Route::Nothing);
        }
    }
}
