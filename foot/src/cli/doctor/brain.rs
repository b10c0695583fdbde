//! The Brain: is it there, is it one of ours, does it know us, what time is it there.

use std::time::SystemTime;

use chrono::DateTime;
use reqwest::Url;
use serde_json::Value;
use vance_shared::show::plain;
use vance_shared::wire::PROTOCOL;

use super::Finding;
use crate::api::{ApiError, Brain, Ready, is_loopback, tls_cure};
use crate::cli::access::is_encrypted_or_here;
use crate::cli::context::Context;
use crate::cli::failure::Failure;

/// Clocks that differ by more confuse certificates, logins and whoever reads two logs side by side. The header has whole seconds.
const MAX_SKEW_S: u64 = 30;

/// Looks.
pub(super) async fn look(context: &Context) -> Result<Vec<Finding>, Failure> {
    let url = context.general.brain.clone();
    let mut findings = Vec::new();
    if !is_encrypted_or_here(&url) {
        let fix = "give it an https address (a TLS proxy), or tunnel: ssh -L 9990:127.0.0.1:9990 HOST, then --brain http://127.0.0.1:9990";
        findings.push(Finding::fix("brain", format!("{url} is not encrypted: everybody on the way reads along"), fix));
    }
    let token = context.token()?;
    let brain = Brain::new(url.clone(), token.clone())?;
    let ready = match brain.ready().await {
        Ok(ready) => ready,
        Err(error) => {
            findings.push(from_where(unreachable(&error, &url), &error, context));
            return Ok(findings);
        }
    };
    findings.extend(skew(&ready, SystemTime::now()));
    findings.extend(release(&ready));
    findings.extend(files(&ready));
    if token.is_none() {
        findings.push(Finding::fix(
            "token",
            format!("{} answers, but there is no token for it", brain.url()),
            how_to_log_in(&url),
        ));
        return Ok(findings);
    }
    findings.push(match brain.sessions().await {
        Ok(_) => Finding::ok("brain", format!("{} answers and knows the token", brain.url())),
        Err(error @ ApiError::Refused { status: 401, .. }) => {
            let what = match &context.environment.token {
                Some(_) => "the token of VANCE_TOKEN",
                None => "the token that is stored for it",
            };
            let what = format!("{} does not know {what}", brain.url());
            from_where(Finding::fix("token", what, how_to_log_in(&url)), &error, context)
        }
        Err(ApiError::Refused { status: 403, .. }) => {
            Finding::note("token", "the token lets this machine offer its tools, but not submit or list tasks")
        }
        Err(error) => from_where(unreachable(&error, &url), &error, context),
    });
    Ok(findings)
}

/// What a variable says comes first, so nothing else helps as long as it is set.
fn from_where(finding: Finding, error: &ApiError, context: &Context) -> Finding {
    let Some(hint) = context.environment.to_unset(error) else { return finding };
    let fix = finding.fix.iter().fold(hint.to_owned(), |hint, fix| format!("{hint}   (or: {fix})"));
    Finding { fix: Some(fix), ..finding }
}

fn how_to_log_in(url: &Url) -> String {
    let shown = url.as_str().trim_end_matches('/');
    match is_loopback(url) {
        true => format!("use the home of that Brain (VANCE_HOME), or: vancetope login {shown}"),
        false => format!("vancetope login {shown}"),
    }
}

/// What it means that no answer came, or a strange one.
fn unreachable(error: &ApiError, url: &Url) -> Finding {
    let shown = url.as_str().trim_end_matches('/');
    match error {
        ApiError::Unreachable { why, .. } | ApiError::Broken { why, .. } => {
            Finding::fix("brain", format!("{shown}: {why}"), cure(why, url))
        }
        ApiError::NoTrust { why, .. } => {
            Finding::fix("brain", format!("{shown} answers, but TLS fails: {why}"), tls_cure(why))
        }
        ApiError::Refused { status: 503, message, .. } => {
            Finding::fix("brain", format!("{shown}: {message}"), "look at the log of vance-brain")
        }
        ApiError::Refused { status: status @ 300..=399, .. } => Finding::fix(
            "brain",
            format!("{shown} answers with a redirect (HTTP {status})"),
            "use the address that it leads to: vancetope login URL",
        ),
        ApiError::Refused { status: 400, message, .. } if message.contains("speaks TLS") => {
            let fix = format!("vancetope login {}", shown.replacen("http://", "https://", 1));
            Finding::fix("brain", format!("{shown}: {message}"), fix)
        }
        ApiError::Refused { status, .. } => Finding::fix(
            "brain",
            format!("something answers at {shown}, but it is no Brain (HTTP {status})"),
            "is the address right? vance-brain prints it when it starts",
        ),
        ApiError::Strange { .. } => {
            let fix = "is the address right? If it is, use the same release of vance-brain and vancetope";
            Finding::fix("brain", error.to_string(), fix)
        }
        ApiError::Setup(_) => Finding::fix("brain", error.to_string(), "is SSL_CERT_FILE right?"),
    }
}

/// What to do about a connection that does not come about, by the words of the operating system and of TLS.
fn cure(why: &str, url: &Url) -> String {
    let why = why.to_ascii_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| why.contains(word));
    if has(&["lookup", "resolve", "name or service", "dns"]) {
        return "check the host name, and whether this machine is online".to_owned();
    }
    if has(&["refused"]) && is_loopback(url) {
        return "vance-brain serve   (or name another Brain: vancetope login URL)".to_owned();
    }
    if has(&["refused"]) {
        return "is vance-brain running there, and is the port right?".to_owned();
    }
    if has(&["in time", "timed out", "unreachable", "no route"]) {
        return "check the network, a VPN or a firewall on the way".to_owned();
    }
    "check the address; vance-brain prints it when it starts".to_owned()
}

