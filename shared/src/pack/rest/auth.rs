//! `auth` of a `rest_api` pack: the short forms, or credentials by the names of the document's security schemes.

use std::collections::BTreeMap;

use super::super::endpoint::auth::{self as short, address, optional_secret, scopes, secret, without_references};
use super::super::{Report, endpoint};
use crate::doc::{Fields, Node, ticked};
use crate::launch::Auth;
use crate::launch::rest::{Credential, RestAuth, RestOAuth};

/// Reads it; what is wrong is in the report.
pub(super) fn read(node: &Node, report: &Report<'_>) -> Option<RestAuth> {
    if node.get("schemes").is_some() {
        return schemes(node, report);
    }
    // Tokens of a rest_api pack come without a login: other fields than those of MCP servers.
    let is_oauth = |node: &&Node| node.as_str() == Some("oauth2");
    if node.get("type").filter(is_oauth).is_some() {
        let mut fields = Fields::of(node, "`auth`", report.problems)?;
        fields.take("type");
        return oauth(fields, report).map(RestAuth::OAuth);
    }
    if let (Some(inner), Some([_])) = (node.get("oauth2"), node.as_map()) {
        return oauth(Fields::of(inner, "`oauth2`", report.problems)?, report).map(RestAuth::OAuth);
    }
    if node.as_str() == Some("oauth2") {
        report.problems.add(node.line, "`auth` is 'oauth2', which needs `clientId` and `clientSecret` here");
        return None;
    }
    Some(match short::read(node, report)? {
        endpoint::auth::Credentials::Header { name, value } => RestAuth::Header { name, value },
        endpoint::auth::Credentials::Query { name, value } => RestAuth::Query { name, value },
        endpoint::auth::Credentials::Other(Auth::Basic { user, password }) => RestAuth::Basic { user, password },
        endpoint::auth::Credentials::Other(Auth::IfAsked | Auth::Constant | Auth::OAuth(_)) => RestAuth::None,
    })
}

fn oauth(mut fields: Fields<'_>, report: &Report<'_>) -> Option<RestOAuth> {
    let client_id = secret(&mut fields, "clientId", report);
    let read = oauth_of(&mut fields, report);
    if read.refresh_token.is_none() {
        fields.require("clientSecret", "the client's secret such as ${env:CLIENT_SECRET}");
    }
    report.finish(&fields);
    Some(RestOAuth { client_id: client_id?, ..read })
}

fn oauth_of(fields: &mut Fields<'_>, report: &Report<'_>) -> RestOAuth {
    RestOAuth {
        client_id: String::new(),
        client_secret: optional_secret(fields, "clientSecret", report),
        scopes: scopes(fields, report),
        token_url: address(fields, "tokenUrl", report),
        refresh_token: optional_secret(fields, "refreshToken", report),
    }
}

fn schemes(node: &Node, report: &Report<'_>) -> Option<RestAuth> {
    let mut fields = Fields::of(node, "`auth`", report.problems)?;
    let entries = fields.take_map("schemes", "security schemes and their credentials").unwrap_or_default();
    report.finish(&fields);
    let mut found = BTreeMap::new();
    for entry in entries {
        let Some(fields) = Fields::of(&entry.value, ticked(&entry.key), report.problems) else { continue };
        if let Some(credential) = credential(fields, report) {
            found.insert(entry.key.clone(), credential);
        }
    }
    Some(RestAuth::Schemes(found))
}

fn credential(mut fields: Fields<'_>, report: &Report<'_>) -> Option<Credential> {
    let value = optional_secret(&mut fields, "value", report);
    let token = optional_secret(&mut fields, "token", report);
    let user = optional_secret(&mut fields, "user", report);
    let password = optional_secret(&mut fields, "password", report);
    let client_id = optional_secret(&mut fields, "clientId", report);
    let oauth = oauth_of(&mut fields, report);
    report.finish(&fields);
    let kinds = [fields.has("value"), fields.has("token"), fields.has("user"), fields.has("clientId")];
    if kinds.iter().filter(|there| **there).count() != 1 {
        let expected = "expected exactly one of `value`, `token`, `user` with `password`, `clientId`";
        report.problems.add(fields.line(), format!("a security scheme's credentials are unclear, {expected}"));
        return None;
    }
    if fields.has("user") {
        fields.require("password", "text such as ${env:PASSWORD}");
        if user.as_deref().is_some_and(|user| without_references(user).contains(':')) {
            fields.add("user", "`user` holds a colon, which basic authentication cannot carry");
        }
        return Some(Credential::Basic { user: user?, password: password? });
    }
    if fields.has("clientId") {
        if oauth.refresh_token.is_none() {
            fields.require("clientSecret", "the client's secret such as ${env:CLIENT_SECRET}");
        }
        return Some(Credential::OAuth(RestOAuth { client_id: client_id?, ..oauth }));
    }
    value.map(Credential::Value).or(token.map(Credential::Token))
}
