//! Rules for a complete profile: the meaning of options together, and required options. Parses no option.

use super::super::error::ProfileError;
use super::super::settings::{Ignored, Profile, Remote, WrapProfile};
use super::super::suites::TlsVersion;
use super::{data_cipher, suites, Endpoint, Parser, RemoteLine};
use crate::client::server::Transport;
use crate::openvpn::digest::Digest;

/// OpenVPN's default port.
const DEFAULT_PORT: u16 = 1194;
/// The OpenVPN versions before which `cipher` was also offered, and before which it was also the fallback.
const CIPHER_OFFERED_BEFORE: [u32; 2] = [2, 5];
const CIPHER_FALLBACK_BEFORE: [u32; 2] = [2, 4];

impl Parser {
    /// Returns the profile if it is complete.
    pub(in crate::openvpn::profile) fn finish(mut self) -> Result<Profile, ProfileError> {
        let missing = |message: &str| Err(ProfileError::at(0, message));
        if !self.is_client {
            return missing("there is no `client` in the profile: write it");
        }
        if self.profile.ca.is_empty() {
            return missing("there is no <ca> block in the profile: write the server's authority there");
        }
        match (&self.profile.cert, &self.profile.key) {
            (Some(_), None) => {
                return missing("there is a <cert> block in the profile and no <key> block: write both or none")
            }
            (None, Some(_)) => {
                return missing("there is a <key> block in the profile and no <cert> block: write both or none")
            }
            _ => {}
        }
        if let Some(certificate) = &mut self.profile.cert {
            certificate.push_str(&self.extra_certificates);
        }
        if self.profile.tls_min > self.profile.tls_max {
            return missing("`tls-version-min` is above `tls-version-max`: exchange them");
        }
        self.finish_suites()?;
        self.finish_remotes()?;
        self.finish_ciphers()?;
        if let Some(key) = self.tls_auth.take() {
            let without = "`tls-auth` needs a digest: write auth SHA256, or what the server has, instead of none";
            let digest = self.profile.auth.ok_or_else(|| ProfileError::at(self.auth_line, without))?;
            self.profile.wrap = WrapProfile::Auth { key, direction: self.key_direction, digest };
        }
        self.profile.ignored.sort_by_key(|ignored| ignored.line);
        Ok(self.profile)
    }

    fn finish_suites(&mut self) -> Result<(), ProfileError> {
        let profile = &mut self.profile;
        if let Some((line, why)) = self.unsupported_suites.take() {
            if profile.tls_max < TlsVersion::Tls13 {
                return Err(ProfileError::at(line, why));
            }
            profile.tls_min = TlsVersion::Tls13;
            let text = "tls-cipher (none of its suites is supported, so only TLS 1.3 is used)".to_owned();
            profile.ignored.push(Ignored { line, text });
        }
        profile.tls_ciphers = suites::combine(&self.suites.0, &self.suites.1);
        Ok(())
    }

    fn finish_remotes(&mut self) -> Result<(), ProfileError> {
        let remotes = std::mem::take(&mut self.remotes);
        if self.connections.is_empty() {
            self.profile.remotes = remotes.into_iter().map(|(_, remote)| remote.complete(self.endpoint)).collect();
        } else {
            // If there are blocks, OpenVPN ignores the remotes outside of them.
            let ignored =
                |(line, remote): (usize, RemoteLine)| Ignored { line, text: format!("remote {}", remote.host) };
            self.profile.ignored.extend(remotes.into_iter().map(ignored));
            self.profile.remotes = std::mem::take(&mut self.connections);
        }
        if self.profile.remotes.is_empty() {
            return Err(ProfileError::at(0, "there is no `remote` in the profile: write remote HOST PORT"));
        }
        self.profile.remotes.retain(|remote| self.only.is_none_or(|only| remote.transport == only));
        if self.profile.remotes.is_empty() {
            return Err(ProfileError::at(0, "`proto-force` leaves no remote: change it, or a remote's protocol"));
        }
        Ok(())
    }

    fn finish_ciphers(&mut self) -> Result<(), ProfileError> {
        let profile = &mut self.profile;
        if let Some(name) = &profile.cipher {
            let is_before = |version: [u32; 2]| self.compatible_with.is_some_and(|compatible| compatible < version);
            let named = || data_cipher(name).map_err(|message| ProfileError::at(self.cipher_line, message));
            if is_before(CIPHER_OFFERED_BEFORE) && !profile.data_ciphers.contains(&named()?) {
                profile.data_ciphers.push(named()?);
            }
            if is_before(CIPHER_FALLBACK_BEFORE) && profile.fallback_cipher.is_none() {
                profile.fallback_cipher = Some(named()?);
            }
            if !profile.data_ciphers.iter().any(|cipher| cipher.name().eq_ignore_ascii_case(name)) {
                // OpenVPN 2.6 warns about this and does not offer the cipher.
                let text = format!("cipher {name} (not among data-ciphers, so it is not offered)");
                profile.ignored.push(Ignored { line: self.cipher_line, text });
            }
        }
        if let Some((line, name)) = &self.unsupported_auth {
            let used = self.tls_auth.is_some()
                || profile.data_ciphers.iter().chain(&profile.fallback_cipher).any(|cipher| !cipher.is_aead());
            if used {
                let known: Vec<_> = Digest::ALL.iter().map(|digest| digest.name()).collect();
                let message = format!("the digest is not supported; supported are: {}", known.join(", "));
                return Err(ProfileError::at(*line, message));
            }
            profile.ignored.push(Ignored { line: *line, text: format!("auth {name}") });
        }
        Ok(())
    }
}

impl RemoteLine {
    /// Adds the values of `endpoint` that the line does not set.
    pub(super) fn complete(self, endpoint: Endpoint) -> Remote {
        let protocol = self.endpoint.protocol.or(endpoint.protocol);
        let (transport, family) = protocol.unwrap_or((Transport::Udp, None));
        let port = self.endpoint.port.or(endpoint.port).unwrap_or(DEFAULT_PORT);
        Remote { host: self.host, port, transport, family }
    }
}
