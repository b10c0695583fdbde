//! The device code flow (RFC 8628): the person's browser is on another machine, and a short code connects the two.
//!
//! The SDK does not know it, so its three requests are ours. The token that comes of it is kept and renewed like any other.

use std::time::Duration;

use rmcp::transport::auth::{AuthorizationMetadata, StoredCredentials};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{Challenge, Session, with_offline};
use crate::auth::store::{Kept, now_s};
use crate::auth::wire::{Wire, is_safe};
use crate::auth::{AuthFault, DeviceCode, LoggedIn, OnDeviceCode, shown};

/// The flow's name.
const GRANT: &str = "urn:ietf:params:oauth:grant-type:device_code";
/// Between two looks unless the server says otherwise, and what `slow_down` adds (both of the RFC).
const POLL: Duration = Duration::from_secs(5);
/// The shortest pause between two looks, whatever a server allows.
const MIN_POLL: Duration = Duration::from_secs(1);
/// The longest pause between two looks that a server may ask for.
const MAX_POLL: Duration = Duration::from_secs(60);
/// The longest life of a code: servers give five to thirty minutes.
const MAX_WAIT: Duration = Duration::from_secs(1800);
/// What a code may look like.
const MAX_CODE_CHARS: usize = 64;

/// The server's answer to the first request.
#[derive(Deserialize)]
struct Offer {
    device_code: String,
    user_code: String,
    verification_uri: String,
    verification_uri_complete: Option<String>,
    expires_in: u64,
    interval: Option<u64>,
}

/// Who we are to the authorization server.
struct Client {
    id: String,
    secret: Option<String>,
    /// The secret is of a registration, so it is kept with the token.
    registered: bool,
}

impl Session {
    /// Logs in by a code that a person types elsewhere.
    pub(crate) async fn login_by_device(
        &self,
        challenge: &Challenge,
        show: &OnDeviceCode,
    ) -> Result<LoggedIn, AuthFault> {
        let (manager, metadata, _) = self.manager(challenge).await?;
        let wire = self.wire()?;
        let endpoint = metadata.additional_fields.get("device_authorization_endpoint").and_then(Value::as_str);
        let none = "its authorization server offers no device code; log in without --device, where a browser can reach this machine";
        let endpoint = endpoint.ok_or_else(|| AuthFault::Server(none.to_owned()))?;
        let mut scopes = self.oauth.scopes.clone();
        if scopes.is_empty() {
            scopes = manager.select_initial_scopes(&[]).await;
        }
        let scope = with_offline(scopes, &metadata).join(" ");
        let client = self.device_client(&wire, &metadata, &scope).await?;
        let mut fields = vec![("client_id", client.id.as_str()), ("resource", self.url.as_str())];
        fields.extend(client.secret.as_deref().map(|secret| ("client_secret", secret)));
        let asked: Vec<_> =
            fields.iter().copied().chain((!scope.is_empty()).then_some(("scope", scope.as_str()))).collect();
        let offer: Offer = read(wire.form(endpoint, &asked).await)?;
        show(&self.pack, &code(&offer)?);
        fields.extend([("grant_type", GRANT), ("device_code", offer.device_code.as_str())]);
        let response = self.until_allowed(&wire, &metadata.token_endpoint, &fields, &offer).await?;
        let granted = response.get("scope").and_then(Value::as_str).unwrap_or(&scope).split_whitespace();
        let credentials = json!({
            "client_id": client.id, "granted_scopes": granted.collect::<Vec<_>>(), "token_received_at": now_s(),
            "issuer": metadata.issuer, "token_response": response,
        });
        let credentials: StoredCredentials = serde_json::from_value(credentials)
            .map_err(|_| AuthFault::Server("its answer holds no token".to_owned()))?;
        let client_secret = client.secret.filter(|_| client.registered);
        // Nobody was held up while the person was at it.
        let _held = self.store.lock().await?;
        let kept = Kept { url: self.url.clone(), client_secret, redirect_uri: String::new(), credentials };
        self.save(&kept)?;
        Ok(self.logged_in(&kept))
    }

