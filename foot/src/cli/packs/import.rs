//! `vancetope packs import`: MCP servers of other programs as packs of the user's own. Everything that would be written is shown first.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use vance_shared::launch::Origin;
use vance_shared::show::{plain, quoted};

use super::args::{ImportArgs, Program};
use super::compare::compare;
use super::shelf::{Now, paths, place, write};
use crate::cli::ask::{self, Reply};
use crate::cli::context::Context;
use crate::cli::failure::{EXIT_FAILED, EXIT_OK, Failure};
use crate::paths::{Paths, shown};

mod entry;
mod secrets;
mod source;
mod variables;
use entry::{Taken, mapped, take};
use source::Servers;
use variables::Scene;

/// Largest file, in bytes: some programs keep years of history beside the servers.
const MAX_FILE_BYTES: u64 = 64 * 1024 * 1024;
/// Servers of one file: a folder holds as many packs.
const MAX_SERVERS: usize = 64;

/// What becomes of one server.
struct Item {
    /// Its name there.
    from: String,
    step: Step,
}

enum Step {
    /// It is written.
    Write { taken: Taken, file: PathBuf, text: String, replaces: Option<Vec<String>> },
    /// The same pack is there already.
    Unchanged { taken: Taken, file: PathBuf },
    /// Something else is there and stays.
    Keep { taken: Taken, file: PathBuf, why: String, changes: Vec<String> },
    /// It cannot be taken over.
    Refuse { why: String },
}

/// Imports, or lists what could be.
pub(super) async fn import(context: &mut Context, args: &ImportArgs) -> Result<u8, Failure> {
    let Some(file) = file(context, args)? else { return sources(context) };
    let paths = paths(context)?;
    let servers = read(&file, &paths)?;
    let items = plan(context, args, &paths, servers)?;
    if !context.screen.json {
        show(context, &file, &items)?;
    }
    let writes = items.iter().filter(|item| matches!(item.step, Step::Write { .. })).count();
    let go = writes > 0 && !args.dry_run && (args.yes || agreed(context, writes, &paths).await?);
    if go {
        for item in &items {
            if let Step::Write { file, text, replaces, .. } = &item.step {
                let fault = |error: std::io::Error| Failure::File { file: shown(file), why: error.to_string() };
                write(file, text, replaces.is_some()).map_err(fault)?;
            }
        }
    }
    let screen = &mut context.screen;
    if screen.json {
        let packs: Vec<Value> = items.iter().map(to_json).collect();
        screen.value(&json!({"source": shown(&file), "packs": packs, "written": go}))?;
    } else if go {
        screen.line(&format!("wrote {writes} pack(s) to {}", shown(&paths.global_packs)))?;
        screen.remark("next: `vancetope tools list` starts them and lists their tools");
    } else if writes > 0 {
        screen.line("nothing was written")?;
    }
    let nothing_left = !items.is_empty() && items.iter().all(|item| matches!(item.step, Step::Refuse { .. }));
    Ok(if nothing_left { EXIT_FAILED } else { EXIT_OK })
}

/// The file to read; none if nothing was named.
fn file(context: &Context, args: &ImportArgs) -> Result<Option<PathBuf>, Failure> {
    if let Some(file) = &args.file {
        return Ok(Some(file.clone()));
    }
    let Some(program) = args.from else { return Ok(None) };
    let places = places(context, program)?;
    match places.iter().find(|path| path.is_file()) {
        Some(path) => Ok(Some(path.clone())),
        None => {
            let looked: Vec<String> = places.iter().map(|path| shown(path)).collect();
            let what = format!("{} has no file here; looked at {}", source::word(program), looked.join(", "));
            let hint = source::of_project(program).filter(|name| Path::new(name).is_file());
            Err(Failure::Usage(match hint {
                Some(name) => format!("{what}; this folder's own is taken by its name: vancetope packs import {name}"),
                None => what,
            }))
        }
    }
}

fn places(context: &Context, program: Program) -> Result<Vec<PathBuf>, Failure> {
    let none = || Failure::Usage("there is no home directory: name the FILE".to_owned());
    let home = context.environment.user_home.clone().ok_or_else(none)?;
    let variable = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    Ok(source::places(program, &home, variable))
}

