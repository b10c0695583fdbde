//! The token of one server, for as long as a host lives: used, renewed before it ends and after a refusal, asked for anew.
//!
//! ```text
//! token fresh           → sent
//! token ends soon       → renewed; if that fails for now, sent as long as it lives
//! refused (401)         → another process's newer token, else renewed, else a person logs in (if there is one), else "needs a login"
//! wants more (403)      → a person allows it, at most MAX_STEP_UPS times without a success between
//! ```

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use rmcp::transport::auth::{
    AuthError, AuthorizationManager, AuthorizationMetadata, ClientCredentialsConfig, CredentialStore as _,
    InMemoryCredentialStore, OAuthClientConfig,
};
use tokio::time::Instant;
use vance_shared::launch::{Auth, Grant, LaunchPlan, OAuth, Tls, Transport};
use vance_shared::names::PackName;

use super::callback::Callback;
use super::store::{Kept, now_s};
use super::wire::{Wire, is_safe};
use super::{AuthFault, LOGIN_WAIT, LoggedIn, OnAuthorize, Store, command, oauth_of, shown};
use crate::addresses::Addresses;
use crate::handle::HostEnv;

mod device;
mod tokens;
mod words;

use tokens::{Token, token, tokens};
use words::NO_PKCE;

/// Questions for more scopes without a success in between: a server that is never content is refused.
const MAX_STEP_UPS: u32 = 3;
/// How often a running host looks whether another process logged in anew, or forgot the login.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Why a server did not take a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Challenge {
    /// Its `WWW-Authenticate`.
    pub(crate) header: Option<String>,
    /// The scopes that it wants besides (403).
    pub(crate) scope: Option<String>,
}

impl Challenge {
    /// The server speaks of tokens at all.
    fn wants_token(&self) -> bool {
        self.header.as_deref().is_some_and(|header| header.to_ascii_lowercase().contains("bearer"))
    }
}

/// What was kept when it was looked at last.
struct Looked {
    at: Instant,
    mark: u64,
}

#[derive(Default)]
struct Turn {
    step_ups: u32,
}

pub(crate) struct Session {
    pack: PackName,
    command: &'static str,
    /// Without query: what tokens are for.
    url: String,
    oauth: OAuth,
    /// The pack itself says that it logs in.
    declared: bool,
    client_name: String,
    /// Made when it is needed: most servers never ask.
    wire: OnceLock<Arc<Wire>>,
    tls: Tls,
    project_dir: Option<PathBuf>,
    store: Store,
    open: Option<OnAuthorize>,
    /// A lock, because every request reads it and a renewal writes it; never held across an await.
    current: Mutex<Option<Token>>,
    /// A lock for the same reason.
    looked: Mutex<Looked>,
    /// One renewal at a time in this process; the store's lock is for the others.
    turn: tokio::sync::Mutex<Turn>,
    /// Calls are taken: only then a person is asked on the way. Before, whoever connects asks.
    serving: AtomicBool,
    /// What the server said last, for whoever asks a person.
    refusal: Mutex<Option<Challenge>>,
}

impl Session {
    /// None where the plan excludes a login.
    pub(crate) fn of(
        plan: &LaunchPlan,
        host: &HostEnv,
        url: &str,
        open: Option<OnAuthorize>,
    ) -> Result<Option<Self>, AuthFault> {
        let Transport::Http { auth, tls, .. } = &plan.transport else { return Ok(None) };
        let Some(oauth) = oauth_of(plan, host)? else { return Ok(None) };
        let url = url.split(['?', '#']).next().unwrap_or(url).to_owned();
        let store = Store::new(host, &plan.pack, &url);
        let looked = Looked { at: Instant::now(), mark: store.mark() };
        let current = store.load()?.and_then(|kept| token(&kept.credentials));
        Ok(Some(Self {
            pack: plan.pack.clone(),
            command: command(plan.origin),
            declared: matches!(auth, Auth::OAuth(_)),
            client_name: host.client_name.clone(),
            url,
            oauth,
            wire: OnceLock::new(),
            tls: tls.clone(),
            project_dir: host.project_dir.clone(),
            store,
            open,
            current: Mutex::new(current),
            looked: Mutex::new(looked),
            turn: tokio::sync::Mutex::default(),
            serving: AtomicBool::new(false),
            refusal: Mutex::default(),
        }))
    }

