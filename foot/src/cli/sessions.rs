//! `vancetope sessions`: who is attached where, and which tools a session has.

use vance_shared::show::plain;

use super::args::SessionsCommand;
use super::context::Context;
use super::failure::{EXIT_OK, Failure};
use crate::api::{Client, RefusedTool};

/// Runs the command.
pub(super) async fn sessions(context: &mut Context, command: &SessionsCommand) -> Result<u8, Failure> {
    let brain = context.brain()?;
    let json = context.screen.json;
    let screen = &mut context.screen;
    match command {
        SessionsCommand::List => {
            let answer = brain.sessions().await?;
            if json {
                screen.raw(&answer.body)?;
                return Ok(EXIT_OK);
            }
            let rows = answer.value.sessions.into_iter().map(|session| {
                let clients: Vec<String> = session.clients.iter().map(client).collect();
                let mark = if session.default { " (default)" } else { "" };
                [format!("{}{mark}", session.session_id), session.mode.unwrap_or_default(), clients.join(", ")]
            });
            screen.table(["SESSION", "MODE", "CLIENTS"], rows.collect(), "no sessions")?;
        }
        SessionsCommand::Show { id } => {
            let answer = brain.session(id).await?;
            if json {
                screen.raw(&answer.body)?;
                return Ok(EXIT_OK);
            }
            let session = answer.value;
            screen.line(&format!("session: {}", session.session_id))?;
            if let Some(mode) = &session.mode {
                screen.line(&format!("mode: {}", plain(mode)))?;
            }
            let refused: Vec<String> = session.clients.iter().flat_map(not_taken).collect();
            let rows = session.clients.into_iter().map(|c| {
                [c.name.unwrap_or_default(), c.presence.unwrap_or_default(), c.machine.unwrap_or_default(), c.client_id]
            });
            screen.table(["CLIENT", "PRESENCE", "MACHINE", "ID"], rows.collect(), "no clients are attached")?;
            for line in refused {
                screen.remark(&line);
            }
        }
        SessionsCommand::Tools { id } => {
            let answer = brain.session_tools(id).await?;
            if json {
                screen.raw(&answer.body)?;
                return Ok(EXIT_OK);
            }
            let rows = answer.value.tools.into_iter().map(|tool| {
                let available = match (tool.available, tool.unavailable_reason) {
                    (true, _) => "yes".to_owned(),
                    (false, Some(reason)) => format!("no: {reason}"),
                    (false, None) => "no".to_owned(),
                };
                [tool.name, tool.location, available, tool.replay.unwrap_or_default(), tool.labels.join(", ")]
            });
            screen.table(["TOOL", "LOCATION", "AVAILABLE", "REPLAY", "LABELS"], rows.collect(), "no tools")?;
        }
    }
    Ok(EXIT_OK)
}

/// What a client offers and the Brain did not take: it is in no list of tools.
fn not_taken(client: &Client) -> Vec<String> {
    let name = plain(client.name.as_deref().unwrap_or(&client.client_id));
    let line = |tool: &RefusedTool| format!("not taken from {name}: {}: {}", plain(&tool.name), plain(&tool.reason));
    client.refused.iter().map(line).collect()
}

fn client(client: &Client) -> String {
    let name = client.name.as_deref().unwrap_or(&client.client_id);
    match &client.presence {
        Some(presence) => format!("{name} ({presence})"),
        None => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn tools_that_were_not_taken_are_said_with_their_reason() {
        let text = serde_json::json!({"client_id": "foot_1", "name": "lap", "refused": [{"name": "git__log", "reason": "the server has it"}]});
        let client: Client = serde_json::from_value(text).unwrap();
        assert_eq!(not_taken(&client), ["not taken from lap: git__log: the server has it"]);
    }
}