/// What other programs have here.
fn sources(context: &mut Context) -> Result<u8, Failure> {
    let paths = paths(context)?;
    let mut found = Vec::new();
    for program in source::ALL {
        let word = source::word(program);
        for file in places(context, program)?.into_iter().filter(|path| path.is_file()) {
            found.push((word, format!("--from {word}"), read(&file, &paths), file));
        }
        if let Some(name) = source::of_project(program).filter(|name| Path::new(name).is_file()) {
            found.push((word, name.to_owned(), read(Path::new(name), &paths), PathBuf::from(name)));
        }
    }
    let screen = &mut context.screen;
    if screen.json {
        let rows: Vec<Value> = found
            .iter()
            .map(|(word, how, servers, file)| {
                let names: Vec<&str> =
                    servers.iter().flat_map(|s| &s.servers).map(|server| server.name.as_str()).collect();
                let problem = servers.as_ref().err().map(ToString::to_string);
                json!({"program": word, "file": shown(file), "import": how, "servers": names, "problem": problem})
            })
            .collect();
        screen.value(&json!({ "sources": rows }))?;
        return Ok(EXIT_OK);
    }
    let rows = found.into_iter().map(|(word, how, servers, file)| {
        let servers = match servers {
            Ok(servers) => servers.servers.iter().map(|s| s.name.as_str()).collect::<Vec<_>>().join(", "),
            Err(why) => why.to_string(),
        };
        [word.to_owned(), shown(&file), servers, format!("vancetope packs import {how}")]
    });
    screen.table(
        ["PROGRAM", "FILE", "SERVERS", "TO TAKE THEM"],
        rows.collect(),
        "no file of a program that is known; name the FILE",
    )?;
    Ok(EXIT_OK)
}

fn read(file: &Path, paths: &Paths) -> Result<Servers, Failure> {
    let fault = |why: String| Failure::File { file: shown(file), why };
    let meta = file.metadata().map_err(|error| fault(error.to_string()))?;
    if !meta.is_file() {
        return Err(fault("not a regular file".to_owned()));
    }
    let mut text = String::new();
    let opened = std::fs::File::open(file).and_then(|open| open.take(MAX_FILE_BYTES + 1).read_to_string(&mut text));
    let bytes = opened.map_err(|error| fault(error.to_string()))?;
    if bytes as u64 > MAX_FILE_BYTES {
        return Err(fault(format!("larger than {MAX_FILE_BYTES} bytes")));
    }
    let is_toml = file.extension().is_some_and(|e| e == "toml");
    source::read(&text, is_toml, &paths.project.to_string_lossy()).map_err(fault)
}

/// Decides about each server.
fn plan(context: &Context, args: &ImportArgs, paths: &Paths, servers: Servers) -> Result<Vec<Item>, Failure> {
    let home = context.environment.user_home.as_deref().and_then(Path::to_str);
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let scene = Scene { home, inputs: &servers.inputs, is_set: &is_set };
    // A name that is misspelt must not look like one that was taken.
    let is = |only: &str, server: &str| only == server || mapped(server).is_some_and(|here| here.as_str() == only);
    let no_such = |only: &&String| !servers.servers.iter().any(|server| is(only, &server.name));
    if let Some(only) = args.only.iter().find(no_such) {
        let names: Vec<String> = servers.servers.iter().map(|server| quoted(&server.name, 80)).collect();
        if !names.is_empty() {
            let why = format!("no server of the name {}; the file has {}", quoted(only, 80), names.join(", "));
            return Err(Failure::Usage(why));
        }
    }
    let wanted = |name: &str| args.only.is_empty() || args.only.iter().any(|only| is(only, name));
    let chosen: Vec<_> = servers.servers.iter().filter(|server| wanted(&server.name)).collect();
    if chosen.is_empty() {
        return Err(Failure::Usage("the file names no servers".to_owned()));
    }
    if chosen.len() > MAX_SERVERS {
        let why =
            format!("{} servers, at most {MAX_SERVERS} are taken at a time; choose with --only NAME", chosen.len());
        return Err(Failure::Usage(why));
    }
    let mut names = Vec::new();
    let mut items = Vec::new();
    for server in chosen {
        let taken = match mapped(&server.name) {
            None => Err("its name holds no letter or digit that a pack's name can have".to_owned()),
            Some(name) if names.contains(&name) => {
                Err(format!("another server there becomes '{name}', too; give one of them another name"))
            }
            Some(name) => {
                names.push(name.clone());
                take(server, &name, &scene)
            }
        };
        let step = match taken {
            Ok(taken) => step(taken, args.force, paths)?,
            Err(why) => Step::Refuse { why },
        };
        items.push(Item { from: server.name.clone(), step });
    }
    Ok(items)
}

