//! `{{secret:NAME}}`: how people name a secret that the Brain keeps. Values never pass through here.

use std::collections::BTreeSet;

use crate::launch::{Auth, LaunchPlan, Transport};

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

/// The names in a text, in their order; `Err`: a reference without its end, or what stands in place of a name.
pub fn names(text: &str) -> Result<Vec<&str>, &str> {
    let mut found = Vec::new();
    for part in text.split(OPEN).skip(1) {
        match part.split_once(CLOSE) {
            Some((name, _)) if is_name(name) => found.push(name),
            Some((name, _)) => return Err(name),
            None => return Err(part),
        }
    }
    Ok(found)
}

/// The secrets that a plan needs to start.
pub fn of_plan(plan: &LaunchPlan) -> BTreeSet<String> {
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
    texts.into_iter().filter_map(|text| names(text).ok()).flatten().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_is_a_name_between_its_brackets() {
        for (text, want) in [
            ("none", Ok(vec![])),
            ("{{secret:A}}", Ok(vec!["A"])),
            ("Bearer {{secret:a.b-c_1}}, {{secret:B}}", Ok(vec!["a.b-c_1", "B"])),
            ("{{ other }}", Ok(vec![])),
            ("{{secret:}}", Err("")),
            ("{{secret:a b}}", Err("a b")),
            ("{{secret:A", Err("A")),
        ] {
            assert_eq!(names(text), want, "{text}");
        }
        assert!(!is_name(&"x".repeat(65)));
    }
}
