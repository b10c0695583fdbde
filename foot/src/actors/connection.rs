//! How the line to the Brain is, for who wants to know.

use vance_shared::ids::{ClientId, SessionId};

/// The line's state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Connection {
    /// This run has no Brain.
    Local,
    /// Not there (yet, or again); it is tried for ever.
    Connecting,
    /// Attached.
    Online {
        /// To this session.
        session_id: SessionId,
        /// Under this identity.
        client_id: ClientId,
    },
    /// The Brain said no; it is tried again now and then, if that may change.
    Refused {
        /// Why, and what to do.
        why: String,
        /// Nothing that happens by itself changes it.
        is_final: bool,
    },
}
