//! What is kept of a login, as it is used.

use rmcp::transport::auth::StoredCredentials;
use serde::Deserialize;

/// A token is renewed this long before its end, or at half its life if that is short.
const RENEW_BEFORE_S: u64 = 60;

/// A token and its times.
#[derive(Clone)]
pub(super) struct Token {
    pub(super) secret: String,
    /// Seconds since 1970, as far as the server told.
    pub(super) ends_at_s: Option<u64>,
    pub(super) renew_at_s: Option<u64>,
}

#[derive(Deserialize)]
pub(super) struct Tokens {
    pub(super) access_token: String,
    #[serde(default)]
    pub(super) refresh_token: Option<String>,
    #[serde(default)]
    pub(super) expires_in: Option<u64>,
}

/// What the server gave.
pub(super) fn tokens(credentials: &StoredCredentials) -> Option<Tokens> {
    let value = serde_json::to_value(credentials.token_response.as_ref()?).ok()?;
    serde_json::from_value(value).ok()
}

/// The token that is to be sent.
pub(super) fn token(credentials: &StoredCredentials) -> Option<Token> {
    let tokens = tokens(credentials)?;
    let life = tokens.expires_in.zip(credentials.token_received_at);
    let ends_at_s = life.map(|(life, received)| received.saturating_add(life));
    let renew_at_s = life.map(|(life, received)| received.saturating_add(life - RENEW_BEFORE_S.min(life / 2)));
    Some(Token { secret: tokens.access_token, ends_at_s, renew_at_s })
}
