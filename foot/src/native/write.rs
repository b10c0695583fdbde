//! `write_local_file`, and the atomic replacing that `edit_local_file` shares.

use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::sync::Arc;

use cap_std::fs::{Dir, Metadata, OpenOptions};
use serde::Deserialize;
use serde_json::json;
use vance_shared::call::Outcome;
use vance_shared::tool::ToolResult;

use super::gate::{Call, Gate, blocking, blocking_result};
use super::roots::{Resolved, open_file};
use super::{Ended, failed};

#[derive(Debug, Deserialize)]
struct Arguments {
    path: String,
    content: String,
    #[serde(default)]
    create_dirs: bool,
    #[serde(default)]
    append: bool,
}

pub(super) async fn run(gate: &Arc<Gate>, call: Call) -> Ended {
    let args: Arguments = call.parse()?;
    let (finder, path) = (Arc::clone(gate), args.path.clone());
    let at = blocking(move || finder.resolve(&path, true)).await?;
    gate.permit_write(&call, &at).await?;
    call.halt.check()?;
    // From here it is done, however long the disk takes: half a write would be worse than a late answer.
    blocking_result(move || {
        let (dir, name) = at.parent(args.create_dirs)?;
        let before = existing(&at, &dir, &name)?;
        let size = if args.append {
            append(&at, &dir, &name, &args.content)?
        } else {
            replace(&at, &dir, &name, args.content.as_bytes(), before.as_ref())?;
            args.content.len() as u64
        };
        Ok(ToolResult::structured(json!({
            "path": at.real.to_string_lossy(), "bytes_written": args.content.len(), "size": size, "created": before.is_none(),
        })))
    })
    .await
}

/// What is there now; fails for anything but a regular file.
pub(super) fn existing(at: &Resolved, dir: &Dir, name: &OsStr) -> Result<Option<Metadata>, Box<Outcome>> {
    match dir.symlink_metadata(name) {
        Ok(meta) => at.check_regular(&meta).map(|()| Some(meta)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(at.failure("open", &e)),
    }
}

fn append(at: &Resolved, dir: &Dir, name: &OsStr, content: &str) -> Result<u64, Box<Outcome>> {
    let failure = |e: std::io::Error| at.failure("write", &e);
    let mut file = open_file(dir, name, OpenOptions::new().append(true).create(true)).map_err(failure)?;
    at.check_regular(&file.metadata().map_err(failure)?)?;
    file.write_all(content.as_bytes()).and_then(|()| file.sync_all()).map_err(failure)?;
    Ok(file.metadata().map_err(failure)?.len())
}

/// Replaces the file as a whole: readers see the old text or the new one, a crash leaves one of them.
pub(super) fn replace(
    at: &Resolved,
    dir: &Dir,
    name: &OsStr,
    content: &[u8],
    before: Option<&Metadata>,
) -> Result<(), Box<Outcome>> {
    let mut temporary = OsString::from(".vance-");
    temporary.push(format!("{:016x}.tmp", fastrand::u64(..)));
    let written = write_new(dir, &temporary, content, before).and_then(|()| dir.rename(&temporary, dir, name));
    if let Err(error) = written {
        if let Err(left) = dir.remove_file(&temporary)
            && left.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!(file = %temporary.to_string_lossy(), error = %left, "a temporary file could not be removed");
        }
        return Err(at.failure("write", &error));
    }
    // The name is durable only with its folder; some file systems cannot sync folders, and the text itself is safe by now.
    if let Err(error) = dir.try_clone().and_then(|d| d.into_std_file().sync_all()) {
        tracing::debug!(%error, "the folder of a written file could not be synced");
    }
    Ok(())
}

fn write_new(dir: &Dir, name: &OsStr, content: &[u8], before: Option<&Metadata>) -> std::io::Result<()> {
    let mut file = open_file(dir, name, OpenOptions::new().write(true).create_new(true))?;
    if let Some(meta) = before {
        file.set_permissions(meta.permissions())?;
    }
    file.write_all(content)?;
    file.sync_all()
}

/// Fails if the file is not the one that was read.
pub(super) fn unchanged(at: &Resolved, dir: &Dir, name: &OsStr, read: &Metadata) -> Result<(), Box<Outcome>> {
    let now = existing(at, dir, name)?;
    let same = now.is_some_and(|now| now.len() == read.len() && now.modified().ok() == read.modified().ok());
    if same {
        Ok(())
    } else {
        Err(failed("conflict", format!("{} was changed by somebody else in the meantime; read it again", at.shown())))
    }
}
