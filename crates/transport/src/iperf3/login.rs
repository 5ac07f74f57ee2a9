//! iperf3's login: a client's name, password and time, encrypted with the server's RSA key, in base64. Owns this token, the
//! file of users, and the keys of both ends; reads no file and no clock.

use aws_lc_rs::rsa::{
    OaepPrivateDecryptingKey, OaepPublicEncryptingKey, Pkcs1PrivateDecryptingKey, Pkcs1PublicEncryptingKey,
    PrivateDecryptingKey, PublicEncryptingKey, OAEP_SHA1_MGF1SHA1,
};
use aws_lc_rs::{constant_time, digest};
use base64::engine::general_purpose::STANDARD;
use base64::Engine;
use leadline_wire::{Iperf3Login, Iperf3Users, RsaPadding};

/// Why keys, users or a login cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoginError {
    /// A text without a key.
    #[error(
        "no RSA key in PEM is there; a public key begins with BEGIN PUBLIC KEY, a private one with BEGIN PRIVATE KEY"
    )]
    NoKey,
    /// A key with a passphrase.
    #[error("the key is encrypted; openssl rsa -in FILE -out PLAIN removes the passphrase")]
    EncryptedKey,
    /// A key of another kind or length.
    #[error("the key is none of RSA with 2048 to 8192 bits")]
    BadKey,
    /// A line of the users' file.
    #[error("line {0} of the users is not NAME,HASH with 64 hexadecimal digits")]
    BadUser(usize),
    /// A file without users.
    #[error("no user is there")]
    NoUser,
    /// A name or a password that iperf3's token cannot carry.
    #[error("a name and a password must not be empty, nor have white space")]
    BadName,
    /// A name and a password that are too long for the key.
    #[error("name and password are longer than the key can encrypt")]
    TooLong,
}

/// Why a client is not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoginRefusal {
    /// The client has sent no token.
    #[error("no login was sent")]
    Missing,
    /// The token cannot be decrypted: another key, another padding, or nonsense.
    #[error("the login cannot be decrypted: another key, or another padding")]
    Unreadable,
    /// The client's time is too far from the server's.
    #[error("the login's time is too far from this host's")]
    Time,
    /// There is no such user, or the password is another one.
    #[error("the name or the password is wrong")]
    Wrong,
}

/// Returns the token of a client at a time, s since 1970.
///
/// # Errors
/// The key, the name or the password cannot be used.
pub fn token(login: &Iperf3Login, unix_s: i64) -> Result<String, LoginError> {
    let unusable = |text: &str| text.is_empty() || text.contains(char::is_whitespace) || text.contains('\0');
    if unusable(&login.user) || unusable(&login.password) {
        return Err(LoginError::BadName);
    }
    let text = format!("user: {}\npwd:  {}\nts:   {unix_s}", login.user, login.password);
    let (label, der) = pem(&login.key_pem)?;
    let key = if label == "PUBLIC KEY" { PublicEncryptingKey::from_der(&der).ok() } else { None };
    let key = key.ok_or(LoginError::BadKey)?;
    let mut buffer = vec![0; key.key_size_bytes()];
    let encrypted = match login.padding {
        RsaPadding::Oaep => OaepPublicEncryptingKey::new(key)
            .and_then(|key| key.encrypt(&OAEP_SHA1_MGF1SHA1, text.as_bytes(), &mut buffer, None).map(|bytes| &*bytes)),
        RsaPadding::Pkcs1 => Pkcs1PublicEncryptingKey::new(key)
            .and_then(|key| key.encrypt(text.as_bytes(), &mut buffer).map(|bytes| &*bytes)),
    };
    encrypted.map(|bytes| STANDARD.encode(bytes)).map_err(|_| LoginError::TooLong)
}

/// The users that a server knows, and its key.
#[derive(Debug)]
pub struct Iperf3Gate {
    key: DecryptingKey,
    users: Vec<(String, String)>,
    skew_s: i64,
}

#[derive(Debug)]
enum DecryptingKey {
    Oaep(OaepPrivateDecryptingKey),
    Pkcs1(Pkcs1PrivateDecryptingKey),
}