    /// From here on a person may be asked in the middle of a call.
    pub(crate) fn serve(&self) {
        self.serving.store(true, Ordering::Release);
    }

    /// What a person is to be asked about, if there is a person; once.
    pub(crate) fn refusal(&self) -> Option<Challenge> {
        self.open.as_ref()?;
        lock(&self.refusal).take()
    }

    /// A request went well: the next question for more scopes is a new one.
    pub(crate) async fn content(&self) {
        self.turn.lock().await.step_ups = 0;
    }

    /// The token to send; none if there is none (yet).
    pub(crate) async fn token(&self) -> Result<Option<String>, AuthFault> {
        self.look();
        let Some(token) = lock(&self.current).clone() else { return Ok(None) };
        if token.renew_at_s.is_none_or(|at| now_s() < at) {
            return Ok(Some(token.secret));
        }
        let alive = token.ends_at_s.is_none_or(|at| now_s() < at);
        match self.renew(None, &Challenge::default(), false).await {
            Ok(fresh) => Ok(Some(fresh)),
            Err(_) if alive => Ok(Some(token.secret)),
            // The server says what it wants.
            Err(AuthFault::NeedsLogin { .. }) => Ok(None),
            Err(fault) => Err(fault),
        }
    }

    /// Waits until there is a token that can be sent, if one is to be sent. Nothing has been sent yet.
    pub(crate) async fn ready(&self) -> Result<(), AuthFault> {
        self.token().await.map(|_| ())
    }

    /// A login that another process made or forgot counts here too.
    fn look(&self) {
        let mut looked = lock(&self.looked);
        if looked.at.elapsed() < LOOK_EVERY {
            return;
        }
        looked.at = Instant::now();
        let mark = self.store.mark();
        if mark == looked.mark {
            return;
        }
        match self.store.load() {
            Ok(kept) => {
                looked.mark = mark;
                *lock(&self.current) = kept.and_then(|kept| token(&kept.credentials));
            }
            // It may pass; what was there a moment ago is as good as it was.
            Err(error) => tracing::debug!(pack = %self.pack, %error, "the login cannot be looked at"),
        }
    }

    /// Another token than the refused one.
    pub(crate) async fn other(&self, refused: Option<&str>, challenge: &Challenge) -> Result<String, AuthFault> {
        self.renew(refused, challenge, self.serving.load(Ordering::Acquire)).await
    }

    /// Whether a refusal is ours to answer. A server that wants a key and not a login says so in its own words.
    pub(crate) fn answers(&self, challenge: &Challenge) -> bool {
        self.declared || challenge.wants_token() || lock(&self.current).is_some()
    }

    /// Logs in, whatever there is.
    pub(crate) async fn login(&self, challenge: &Challenge) -> Result<LoggedIn, AuthFault> {
        let _turn = self.turn.lock().await;
        let kept = self.anew(challenge, &[], true).await?;
        Ok(self.logged_in(&kept))
    }

    fn logged_in(&self, kept: &Kept) -> LoggedIn {
        let tokens = tokens(&kept.credentials);
        LoggedIn {
            issuer: kept.credentials.issuer.clone(),
            scopes: kept.credentials.granted_scopes.clone(),
            expires_in: tokens.as_ref().and_then(|t| t.expires_in).map(Duration::from_secs),
            renewable: self.oauth.grant == Grant::ClientCredentials
                || tokens.is_some_and(|t| t.refresh_token.is_some()),
        }
    }

