//! Documents that lie beside their pack: read without following links of a project, and never above the pack's folder.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde_json::Value;
use vance_rest::api;
use vance_rest::document::{Document, MAX_BYTES, missing_files, parse_value};
use vance_shared::gate::{Digest, FileHash, Project};
use vance_shared::launch::rest::{RestPlan, Spec};
use vance_shared::launch::{LaunchPlan, Origin, Transport};
use vance_shared::show::plain;

use crate::files::open;

/// Where the packs of a project are, below it.
const PROJECT_PACKS: &str = ".vancetope/foot-tools";

/// Files that are looked for in vain: more is no document that was moved, but a wrong one.
const MAX_UNREAD: usize = 64;

/// A document as it was read, with the hash of each file that is in it.
pub(super) struct Local {
    pub(super) document: Document,
    pub(super) hashes: Vec<FileHash>,
    /// Why files that it refers to are not in it.
    pub(super) missing: Vec<String>,
}

/// The folder of a pack's file.
pub(super) fn folder(origin: Origin, project: Option<&Path>, packs: &Path) -> PathBuf {
    match (origin, project) {
        (Origin::Project, Some(project)) => project.join(PROJECT_PACKS),
        (Origin::Project | Origin::Global | Origin::Server, _) => packs.to_owned(),
    }
}

/// Reads a document and the files that it refers to. One that cannot be read costs what needs it, and no more.
pub(super) fn read(folder: &Path, file: &str, origin: Origin) -> Result<Local, String> {
    let (mut hashes, mut files) = (Vec::new(), Vec::<(String, Value)>::new());
    let mut unread: Vec<(String, String)> = Vec::new();
    let path = folder.join(file);
    // References are seen from the document's own folder.
    let beside = path.parent().map_or_else(|| folder.to_owned(), Path::to_owned);
    let root = value(&path, folder, origin, &mut hashes)?;
    loop {
        let mut missing = missing_files(&root, &files);
        missing.retain(|name| unread.iter().all(|(known, _)| known != name));
        if missing.is_empty() || unread.len() > MAX_UNREAD {
            break;
        }
        for name in missing {
            match value(&beside.join(&name), &beside, origin, &mut hashes) {
                Ok(read) => files.push((name, read)),
                Err(why) => unread.push((name, why)),
            }
        }
    }
    let document = Document::with_files(root, files, None).map_err(|error| error.to_string())?;
    Ok(Local { document, hashes, missing: unread.into_iter().map(|(_, why)| why).collect() })
}

fn value(path: &Path, below: &Path, origin: Origin, hashes: &mut Vec<FileHash>) -> Result<Value, String> {
    let shown = plain(&path.to_string_lossy());
    let bytes = bytes(path, below, origin).map_err(|why| format!("{shown} {why}"))?;
    // One spelling for `./x` and `x`.
    hashes.push(FileHash { path: path.components().collect(), sha256: Digest::of(&bytes) });
    parse_value(&bytes).map_err(|error| format!("{shown}: {error}"))
}

fn bytes(path: &Path, below: &Path, origin: Origin) -> Result<Vec<u8>, String> {
    let unreadable = |error: std::io::Error| format!("cannot be read: {error}");
    let parent = path.parent().ok_or("is no file")?.canonicalize().map_err(unreadable)?;
    let below = below.canonicalize().map_err(unreadable)?;
    if origin == Origin::Project && !parent.starts_with(&below) {
        return Err("does not lie below the pack's folder".to_owned());
    }
    let real = parent.join(path.file_name().ok_or("is no file")?);
    let file = open(&real, origin == Origin::Project).map_err(unreadable)?.ok_or("is no regular file")?;
    let mut bytes = Vec::new();
    file.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    Ok(bytes)
}

/// The files that consent to a project's pack covers. Those that cannot be read are said when the pack starts.
pub(crate) fn files(plan: &LaunchPlan, project: &Project) -> Vec<PathBuf> {
    let (Origin::Project, Transport::Rest(rest)) = (plan.origin, &plan.transport) else { return Vec::new() };
    let Spec::File(file) = &rest.spec else { return Vec::new() };
    let folder = folder(Origin::Project, Some(project.dir()), project.dir());
    match read(&folder, file, Origin::Project) {
        Ok(local) => local.hashes.into_iter().map(|hash| hash.path).collect(),
        Err(_) => vec![folder.join(file).components().collect()],
    }
}

/// The plan with the base of a document that lies here: a person is shown where requests will go, before anything is started.
pub(crate) fn with_base(mut plan: LaunchPlan, project: Option<&Path>, packs: &Path) -> LaunchPlan {
    let origin = plan.origin;
    if let Transport::Rest(rest) = &mut plan.transport
        && rest.document_base.is_none()
    {
        rest.document_base = base(rest, &folder(origin, project, packs), origin);
    }
    plan
}

fn base(rest: &RestPlan, folder: &Path, origin: Origin) -> Option<String> {
    let document = match &rest.spec {
        Spec::Url(_) => return None,
        Spec::File(file) => read(folder, file, origin).ok()?.document,
        Spec::Inline(value) => inline(value).ok()?,
    };
    api::base_of(&document, rest).map(String::from)
}

/// A document that stands in the pack itself.
pub(super) fn inline(value: &Value) -> Result<Document, String> {
    match value {
        Value::String(text) => Document::parse(text.as_bytes(), None),
        other => Document::from_value(other.clone(), None),
    }
    .map_err(|error| error.to_string())
}
