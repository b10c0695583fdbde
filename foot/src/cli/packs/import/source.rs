//! Where other programs keep their MCP servers, and the servers in such a file.

use std::path::{Path, PathBuf};

use jsonc_parser::ast;
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};
use serde_json::{Map, Number, Value};
use vance_shared::doc::MAX_DEPTH;

use crate::cli::packs::args::Program;

/// One server as the other program has it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Server {
    /// Its name there.
    pub(super) name: String,
    /// What stands there.
    pub(super) entry: Value,
}

/// A file's servers, and the questions that its `${input:…}` stand for.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Servers {
    pub(super) servers: Vec<Server>,
    /// Id and description.
    pub(super) inputs: Vec<(String, String)>,
}

/// All programs that are known.
pub(super) const ALL: [Program; 5] =
    [Program::ClaudeDesktop, Program::ClaudeCode, Program::Cursor, Program::Vscode, Program::Codex];

/// The word for `--from`.
pub(super) fn word(program: Program) -> &'static str {
    match program {
        Program::ClaudeDesktop => "claude-desktop",
        Program::ClaudeCode => "claude-code",
        Program::Cursor => "cursor",
        Program::Vscode => "vscode",
        Program::Codex => "codex",
    }
}

/// Where a program keeps its own file: the places that it looks at, in its order. `variable` reads the environment.
pub(super) fn places(program: Program, home: &Path, variable: impl Fn(&str) -> Option<PathBuf>) -> Vec<PathBuf> {
    let config = variable("XDG_CONFIG_HOME").unwrap_or_else(|| home.join(".config"));
    let mac = home.join("Library/Application Support");
    match program {
        Program::ClaudeDesktop => {
            [config, mac].map(|dir| dir.join("Claude/claude_desktop_config.json")).into_iter().collect()
        }
        Program::ClaudeCode => {
            vec![variable("CLAUDE_CONFIG_DIR").unwrap_or_else(|| home.to_owned()).join(".claude.json")]
        }
        Program::Cursor => vec![home.join(".cursor/mcp.json")],
        Program::Vscode => ["Code", "Code - Insiders", "VSCodium"]
            .iter()
            .flat_map(|name| [config.join(name), mac.join(name)])
            .map(|dir| dir.join("User/mcp.json"))
            .collect(),
        Program::Codex => vec![variable("CODEX_HOME").unwrap_or_else(|| home.join(".codex")).join("config.toml")],
    }
}

/// The same program's file in a working directory: it came with whatever was cloned there, so it is only taken by its name.
pub(super) fn of_project(program: Program) -> Option<&'static str> {
    match program {
        Program::ClaudeCode => Some(".mcp.json"),
        Program::Cursor => Some(".cursor/mcp.json"),
        Program::Vscode => Some(".vscode/mcp.json"),
        Program::Codex => Some(".codex/config.toml"),
        Program::ClaudeDesktop => None,
    }
}

/// Reads a file's text. `project`: whose part of a file with parts for each working directory counts.
pub(super) fn read(text: &str, is_toml: bool, project: &str) -> Result<Servers, String> {
    let root = if is_toml { toml(text)? } else { json(text)? };
    let sections = [
        root.get("mcpServers"),
        root.get("mcp_servers"),
        root.get("servers"),
        root.get("mcp").and_then(|mcp| mcp.get("servers")),
        root.get("projects").and_then(|all| all.get(project)).and_then(|own| own.get("mcpServers")),
    ];
    let mut servers: Vec<Server> = Vec::new();
    let mut found = false;
    for section in sections.into_iter().flatten().filter_map(Value::as_object) {
        found = true;
        for (name, entry) in section {
            // What is set for one working directory comes before what is set for all.
            servers.retain(|server| server.name != *name);
            servers.push(Server { name: name.clone(), entry: entry.clone() });
        }
    }
    if !found {
        return Err("holds no `mcpServers`, `servers` or `mcp_servers`".to_owned());
    }
    let inputs = root.get("inputs").or_else(|| root.get("mcp")?.get("inputs")).and_then(Value::as_array);
    let text = |input: &Value, key: &str| input.get(key).and_then(Value::as_str).map(str::to_owned);
    let inputs = inputs.into_iter().flatten();
    let inputs = inputs.filter_map(|i| Some((text(i, "id")?, text(i, "description").unwrap_or_default()))).collect();
    Ok(Servers { servers, inputs })
}

fn toml(text: &str) -> Result<Value, String> {
    toml::from_str::<toml::Table>(text)
        .map_err(|error| format!("not valid TOML: {}", error.message()))
        .and_then(|table| serde_json::to_value(table).map_err(|error| error.to_string()))
}

/// JSON as editors write it: with comments and commas that lead nowhere.
fn json(text: &str) -> Result<Value, String> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let parsed = parse_to_ast(text, &CollectOptions::default(), &ParseOptions::default())
        .map_err(|error| format!("not valid JSON: {error}"))?;
    parsed.value.map_or(Ok(Value::Null), |value| plain_value(&value, 1))
}

