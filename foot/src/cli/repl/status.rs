//! The status line. Pure.

use vance_shared::show::plain;

use super::waits;
use crate::engine::Connection;

/// What it says: where, how, what.
pub(super) fn line(brain: &str, connection: &Connection, tools: usize, waiting: Option<usize>, runs: usize) -> String {
    let (state, session) = match connection {
        Connection::Local => ("local".to_owned(), None),
        Connection::Connecting => ("connecting".to_owned(), None),
        Connection::Online { session_id, .. } => ("connected".to_owned(), Some(session_id.to_string())),
        // The log has said why, and what to do.
        Connection::Refused { .. } => ("refused".to_owned(), None),
    };
    let mut parts = vec![format!("{brain} {state}")];
    parts.push(format!("{tools} tool{}", if tools == 1 { "" } else { "s" }));
    parts.extend(waiting.map(waits::words));
    if runs > 0 {
        parts.push(format!("{runs} followed"));
    }
    // Last, where a narrow terminal cuts.
    parts.extend(session);
    plain(&parts.join(" | "))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use vance_shared::ids::{ClientId, SessionId};

    use super::*;

    #[test]
    fn what_the_line_says() {
        let online = Connection::Online {
            session_id: SessionId::parse("sess_1").unwrap(),
            client_id: ClientId::parse("client_1").unwrap(),
        };
        let refused = Connection::Refused { why: "no token".to_owned(), is_final: false };
        for (connection, tools, waiting, runs, want) in [
            (&Connection::Connecting, 12, None, 0, "B connecting | 12 tools"),
            (&online, 1, Some(2), 1, "B connected | 1 tool | 2 waiting | 1 followed | sess_1"),
            (&online, 3, Some(0), 0, "B connected | 3 tools | 0 waiting | sess_1"),
            (&refused, 0, None, 0, "B refused | 0 tools"),
        ] {
            assert_eq!(line("B", connection, tools, waiting, runs), want);
        }
    }
}