fn skew(ready: &Ready, now: SystemTime) -> Option<Finding> {
    let there = SystemTime::from(DateTime::parse_from_rfc2822(ready.date.as_deref()?).ok()?);
    let (seconds, word) = match there.duration_since(now) {
        Ok(ahead) => (ahead.as_secs(), "behind"),
        Err(error) => (error.duration().as_secs(), "ahead of"),
    };
    (seconds > MAX_SKEW_S).then(|| {
        let what = format!("this machine's clock is {seconds} s {word} the Brain's");
        Finding::fix("clock", what, "sudo timedatectl set-ntp true   (on whichever of the two is wrong)")
    })
}

/// Does it speak the wire's language? An old Brain does not say.
/// What is wrong in the Brain's own files, and which of its packs do not run.
fn files(ready: &Ready) -> Vec<Finding> {
    let details = &ready.body["details"];
    let problems = details["files"]["problems"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let bad = problems.map(|problem| {
        let what = format!("a file of the Brain is not taken: {}", plain(problem));
        Finding::fix("brain", what, "mend it (`vance-brain check` there); what it said before still counts")
    });
    let restart = (details["files"]["needs_restart"] == true)
        .then(|| Finding::note("brain", "brain.yaml has changed; the Brain takes it over when it is started again"));
    let failed = details["packs"].as_object().into_iter().flatten().filter(|(_, pack)| pack["state"] == "failed");
    let failed = failed.map(|(_, pack)| Finding::note("brain", plain(pack["reason"].as_str().unwrap_or_default())));
    bad.chain(restart).chain(failed).collect()
}

fn release(ready: &Ready) -> Option<Finding> {
    let details = &ready.body["details"];
    let protocols: Vec<u64> = details["protocol"].as_array()?.iter().filter_map(Value::as_u64).collect();
    let theirs = details["version"].as_str().unwrap_or("unknown");
    let ours = env!("CARGO_PKG_VERSION");
    if !protocols.contains(&u64::from(PROTOCOL)) {
        let what = format!(
            "the Brain (release {theirs}) speaks protocol {protocols:?}, this vancetope (release {ours}) speaks {PROTOCOL}"
        );
        return Some(Finding::fix("brain", what, "use the same release of both"));
    }
    (theirs != ours).then(|| {
        Finding::note(
            "brain",
            format!("the Brain is release {theirs}, this vancetope {ours}; they understand each other"),
        )
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::cli::doctor::Level;

    #[test]
    fn each_fault_of_a_connection_has_its_advice() {
        let (here, there) = (Url::parse("http://127.0.0.1:1").unwrap(), Url::parse("https://b.example").unwrap());
        for (why, url, want) in [
            ("Connection refused (os error 111)", &here, "vance-brain serve"),
            ("Connection refused (os error 111)", &there, "is vance-brain running there"),
            ("no answer in time", &there, "firewall"),
            ("failed to lookup address information: Name or service not known", &there, "host name"),
            ("Network is unreachable (os error 101)", &there, "network"),
            ("something new", &there, "check the address"),
        ] {
            assert!(cure(why, url).contains(want), "{why}: {}", cure(why, url));
        }
    }

    #[test]
    fn clocks_that_differ_are_said_with_which_one_is_ahead() {
        let there = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        let date = "Sun, 09 Sep 2001 01:46:40 GMT";
        let ready = |date: Option<&str>| Ready { date: date.map(str::to_owned), body: json!({}) };
        let s = Duration::from_secs;
        for (date, now, want) in [
            (Some(date), there, None),
            (Some(date), there + s(20), None),
            (Some(date), there - s(20), None),
            (Some(date), there + s(90), Some("90 s ahead of")),
            (Some(date), there - s(90), Some("90 s behind")),
            (Some("yesterday"), there, None),
            (None, there, None),
        ] {
            let found = skew(&ready(date), now).map(|finding| finding.message);
            assert_eq!(found.is_some(), want.is_some(), "{found:?}");
            assert!(found.unwrap_or_default().contains(want.unwrap_or_default()));
        }
    }

    #[test]
    fn what_is_wrong_in_the_brains_files_is_told() {
        let details = json!({
            "files": {"problems": ["/x/tools.yaml:2: `location` is 'moon'"], "needs_restart": true},
            "packs": {"good": {"state": "up"}, "bad": {"state": "failed", "reason": "server pack 'bad' failed: it ended"}},
        });
        let found = files(&Ready { date: None, body: json!({"details": details}) });
        let said: Vec<(Level, bool)> = found
            .iter()
            .zip(["tools.yaml:2", "started again", "'bad' failed"])
            .map(|(finding, part)| (finding.level, finding.message.contains(part)))
            .collect();
        assert_eq!(said, [(Level::Fix, true), (Level::Note, true), (Level::Note, true)]);
        assert!(files(&Ready { date: None, body: json!({}) }).is_empty(), "a Brain of an earlier release says nothing");
    }

    #[test]
    fn a_brain_of_another_protocol_is_said_and_one_of_another_release_is_only_noted() {
        let body = |protocol: Value, version: &str| Ready {
            date: None,
            body: json!({"details": {"protocol": protocol, "version": version}}),
        };
        for (ready, want) in [
            (body(json!([PROTOCOL]), env!("CARGO_PKG_VERSION")), None),
            (body(json!([PROTOCOL]), "99.0.0"), Some(Level::Note)),
            (body(json!([PROTOCOL + 1]), "99.0.0"), Some(Level::Fix)),
            (Ready { date: None, body: json!({}) }, None),
        ] {
            assert_eq!(release(&ready).map(|finding| finding.level), want);
        }
    }
}
