//! `${…}` as other programs write it, in our words: `${env:NAME}` where a pack expands it, the text itself where it is known, else a reason.

/// What the translation may know.
pub(super) struct Scene<'a> {
    /// The user's home directory.
    pub(super) home: Option<&'a str>,
    /// Descriptions of `${input:…}`, by id.
    pub(super) inputs: &'a [(String, String)],
    /// True if the environment has this variable.
    pub(super) is_set: &'a dyn Fn(&str) -> bool,
}

/// What a text of a pack can hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// `${env:NAME}`: the value of a variable or of a header.
    Value,
    /// Nothing that is expanded: command, arguments, address, folder.
    Literal,
}

/// A text in our words.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Said {
    pub(super) text: String,
    /// It names the project's folder as `.`: the server must start there.
    pub(super) in_project: bool,
    /// What a person should know.
    pub(super) remarks: Vec<String>,
}

/// Translates a text; `what` names it in remarks and reasons.
pub(super) fn translate(text: &str, what: &str, place: Place, scene: &Scene<'_>) -> Result<Said, String> {
    let mut said = Said::default();
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let Some(end) = rest[at..].find('}').map(|end| at + end) else { break };
        said.text.push_str(&rest[..at]);
        one(&rest[at + 2..end], what, place, scene, &mut said)?;
        rest = &rest[end + 1..];
    }
    said.text.push_str(rest);
    let bare = |inner: Option<&str>| inner.is_some_and(is_variable);
    if bare(text.strip_prefix('$')) || bare(text.strip_prefix('%').and_then(|t| t.strip_suffix('%'))) {
        let name = text.trim_matches(['$', '%']);
        said.remarks.push(format!("{what} is {text} as it stands; write ${{env:{name}}} if the variable is meant"));
    }
    Ok(said)
}

fn one(inner: &str, what: &str, place: Place, scene: &Scene<'_>, said: &mut Said) -> Result<(), String> {
    let whole = format!("${{{inner}}}");
    match inner {
        "userHome" | "HOME" | "env:HOME" if scene.home.is_some() => {
            said.text.push_str(scene.home.unwrap_or_default());
            return Ok(());
        }
        "pathSeparator" | "/" => {
            said.text.push('/');
            return Ok(());
        }
        "workspaceFolder" | "workspaceRoot" => return project(said),
        _ if inner.starts_with("workspaceFolder:") || inner.split(":-").next() == Some("CLAUDE_PROJECT_DIR") => {
            return project(said);
        }
        _ => {}
    }
    if let Some(id) = inner.strip_prefix("input:") {
        let name = variable_of(id);
        let asks = scene.inputs.iter().find(|(known, _)| known == id).map(|(_, text)| text.as_str());
        let asks = asks.filter(|text| !text.is_empty()).map(|text| format!(" ({text})")).unwrap_or_default();
        if place == Place::Literal {
            return Err(format!("{what} holds {whole}, which asks at each start{asks}; {ADVICE}"));
        }
        said.remarks.push(format!(
            "{what} was asked for{asks}; here it comes from the variable {name}: export it where your Foot starts"
        ));
        said.text.push_str(&format!("${{env:{name}}}"));
        return Ok(());
    }
    let (name, default) = match inner.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inner, None),
    };
    let name = name.strip_prefix("env:").unwrap_or(name);
    if !is_variable(name) {
        return Err(format!("{what} holds {whole}, which only the other program knows"));
    }
    if name.starts_with("VANCE_") {
        return Err(format!("{what} names {name}, but VANCE_* is not available to packs"));
    }
    let known = place == Place::Value && (default.is_none() || (scene.is_set)(name));
    match default {
        _ if known => said.text.push_str(&format!("${{env:{name}}}")),
        Some(default) => {
            said.remarks.push(format!("{what} takes the default of {whole}; the variable is not read"));
            said.text.push_str(default);
        }
        None => return Err(format!("{what} holds {whole}, which a pack does not expand there; {ADVICE}")),
    }
    Ok(())
}

const ADVICE: &str = "write the value itself, or pass it in `env` if the server reads it from there";

fn project(said: &mut Said) -> Result<(), String> {
    said.text.push('.');
    said.in_project = true;
    Ok(())
}

/// `github-token` → `GITHUB_TOKEN`.
pub(super) fn variable_of(id: &str) -> String {
    let name: String =
        id.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' }).collect();
    let name = if name.starts_with(|c: char| c.is_ascii_digit()) { format!("_{name}") } else { name };
    if name.starts_with("VANCE_") { format!("MY_{name}") } else { name }
}

/// A name that an environment variable can have.
pub(super) fn is_variable(name: &str) -> bool {
    !name.is_empty()
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        && !name.starts_with(|c: char| c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scene<'a>(inputs: &'a [(String, String)]) -> Scene<'a> {
        Scene { home: Some("/h"), inputs, is_set: &|name| name == "SET" }
    }

    #[test]
    fn what_can_be_said_in_our_words_is_and_what_cannot_has_its_reason() {
        let inputs = [("my-key".to_owned(), "The key".to_owned())];
        for (text, place, want) in [
            ("plain $ {x} ${", Place::Literal, Ok("plain $ {x} ${")),
            ("${A}", Place::Value, Ok("${env:A}")),
            ("Bearer ${env:A}!", Place::Value, Ok("Bearer ${env:A}!")),
            ("${A:-b}", Place::Value, Ok("b")),
            ("${SET:-b}", Place::Value, Ok("${env:SET}")),
            ("${SET:-b}/x", Place::Literal, Ok("b/x")),
            ("${A}", Place::Literal, Err("does not expand")),
            ("${env:A}", Place::Literal, Err("does not expand")),
            ("${HOME}/x", Place::Literal, Ok("/h/x")),
            ("${userHome}${/}x", Place::Literal, Ok("/h/x")),
            ("${workspaceFolder}/x", Place::Literal, Ok("./x")),
            ("${workspaceFolder:api}", Place::Value, Ok(".")),
            ("${CLAUDE_PROJECT_DIR:-.}/x", Place::Literal, Ok("./x")),
            ("${input:my-key}", Place::Value, Ok("${env:MY_KEY}")),
            ("${input:my-key}", Place::Literal, Err("(The key)")),
            ("${config:a.b}", Place::Value, Err("only the other program")),
            ("${VANCE_TOKEN}", Place::Value, Err("VANCE_*")),
        ] {
            let got = translate(text, "x", place, &scene(&inputs));
            match (got, want) {
                (Ok(said), Ok(want)) => assert_eq!(said.text, want, "{text}"),
                (Err(why), Err(want)) => assert!(why.contains(want), "{text}: {why}"),
                (got, want) => panic!("{text}: {got:?}, not {want:?}"),
            }
        }
    }

    #[test]
    fn a_variable_in_the_form_of_a_shell_is_pointed_out() {
        for (text, remarks) in [("$TOKEN", 1), ("%TOKEN%", 1), ("US$", 0), ("100%", 0), ("$1", 0)] {
            let said = translate(text, "x", Place::Value, &scene(&[]));
            assert_eq!(said.map(|s| s.remarks.len()), Ok(remarks), "{text}");
        }
    }

    #[test]
    fn an_input_has_a_variable_that_can_be_exported() {
        for (id, want) in [("github-token", "GITHUB_TOKEN"), ("1st", "_1ST"), ("vance_x", "MY_VANCE_X")] {
            assert_eq!(variable_of(id), want);
            assert!(is_variable(&variable_of(id)));
        }
    }
}