fn plain_value(value: &ast::Value<'_>, depth: usize) -> Result<Value, String> {
    if depth > MAX_DEPTH {
        return Err(format!("nested too deeply, expected at most {MAX_DEPTH} levels"));
    }
    Ok(match value {
        ast::Value::NullKeyword(_) => Value::Null,
        ast::Value::BooleanLit(lit) => Value::Bool(lit.value),
        ast::Value::StringLit(lit) => Value::String(lit.value.to_string()),
        ast::Value::NumberLit(lit) => match lit.value.parse::<i64>() {
            Ok(number) => number.into(),
            Err(_) => lit.value.parse().ok().and_then(Number::from_f64).map_or(Value::Null, Value::Number),
        },
        ast::Value::Array(array) => {
            Value::Array(array.elements.iter().map(|item| plain_value(item, depth + 1)).collect::<Result<_, _>>()?)
        }
        ast::Value::Object(object) => {
            let mut fields = Map::new();
            for property in &object.properties {
                fields.insert(property.name.as_str().to_owned(), plain_value(&property.value, depth + 1)?);
            }
            Value::Object(fields)
        }
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn names(text: &str, is_toml: bool) -> Vec<String> {
        read(text, is_toml, "/p").unwrap().servers.into_iter().map(|s| s.name).collect()
    }

    #[test]
    fn the_servers_of_each_programs_file_are_found() {
        for (text, is_toml, want) in [
            (r#"{"mcpServers": {"a": {}, "b": {}}}"#, false, vec!["a", "b"]),
            ("{\n// mine\n\"servers\": {\"a\": {},}, \"inputs\": []\n}", false, vec!["a"]),
            (r#"{"mcp": {"servers": {"a": {}}}}"#, false, vec!["a"]),
            (
                r#"{"mcpServers": {"a": {}}, "projects": {"/p": {"mcpServers": {"b": {}}}, "/q": {"mcpServers": {"c": {}}}}}"#,
                false,
                vec!["a", "b"],
            ),
            ("model = \"x\"\n[mcp_servers.a]\ncommand = \"npx\"\n[mcp_servers.a.env]\nK = \"v\"\n", true, vec!["a"]),
        ] {
            assert_eq!(names(text, is_toml), want, "{text}");
        }
        let twice =
            r#"{"mcpServers": {"a": {"command": "1"}}, "projects": {"/p": {"mcpServers": {"a": {"command": "2"}}}}}"#;
        assert_eq!(read(twice, false, "/p").unwrap().servers[0].entry["command"], "2");
        let inputs = r#"{"servers": {}, "inputs": [{"id": "key", "type": "promptString", "description": "The key"}]}"#;
        assert_eq!(read(inputs, false, "/p").unwrap().inputs, [("key".to_owned(), "The key".to_owned())]);
    }

    #[test]
    fn a_file_without_servers_or_with_mistakes_says_so() {
        for (text, is_toml, want) in [
            ("{}", false, "holds no `mcpServers`"),
            ("", false, "holds no `mcpServers`"),
            ("[]", false, "holds no `mcpServers`"),
            ("{\"mcpServers\": ", false, "not valid JSON"),
            ("a = ", true, "not valid TOML"),
        ] {
            let error = read(text, is_toml, "/p").unwrap_err();
            assert!(error.contains(want), "{text}: {error}");
        }
        let deep = format!("{}1{}", "[".repeat(40), "]".repeat(40));
        assert!(read(&deep, false, "/p").unwrap_err().contains("too deeply"));
    }

    #[test]
    fn a_programs_file_is_where_its_variables_say() {
        let none = |_: &str| None;
        let some = |name: &str| Some(PathBuf::from(format!("/{name}")));
        let first = |program, set: bool| {
            let home = Path::new("/h");
            let places = if set { places(program, home, some) } else { places(program, home, none) };
            places[0].to_str().unwrap().to_owned()
        };
        for (program, plain, moved) in [
            (
                Program::ClaudeDesktop,
                "/h/.config/Claude/claude_desktop_config.json",
                "/XDG_CONFIG_HOME/Claude/claude_desktop_config.json",
            ),
            (Program::ClaudeCode, "/h/.claude.json", "/CLAUDE_CONFIG_DIR/.claude.json"),
            (Program::Cursor, "/h/.cursor/mcp.json", "/h/.cursor/mcp.json"),
            (Program::Vscode, "/h/.config/Code/User/mcp.json", "/XDG_CONFIG_HOME/Code/User/mcp.json"),
            (Program::Codex, "/h/.codex/config.toml", "/CODEX_HOME/config.toml"),
        ] {
            assert_eq!((first(program, false).as_str(), first(program, true).as_str()), (plain, moved));
        }
    }
}