    async fn renew(&self, refused: Option<&str>, challenge: &Challenge, ask: bool) -> Result<String, AuthFault> {
        let mut turn = self.turn.lock().await;
        let held = self.store.lock().await?;
        let kept = self.store.load()?;
        let usable = kept.as_ref().and_then(|kept| token(&kept.credentials));
        // Somebody else was faster: another task, another process, a login on the command line.
        if let Some(token) = usable
            .filter(|token| Some(token.secret.as_str()) != refused && token.renew_at_s.is_none_or(|at| now_s() < at))
        {
            let secret = token.secret.clone();
            *lock(&self.current) = Some(token);
            return Ok(secret);
        }
        let mut granted = kept.as_ref().map(|kept| kept.credentials.granted_scopes.clone()).unwrap_or_default();
        if challenge.scope.is_some() {
            turn.step_ups += 1;
            if turn.step_ups > MAX_STEP_UPS {
                return Err(AuthFault::Refused(format!(
                    "the server wants other scopes again after {MAX_STEP_UPS} logins"
                )));
            }
        } else {
            granted.clear();
            if let Some(kept) = kept.filter(|kept| tokens(&kept.credentials).is_some_and(|t| t.refresh_token.is_some()))
                && let Some(secret) = self.refresh(kept, challenge).await?
            {
                return Ok(secret);
            }
        }
        // A person may be asked now: meanwhile others renew what they have.
        drop(held);
        let kept = self.anew(challenge, &granted, ask).await?;
        token(&kept.credentials).map(|token| token.secret).ok_or_else(|| self.needs_login())
    }

    /// None: the refresh token is worth nothing any more.
    async fn refresh(&self, kept: Kept, challenge: &Challenge) -> Result<Option<String>, AuthFault> {
        let (mut manager, metadata, _) = self.manager(challenge).await?;
        if kept.credentials.issuer.is_some() && kept.credentials.issuer != metadata.issuer {
            tracing::warn!(pack = %self.pack, "its authorization server is another one now; the old login is forgotten");
            self.forget()?;
            return Ok(None);
        }
        let secret = kept.client_secret.clone().or_else(|| {
            self.oauth
                .client_secret
                .clone()
                .filter(|_| self.oauth.client_id.as_deref() == Some(&kept.credentials.client_id))
        });
        let memory = InMemoryCredentialStore::new();
        memory.save(kept.credentials.clone()).await.map_err(|error| self.fault(&error))?;
        manager.set_credential_store(memory.clone());
        configure(&mut manager, &kept.credentials.client_id, secret, &kept.redirect_uri).map_err(|e| self.fault(&e))?;
        match manager.refresh_token().await {
            Ok(_) => self
                .keep(&memory, kept.client_secret, kept.redirect_uri)
                .await
                .map(|kept| token(&kept.credentials).map(|token| token.secret)),
            Err(AuthError::AuthorizationRequired | AuthError::TokenRefreshRejected(_)) => {
                self.forget()?;
                Ok(None)
            }
            Err(error) => Err(self.fault(&error)),
        }
    }

    /// A token without an old one. The store is locked only while a token is fetched and kept.
    async fn anew(&self, challenge: &Challenge, granted: &[String], ask: bool) -> Result<Kept, AuthFault> {
        let person = match self.oauth.grant {
            Grant::ClientCredentials => None,
            Grant::AuthorizationCode => match &self.open {
                Some(open) if ask => Some(open),
                Some(_) | None => {
                    *lock(&self.refusal) = Some(challenge.clone());
                    return Err(self.needs(challenge));
                }
            },
        };
        let (mut manager, metadata, is_published) = self.manager(challenge).await?;
        let memory = InMemoryCredentialStore::new();
        manager.set_credential_store(memory.clone());
        let mut scopes = self.oauth.scopes.clone();
        if scopes.is_empty() {
            scopes = manager.select_initial_scopes(&[]).await;
        }
        let wanted = challenge.scope.iter().flat_map(|scope| scope.split_whitespace()).map(str::to_owned);
        for scope in granted.iter().cloned().chain(wanted) {
            if !scopes.contains(&scope) {
                scopes.push(scope);
            }
        }
        match person {
            None => self.by_itself(manager, &memory, scopes).await,
            Some(_)
                if is_published
                    && self.oauth.issuer.is_none()
                    && metadata.code_challenge_methods_supported.is_none() =>
            {
                Err(AuthFault::Server(NO_PKCE.to_owned()))
            }
            Some(open) => self.by_a_person(manager, &metadata, &memory, scopes, open).await,
        }
    }