fn step(taken: Taken, force: bool, paths: &Paths) -> Result<Step, Failure> {
    let place = place(paths, Origin::Global, &taken.name);
    let (file, text) = (place.path, format!("{:#}\n", taken.pack));
    let (why, changes) = match place.now {
        Now::Free => return Ok(Step::Write { taken, file, text, replaces: None }),
        Now::Same(old) => {
            let old = serde_json::from_str::<Value>(&old).unwrap_or_default();
            if old == taken.pack {
                return Ok(Step::Unchanged { taken, file });
            }
            ("is there already and differs".to_owned(), compare(&old, &taken.pack))
        }
        Now::Off(off) => (format!("is there, turned off: {}", shown(&off)), Vec::new()),
        Now::Other(why) => (format!("is there already and {why}"), Vec::new()),
    };
    Ok(match force {
        true => Step::Write { taken, file, text, replaces: Some(changes) },
        false => Step::Keep { taken, file, why, changes },
    })
}

fn show(context: &mut Context, source: &Path, items: &[Item]) -> Result<(), Failure> {
    let screen = &mut context.screen;
    screen.line(&format!("from {}", shown(source)))?;
    for item in items {
        let from = plain(&item.from);
        let (head, body, remarks) = match &item.step {
            Step::Write { taken, file, text, replaces } => {
                let word = if replaces.is_some() { "replaces" } else { "writes" };
                let mut body: Vec<String> = text.lines().map(plain).collect();
                body.extend(replaces.iter().flatten().cloned());
                (format!("{from}: {word} {}", shown(file)), body, &taken.remarks[..])
            }
            Step::Unchanged { taken, file } => {
                (format!("{from}: is there already: {}", shown(file)), Vec::new(), &taken.remarks[..])
            }
            Step::Keep { taken, file, why, changes } => {
                let head = format!("{from}: stays as it is, {} {why} (--force replaces it)", shown(file));
                (head, changes.clone(), &taken.remarks[..])
            }
            Step::Refuse { why } => (format!("{from}: cannot be taken over: {}", plain(why)), Vec::new(), &[][..]),
        };
        screen.line("")?;
        screen.line(&head)?;
        for line in body {
            screen.line(&format!("  {line}"))?;
        }
        for remark in remarks {
            screen.line(&format!("  note: {}", plain(remark)))?;
        }
    }
    Ok(screen.line("")?)
}

fn to_json(item: &Item) -> Value {
    let of = |action: &str, taken: &Taken, file: &Path| {
        json!({
            "from": item.from, "name": taken.name, "action": action, "file": shown(file), "pack": taken.pack,
            "remarks": taken.remarks,
        })
    };
    match &item.step {
        Step::Write { taken, file, replaces: None, .. } => of("write", taken, file),
        Step::Write { taken, file, replaces: Some(changes), .. } => {
            let mut said = of("replace", taken, file);
            said["changes"] = json!(changes);
            said
        }
        Step::Unchanged { taken, file } => of("unchanged", taken, file),
        Step::Keep { taken, file, why, changes } => {
            let mut said = of("keep", taken, file);
            (said["reason"], said["changes"]) = (json!(why), json!(changes));
            said
        }
        Step::Refuse { why } => json!({"from": item.from, "action": "refuse", "reason": why}),
    }
}

/// Asks once for all of them.
async fn agreed(context: &mut Context, writes: usize, paths: &Paths) -> Result<bool, Failure> {
    let text = format!(
        "Write {writes} pack(s) to {}? They are yours then and start without asking.\n",
        shown(&paths.global_packs)
    );
    match ask::person(context, &text, "[1] write  [3] no \u{203a} ").await? {
        Reply::Nobody => Err(Failure::Usage(
            "nothing was written, for nobody can be asked here: --yes writes, --dry-run only shows".to_owned(),
        )),
        Reply::Line(line) => {
            let line = line.trim();
            if !["1", "3"].contains(&line) {
                context.screen.remark("that is not one of 1, 3: no");
            }
            Ok(line == "1")
        }
        Reply::Nothing => Ok(false),
    }
}