    async fn until_allowed(
        &self,
        wire: &Wire,
        endpoint: &str,
        fields: &[(&str, &str)],
        offer: &Offer,
    ) -> Result<Value, AuthFault> {
        let mut pause = offer.interval.map_or(POLL, Duration::from_secs).clamp(MIN_POLL, MAX_POLL);
        let deadline = Instant::now() + Duration::from_secs(offer.expires_in).min(MAX_WAIT);
        loop {
            tokio::time::sleep(pause).await;
            if Instant::now() >= deadline {
                return Err(AuthFault::Refused("nobody entered the code in time".to_owned()));
            }
            // A line that is cut or a server that is ill for a moment costs nobody their code (RFC 8628, 3.5).
            let (status, body) = match wire.form(endpoint, fields).await {
                Ok((status, body)) if status < 500 => (status, body),
                Ok((status, _)) => {
                    tracing::debug!(status, "the token endpoint is ill; asking again");
                    pause = (pause + POLL).min(MAX_POLL);
                    continue;
                }
                Err(why) => {
                    tracing::debug!("the token endpoint cannot be reached ({}); asking again", shown(&why));
                    pause = (pause + POLL).min(MAX_POLL);
                    continue;
                }
            };
            let Ok(answer) = serde_json::from_slice::<Value>(&body) else {
                return Err(AuthFault::Server(format!("its token endpoint answered with HTTP {status}")));
            };
            match answer.get("error").and_then(Value::as_str) {
                None if status == 200 => return Ok(answer),
                None => return Err(AuthFault::Server(format!("its token endpoint answered with HTTP {status}"))),
                Some("authorization_pending") => {}
                Some("slow_down") => pause = (pause + POLL).min(MAX_POLL),
                Some("expired_token") => return Err(AuthFault::Refused("nobody entered the code in time".to_owned())),
                Some(error) => return Err(AuthFault::Refused(self.masked(error, [offer.device_code.clone()]))),
            }
        }
    }

    /// The client that the pack names, else one that is registered now for this flow.
    async fn device_client(
        &self,
        wire: &Wire,
        metadata: &AuthorizationMetadata,
        scope: &str,
    ) -> Result<Client, AuthFault> {
        if let Some(id) = self.oauth.client_id.clone() {
            return Ok(Client { id, secret: self.oauth.client_secret.clone(), registered: false });
        }
        let Some(endpoint) = &metadata.registration_endpoint else {
            let why = "its authorization server registers no clients; set `clientId` in the pack's `auth`";
            return Err(AuthFault::Server(why.to_owned()));
        };
        #[derive(Deserialize)]
        struct Registered {
            client_id: String,
            client_secret: Option<String>,
        }
        let asked = json!({
            "client_name": self.client_name, "grant_types": [GRANT, "refresh_token"], "response_types": [],
            "redirect_uris": [], "token_endpoint_auth_method": "none", "scope": scope,
        });
        let registered: Registered = read(wire.post(endpoint, "application/json", asked.to_string()).await)?;
        Ok(Client { id: registered.client_id, secret: registered.client_secret, registered: true })
    }
}

/// What is shown to a person: nothing that steers a terminal, and no address that travels in clear.
fn code(offer: &Offer) -> Result<DeviceCode, AuthFault> {
    let printable = |text: &str| text.chars().all(|c| c.is_ascii_graphic() || c == ' ');
    if offer.user_code.len() > MAX_CODE_CHARS || !printable(&offer.user_code) {
        return Err(AuthFault::Server("its code cannot be typed".to_owned()));
    }
    let safe = |text: &str| reqwest::Url::parse(text).ok().filter(is_safe).map(String::from);
    let address = safe(&offer.verification_uri)
        .ok_or_else(|| AuthFault::Server("its login page is http: the login would travel unencrypted".to_owned()))?;
    let direct = offer.verification_uri_complete.as_deref().and_then(safe);
    Ok(DeviceCode { address, code: offer.user_code.clone(), direct })
}

fn read<T: serde::de::DeserializeOwned>(answer: Result<(u16, Vec<u8>), String>) -> Result<T, AuthFault> {
    let (status, body) = answer.map_err(|why| AuthFault::Server(shown(&why)))?;
    if (200..300).contains(&status)
        && let Ok(read) = serde_json::from_slice(&body)
    {
        return Ok(read);
    }
    let value = serde_json::from_slice::<Value>(&body).unwrap_or_default();
    let said = value.get("error_description").or(value.get("error")).and_then(Value::as_str);
    let said = said.map(|said| format!(": {}", shown(said))).unwrap_or_default();
    Err(AuthFault::Server(format!("it answered with HTTP {status}{said}")))
}
