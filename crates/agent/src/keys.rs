//! Keys of sessions: reads them from a file or a specification for the session protocol. No message of this module
//! shows a key.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use base64::engine::general_purpose::STANDARD;
use base64::Engine;
use leadline_sys::process::random_u64;
use leadline_sys::reason::reason;
use leadline_transport::{Credentials, Hex32, KeyError, SharedKey, LONGEST_KEY_BYTES};
use leadline_wire::{ErrorReport, SessionKey};

use crate::events::{input_error, system_error};

/// Permissions of users other than the owner and its group.
const OTHERS: u32 = 0o006;

/// A key that was read from a file.
#[derive(Debug)]
pub struct KeyFile {
    /// The key.
    pub key: SessionKey,
    /// A warning about the file, in one line.
    pub warning: Option<String>,
}

/// Reads a key file: its bytes without white space at the end.
pub fn read_file(path: &Path) -> Result<KeyFile, ErrorReport> {
    let shown = path.display();
    let failed = |error: std::io::Error| input_error("bad_key", format!("--key-file {shown}: {}", reason(&error)));
    let file = File::open(path).map_err(failed)?;
    let mode = file.metadata().map_err(failed)?.permissions().mode();
    let mut bytes = Vec::new();
    // Room for a line end after the longest key.
    file.take(LONGEST_KEY_BYTES as u64 + 3).read_to_end(&mut bytes).map_err(failed)?;
    let secret = bytes.trim_ascii_end();
    SharedKey::new(secret).map_err(|error| bad_key(&format!("--key-file {shown}"), error))?;
    let warning = (mode & OTHERS != 0)
        .then(|| format!("--key-file {shown}: every user of this host can read or change it; chmod 600 {shown}"));
    Ok(KeyFile { key: SessionKey { base64: STANDARD.encode(secret) }, warning })
}

/// Returns the key of a specification, if there is one.
pub fn shared(key: Option<&SessionKey>) -> Result<Option<SharedKey>, ErrorReport> {
    let Some(key) = key else { return Ok(None) };
    let secret = STANDARD.decode(&key.base64).map_err(|_| input_error("bad_key", "the key is not base64"))?;
    SharedKey::new(&secret).map(Some).map_err(|error| bad_key("key", error))
}

/// Returns a client's credentials for one session.
pub fn credentials(key: Option<&SharedKey>) -> Result<Option<Credentials>, ErrorReport> {
    key.map(|key| Ok(Credentials { key: key.clone(), nonce: fresh_nonce()? })).transpose()
}

/// Returns 256 random bits that were never used before.
pub fn fresh_nonce() -> Result<Hex32, ErrorReport> {
    let mut nonce = [0; 32];
    for word in nonce.chunks_exact_mut(8) {
        let random = random_u64().map_err(|error| system_error("asking for random numbers", &error))?;
        word.copy_from_slice(&random.to_ne_bytes());
    }
    Ok(Hex32(nonce))
}

fn bad_key(whose: &str, error: KeyError) -> ErrorReport {
    input_error("bad_key", format!("{whose}: {error}; openssl rand -base64 32 makes one"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, content: &[u8], mode: u32) -> std::path::PathBuf {
        let path = std::env::temp_dir().join(format!("leadline-key-{}-{name}", std::process::id()));
        std::fs::write(&path, content).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    fn read(name: &str, content: &[u8], mode: u32) -> Result<KeyFile, String> {
        let path = file(name, content, mode);
        let read = read_file(&path).map_err(|error| error.message);
        std::fs::remove_file(path).unwrap();
        read
    }

    #[test]
    fn a_key_is_a_files_bytes_without_its_line_end() {
        let loaded = read("plain", b" \x00\xffkey \r\n\n", 0o600).unwrap();
        assert_eq!(STANDARD.decode(&loaded.key.base64).unwrap(), b" \x00\xffkey");
        assert!(loaded.warning.is_none() && !format!("{loaded:?}").contains(&loaded.key.base64));
        assert!(shared(Some(&loaded.key)).unwrap().is_some() && shared(None).unwrap().is_none());
    }

    #[test]
    fn a_key_that_is_none_is_refused_and_one_that_others_read_is_warned_of() {
        assert!(read("empty", b"", 0o600).unwrap_err().contains("the key is empty"));
        assert!(read("blank", b"\n \n", 0o600).unwrap_err().contains("the key is empty"));
        assert!(read("long", &[b'x'; LONGEST_KEY_BYTES + 1], 0o600).unwrap_err().contains("longer than 4096"));
        assert!(read("longest", &[&[b'x'; LONGEST_KEY_BYTES][..], b"\r\n"].concat(), 0o600).is_ok());
        assert!(read_file(Path::new("/nowhere/key")).unwrap_err().message.contains("/nowhere/key"));
        assert!(read_file(Path::new("/")).is_err());
        assert!(read("open", b"key", 0o644).unwrap().warning.unwrap().contains("chmod 600"));
        assert!(read("group", b"key", 0o640).unwrap().warning.is_none());
    }

    #[test]
    fn nonces_differ() {
        assert_ne!(fresh_nonce().unwrap(), fresh_nonce().unwrap());
    }
}
