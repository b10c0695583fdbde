//! Credentials in clear text: what looks like one, and where it should be instead. Pure; no value is ever said.

use serde_json::Value;
use vance_shared::names::PackName;

use super::variables::variable_of;

/// Parts of a name that say "credential".
const WORDS: [&str; 10] =
    ["TOKEN", "SECRET", "PASSWORD", "PASSWD", "API_KEY", "APIKEY", "CREDENTIAL", "PRIVATE_KEY", "ACCESS_KEY", "COOKIE"];
/// How well-known credentials begin.
const BEGINNINGS: [&str; 10] =
    ["sk-", "ghp_", "gho_", "github_pat_", "glpat-", "xoxb-", "xoxp-", "AKIA", "eyJhbGciOi", "npm_"];

/// One remark for each credential that stands in the pack as it is.
pub(super) fn remarks(name: &PackName, pack: &Value) -> Vec<String> {
    let parameters = &pack["parameters"];
    let mut remarks = Vec::new();
    for (key, value) in parameters["env"].as_object().into_iter().flatten() {
        if is_clear(key, value) {
            let variable = variable_of(key);
            remarks.push(moved(&format!("`{key}` in env"), &format!("\"{key}\": \"${{env:{variable}}}\""), &variable));
        }
    }
    for (key, value) in parameters["headers"].as_object().into_iter().flatten() {
        let is_login = key.eq_ignore_ascii_case("authorization") && is_text(value);
        if is_login || is_clear(key, value) {
            let variable = variable_of(&format!("{name}_{key}"));
            remarks.push(moved(&format!("header {key}"), &format!("\"{key}\": \"${{env:{variable}}}\""), &variable));
        }
    }
    let words: Vec<&str> = parameters["command"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for (at, word) in words.iter().enumerate().skip(1) {
        let before = words[at - 1];
        let named = match word.split_once('=') {
            Some((flag, value)) => flag.starts_with('-') && is_name(flag) && !value.is_empty(),
            None => before.starts_with('-') && !before.contains('=') && is_name(before) && !word.starts_with('-'),
        };
        if named || begins(word) {
            remarks.push(format!(
                "(!) argument {at} looks like a credential, and every program of yours can read a command line; if the server takes it from a variable, pass it in `env` as ${{env:NAME}}"
            ));
        }
    }
    let query = parameters["url"].as_str().and_then(|url| url.split_once('?')).map(|(_, query)| query);
    for part in query.into_iter().flat_map(|query| query.split('&')) {
        if let Some((key, value)) = part.split_once('=')
            && !value.is_empty()
            && (is_name(key) || key.eq_ignore_ascii_case("key") || begins(value))
        {
            remarks.push(format!(
                "(!) `{key}` in the address looks like a credential; write it as \"auth\": {{\"type\": \"apiKey\", \"queryParamName\": \"{key}\", \"value\": \"${{env:NAME}}\"}}"
            ));
        }
    }
    remarks
}

fn moved(what: &str, entry: &str, variable: &str) -> String {
    format!(
        "(!) {what} looks like a credential and stands there in clear text; to move it: export {variable} where your Foot starts, and write {entry}"
    )
}

fn is_clear(key: &str, value: &Value) -> bool {
    is_text(value) && (is_name(key) || value.as_str().is_some_and(begins))
}

/// A text that is there and names no variable.
fn is_text(value: &Value) -> bool {
    value.as_str().is_some_and(|text| !text.is_empty() && !text.contains("${env:"))
}

fn is_name(name: &str) -> bool {
    let name = name.trim_start_matches('-').to_ascii_uppercase().replace('-', "_");
    WORDS.iter().any(|word| name.contains(word)) || name.ends_with("_PAT") || name.ends_with("_KEY")
}

fn begins(text: &str) -> bool {
    let text = text.strip_prefix("Bearer ").unwrap_or(text);
    BEGINNINGS.iter().any(|beginning| text.starts_with(beginning) && text.len() >= beginning.len() + 8)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    #[test]
    fn a_credential_in_clear_text_is_pointed_out_and_never_said() {
        for (parameters, want) in [
            (json!({"env": {"GITHUB_TOKEN": "hush"}}), "write \"GITHUB_TOKEN\": \"${env:GITHUB_TOKEN}\""),
            (json!({"env": {"X": "ghp_hush1234567"}}), "export X"),
            (json!({"headers": {"Authorization": "Bearer hush"}}), "export A_AUTHORIZATION"),
            (json!({"headers": {"X-Api-Key": "hush"}}), "export A_X_API_KEY"),
            (json!({"command": ["x", "--api-key", "hush"]}), "argument 2"),
            (json!({"command": ["x", "--token=hush"]}), "argument 1"),
            (json!({"command": ["x", "sk-hush12345678"]}), "argument 1"),
            (json!({"url": "https://x/mcp?api_key=hush"}), "queryParamName"),
        ] {
            let said = remarks(&PackName::parse("a").unwrap(), &json!({ "parameters": parameters }));
            assert!(said.len() == 1 && said[0].contains(want) && !said[0].contains("hush"), "{parameters}: {said:?}");
        }
    }

    #[test]
    fn what_is_none_or_stands_elsewhere_already_is_left_in_peace() {
        for parameters in [
            json!({"env": {"GITHUB_TOKEN": "${env:GITHUB_TOKEN}", "DEBUG": "1", "API_KEY": ""}}),
            json!({"headers": {"Authorization": "Bearer ${env:X}", "Accept-Language": "de"}}),
            json!({"command": ["npx", "-y", "token-server", "--port", "1", "--token-file=x", "--no-token"]}),
            json!({"url": "https://x/mcp?tenant=a"}),
        ] {
            let said = remarks(&PackName::parse("a").unwrap(), &json!({ "parameters": parameters }));
            let file_flag = parameters["command"].is_array();
            assert!(said.is_empty() || file_flag, "{parameters}: {said:?}");
        }
    }
}