    async fn by_itself(
        &self,
        mut manager: AuthorizationManager,
        memory: &InMemoryCredentialStore,
        scopes: Vec<String>,
    ) -> Result<Kept, AuthFault> {
        let missing = || AuthFault::Pack("client_credentials needs `clientId` and `clientSecret`".to_owned());
        let config = ClientCredentialsConfig::ClientSecret {
            client_id: self.oauth.client_id.clone().ok_or_else(missing)?,
            client_secret: self.oauth.client_secret.clone().ok_or_else(missing)?,
            scopes,
            resource: Some(self.url.clone()),
        };
        manager.validate_client_credentials_metadata(&config).map_err(|error| self.fault(&error))?;
        manager.configure_client_credentials(&config).map_err(|error| self.fault(&error))?;
        let _held = self.store.lock().await?;
        manager.exchange_client_credentials(&config).await.map_err(|error| self.fault(&error))?;
        self.keep(memory, None, String::new()).await
    }

    async fn by_a_person(
        &self,
        mut manager: AuthorizationManager,
        metadata: &AuthorizationMetadata,
        memory: &InMemoryCredentialStore,
        scopes: Vec<String>,
        open: &OnAuthorize,
    ) -> Result<Kept, AuthFault> {
        let scopes = with_offline(scopes, metadata);
        let scopes: Vec<&str> = scopes.iter().map(String::as_str).collect();
        let callback = Callback::open(self.oauth.callback_port).await?;
        let redirect = callback.uri();
        let secret = self.client(&mut manager, metadata, &redirect, &scopes).await?;
        let address = manager.get_authorization_url(&scopes).await.map_err(|error| self.fault(&error))?;
        let parsed = reqwest::Url::parse(&address).map_err(|error| AuthFault::Server(error.to_string()))?;
        if !is_safe(&parsed) {
            return Err(AuthFault::Server("its login page is http: the login would travel unencrypted".to_owned()));
        }
        let state = parsed.query_pairs().find(|(key, _)| key == "state").map(|(_, value)| value.into_owned());
        let state = state.ok_or_else(|| AuthFault::Server("the login's address has no state".to_owned()))?;
        open(&self.pack, &address);
        let answered = tokio::time::timeout(LOGIN_WAIT, callback.answer(&state)).await;
        let (answer, page) = answered.map_err(|_| AuthFault::TimedOut)??;
        let kept = async {
            let _held = self.store.lock().await?;
            let exchanged =
                manager.exchange_code_for_token_with_issuer(&answer.code, &state, answer.issuer.as_deref()).await;
            exchanged.map_err(|error| self.fault(&error))?;
            self.keep(memory, secret, redirect).await
        };
        let kept = kept.await;
        page.ended(kept.is_ok()).await;
        kept
    }

    /// Who we are: the client that the pack names, a client metadata document, or a client that is registered now. Gives the secret that must be kept.
    async fn client(
        &self,
        manager: &mut AuthorizationManager,
        metadata: &AuthorizationMetadata,
        redirect: &str,
        scopes: &[&str],
    ) -> Result<Option<String>, AuthFault> {
        let takes_documents = metadata
            .additional_fields
            .get("client_id_metadata_document_supported")
            .is_some_and(|value| value.as_bool() == Some(true));
        let known = self.oauth.client_id.clone().map(|id| (id, self.oauth.client_secret.clone()));
        let document = self.oauth.client_metadata_url.clone().filter(|_| takes_documents).map(|url| (url, None));
        if let Some((id, secret)) = known.or(document) {
            configure(manager, &id, secret, redirect).map_err(|error| self.fault(&error))?;
            return Ok(None);
        }
        if metadata.registration_endpoint.is_none() {
            let why = "its authorization server registers no clients; set `clientId` in the pack's `auth`";
            return Err(AuthFault::Server(why.to_owned()));
        }
        let config =
            manager.register_client(&self.client_name, redirect, scopes).await.map_err(|error| self.fault(&error))?;
        Ok(config.client_secret)
    }

