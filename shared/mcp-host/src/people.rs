//! Where a server finds people.

use crate::auth::OnAuthorize;

/// Where a server finds people, if there are any. The default is nobody.
#[derive(Clone, Default)]
pub struct People {
    /// Brings somebody to a login.
    pub authorize: Option<OnAuthorize>,
}

impl std::fmt::Debug for People {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("People").field("authorize", &self.authorize.is_some()).finish()
    }
}
