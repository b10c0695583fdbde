//! The document's security schemes: what they cover, and what a pack's credentials become under them.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::document::{Document, Version};
use crate::operation::Place;

/// Headers that are never arguments: the client sets them, or they are credentials.
const NEVER: [&str; 12] = [
    "accept",
    "authorization",
    "connection",
    "content-length",
    "content-type",
    "cookie",
    "expect",
    "host",
    "te",
    "transfer-encoding",
    "upgrade",
    "keep-alive",
];

/// One security scheme, as far as it says where a credential goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Scheme {
    /// A key.
    Key {
        place: Place,
        name: String,
    },
    Basic,
    /// `Authorization: <word> …`.
    Http(String),
    /// A token, got from this endpoint if the document names one.
    OAuth(Option<String>),
    /// Nothing that is sent in a request.
    Other,
}

/// The document's schemes by name.
pub(crate) fn schemes(doc: &Document) -> BTreeMap<String, Scheme> {
    let root = doc.root();
    let found = match doc.version() {
        Version::V2 => root.get("securityDefinitions"),
        Version::V30 | Version::V31 | Version::V32 => {
            root.get("components").and_then(|components| components.get("securitySchemes"))
        }
    };
    let found = found.and_then(Value::as_object).into_iter().flatten();
    found.filter_map(|(name, scheme)| Some((name.clone(), scheme_of(doc.follow(scheme).ok()?)))).collect()
}

fn scheme_of(scheme: &Value) -> Scheme {
    let text = |key: &str| scheme.get(key).and_then(Value::as_str);
    match text("type").unwrap_or_default() {
        "apiKey" => {
            let place = match text("in") {
                Some("query") => Place::Query,
                Some("cookie") => Place::Cookie,
                Some(_) | None => Place::Header,
            };
            text("name").map_or(Scheme::Other, |name| Scheme::Key { place, name: name.to_owned() })
        }
        "basic" => Scheme::Basic,
        "http" => match text("scheme").unwrap_or_default().to_ascii_lowercase().as_str() {
            "basic" => Scheme::Basic,
            "bearer" | "" => Scheme::Http("Bearer".to_owned()),
            _ => Scheme::Http(text("scheme").unwrap_or_default().to_owned()),
        },
        "oauth2" => {
            let own = text("tokenUrl").map(str::to_owned);
            let flows = scheme.get("flows").and_then(Value::as_object);
            let flow = |name: &str| flows?.get(name)?.get("tokenUrl")?.as_str().map(str::to_owned);
            Scheme::OAuth(own.or_else(|| flow("clientCredentials")).or_else(|| flow("authorizationCode")))
        }
        "openIdConnect" => Scheme::OAuth(None),
        _ => Scheme::Other,
    }
}

/// What is no argument, because the client or a credential sets it.
pub(crate) struct Covered {
    keys: Vec<(Place, String)>,
}

impl Covered {
    /// By the document's schemes, and by the pack's own credentials.
    pub(crate) fn new(schemes: &BTreeMap<String, Scheme>, own: Vec<(Place, String)>) -> Self {
        let keys = schemes.values().filter_map(|scheme| match scheme {
            Scheme::Key { place, name } => Some((*place, name.clone())),
            Scheme::Basic | Scheme::Http(_) | Scheme::OAuth(_) | Scheme::Other => None,
        });
        Self { keys: keys.chain(own).collect() }
    }

    /// Whether a parameter of this name in this place is no argument.
    pub(crate) fn covers(&self, place: Place, name: &str) -> bool {
        let header = place == Place::Header;
        let same = |other: &str| if header { other.eq_ignore_ascii_case(name) } else { other == name };
        let lower = name.to_ascii_lowercase();
        (header && (NEVER.contains(&lower.as_str()) || lower.starts_with("proxy-")))
            || self.keys.iter().any(|(at, other)| *at == place && same(other))
    }
}