impl Iperf3Gate {
    /// Reads the key and the users.
    ///
    /// # Errors
    /// What cannot be read.
    pub fn new(spec: &Iperf3Users) -> Result<Self, LoginError> {
        let (label, der) = pem(&spec.key_pem)?;
        let der = match label {
            "RSA PRIVATE KEY" => as_pkcs8(&der),
            "PRIVATE KEY" => der,
            "ENCRYPTED PRIVATE KEY" => return Err(LoginError::EncryptedKey),
            _ => return Err(LoginError::BadKey),
        };
        let key = PrivateDecryptingKey::from_pkcs8(&der).map_err(|_| LoginError::BadKey)?;
        let key = match spec.padding {
            RsaPadding::Oaep => OaepPrivateDecryptingKey::new(key).map(DecryptingKey::Oaep),
            RsaPadding::Pkcs1 => Pkcs1PrivateDecryptingKey::new(key).map(DecryptingKey::Pkcs1),
        };
        Ok(Self { key: key.map_err(|_| LoginError::BadKey)?, users: users(&spec.users)?, skew_s: spec.skew_s.into() })
    }

    /// Checks a client's token at a time, s since 1970; returns the user's name.
    ///
    /// # Errors
    /// Why the client is not let in.
    pub fn check(&self, token: Option<&str>, unix_s: i64) -> Result<String, LoginRefusal> {
        let encrypted = STANDARD.decode(token.ok_or(LoginRefusal::Missing)?).map_err(|_| LoginRefusal::Unreadable)?;
        let text = self.decrypt(&encrypted).ok_or(LoginRefusal::Unreadable)?;
        let (name, password, sent_s) = parts(&text).ok_or(LoginRefusal::Unreadable)?;
        if !(-self.skew_s..=self.skew_s).contains(&unix_s.saturating_sub(sent_s)) {
            return Err(LoginRefusal::Time);
        }
        let hash = hash(name, password);
        let is_it = |(known, of_known): &&(String, String)| {
            known == name && constant_time::verify_slices_are_equal(of_known.as_bytes(), hash.as_bytes()).is_ok()
        };
        self.users.iter().find(is_it).map(|(name, _)| name.clone()).ok_or(LoginRefusal::Wrong)
    }

    fn decrypt(&self, encrypted: &[u8]) -> Option<String> {
        let mut buffer;
        let plain = match &self.key {
            DecryptingKey::Oaep(key) => {
                buffer = vec![0; key.min_output_size()];
                key.decrypt(&OAEP_SHA1_MGF1SHA1, encrypted, &mut buffer, None)
            }
            DecryptingKey::Pkcs1(key) => {
                buffer = vec![0; key.min_output_size()];
                key.decrypt(encrypted, &mut buffer)
            }
        };
        plain.ok().and_then(|bytes| String::from_utf8(bytes.to_vec()).ok())
    }
}

/// The name, the password and the time of a token.
fn parts(text: &str) -> Option<(&str, &str, i64)> {
    let mut lines = text.split('\n');
    let mut part = |prefix: &str| lines.next()?.strip_prefix(prefix).map(str::trim);
    Some((part("user:")?, part("pwd:")?, part("ts:")?.parse().ok()?))
}

/// The hash of the users' file.
fn hash(name: &str, password: &str) -> String {
    let digest = digest::digest(&digest::SHA256, format!("{{{name}}}{password}").as_bytes());
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn users(text: &str) -> Result<Vec<(String, String)>, LoginError> {
    let mut found = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let user = line.split_once(',').map(|(name, hash)| (name.to_owned(), hash.trim().to_ascii_lowercase()));
        let is_whole = |(name, hash): &(String, String)| {
            !name.is_empty() && hash.len() == 64 && hash.bytes().all(|digit| digit.is_ascii_hexdigit())
        };
        found.push(user.filter(is_whole).ok_or(LoginError::BadUser(number))?);
    }
    if found.is_empty() {
        return Err(LoginError::NoUser);
    }
    Ok(found)
}

