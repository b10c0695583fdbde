//! What a pack says with its secrets expanded: made after consent, once for each start of the pack.

use std::collections::BTreeMap;

use url::Url;
use vance_shared::call::Fault;
use vance_shared::launch::rest::{Credential, RestAuth, RestOAuth, RestPlan};

use crate::error::Code;
use crate::server;

/// A text that may be a secret, or why it is not there: then the calls that need it fail, and nothing empty is sent.
pub(crate) type Secret = Result<String, Fault>;

/// The pack's own words about requests. Has no `Debug` that shows them.
pub struct Settings {
    pub(crate) base: Option<Result<Url, Fault>>,
    pub(crate) headers: Vec<(String, Secret)>,
    pub(crate) auth: Auth,
    pub(crate) insecure_http: bool,
}

/// Credentials, expanded.
pub(crate) enum Auth {
    None,
    Header(String, Secret),
    Query(String, Secret),
    Basic(Secret, Secret),
    OAuth(OAuth),
    Schemes(BTreeMap<String, Given>),
}

/// What one scheme is given, expanded.
pub(crate) enum Given {
    Value(Secret),
    Token(Secret),
    Basic(Secret, Secret),
    OAuth(OAuth),
}

/// How tokens are got, expanded.
pub(crate) struct OAuth {
    pub(crate) client_id: Secret,
    pub(crate) client_secret: Option<Secret>,
    pub(crate) refresh_token: Option<Secret>,
    pub(crate) scopes: Vec<String>,
    pub(crate) token_url: Option<String>,
}

impl Settings {
    /// Expands every text that may hold `${env:NAME}`. `expand` gives the text, or says which variable is not set.
    pub fn of(plan: &RestPlan, expand: &dyn Fn(&str) -> Result<String, String>) -> Self {
        let secret = |text: &str| expand(text).map_err(|why| Code::AuthMissing.fault(why));
        let base = plan.base_url.as_ref().map(|text| {
            let url = secret(text)?;
            // The text may hold a secret: the message does without it.
            let parsed =
                Url::parse(&url).map_err(|error| Code::NoServer.fault(format!("`baseUrl` cannot be used: {error}")))?;
            server::check(parsed, "`baseUrl`")
        });
        let auth = match &plan.auth {
            RestAuth::None => Auth::None,
            RestAuth::Header { name, value } => Auth::Header(name.clone(), secret(value)),
            RestAuth::Query { name, value } => Auth::Query(name.clone(), secret(value)),
            RestAuth::Basic { user, password } => Auth::Basic(secret(user), secret(password)),
            RestAuth::OAuth(oauth) => Auth::OAuth(OAuth::of(oauth, &secret)),
            RestAuth::Schemes(schemes) => Auth::Schemes(
                schemes.iter().map(|(name, credential)| (name.clone(), Given::of(credential, &secret))).collect(),
            ),
        };
        let headers = plan.headers.iter().map(|(name, value)| (name.to_ascii_lowercase(), secret(value))).collect();
        Self { base, headers, auth, insecure_http: plan.allow_insecure_http }
    }

    /// The address that the pack itself gives, if it gives one.
    pub fn base(&self) -> Option<Result<&Url, &Fault>> {
        self.base.as_ref().map(Result::as_ref)
    }

    /// What is not set, all of it: for `packs check` and the log.
    pub fn missing(&self) -> Vec<&Fault> {
        let mut secrets: Vec<&Secret> = self.headers.iter().map(|(_, value)| value).collect();
        match &self.auth {
            Auth::None => {}
            Auth::Header(_, value) | Auth::Query(_, value) => secrets.push(value),
            Auth::Basic(user, password) => secrets.extend([user, password]),
            Auth::OAuth(oauth) => secrets.extend(oauth.secrets()),
            Auth::Schemes(schemes) => {
                for given in schemes.values() {
                    match given {
                        Given::Value(value) | Given::Token(value) => secrets.push(value),
                        Given::Basic(user, password) => secrets.extend([user, password]),
                        Given::OAuth(oauth) => secrets.extend(oauth.secrets()),
                    }
                }
            }
        }
        let base = self.base.as_ref().and_then(|base| base.as_ref().err());
        base.into_iter().chain(secrets.into_iter().filter_map(|secret| secret.as_ref().err())).collect()
    }
}

impl Given {
    fn of(credential: &Credential, secret: &dyn Fn(&str) -> Secret) -> Self {
        match credential {
            Credential::Value(value) => Self::Value(secret(value)),
            Credential::Token(token) => Self::Token(secret(token)),
            Credential::Basic { user, password } => Self::Basic(secret(user), secret(password)),
            Credential::OAuth(oauth) => Self::OAuth(OAuth::of(oauth, secret)),
        }
    }
}

impl OAuth {
    fn secrets(&self) -> impl Iterator<Item = &Secret> {
        [Some(&self.client_id), self.client_secret.as_ref(), self.refresh_token.as_ref()].into_iter().flatten()
    }

    fn of(oauth: &RestOAuth, secret: &dyn Fn(&str) -> Secret) -> Self {
        Self {
            client_id: secret(&oauth.client_id),
            client_secret: oauth.client_secret.as_deref().map(secret),
            refresh_token: oauth.refresh_token.as_deref().map(secret),
            scopes: oauth.scopes.clone(),
            token_url: oauth.token_url.clone(),
        }
    }
}
