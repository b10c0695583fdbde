//! What a pack runs or reaches, as a person reads it. Two different commands never look the same, and what is shown can be
//! pasted into bash.

use std::fmt::Write as _;

use crate::launch::rest::Spec;
use crate::launch::{LaunchPlan, Transport};

/// Elements of a command that a person can still judge.
pub const MAX_ARGS: usize = 64;
/// Bytes of a prompt that a person can still judge.
pub const MAX_SHOWN_BYTES: usize = 4 * 1024;
/// Words that mean something else than a program at the start of a line in bash.
const RESERVED: [&str; 18] = [
    "if", "then", "else", "elif", "fi", "case", "esac", "for", "select", "while", "until", "do", "done", "in",
    "function", "time", "coproc", "exec",
];

/// The command line, or the address: printable ASCII, and different for different commands.
pub fn reach(plan: &LaunchPlan) -> String {
    match &plan.transport {
        Transport::Stdio { argv, .. } => command(argv),
        Transport::Http { url, .. } => {
            let address = match plan.source.credential_in_query {
                true => url.rfind(['?', '&']).map_or(url.as_str(), |at| &url[..at]),
                false => url,
            };
            address_of(address)
        }
        Transport::Rest(plan) => {
            let base = plan.reach_base().map_or_else(|| "its document's servers".to_owned(), address_of);
            match &plan.spec {
                Spec::Url(spec) => format!("{base} (spec: {})", address_of(spec)),
                Spec::File(_) | Spec::Inline(_) => base,
            }
        }
    }
}

fn command(argv: &[String]) -> String {
    let mut out = String::new();
    for (at, word) in argv.iter().enumerate() {
        if at > 0 {
            out.push(' ');
        } else if word.contains('=') || word.contains("://") || RESERVED.contains(&word.as_str()) {
            // Bare it would be an assignment or a keyword, or look like an address.
            out.push_str(&quoted(word));
            continue;
        }
        out.push_str(&quote(word));
    }
    out
}

/// One word as bash reads it: bare, in `'…'`, or in `$'…'` with everything outside printable ASCII escaped.
pub fn quote(word: &str) -> String {
    let bare = |b: u8| b.is_ascii_alphanumeric() || b"_@%+=:,./-".contains(&b);
    match !word.is_empty() && word.bytes().all(bare) {
        true => word.to_owned(),
        false => quoted(word),
    }
}

fn quoted(word: &str) -> String {
    if word.bytes().all(|b| (b' '..=b'~').contains(&b) && b != b'\'') {
        return format!("'{word}'");
    }
    let mut out = String::from("$'");
    for c in word.chars() {
        let written = match c {
            '\\' | '\'' => write!(out, "\\{c}"),
            ' '..='~' => write!(out, "{c}"),
            c if c.is_ascii() => write!(out, "\\x{:02x}", u32::from(c)),
            c if u32::from(c) <= 0xffff => write!(out, "\\u{:04x}", u32::from(c)),
            c => write!(out, "\\U{:08x}", u32::from(c)),
        };
        debug_assert!(written.is_ok(), "writing to a String cannot fail");
    }
    out.push('\'');
    out
}

/// The normalised address: scheme and host in lower case, no default port, a path. What is no address stays, made safe to print.
pub(super) fn address_of(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return crate::show::ascii(url) };
    let scheme = scheme.to_ascii_lowercase();
    let (authority, tail) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let authority = authority.to_ascii_lowercase();
    let default_port = match scheme.as_str() {
        "https" => ":443",
        "http" => ":80",
        _ => "",
    };
    // The colon of a port is behind the bracket of an IPv6 host.
    let host = match authority.strip_suffix(default_port) {
        Some(host) if !default_port.is_empty() && (!host.starts_with('[') || host.ends_with(']')) => host,
        Some(_) | None => &authority,
    };
    let slash = if tail.starts_with('/') { "" } else { "/" };
    crate::show::ascii(&format!("{scheme}://{host}{slash}{tail}"))
}

/// Why nobody could judge the command, if so.
pub(super) fn too_much(plan: &LaunchPlan) -> Option<String> {
    match &plan.transport {
        Transport::Stdio { argv, .. } if argv.len() > MAX_ARGS => Some(format!(
            "its command has {} elements, and a prompt shows at most {MAX_ARGS}; shorten it, or move the pack to your own",
            argv.len()
        )),
        Transport::Stdio { .. } | Transport::Http { .. } | Transport::Rest(_) => {
            let bytes = reach(plan).len();
            (bytes > MAX_SHOWN_BYTES).then(|| too_long(bytes))
        }
    }
}

/// The reason for what is too long to show.
pub(super) fn too_long(bytes: usize) -> String {
    format!(
        "there are {bytes} bytes to show, and a prompt shows at most {MAX_SHOWN_BYTES}; shorten it, or move the pack to your own"
    )
}
