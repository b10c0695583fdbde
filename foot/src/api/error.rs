//! What can go wrong between a command and the Brain.

use serde::Deserialize;
use serde_json::Value;
use vance_shared::json::Raw;

/// What a person can do about a token.
const UNAUTHORIZED: &str = "the Brain does not accept the token; store another one with `vancetope login URL`, or set VANCE_TOKEN (on \
                            the Brain's machine it is in brain/local.token of its home)";

/// A mistake in a file that the Brain was given.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Problem {
    /// Line, from 1; 0 when the mistake belongs to no line.
    #[serde(default)]
    pub line: u64,
    /// What is wrong and what was expected.
    pub message: String,
}

/// Why a request gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// Nobody answers at the address.
    #[error("no Brain answers at {url} ({why}); start one with `vance-brain serve`, or name another with --brain URL")]
    Unreachable {
        /// The Brain's address.
        url: String,
        /// The fault of the connection.
        why: String,
    },
    /// Somebody answers at the address, and TLS does not come about.
    #[error("{url} answers, but TLS fails: {why}; {}", cure(why))]
    NoTrust {
        /// The Brain's address.
        url: String,
        /// What does not fit.
        why: String,
    },
    /// The Brain answered too late, or the answer broke off.
    #[error("the Brain at {url} did not finish its answer: {why}")]
    Broken {
        /// The Brain's address.
        url: String,
        /// The fault of the connection.
        why: String,
    },
    /// The Brain answered with an error.
    #[error("{message}")]
    Refused {
        /// HTTP status.
        status: u16,
        /// The Brain's code, stable, snake_case.
        code: String,
        /// The Brain's text.
        message: String,
        /// Mistakes in the submitted file, if that is what it was.
        problems: Vec<Problem>,
        /// The whole `error` object: more fields than this program knows.
        detail: Raw,
    },
    /// An answer that is not what this program knows.
    #[error(
        "the Brain at {url} gave an answer that this vancetope does not understand ({why}); do both have the same version?"
    )]
    Strange {
        /// The Brain's address.
        url: String,
        /// What did not fit.
        why: String,
    },
    /// The client could not be made.
    #[error("cannot set up the connection to the Brain: {0}")]
    Setup(String),
}

impl ApiError {
    /// Stable, snake_case: the Brain's own code, or one for each fault on the way.
    pub fn code(&self) -> &str {
        match self {
            Self::Unreachable { .. } => "brain_unreachable",
            Self::NoTrust { .. } => "brain_not_trusted",
            Self::Broken { .. } => "brain_answer_broken",
            Self::Refused { code, .. } => code,
            Self::Strange { .. } => "brain_answer_strange",
            Self::Setup(_) => "setup",
        }
    }

    /// True if the same request may succeed later without anyone changing anything.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Broken { .. } => true,
            Self::Refused { status, .. } => *status >= 500 || *status == 429,
            Self::NoTrust { .. } | Self::Strange { .. } | Self::Setup(_) => false,
        }
    }

    /// The fault of a connection that does not come about.
    pub(super) fn no_connection(url: String, why: String) -> Self {
        match is_of_tls(&why) {
            true => Self::NoTrust { url, why },
            false => Self::Unreachable { url, why },
        }
    }

    /// The Brain wants a token, and there was none to send.
    pub(super) fn without_token(url: &str, body: &[u8]) -> Self {
        let error = Self::refused(401, body);
        let Self::Refused { status, code, problems, detail, .. } = error else { return error };
        let message = format!(
            "the Brain at {url} wants a token, and none was sent: there is none for it here; store one with `vancetope login {url}`, or set \
             VANCE_TOKEN (on the Brain's machine it is in brain/local.token of its home, and is found by itself with the same VANCE_HOME)"
        );
        Self::Refused { status, code, message, problems, detail }
    }

    /// From the status and body of an answer that is not a success.
    pub(super) fn refused(status: u16, body: &[u8]) -> Self {
        let body: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
        let detail = body.get("error").cloned().unwrap_or(Value::Null);
        let text = |key: &str| detail.get(key).and_then(Value::as_str).map(str::to_owned);
        let code = text("code").unwrap_or_else(|| format!("http_{status}"));
        let message = text("message").unwrap_or_else(|| format!("the Brain answered with HTTP {status} and no reason"));
        // The Brain speaks to whoever sends HTTP; a person at this program has other means.
        let message = match (status, code.as_str()) {
            (401, _) => UNAUTHORIZED.to_owned(),
            (409, "client_absent") => format!(
                "{}; start one with `vancetope --no-ui`, or submit a task, which waits, with `vancetope run FILE`",
                message.split(": connect one").next().unwrap_or(&message)
            ),
            _ => message,
        };
        let problems = [detail.get("problems"), body.get("problems")].into_iter().flatten().next();
        let problems = problems.and_then(|list| Vec::deserialize(list).ok()).unwrap_or_default();
        Self::Refused { status, code, message, problems, detail: Raw::from(detail) }
    }
}

