//! What is kept for packs and encrypted: the border to a Brain's vault. A Foot has none: its packs name variables, and its logins are private
//! files of its user.

/// Secrets by name, and logins by the name of their file. Errors say what to do, and never hold a value. Quick: each is a small file.
pub trait Vault: std::fmt::Debug + Send + Sync {
    /// The value of a secret. One that is not there is an error that names it.
    fn secret(&self, name: &str) -> Result<String, String>;
    /// What is kept of a login.
    fn login(&self, key: &str) -> Result<Option<String>, String>;
    /// Keeps a login, in place of the one before.
    fn keep_login(&self, key: &str, text: &str) -> Result<(), String>;
    /// Forgets a login. False: there was none.
    fn forget_login(&self, key: &str) -> Result<bool, String>;
    /// Another number whenever the login is another one; 0 without one.
    fn login_mark(&self, key: &str) -> u64;
}
