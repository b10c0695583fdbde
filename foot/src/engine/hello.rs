//! Where the Brain is, and what a Foot says of itself.

use reqwest::Url;
use vance_shared::ids::ClientId;
use vance_shared::wire::{ClientConnected, PROTOCOL};

use super::{FootConfig, StartError};
use crate::identity;

/// `http://HOST:PORT` → `ws://HOST:PORT/ws`.
pub(super) fn socket_url(brain: &Url) -> Result<String, StartError> {
    let address = || StartError::Address { url: vance_shared::show::plain(brain.as_str()) };
    let (scheme, rest) = brain.as_str().split_once("://").ok_or_else(address)?;
    let scheme = match scheme {
        "http" | "ws" => "ws",
        "https" | "wss" => "wss",
        _ => return Err(address()),
    };
    if brain.host_str().is_none()
        || brain.query().is_some()
        || brain.fragment().is_some()
        || !brain.username().is_empty()
    {
        return Err(address());
    }
    Ok(format!("{scheme}://{}/ws", rest.trim_end_matches('/')))
}

pub(super) fn hello(config: &FootConfig, client_id: &ClientId) -> ClientConnected {
    let machine = identity::machine();
    ClientConnected {
        session_id: config.session.clone(),
        also_sessions: config.also_sessions.clone(),
        new_session: config.new_session,
        client_type: config.client_type.clone(),
        protocol: vec![PROTOCOL],
        client_id: Some(client_id.clone()),
        name: Some(config.name.clone().unwrap_or_else(|| machine.clone())),
        machine: Some(machine),
        working_dir: Some(crate::paths::shown(&config.project_dir)),
        ..ClientConnected::default()
    }
}
