//! Credentials: which of them an operation needs, and where they go.

use std::collections::BTreeMap;

use url::Url;
use vance_shared::call::Fault;
use vance_shared::show::quoted;

use super::{Context, check_secret, file, style};
use crate::api::Api;
use crate::error::Code;
use crate::operation::{Operation, Place};
use crate::security::Scheme;
use crate::server;
use crate::settings::{Auth, Given, OAuth, Secret, Settings};

/// A token that a call needs.
#[derive(Clone, PartialEq, Eq)]
pub struct TokenNeed {
    /// Calls with the same key share a token.
    pub key: String,
    /// Where tokens come from: https, or this machine.
    pub endpoint: Url,
    /// The client.
    pub client_id: String,
    /// Its secret.
    pub client_secret: Option<String>,
    /// What to ask for; empty: what the server gives.
    pub scopes: Vec<String>,
    /// Grant type `refresh_token` if it is there, else `client_credentials`.
    pub refresh_token: Option<String>,
}

impl std::fmt::Debug for TokenNeed {
    /// Without what is secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TokenNeed({} from {})", self.key, self.endpoint.host_str().unwrap_or_default())
    }
}

/// One thing to put into a request.
enum Apply {
    Header(String, String),
    Query(String, String),
    Cookie(String, String),
    Token(TokenNeed),
}

/// The OAuth tokens that a call of this operation needs.
pub fn tokens(api: &Api, operation: &Operation, settings: &Settings) -> Result<Vec<TokenNeed>, Fault> {
    let token = |apply| match apply {
        Apply::Token(need) => Some(need),
        Apply::Header(..) | Apply::Query(..) | Apply::Cookie(..) => None,
    };
    Ok(wanted(api, operation, settings)?.into_iter().filter_map(token).collect())
}

/// Puts the credentials in, over whatever is there.
pub(super) fn apply(
    api: &Api,
    operation: &Operation,
    base: &Url,
    context: Context<'_>,
    query: &mut Vec<String>,
    headers: &mut BTreeMap<String, String>,
    cookies: &mut Vec<String>,
) -> Result<(), Fault> {
    for apply in wanted(api, operation, context.settings)? {
        match apply {
            Apply::Header(name, value) if name.eq_ignore_ascii_case("cookie") => {
                for pair in value.split(';').map(str::trim).filter(|pair| !pair.is_empty()) {
                    style::without(cookies, pair.split('=').next().unwrap_or_default());
                    cookies.push(pair.to_owned());
                }
            }
            Apply::Header(name, value) => drop(headers.insert(name.to_ascii_lowercase(), value)),
            Apply::Query(name, value) => {
                if base.query().into_iter().flat_map(style::pairs).any(|part| style::is_named(part, &name)) {
                    return Err(
                        Code::AuthFailed.fault("`baseUrl` and `auth` both set the same query parameter, remove one")
                    );
                }
                style::without(query, &name);
                query.push(format!("{}={}", style::encoded(&name), style::encoded(&value)));
            }
            Apply::Cookie(name, value) => {
                style::without(cookies, &name);
                cookies.push(format!("{}={}", style::encoded(&name), style::encoded(&value)));
            }
            Apply::Token(need) => {
                let missing = || Code::AuthFailed.fault("there is no token for this call");
                let token = context.tokens.get(&need.key).ok_or_else(missing)?;
                check_secret(token)?;
                headers.insert("authorization".to_owned(), format!("Bearer {token}"));
            }
        }
    }
    Ok(())
}

fn wanted(api: &Api, operation: &Operation, settings: &Settings) -> Result<Vec<Apply>, Fault> {
    match &settings.auth {
        Auth::None => Ok(Vec::new()),
        Auth::Header(name, value) => Ok(vec![header(name, value.clone()?)?]),
        Auth::Query(name, value) => Ok(vec![Apply::Query(name.clone(), value.clone()?)]),
        Auth::Basic(user, password) => Ok(vec![basic(user, password)?]),
        Auth::OAuth(oauth) => {
            let endpoint = api.schemes.values().find_map(|scheme| match scheme {
                Scheme::OAuth(endpoint) => endpoint.as_deref(),
                Scheme::Key { .. } | Scheme::Basic | Scheme::Http(_) | Scheme::Other => None,
            });
            Ok(vec![Apply::Token(need(api, "", oauth, endpoint, &[])?)])
        }
        Auth::Schemes(given) => by_schemes(api, operation, given),
    }
}

/// The first of the document's alternatives that the pack has all credentials for.
fn by_schemes(api: &Api, operation: &Operation, given: &BTreeMap<String, Given>) -> Result<Vec<Apply>, Fault> {
    let Some(alternatives) = &operation.security else {
        // Nowhere in the document is said what is needed: the pack's author knows.
        let known = given.iter().filter_map(|(name, given)| Some((name, given, api.schemes.get(name)?)));
        return known.map(|(name, given, scheme)| one(api, name, given, scheme, &[])).collect();
    };
    let full =
        |all: &&Vec<(String, Vec<String>)>| !all.is_empty() && all.iter().all(|(name, _)| given.contains_key(name));
    let Some(chosen) = alternatives.iter().find(full) else {
        if alternatives.is_empty() || alternatives.iter().any(Vec::is_empty) {
            return Ok(Vec::new());
        }
        let names =
            |all: &Vec<(String, Vec<String>)>| all.iter().map(|(n, _)| n.as_str()).collect::<Vec<_>>().join(" and ");
        let list = alternatives.iter().map(names).collect::<Vec<_>>().join(", or ");
        let shown = vance_shared::show::plain(&list);
        return Err(Code::AuthMissing.fault(format!("this call needs credentials: set `auth.schemes` for {shown}")));
    };
    let mut found = Vec::with_capacity(chosen.len());
    for (name, scopes) in chosen {
        let scheme = api.schemes.get(name);
        let unknown = || Code::AuthMissing.fault(format!("the document has no security scheme {}", quoted(name, 80)));
        if let Some(given) = given.get(name) {
            found.push(one(api, name, given, scheme.ok_or_else(unknown)?, scopes)?);
        }
    }
    Ok(found)
}

