//! What a session says when there is no token.

use rmcp::transport::auth::AuthError;

use super::{Challenge, Session, lock, tokens};
use crate::auth::{AuthFault, shown};
use crate::mask::Mask;

/// Without PKCE somebody on the way could use the code of a login (MCP's authorization wants a client to refuse then).
pub(super) const NO_PKCE: &str = "its authorization server does not say that it takes PKCE (`code_challenge_methods_supported` with S256), so the login could be stolen on its way; if you know that it does, name it as `issuer` in the pack's `auth`";

impl Session {
    pub(super) fn needs_login(&self) -> AuthFault {
        AuthFault::NeedsLogin { command: self.command, pack: self.pack.clone() }
    }

    /// What somebody has to do after this refusal.
    pub(super) fn needs(&self, challenge: &Challenge) -> AuthFault {
        match &challenge.scope {
            Some(scope) if !self.has(scope) => {
                AuthFault::NeedsScope { scope: shown(scope), command: self.command, pack: self.pack.clone() }
            }
            Some(_) | None => self.needs_login(),
        }
    }

    /// The pack asks for all of these already: a login suffices.
    fn has(&self, scope: &str) -> bool {
        scope.split_whitespace().all(|wanted| self.oauth.scopes.iter().any(|scope| scope == wanted))
    }

    /// A server that does not take a new token.
    pub(crate) fn still_refused(&self) -> AuthFault {
        AuthFault::StillRefused { command: self.command, pack: self.pack.clone() }
    }

    /// The SDK's error, with what the wire knows of its cause.
    pub(super) fn fault(&self, error: &AuthError) -> AuthFault {
        let mut text = error.to_string();
        let mut next = std::error::Error::source(error);
        while let Some(cause) = next {
            text = format!("{text}: {cause}");
            next = cause.source();
        }
        let trouble = self.wire.get().and_then(|wire| wire.trouble());
        if let Some(trouble) = trouble.filter(|trouble| !text.contains(trouble.as_str())) {
            text = format!("{text}: {trouble}");
        }
        match error {
            AuthError::AuthorizationRequired => self.needs_login(),
            _ => AuthFault::Server(self.masked(&text, [])),
        }
    }

    /// An authorization server's words, safe to show: what it repeats of the tokens is no news for a log.
    pub(super) fn masked<const N: usize>(&self, words: &str, besides: [String; N]) -> String {
        let kept = self.store.load().ok().flatten();
        let found = kept.as_ref().and_then(|kept| tokens(&kept.credentials));
        let mut values = Vec::from(besides);
        values.extend(found.map(|found| found.access_token));
        values.extend(kept.as_ref().and_then(|kept| tokens(&kept.credentials)?.refresh_token));
        values.extend(kept.and_then(|kept| kept.client_secret));
        values.extend(self.oauth.client_secret.clone());
        values.extend(lock(&self.current).as_ref().map(|token| token.secret.clone()));
        let mask = Mask::new(values.into_iter().map(|value| (value, "{{login}}".to_owned())));
        shown(&mask.text(words))
    }
}
