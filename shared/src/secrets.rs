//! `{{secret:NAME}}`: how people name a secret that the Brain keeps. Values never pass through here.

use std::collections::BTreeSet;

use crate::launch::{Auth, LaunchPlan, Transport};
use crate::show::quoted;

/// How a reference starts.
pub const OPEN: &str = "{{secret:";
/// How it ends.
pub const CLOSE: &str = "}}";
/// Longest name.
pub const MAX_NAME_BYTES: usize = 64;

/// Whether a text can be a secret's name: 1 to 64 of `[A-Za-z0-9_.-]`.
pub fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= MAX_NAME_BYTES
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b))
}

/// What is wrong with a reference. Says what to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadReference<'a> {
    /// What stands in place of a name.
    #[error("names the secret {}, expected {{{{secret:NAME}}}} with a name of [A-Za-z0-9_.-]", quoted(.0, 40))]
    Name(&'a str),
    /// Blanks, as in an expression: it would be sent as it stands.
    #[error("has blanks in {{{{secret:{0}}}}}; write {{{{secret:{0}}}}} without any")]
    Blanks(&'a str),
    /// Without its end.
    #[error("has a reference without its end: {} needs a `}}}}` behind its name, as in {{{{secret:NAME}}}}", quoted(.0, 40))]
    Open(&'a str),
}

/// The names in a text, in their order, or what is wrong with the first reference that is none.
pub fn names(text: &str) -> Result<Vec<&str>, BadReference<'_>> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some((_, inside)) = rest.split_once("{{") {
        rest = inside;
        let Some(after) = inside.trim_start().strip_prefix("secret") else { continue };
        let Some(after) = after.trim_start().strip_prefix(':') else { continue };
        let Some((name, tail)) = after.split_once(CLOSE) else {
            return Err(BadReference::Open(&text[text.len() - inside.len() - 2..]));
        };
        match name.trim() {
            trimmed if !is_name(trimmed) => return Err(BadReference::Name(name)),
            trimmed if trimmed != name || !inside.starts_with(&OPEN[2..]) => return Err(BadReference::Blanks(trimmed)),
            trimmed => found.push(trimmed),
        }
        rest = tail;
    }
    Ok(found)
}

/// Whether a text means to name a secret, well or badly.
pub fn mentions(text: &str) -> bool {
    names(text).map_or(true, |names| !names.is_empty())
}

/// The secrets that a plan needs to start.
pub fn of_plan(plan: &LaunchPlan) -> BTreeSet<String> {
    texts(plan).iter().filter_map(|text| names(text).ok()).flatten().map(str::to_owned).collect()
}

/// The texts of a plan in which secrets and variables may be named.
pub fn texts(plan: &LaunchPlan) -> Vec<String> {
    let mut texts: Vec<&str> = Vec::new();
    let credentials;
    match &plan.transport {
        Transport::Stdio { argv: _, cwd: _, env } => texts.extend(env.values().map(String::as_str)),
        Transport::Rest(rest) => {
            credentials = rest.auth.texts();
            texts.extend(rest.base_url.as_deref());
            texts.extend(rest.headers.values().map(String::as_str));
            texts.extend(credentials.iter().map(|(_, text)| text.as_str()));
        }
        Transport::Http { url, headers, auth, tls: _ } => {
            texts.push(url);
            texts.extend(headers.values().map(String::as_str));
            match auth {
                Auth::IfAsked | Auth::Constant => {}
                Auth::Basic { user, password } => texts.extend([user.as_str(), password]),
                Auth::OAuth(oauth) => {
                    texts.extend([&oauth.client_id, &oauth.client_secret].into_iter().flatten().map(String::as_str));
                }
            }
        }
    }
    texts.into_iter().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_reference_is_a_name_between_its_brackets() {
        for (text, want) in [
            ("none", Ok(vec![])),
            ("{{secret:A}}", Ok(vec!["A"])),
            ("Bearer {{secret:a.b-c_1}}, {{secret:B}}", Ok(vec!["a.b-c_1", "B"])),
            ("{{ other }}", Ok(vec![])),
            ("{{secrets}} {{ secret }} {{secretary: x}}", Ok(vec![])),
            ("{{ secrets: {{secret:A}}", Ok(vec!["A"])),
            ("{{secret:}}", Err(BadReference::Name(""))),
            ("{{secret:a b}}", Err(BadReference::Name("a b"))),
            ("x {{secret:A", Err(BadReference::Open("{{secret:A"))),
            ("x {{ secret:A }}", Err(BadReference::Blanks("A"))),
            ("{{secret: A}}", Err(BadReference::Blanks("A"))),
            ("{{secret:B}}{{ secret : A }}", Err(BadReference::Blanks("A"))),
        ] {
            assert_eq!(names(text), want, "{text}");
            assert_eq!(mentions(text), want.is_err() || want.is_ok_and(|names| !names.is_empty()), "{text}");
        }
        for (text, says) in [
            ("{{ secret:A }}", "has blanks in {{secret:A}}; write {{secret:A}} without any"),
            ("{{secret:A", "has a reference without its end: '{{secret:A' needs a `}}` behind its name"),
        ] {
            let said = names(text).unwrap_err().to_string();
            assert!(said.starts_with(says), "{said}");
        }
        assert!(!is_name(&"x".repeat(65)));
    }
}
