//! `vance-brain token`: who may speak to the Brain. A running Brain follows the file.

use std::io;

use serde_json::{Value, json};
use vance_shared::show::plain;

use super::args::TokenCommand;
use super::{EXIT_FAILED, EXIT_OK, EXIT_USAGE, Screen, at_home};
use crate::home::Home;
use crate::hub::now_ms;
use crate::rows::time;
use crate::tokens::book::{Record, TokenBook};
use crate::tokens::{Scope, TokenError};

pub(super) fn run(json: bool, command: TokenCommand) -> u8 {
    match command {
        TokenCommand::New { name, scopes, home } => {
            at_home(json, home, |home, screen| new(home, &name, &scopes, screen))
        }
        TokenCommand::List(home) => at_home(json, home, list),
        TokenCommand::Revoke { name, home } => at_home(json, home, |home, screen| revoke(home, &name, screen)),
    }
}

fn book(home: &Home) -> TokenBook {
    TokenBook::new(&home.data())
}

fn words(scopes: &[Scope]) -> Vec<&'static str> {
    scopes.iter().map(|scope| scope.word()).collect()
}

fn new(home: &Home, name: &str, scopes: &[Scope], screen: &mut Screen<'_>) -> io::Result<u8> {
    let mut wanted: Vec<Scope> = Scope::ALL.to_vec();
    wanted.retain(|scope| scopes.contains(scope));
    let made = prepared(home).and_then(|()| book(home).add(name, &wanted, &time(now_ms())));
    let token = match made {
        Ok(token) => token,
        Err(error) => return failed(&error, screen),
    };
    if screen.json {
        screen.line(&json!({ "name": name, "token": token.reveal(), "scopes": words(&wanted) }).to_string())?;
        return Ok(EXIT_OK);
    }
    screen.line(token.reveal())?;
    let scopes = words(&wanted).join(", ");
    screen.remark(&format!("this is the token of {name} ({scopes}); it is not shown again"))?;
    Ok(EXIT_OK)
}

/// A Brain that never ran has no folder yet.
fn prepared(home: &Home) -> Result<(), TokenError> {
    home.prepare().map_err(|error| match error {
        crate::home::HomeError::Io { path, source } => TokenError::Io { path, source },
        unset @ crate::home::HomeError::Unset => TokenError::Io { path: home.brain(), source: io::Error::other(unset) },
    })
}

fn list(home: &Home, screen: &mut Screen<'_>) -> io::Result<u8> {
    let records = match book(home).read() {
        Ok(records) => records,
        Err(error) => return failed(&error, screen),
    };
    if screen.json {
        let shown = |r: &Record| json!({ "name": r.name, "scopes": words(&r.scopes), "created_at": r.created_at });
        let tokens: Vec<Value> = records.iter().map(shown).collect();
        screen.line(&json!({ "tokens": tokens }).to_string())?;
        return Ok(EXIT_OK);
    }
    let width = records.iter().map(|record| record.name.len()).max().unwrap_or_default();
    for Record { name, scopes, created_at, .. } in &records {
        screen.line(&format!("{name:width$}  {}  {}", plain(created_at), words(scopes).join(",")))?;
    }
    if records.is_empty() {
        screen.remark("no named tokens; `vance-brain token new --name NAME` makes one")?;
    }
    if home.token().exists() {
        let path = plain(&home.token().display().to_string());
        screen.remark(&format!("besides, this machine's own token may do everything: {path}"))?;
    }
    Ok(EXIT_OK)
}

fn revoke(home: &Home, name: &str, screen: &mut Screen<'_>) -> io::Result<u8> {
    if name == crate::tokens::LOCAL && home.token().exists() {
        let path = plain(&home.token().display().to_string());
        let text = format!(
            "this machine's own token is a file: remove {path} and start the Brain again, which makes a new one"
        );
        return screen.failure("local_token", &text, &Value::Null).map(|()| EXIT_FAILED);
    }
    if let Err(error) = book(home).revoke(name) {
        return failed(&error, screen);
    }
    if screen.json {
        screen.line(&json!({ "revoked": name }).to_string())?;
    } else {
        screen.line(&format!("{name} is revoked; what it had open ends"))?;
    }
    Ok(EXIT_OK)
}

fn failed(error: &TokenError, screen: &mut Screen<'_>) -> io::Result<u8> {
    let (code, exit) = match error {
        TokenError::BadName(_) => ("bad_name", EXIT_USAGE),
        TokenError::Taken(_) => ("token_exists", EXIT_FAILED),
        TokenError::Unknown(_) => ("token_not_found", EXIT_FAILED),
        TokenError::Io { .. } | TokenError::Malformed(_) | TokenError::NoRandomness(_) | TokenError::Distrust(_) => {
            ("token", EXIT_FAILED)
        }
    };
    screen.failure(code, &error.to_string(), &Value::Null).map(|()| exit)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn run(json: bool, command: impl FnOnce(&mut Screen<'_>) -> io::Result<u8>) -> (u8, String, String) {
        let (mut out, mut remarks) = (Vec::new(), Vec::new());
        let exit = command(&mut Screen { out: &mut out, remarks: &mut remarks, json }).unwrap();
        (exit, String::from_utf8(out).unwrap(), String::from_utf8(remarks).unwrap())
    }

    #[test]
    fn a_token_is_printed_alone_and_once() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::resolve(Some(&dir.path().join("h")), |_| None).unwrap();
        let (exit, out, remarks) = run(false, |screen| new(&home, "alice", &[Scope::Mcp, Scope::Foot], screen));
        assert!(exit == 0 && out.starts_with("vbt_") && out.lines().count() == 1, "{out}");
        assert!(remarks.contains("alice (foot, mcp)") && !remarks.contains(out.trim()), "{remarks}");
        let (exit, json, _) = run(true, |screen| new(&home, "bob", &Scope::ALL, screen));
        let value: Value = serde_json::from_str(&json).unwrap();
        assert!(exit == 0 && value["name"] == "bob" && value["token"].as_str().unwrap().starts_with("vbt_"), "{json}");
        let (_, listed, _) = run(false, |screen| list(&home, screen));
        assert!(listed.contains("alice") && listed.contains("foot,mcp") && !listed.contains("vbt_"), "{listed}");
        let (exit, _, remarks) = run(false, |screen| new(&home, "bob", &Scope::ALL, screen));
        assert!(exit == 1 && remarks.contains("token revoke bob"), "{remarks}");
        assert_eq!(run(false, |screen| revoke(&home, "bob", screen)).0, 0);
        let (exit, said, _) = run(true, |screen| revoke(&home, "bob", screen));
        assert!(exit == 1 && said.contains("token_not_found"), "{said}");
        let (_, listed, _) = run(true, |screen| list(&home, screen));
        let listed: Value = serde_json::from_str(&listed).unwrap();
        assert_eq!(listed["tokens"].as_array().map(Vec::len), Some(1), "{listed}");
    }
}
