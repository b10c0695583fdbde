//! `vancetope packs`: pack files, looked at without starting anything.

use std::path::{Path, PathBuf};

use serde_json::json;
use vance_shared::doc::Problem;
use vance_shared::launch::Origin;
use vance_shared::pack::{PackBody, parse_pack};

use super::context::Context;
use super::failure::{EXIT_OK, EXIT_USAGE, Failure};
use crate::packs::text;
use crate::paths::shown;

/// Prints what is wrong in each file. Problems are the result; what is odd but loads is a remark.
pub(super) fn check(context: &mut Context, files: &[PathBuf]) -> Result<u8, Failure> {
    let own = context.home()?.join("foot-tools");
    let (mut problems, mut warnings) = (Vec::new(), Vec::new());
    for path in files {
        let file = shown(path);
        let text = text(path).map_err(|error| Failure::File { file: file.clone(), why: error.to_string() })?;
        let parsed = parse_pack(&file, &text, origin(path, &own));
        if parsed.pack.is_some_and(|pack| matches!(pack.body, PackBody::Nothing)) {
            warnings.push(Problem::new(&file, 1, "the pack is disabled, and its parameters are not complete"));
        }
        problems.extend(parsed.problems);
        warnings.extend(parsed.warnings);
    }
    let (ok, screen) = (problems.is_empty(), &mut context.screen);
    if screen.json {
        // What an MCP server offers is known once it runs, and nothing is started here.
        screen.value(&json!({"ok": ok, "problems": problems, "warnings": warnings, "tools": [], "skipped": []}))?;
    } else {
        for Problem { file, line, message } in &warnings {
            screen.remark(&format!("{file}:{line}: warning: {message}"));
        }
        for problem in &problems {
            screen.line(&problem.to_string())?;
        }
        if ok {
            screen.line("no problems")?;
        }
    }
    Ok(if ok { EXIT_OK } else { EXIT_USAGE })
}

/// A file in a project's folder is read as strictly as one that somebody else wrote; one that lies anywhere else is the user's own.
fn origin(path: &Path, own: &Path) -> Origin {
    let folder = std::path::absolute(path).ok().and_then(|path| path.parent().map(Path::to_owned));
    let project = std::env::current_dir().map(|dir| dir.join(".vancetope/foot-tools"));
    match (folder, project) {
        (Some(folder), Ok(project)) if folder == project && folder != own => Origin::Project,
        _ => Origin::Global,
    }
}
