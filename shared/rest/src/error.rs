//! Codes of what can go wrong with a call, and their faults.

use vance_shared::call::Fault;

/// Why a call did not give what was wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Code {
    /// The arguments do not fit the operation.
    InvalidArgument,
    /// The operation's server is none of the pack's hosts.
    HostNotAllowed,
    /// The document names no server, or one that cannot be used.
    NoServer,
    /// A credential is not set.
    AuthMissing,
    /// A token could not be got.
    AuthFailed,
    /// No answer in time.
    Timeout,
    /// No connection.
    Connect,
    /// No connection that can be trusted.
    Tls,
    /// The answer leads elsewhere.
    RedirectRefused,
    /// The answer has too many bytes.
    ResponseTooLarge,
    /// The server wants us to wait for longer than we may.
    RateLimited,
    /// A file of this machine cannot be read here.
    FileAccess,
    /// The server refused the request.
    HttpStatus,
}

impl Code {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::InvalidArgument,
        Self::HostNotAllowed,
        Self::NoServer,
        Self::AuthMissing,
        Self::AuthFailed,
        Self::Timeout,
        Self::Connect,
        Self::Tls,
        Self::RedirectRefused,
        Self::ResponseTooLarge,
        Self::RateLimited,
        Self::FileAccess,
        Self::HttpStatus,
    ];

    /// The stable word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InvalidArgument => "invalid_argument",
            Self::HostNotAllowed => "host_not_allowed",
            Self::NoServer => "no_server",
            Self::AuthMissing => "auth_missing",
            Self::AuthFailed => "auth_failed",
            Self::Timeout => "timeout",
            Self::Connect => "connect",
            Self::Tls => "tls",
            Self::RedirectRefused => "redirect_refused",
            Self::ResponseTooLarge => "response_too_large",
            Self::RateLimited => "rate_limited",
            Self::FileAccess => "file_access",
            Self::HttpStatus => "http_status",
        }
    }

    /// A fault with this code.
    pub fn fault(self, message: impl Into<String>) -> Fault {
        Fault::new(self.as_str(), message)
    }
}
