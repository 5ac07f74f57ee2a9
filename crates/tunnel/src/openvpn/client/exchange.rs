//! The client's messages in the control channel: its half of the keys, the options, and later messages. Owns the
//! effect of each message; ignores messages that its stage does not expect.

use base64::engine::general_purpose::STANDARD;
use base64::Engine;
use leadline_tls::TlsFailure;
use zeroize::Zeroize;

use super::{Client, Event, Failure, PushWait, Stage, SECOND_NS};
use crate::openvpn::config::{NoCipher, Token};
use crate::openvpn::data::{DataOptions, Framing};
use crate::openvpn::keys::Randoms;
use crate::openvpn::message::control::ControlMessage;
use crate::openvpn::message::key_method::KeyMethod;
use crate::openvpn::message::occ;
use crate::openvpn::message::push::{Completeness, Pushed};
use crate::openvpn::negotiation::{Advance, NegotiationError};
use crate::openvpn::random;
use crate::openvpn::session::{Derivation, Shares};

/// A server that pushes without a request has done so by then.
const FIRST_REQUEST_NS: u64 = SECOND_NS;

impl Client {
    pub(super) fn advance(&mut self, now_ns: u64) {
        loop {
            match self.session.current().advance() {
                Ok(Some(Advance::Opened)) => self.report_first(Event::Answered),
                Ok(Some(Advance::Secured)) => {
                    self.report_first(Event::TlsDone);
                    self.write_keys();
                }
                Ok(Some(Advance::Keys(method))) => self.take_keys(now_ns, &method),
                Ok(Some(Advance::Message(message))) => self.take_message(now_ns, message),
                Ok(None) => return,
                Err(NegotiationError::Tls(TlsFailure { name, detail })) => {
                    return self.on_control_failure(now_ns, Failure { name, detail })
                }
                Err(NegotiationError::Message(detail)) => {
                    return self.on_control_failure(now_ns, Failure { name: "malformed_message", detail });
                }
            }
            if self.stage == Stage::Failed {
                return;
            }
        }
    }

    /// Renegotiations repeat the same steps; only the first time is reported.
    fn report_first(&mut self, event: Event) {
        if self.stage == Stage::Connecting {
            self.events.push_back(event);
        }
    }

    fn write_keys(&mut self) {
        let client = Randoms { r1: random::bytes(), r2: random::bytes() };
        let own = Box::new(Shares { pre_master: random::bytes(), client, server: Randoms::default() });
        let (user, password) =
            self.identity.credentials().map_or((None, None), |(user, secret)| (Some(user), Some(secret)));
        let method = KeyMethod {
            pre_master: Some(own.pre_master),
            random1: own.client.r1,
            random2: own.client.r2,
            options: self.config.occ.clone(),
            user,
            password,
            peer_info: Some(self.config.peer_info.clone()),
        };
        let mut bytes = Vec::new();
        if let Err(error) = method.write(&mut bytes) {
            return self.fail("credentials_too_long", error.to_string());
        }
        self.session.current().write(&bytes);
        bytes.zeroize();
        self.own = Some(own);
    }

    fn take_keys(&mut self, now_ns: u64, method: &KeyMethod) {
        let Some(mut shares) = self.own.take() else { return };
        shares.server = Randoms { r1: method.random1, r2: method.random2 };
        self.shares = Some(shares);
        if self.is_pushing() {
            // A server that renews keys before it pushes options: the newest keys are used.
        } else if self.stage == Stage::Connecting {
            self.stage = Stage::Pushing;
            self.expect_options(now_ns, method);
            self.events.push_back(Event::KeysDone);
        } else if let Some(fallback) = &mut self.fallback.as_mut().filter(|fallback| fallback.is_begun) {
            fallback.is_pushing = true;
            self.expect_options(now_ns, method);
        } else if self.install(now_ns) {
            self.events.push_back(Event::Renegotiated);
            self.is_unaccepted = true;
        }
    }

    fn expect_options(&mut self, now_ns: u64, method: &KeyMethod) {
        self.named_cipher = occ::cipher(&method.options).map(str::to_owned);
        self.push_wait = Some(PushWait {
            since_ns: now_ns,
            end_ns: now_ns.saturating_add(self.config.hand_window_ns),
            request_ns: now_ns.saturating_add(FIRST_REQUEST_NS),
        });
    }

    /// Whether options are awaited: before the tunnel is up, or for a session that replaces the current one.
    pub(super) fn is_pushing(&self) -> bool {
        self.stage == Stage::Pushing || self.fallback.as_ref().is_some_and(|fallback| fallback.is_pushing)
    }