/// By the words of the TLS library.
fn is_of_tls(why: &str) -> bool {
    ["peer certificate", "InvalidContentType", "HandshakeFailure", "fatal alert", "PeerIncompatible"]
        .iter()
        .any(|word| why.contains(word))
}

/// What to do about TLS that does not come about.
pub(crate) fn cure(why: &str) -> &'static str {
    let has = |word| why.contains(word);
    if has("UnknownIssuer") || has("self-signed") || has("CaUsedAsEndEntity") {
        return "its authority is not one that this machine knows: name its certificate with SSL_CERT_FILE=/path/ca.pem, here and at every later start";
    }
    if has("not valid for name") || has("NotValidForName") {
        return "use a host name that its certificate is made for";
    }
    if has("InvalidContentType") {
        return "no TLS is spoken there: use http://, or ask for the right port";
    }
    "look at the Brain's certificate (`tls` in its brain.yaml)"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_brains_own_code_text_and_problems_are_kept() {
        let body = br#"{"error":{"code":"bad_tree","message":"2 problems","problems":[{"file":"x","line":3,"message":"no"},{"message":"nor"}],"more":1}}"#;
        let error = ApiError::refused(400, body);
        assert_eq!((error.code(), error.to_string().as_str()), ("bad_tree", "2 problems"));
        let ApiError::Refused { problems, detail, .. } = error else { panic!("refused") };
        assert_eq!(problems.iter().map(|p| p.line).collect::<Vec<_>>(), [3, 0]);
        assert_eq!(detail.value()["more"], 1);
    }

    #[test]
    fn somebody_who_answers_without_trust_is_no_brain_that_is_away() {
        for (why, want) in [
            ("invalid peer certificate: UnknownIssuer", Some("SSL_CERT_FILE")),
            (
                "invalid peer certificate: certificate not valid for name \"a\"; certificate is only valid for b",
                Some("host name"),
            ),
            ("received corrupt message of type InvalidContentType", Some("http://")),
            ("invalid peer certificate: Expired", Some("brain.yaml")),
            ("Connection refused (os error 111)", None),
        ] {
            let error = ApiError::no_connection("https://b.example".to_owned(), why.to_owned());
            assert_eq!(error.code() == "brain_not_trusted", want.is_some(), "{error}");
            let text = error.to_string();
            assert!(text.contains(want.unwrap_or("vance-brain serve")) && text.contains(why), "{text}");
        }
    }

    #[test]
    fn an_answer_without_a_body_still_has_a_code_and_a_reason() {
        let error = ApiError::refused(502, b"<html>");
        assert_eq!(error.code(), "http_502");
        assert!(error.to_string().contains("502") && error.may_pass());
        assert!(ApiError::refused(401, b"").to_string().contains("does not accept the token"));
        let none = ApiError::without_token("http://127.0.0.1:9990", b"").to_string();
        assert!(none.contains("none was sent") && none.contains("vancetope login http://127.0.0.1:9990`"), "{none}");
        assert!(!ApiError::refused(404, b"").may_pass());
    }
}
