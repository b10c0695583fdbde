//! `vancetope packs add`: a pack file from one command line, checked by the reader that will load it.

use serde_json::{Map, Value, json};
use vance_shared::launch::Origin;
use vance_shared::pack::{Parsed, parse_pack};

use super::args::AddArgs;
use super::shelf::{Now, paths, place, write};
use crate::cli::context::Context;
use crate::cli::failure::{EXIT_OK, Failure};
use crate::paths::shown;

/// Writes the file and says what comes next.
pub(super) fn add(context: &mut Context, args: &AddArgs) -> Result<u8, Failure> {
    if args.url.is_none() && args.command.is_empty() {
        return Err(Failure::Usage(form(args)));
    }
    let paths = paths(context)?;
    let origin = if args.project { Origin::Project } else { Origin::Global };
    let place = place(&paths, origin, &args.pack);
    let file = shown(&place.path);
    let in_the_way = match &place.now {
        Now::Free => None,
        Now::Same(_) => Some(format!("a pack '{}' is there already: {file}", args.pack)),
        Now::Off(off) => Some(format!("a pack '{}' is there, turned off: {}", args.pack, shown(off))),
        Now::Other(why) => Some(format!("{file} is there already and {why}")),
    };
    if let (Some(why), false) = (&in_the_way, args.force) {
        return Err(Failure::Usage(format!("{why}; --force writes {file} all the same")));
    }
    let pack = pack(args);
    let text = format!("{pack:#}\n");
    let Parsed { problems, warnings, .. } = parse_pack(&file, &text, origin);
    if !problems.is_empty() {
        // The lines are those of a file that nobody has seen.
        let said: Vec<&str> = problems.iter().map(|p| p.message.as_str()).collect();
        return Err(Failure::Usage(said.join("\n")));
    }
    write(&place.path, &text, args.force)
        .map_err(|error| Failure::File { file: file.clone(), why: error.to_string() })?;
    let screen = &mut context.screen;
    for warning in &warnings {
        screen.remark(&format!("warning: {}", warning.message));
    }
    if screen.json {
        screen.value(&json!({"file": file, "pack": pack, "warnings": warnings}))?;
        return Ok(EXIT_OK);
    }
    screen.line(&file)?;
    screen.remark(match args.project {
        true => "next: `vancetope tools list` asks for your consent, starts it and lists its tools",
        false => "next: `vancetope tools list` starts it and lists its tools",
    });
    Ok(EXIT_OK)
}

/// What is missing, as it would be typed.
fn form(args: &AddArgs) -> String {
    let name = &args.pack;
    format!(
        "what does pack '{name}' start or reach? Expected a command behind `--`: vancetope packs add {name} -- npx -y SERVER\n\
         or an address: vancetope packs add {name} --url https://HOST/mcp"
    )
}

/// The pack as the file holds it: only what was said.
fn pack(args: &AddArgs) -> Value {
    let map = |pairs: &[(String, String)]| -> Map<String, Value> {
        pairs.iter().map(|(name, value)| (name.clone(), Value::from(value.as_str()))).collect()
    };
    let mut parameters = Map::new();
    let mut put = |name: &str, value: Value| drop(parameters.insert(name.to_owned(), value));
    match &args.url {
        Some(url) => {
            put("transport", json!("http"));
            put("url", json!(url));
            if !args.header.is_empty() {
                put("headers", Value::Object(map(&args.header)));
            }
        }
        None => {
            put("transport", json!("stdio"));
            put("command", json!(args.command));
            if let Some(cwd) = &args.cwd {
                put("cwd", json!(cwd));
            }
            if !args.env.is_empty() {
                put("env", Value::Object(map(&args.env)));
            }
        }
    }
    let mut pack = Map::new();
    let mut put = |name: &str, value: Value| drop(pack.insert(name.to_owned(), value));
    put("name", json!(args.pack));
    put("type", json!("mcp_server"));
    if let Some(description) = &args.description {
        put("description", json!(description));
    }
    if !args.label.is_empty() {
        put("labels", json!(args.label));
    }
    put("parameters", Value::Object(parameters));
    Value::Object(pack)
}