    fn take_message(&mut self, now_ns: u64, message: ControlMessage) {
        match message {
            ControlMessage::PushReply(text) if self.is_pushing() => {
                let pushed = self.fallback.as_mut().map_or(&mut self.pushed, |fallback| &mut fallback.pushed);
                match pushed.absorb(&text) {
                    Ok(Completeness::Complete) if self.stage == Stage::Up => self.finish_fallback(now_ns),
                    Ok(Completeness::Complete) => self.on_options_received(now_ns),
                    Ok(Completeness::More) => {}
                    Err(error) => self.fail("malformed_push", error.to_string()),
                }
            }
            // A server with `auth-gen-token` renews the token at each renegotiation.
            ControlMessage::PushReply(text) if self.stage == Stage::Up => {
                let mut later = Pushed::default();
                if later.absorb(&text).is_ok() {
                    self.take_token(&later);
                }
                // The server pushes nothing to a client whose keys it has not accepted.
                if std::mem::take(&mut self.is_unaccepted) {
                    self.events.push_back(Event::RenegotiationAccepted);
                }
            }
            ControlMessage::PushUpdate(text) if self.stage == Stage::Up => match self.pushed.update(&text) {
                Ok(Completeness::Complete) => self.events.push_back(Event::Updated),
                Ok(Completeness::More) => {}
                Err(error) => self.events.push_back(Event::UpdateRejected(error.to_string())),
            },
            ControlMessage::AuthFailed { reason, temporary, .. } => {
                let name = match (temporary, &self.identity.token) {
                    (true, _) => "auth_failed_temporary",
                    (false, Some(_)) => "auth_token_refused",
                    (false, None) => "auth_failed",
                };
                if !temporary {
                    self.identity.token = None;
                }
                let is_renewing = !self.session.negotiation().is_open() || self.fallback.is_some();
                if self.stage == Stage::Up && (self.is_unaccepted || is_renewing) {
                    self.events.push_back(Event::RenegotiationRefused);
                }
                self.fail(name, reason.unwrap_or_default());
            }
            ControlMessage::AuthPending { timeout_s } if self.is_pushing() => self.extend_wait(timeout_s),
            ControlMessage::Restart { reason, .. } => self.events.push_back(Event::Restart(reason.unwrap_or_default())),
            ControlMessage::Halt { reason } => self.fail("halted_by_server", reason.unwrap_or_default()),
            ControlMessage::Exit => self.events.push_back(Event::PeerLeft),
            // A repeated push, and messages without a meaning here.
            _ => {}
        }
    }

    /// Limits the extended wait as OpenVPN does: half of the keys' lifetime, and at least the time of a negotiation.
    fn extend_wait(&mut self, timeout_s: Option<u32>) {
        let window_ns = self.config.hand_window_ns;
        let most_ns = window_ns.max(self.config.renegotiate_after_ns.unwrap_or(0) / 2);
        let asked_ns = timeout_s.map_or(window_ns, |s| u64::from(s) * SECOND_NS);
        if let Some(wait) = &mut self.push_wait {
            wait.end_ns = wait.since_ns.saturating_add(asked_ns.min(most_ns));
            self.events.push_back(Event::Pending { until_ns: wait.end_ns });
        }
    }

    /// A token needs a user: the one that is pushed with it, or the client's own.
    fn take_token(&mut self, pushed: &Pushed) {
        let decoded = pushed.auth_token_user.as_ref().and_then(|user| STANDARD.decode(user).ok());
        let user = decoded
            .and_then(|user| String::from_utf8(user).ok())
            .or_else(|| self.identity.token.as_ref().map(|token| token.user.clone()))
            .or_else(|| self.identity.user.as_ref().map(|(user, _)| user.clone()));
        let secret = pushed.auth_token.clone().filter(|secret| !secret.expose().is_empty());
        let secret = secret.or_else(|| self.identity.token.as_ref().map(|token| token.secret.clone()));
        self.identity.token = user.zip(secret).map(|(user, secret)| Token { user, secret });
    }

    fn on_options_received(&mut self, now_ns: u64) {
        if self.agree() && self.install(now_ns) {
            self.stage = Stage::Up;
            self.events.push_back(Event::Up);
        }
    }

    /// Applies the pushed options to the current keys; returns whether they are acceptable.
    pub(super) fn agree(&mut self) -> bool {
        let pushed = std::mem::take(&mut self.pushed);
        self.take_token(&pushed);
        self.pushed = pushed;
        let pushed = &*self.pushed;
        let named = self.named_cipher.take();
        let cipher = match self.config.cipher_for(pushed.cipher.as_deref(), named.as_deref()) {
            Ok(cipher) => cipher,
            Err(NoCipher::NotOffered(name)) => {
                self.fail("cipher_not_offered", format!("the server chose {name}"));
                return false;
            }
            Err(NoCipher::NoneNamed) => {
                self.fail("no_cipher", "the server names none, and data-ciphers-fallback is not set".to_owned());
                return false;
            }
        };
        self.derivation = if pushed.tls_ekm { Derivation::Exported } else { Derivation::Prf };
        self.options = Some(DataOptions {
            cipher,
            digest: self.config.digest,
            peer_id: pushed.peer_id,
            epoch: pushed.epoch,
            framing: pushed.compression.map_or(self.config.framing, Framing::from),
            replay_window: self.config.replay_window,
            largest_payload: usize::from(pushed.tun_mtu.unwrap_or(0)).max(self.config.largest_payload),
        });
        if pushed.dyn_tls_crypt {
            if let Err(failure) = self.session.renew_wrap() {
                self.fail(failure.name, failure.detail);
                return false;
            }
        }
        true
    }

    pub(super) fn install(&mut self, now_ns: u64) -> bool {
        let Some(options) = self.options.as_ref() else { return false };
        let Some(shares) = self.shares.take() else { return false };
        if let Err(error) = self.session.install(now_ns, self.derivation, &shares, options) {
            self.fail("data_keys", error.to_string());
            return false;
        }
        self.renewal.installed(now_ns);
        true
    }
}
