//! Sessions in which nothing goes on: nobody need keep anything of them.

use std::collections::BTreeSet;

use vance_shared::ids::SessionId;

use super::Board;

impl Board {
    /// Sessions with tasks that are on the board.
    pub fn busy_sessions(&self) -> BTreeSet<SessionId> {
        self.nodes.values().map(|node| node.entry.session_id.clone()).collect()
    }

    /// What was known of a session without tasks goes. It comes back as a new one, with later revisions.
    pub fn forget_session(&mut self, session_id: &SessionId) {
        let Some(session) = self.sessions.remove(session_id) else { return };
        self.left(session_id, session.clients());
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::{HashMap, HashSet};
    use std::sync::Arc;

    use vance_shared::ids::ClientId;

    use super::*;

    #[test]
    fn of_a_session_without_tasks_nothing_stays() {
        let mut board = Board::new(1);
        let client = ClientId::parse("foot_1").unwrap();
        let sessions: Vec<SessionId> = ["sess_1", "sess_2"].map(|id| SessionId::parse(id).unwrap()).into();
        for session in &sessions {
            board.presence(session, 1, HashMap::from([(client.clone(), Arc::new(HashSet::new()))]));
        }
        assert!(board.busy_sessions().is_empty());
        board.forget_session(&sessions[0]);
        assert_eq!((board.sessions.len(), board.clients.len()), (1, 1), "the client is in the other one");
        board.forget_session(&sessions[0]);
        board.forget_session(&sessions[1]);
        assert_eq!((board.sessions.len(), board.clients.len()), (0, 0));
    }
}