/// The label and the content of a text's first key.
fn pem(text: &str) -> Result<(&str, Vec<u8>), LoginError> {
    let begin = |label: &str| text.find(&format!("-----BEGIN {label}-----"));
    let labels = ["PUBLIC KEY", "PRIVATE KEY", "RSA PRIVATE KEY", "ENCRYPTED PRIVATE KEY", "RSA PUBLIC KEY"];
    let first = labels.into_iter().filter_map(|label| Some((begin(label)?, label))).min();
    let (_, label) = first.ok_or(LoginError::NoKey)?;
    let inside = text.split_once(&format!("-----BEGIN {label}-----")).map(|(_, rest)| rest);
    let inside = inside.and_then(|rest| rest.split_once(&format!("-----END {label}-----"))).map(|(inside, _)| inside);
    let inside = inside.ok_or(LoginError::NoKey)?;
    if inside.contains("ENCRYPTED") {
        return Err(LoginError::EncryptedKey);
    }
    let digits: String = inside.split_whitespace().collect();
    STANDARD.decode(digits).map(|der| (label, der)).map_err(|_| LoginError::NoKey)
}

/// Wraps an RSA key (PKCS #1) in the form for any kind of key (PKCS #8, RFC 5208).
fn as_pkcs8(key: &[u8]) -> Vec<u8> {
    // Version 0; the algorithm: rsaEncryption without parameters.
    let mut inside = vec![2, 1, 0, 0x30, 13, 6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 13, 1, 1, 1, 5, 0];
    inside.extend(tagged(4, key));
    tagged(0x30, &inside)
}