    fn wire(&self) -> Result<Arc<Wire>, AuthFault> {
        if let Some(wire) = self.wire.get() {
            return Ok(Arc::clone(wire));
        }
        let named = [Some(self.url.as_str()), self.oauth.issuer.as_deref(), self.oauth.token_url.as_deref()];
        let addresses = Addresses::naming(named.into_iter().flatten());
        let wire = Wire::new(addresses, &self.tls, self.project_dir.as_deref()).map_err(AuthFault::Pack)?;
        Ok(Arc::clone(self.wire.get_or_init(|| Arc::new(wire))))
    }

    /// Finds the authorization server. True: it said itself what it can do.
    async fn manager(
        &self,
        challenge: &Challenge,
    ) -> Result<(AuthorizationManager, AuthorizationMetadata, bool), AuthFault> {
        let mut manager = AuthorizationManager::new_with_oauth_http_client(self.url.as_str(), self.wire()?)
            .await
            .map_err(|error| self.fault(&error))?;
        let (metadata, is_published) = match &self.oauth.token_url {
            Some(token_url) => {
                let mut metadata = AuthorizationMetadata::default();
                metadata.token_endpoint.clone_from(token_url);
                metadata.authorization_endpoint.clone_from(token_url);
                (metadata, false)
            }
            None => {
                let found = manager.resolve_metadata_from_challenge(challenge.header.as_deref()).await;
                let found = found.map_err(|error| self.fault(&error))?;
                (found.metadata, found.source.is_discovered())
            }
        };
        if let (Some(named), Some(found)) = (&self.oauth.issuer, &metadata.issuer)
            && named.trim_end_matches('/') != found.trim_end_matches('/')
        {
            return Err(AuthFault::Server(format!(
                "its authorization server is {}, and the pack names {}",
                shown(found),
                shown(named)
            )));
        }
        manager.set_metadata(metadata.clone());
        Ok((manager, metadata, is_published))
    }

    async fn keep(
        &self,
        memory: &InMemoryCredentialStore,
        client_secret: Option<String>,
        redirect_uri: String,
    ) -> Result<Kept, AuthFault> {
        let credentials = memory.load().await.map_err(|error| self.fault(&error))?;
        let credentials = credentials.ok_or_else(|| AuthFault::Server("it gave no token".to_owned()))?;
        let kept = Kept { url: self.url.clone(), client_secret, redirect_uri, credentials };
        self.save(&kept)?;
        Ok(kept)
    }

    fn save(&self, kept: &Kept) -> Result<(), AuthFault> {
        self.store.save(kept)?;
        let mut looked = lock(&self.looked);
        looked.mark = self.store.mark();
        *lock(&self.current) = token(&kept.credentials);
        Ok(())
    }

    fn forget(&self) -> Result<(), AuthFault> {
        *lock(&self.current) = None;
        self.store.remove().map(|_| ())
    }
}

/// A person who logs in wants to stay so, where the server knows how to ask for that.
fn with_offline(mut scopes: Vec<String>, metadata: &AuthorizationMetadata) -> Vec<String> {
    let offline = "offline_access";
    let offers = |list: &Option<Vec<String>>| list.as_ref().is_some_and(|list| list.iter().any(|s| s == offline));
    if !scopes.is_empty() && !scopes.iter().any(|s| s == offline) && offers(&metadata.scopes_supported) {
        scopes.push(offline.to_owned());
    }
    scopes
}

fn configure(
    manager: &mut AuthorizationManager,
    id: &str,
    secret: Option<String>,
    redirect: &str,
) -> Result<(), AuthError> {
    let redirect = if redirect.is_empty() { "http://127.0.0.1/callback" } else { redirect };
    let mut config = OAuthClientConfig::new(id, redirect);
    if let Some(secret) = secret {
        config = config.with_client_secret(secret);
    }
    manager.configure_client(config)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