fn one(api: &Api, name: &str, given: &Given, scheme: &Scheme, scopes: &[String]) -> Result<Apply, Fault> {
    let misfit = |wanted: &str| {
        let shown = quoted(name, 80);
        Err(Code::AuthMissing.fault(format!("the security scheme {shown} needs {wanted} in `auth.schemes`")))
    };
    match (scheme, given) {
        (Scheme::Key { place, name }, Given::Value(value) | Given::Token(value)) => {
            let value = value.clone()?;
            match place {
                Place::Query => Ok(Apply::Query(name.clone(), value)),
                Place::Cookie => Ok(Apply::Cookie(name.clone(), value)),
                Place::Header | Place::Path | Place::QueryString if is_the_clients(name) => Err(Code::AuthFailed
                    .fault(format!(
                        "the document puts a credential into the header {}, which belongs to the connection",
                        quoted(name, 60)
                    ))),
                Place::Header | Place::Path | Place::QueryString => header(name, value),
            }
        }
        (Scheme::Key { .. }, Given::Basic(..) | Given::OAuth(_)) => misfit("`value`"),
        (Scheme::Basic, Given::Basic(user, password)) => basic(user, password),
        (Scheme::Basic, Given::Value(value)) => header("authorization", format!("Basic {}", value.clone()?)),
        (Scheme::Basic, Given::Token(_) | Given::OAuth(_)) => misfit("`user` and `password`"),
        (Scheme::Http(word), Given::Value(value) | Given::Token(value)) => {
            header("authorization", format!("{word} {}", value.clone()?))
        }
        (Scheme::OAuth(_) | Scheme::Other, Given::Value(value) | Given::Token(value)) => {
            header("authorization", format!("Bearer {}", value.clone()?))
        }
        (Scheme::Http(_) | Scheme::OAuth(_) | Scheme::Other, Given::Basic(..)) => misfit("`token`"),
        (Scheme::OAuth(endpoint), Given::OAuth(oauth)) => {
            Ok(Apply::Token(need(api, name, oauth, endpoint.as_deref(), scopes)?))
        }
        (Scheme::Http(_) | Scheme::Other, Given::OAuth(oauth)) => {
            Ok(Apply::Token(need(api, name, oauth, None, scopes)?))
        }
    }
}

/// Headers that say how a request travels: a credential in their place would change where it ends, or who reads it.
fn is_the_clients(name: &str) -> bool {
    const CLIENTS: [&str; 8] =
        ["connection", "content-length", "content-type", "expect", "host", "te", "transfer-encoding", "upgrade"];
    CLIENTS.iter().any(|known| name.eq_ignore_ascii_case(known))
}

fn header(name: &str, value: String) -> Result<Apply, Fault> {
    check_secret(&value)?;
    Ok(Apply::Header(name.to_owned(), value))
}

fn basic(user: &Secret, password: &Secret) -> Result<Apply, Fault> {
    let pair = format!("{}:{}", user.clone()?, password.clone()?);
    Ok(Apply::Header("authorization".to_owned(), format!("Basic {}", file::encoded(pair.as_bytes()))))
}

/// Where a token comes from. An endpoint that only the document names gets the client's secret only on hosts that requests may go to.
fn need(api: &Api, name: &str, oauth: &OAuth, endpoint: Option<&str>, scopes: &[String]) -> Result<TokenNeed, Fault> {
    let unusable =
        |why: &str| Code::AuthFailed.fault(format!("the token endpoint cannot be used: {why}; set `tokenUrl`"));
    let text = oauth.token_url.as_deref().or(endpoint).ok_or_else(|| unusable("the document names none"))?;
    let parsed = match api.base.as_ref() {
        Ok(base) => base.join(text),
        Err(_) => Url::parse(text),
    };
    let endpoint = parsed.map_err(|error| unusable(&error.to_string()))?;
    if endpoint.scheme() != "https" && !(endpoint.scheme() == "http" && server::is_loopback(&endpoint)) {
        return Err(unusable("it is not https"));
    }
    if oauth.token_url.is_none() {
        api.hosts.check(&endpoint)?;
    }
    let scopes = if oauth.scopes.is_empty() { scopes.to_vec() } else { oauth.scopes.clone() };
    Ok(TokenNeed {
        key: format!("{name} {}", scopes.join(" ")),
        endpoint,
        client_id: oauth.client_id.clone()?,
        client_secret: oauth.client_secret.clone().transpose()?,
        refresh_token: oauth.refresh_token.clone().transpose()?,
        scopes,
    })
}