/// A value of DER with its tag and its length.
fn tagged(tag: u8, value: &[u8]) -> Vec<u8> {
    let bytes = value.len().to_be_bytes();
    let length = &bytes[bytes.iter().position(|byte| *byte > 0).unwrap_or(bytes.len() - 1)..];
    let mut all = vec![tag];
    if value.len() >= 128 {
        all.push(0x80 | length.len() as u8);
    }
    all.extend(length);
    all.extend(value);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der, PublicKeyX509Der};
    use aws_lc_rs::rsa::KeySize;
    use proptest::prelude::*;

    const NOW_S: i64 = 1_800_000_000;

    fn armored(label: &str, der: &[u8]) -> String {
        let digits = STANDARD.encode(der);
        let lines: Vec<&str> = digits.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap()).collect();
        format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
    }

    /// A private and a public key.
    fn keys() -> (String, String) {
        let key = PrivateDecryptingKey::generate(KeySize::Rsa2048).unwrap();
        let private: Pkcs8V1Der<'_> = key.as_der().unwrap();
        let public: PublicKeyX509Der<'_> = key.public_key().as_der().unwrap();
        (armored("PRIVATE KEY", private.as_ref()), armored("PUBLIC KEY", public.as_ref()))
    }

    fn spec(key_pem: &str, padding: RsaPadding) -> Iperf3Users {
        let users = format!("# who may\r\n\r\nmary,{}\nmary,{}\n", hash("mary", "old"), hash("mary", "s3cret"));
        Iperf3Users { key_pem: key_pem.to_owned(), users, padding, skew_s: 10 }
    }

    fn login(key_pem: &str, padding: RsaPadding) -> Iperf3Login {
        Iperf3Login { user: "mary".into(), password: "s3cret".into(), key_pem: key_pem.to_owned(), padding }
    }

    #[test]
    fn a_user_is_let_in_and_others_are_not() {
        let (private, public) = keys();
        for padding in [RsaPadding::Oaep, RsaPadding::Pkcs1] {
            let gate = Iperf3Gate::new(&spec(&private, padding)).unwrap();
            let login = login(&public, padding);
            let sent = token(&login, NOW_S).unwrap();
            assert_eq!(gate.check(Some(&sent), NOW_S + 10).as_deref(), Ok("mary"));
            assert_eq!(gate.check(Some(&sent), NOW_S + 11), Err(LoginRefusal::Time));
            assert_eq!(gate.check(Some(&sent), NOW_S - 11), Err(LoginRefusal::Time));
            assert_eq!(gate.check(None, NOW_S), Err(LoginRefusal::Missing));
            for wrong in [
                Iperf3Login { password: "S3cret".into(), ..login.clone() },
                Iperf3Login { user: "Mary".into(), ..login.clone() },
            ] {
                assert_eq!(gate.check(Some(&token(&wrong, NOW_S).unwrap()), NOW_S), Err(LoginRefusal::Wrong));
            }
            let other = token(&Iperf3Login { key_pem: keys().1, ..login.clone() }, NOW_S).unwrap();
            assert!(gate.check(Some(&other), NOW_S).is_err());
        }
        let gate = Iperf3Gate::new(&spec(&private, RsaPadding::Oaep)).unwrap();
        let sent = token(&login(&public, RsaPadding::Pkcs1), NOW_S).unwrap();
        assert_eq!(gate.check(Some(&sent), NOW_S), Err(LoginRefusal::Unreadable), "another padding");
    }

    #[test]
    fn a_key_of_the_older_form_is_the_same_key() {
        let (private, public) = keys();
        let (_, der) = pem(&private).unwrap();
        // In PKCS #8 the PKCS #1 key is the last value: behind 26 bytes of two lengths, a version and an algorithm.
        assert_eq!(as_pkcs8(&der[26..]), der);
        let older = armored("RSA PRIVATE KEY", &der[26..]);
        let gate = Iperf3Gate::new(&spec(&older, RsaPadding::Oaep)).unwrap();
        assert!(gate.check(Some(&token(&login(&public, RsaPadding::Oaep), NOW_S).unwrap()), NOW_S).is_ok());
        assert_eq!([tagged(4, &[7; 3]).len(), tagged(4, &[7; 128]).len(), tagged(4, &[7; 256]).len()], [5, 131, 260]);
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        let (private, public) = keys();
        let refused = |key_pem: &str, users: Option<&str>| {
            let mut spec = spec(key_pem, RsaPadding::Oaep);
            spec.users = users.map_or(spec.users, str::to_owned);
            Iperf3Gate::new(&spec).unwrap_err()
        };
        assert_eq!(refused("mary", None), LoginError::NoKey);
        assert_eq!(refused(&public, None), LoginError::BadKey);
        assert_eq!(refused(&armored("ENCRYPTED PRIVATE KEY", b"x"), None), LoginError::EncryptedKey);
        assert_eq!(refused(&armored("RSA PRIVATE KEY", b"x"), None), LoginError::BadKey);
        assert_eq!(refused(&private, Some("# no user\n")), LoginError::NoUser);
        assert_eq!(refused(&private, Some("\nmary,12\n")), LoginError::BadUser(2));
        let wrong = |change: &dyn Fn(&mut Iperf3Login)| {
            let mut login = login(&public, RsaPadding::Oaep);
            change(&mut login);
            token(&login, NOW_S).unwrap_err()
        };
        assert_eq!(wrong(&|login| login.user.clear()), LoginError::BadName);
        assert_eq!(wrong(&|login| login.password.push(' ')), LoginError::BadName);
        assert_eq!(wrong(&|login| login.password = "x".repeat(300)), LoginError::TooLong);
        assert_eq!(wrong(&|login| login.key_pem = private.clone()), LoginError::BadKey);
        assert!(!format!("{:?}", login(&public, RsaPadding::Oaep)).contains("s3cret"));
    }

    #[test]
    fn nonsense_is_refused() {
        let (private, _) = keys();
        let gates =
            [RsaPadding::Oaep, RsaPadding::Pkcs1].map(|padding| Iperf3Gate::new(&spec(&private, padding)).unwrap());
        proptest!(ProptestConfig::with_cases(24), |(bytes in proptest::collection::vec(any::<u8>(), 0..300))| {
            for gate in &gates {
                prop_assert!(gate.check(Some(&STANDARD.encode(&bytes)), NOW_S).is_err());
                prop_assert!(gate.check(Some(&String::from_utf8_lossy(&bytes)), NOW_S).is_err());
            }
        });
    }
}
