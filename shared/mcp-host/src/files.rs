//! The content of local files that a pack hands to the program it starts: looked at when consent is asked for, and again around the start.

use std::fs::{File, Metadata};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use vance_shared::gate::{self, FileHash, Project, TrustedLaunch};
use vance_shared::launch::{LaunchPlan, Origin, Transport};
use vance_shared::show::plain;

use crate::{env, guard};

/// In the reason of a server that was not started, or was killed, because a file is another one than consent was given to.
pub const NOT_AS_ALLOWED: &str = "is not what was allowed";

/// A file that cannot be hashed, so that nobody can consent to it. Safe to print.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file} {why}")]
pub struct Unhashable {
    file: String,
    why: String,
}

/// The files that consent to a project's pack covers: those that its command may mean, or those of its document.
pub fn named(plan: &LaunchPlan, project: &Project) -> Vec<PathBuf> {
    let mut paths = gate::files(plan, project);
    paths.extend(crate::rest::files(plan, project));
    paths
}

/// The plan with what a person should see of a document that lies here. `packs`: the folder of packs that are not the project's.
pub fn shown(plan: LaunchPlan, project: Option<&Path>, packs: &Path) -> LaunchPlan {
    crate::rest::with_base(plan, project, packs)
}

/// The files that one pack's command may name, together: a second of hashing.
const MAX_PACK_BYTES: u64 = 256 * 1024 * 1024;

/// Hashes those of the paths that are files, once their sizes are known to be in bounds. A link inside the project is refused: what it leads to can change without a trace.
pub fn hash(paths: &[PathBuf], project: &Project) -> Result<Vec<FileHash>, Unhashable> {
    let sizes = paths.iter().filter_map(|path| path.metadata().ok().filter(Metadata::is_file)).map(|meta| meta.len());
    let bytes = sizes.fold(0, u64::saturating_add);
    if bytes > MAX_PACK_BYTES {
        let why = format!(
            "have {bytes} bytes together, and at most {MAX_PACK_BYTES} are hashed; name fewer or smaller ones, or move the pack to your own"
        );
        return Err(Unhashable { file: "the files that its command names".to_owned(), why });
    }
    paths.iter().filter_map(|path| one(path, project).transpose()).collect()
}

fn one(path: &Path, project: &Project) -> Result<Option<FileHash>, Unhashable> {
    let refused = |why: String| Unhashable { file: plain(&path.to_string_lossy()), why };
    // What a path means is where its folder really is, whatever links lead there.
    let real = match (path.parent().map(Path::canonicalize), path.file_name()) {
        (Some(Ok(folder)), Some(name)) => folder.join(name),
        (_, None) | (None, _) => return Ok(None),
        (Some(Err(_)), Some(_)) => return Ok(None),
    };
    let is_theirs = project.holds(&real) || project.holds(path);
    let meta = match real.symlink_metadata() {
        Ok(meta) => meta,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(None),
        Err(_) if !is_theirs => return Ok(None),
        Err(error) => return Err(refused(format!("cannot be looked at: {error}"))),
    };
    if meta.is_dir() {
        return Ok(None);
    }
    if is_theirs && meta.is_symlink() {
        return Err(refused("is a link; name the file that it leads to".to_owned()));
    }
    if is_theirs && !meta.is_file() {
        return Err(refused("is no regular file".to_owned()));
    }
    let file = match open(&real, is_theirs) {
        Ok(Some(file)) => file,
        Ok(None) => return Ok(None),
        // What the user may not read, the program may not either.
        Err(_) if !is_theirs => return Ok(None),
        Err(error) => return Err(refused(format!("cannot be read: {error}"))),
    };
    let bytes = file.metadata().map(|meta| meta.len()).unwrap_or_default();
    if bytes > gate::MAX_HASHED_BYTES {
        let why = format!(
            "has {bytes} bytes, and at most {} are hashed; name a smaller one, or move the pack to your own",
            gate::MAX_HASHED_BYTES
        );
        return Err(refused(why));
    }
    FileHash::read(path, file).map(Some).map_err(|error| refused(format!("cannot be hashed: {error}")))
}

/// A regular file, opened without following a last link in the project; nothing if it is something else by now.
pub(crate) fn open(path: &Path, no_link: bool) -> std::io::Result<Option<File>> {
    let mut options = File::options();
    options.read(true);
    #[cfg(unix)]
    {
        use nix::fcntl::OFlag;
        // Not blocking: a pipe in its place must not hold us up.
        let flags = OFlag::O_NONBLOCK | OFlag::O_NOCTTY | if no_link { OFlag::O_NOFOLLOW } else { OFlag::empty() };
        std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, flags.bits());
    }
    #[cfg(not(unix))]
    let _: bool = no_link;
    if !no_link && !path.metadata()?.is_file() {
        return Ok(None);
    }
    let file = options.open(path)?;
    if file.metadata()?.is_file() {
        return Ok(Some(file));
    }
    match no_link {
        true => Err(std::io::Error::other("no regular file")),
        false => Ok(None),
    }
}

/// A bare word of a project's command must not lead into the project by way of PATH.
pub fn check_program(plan: &LaunchPlan, project: &Project) -> Result<(), String> {
    let (Origin::Project, Transport::Stdio { argv, .. }) = (plan.origin, &plan.transport) else { return Ok(()) };
    let path = env::clean_path(std::env::var_os("PATH").as_deref());
    match argv.first().map(|program| guard::find_program(program, Some(&path), project.dir())) {
        Some(Ok(program)) => {
            // By its name and by what it leads to.
            gate::check_program(plan, &program, project)?;
            gate::check_program(plan, &program.canonicalize().unwrap_or(program), project)
        }
        // What is not there is said when it is started.
        Some(Err(_)) | None => Ok(()),
    }
}

/// When a launch is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// Nothing runs yet: a name that no file had must not be one now.
    Before,
    /// It runs, and may have made files of its own by now.
    After,
    /// It has said what it offers, so an interpreter has read its script by now; data that it was handed may have changed.
    Listed,
}

/// Whether a launch still finds the files that consent was given to. The error says what is different.
pub fn unchanged(launch: &TrustedLaunch, project_dir: Option<&Path>, moment: Moment) -> Result<(), String> {
    if launch.digest().is_none() {
        return Ok(());
    }
    let why = |error: String| format!("the files that it was allowed with cannot be looked at: {error}");
    let dir = project_dir.ok_or_else(|| why("there is no project here".to_owned()))?;
    let dir = dir.canonicalize().map_err(|error| why(error.to_string()))?;
    let project = Project::new(&dir).map_err(|error| why(error.to_string()))?;
    check_program(launch.plan(), &project)?;
    let now = hash(&named(launch.plan(), &project), &project).map_err(|error| why(error.to_string()))?;
    let differs = |one: &[FileHash], other: &[FileHash]| one.iter().find(|file| !other.contains(file)).cloned();
    let new = match moment {
        Moment::Before => differs(&now, launch.files()),
        Moment::After | Moment::Listed => None,
    };
    let allowed: Vec<FileHash> = match moment {
        Moment::Before | Moment::After => launch.files().to_vec(),
        Moment::Listed => launch.files().iter().filter(|file| !gate::is_data(&file.path)).cloned().collect(),
    };
    match new.or_else(|| differs(&allowed, &now)) {
        None => Ok(()),
        Some(file) => {
            let path = file.path.strip_prefix(project.dir()).unwrap_or(&file.path);
            let path = plain(&path.to_string_lossy());
            Err(format!("{path} {NOT_AS_ALLOWED}: it changed since; /tools reload asks again"))
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_is_too_large_is_refused_by_its_size() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let project = Project::new(&root).unwrap();
        let sparse = |name: &str, bytes: u64| {
            File::create(root.join(name)).unwrap().set_len(bytes).unwrap();
            root.join(name)
        };
        let large = sparse("large", gate::MAX_HASHED_BYTES + 1);
        let many: Vec<PathBuf> = (0..5).map(|n| sparse(&format!("many-{n}"), gate::MAX_HASHED_BYTES)).collect();
        for (paths, why) in [(vec![large], "large has 67108865 bytes"), (many, "bytes together")] {
            let said = hash(&paths, &project).unwrap_err().to_string();
            assert!(said.contains(why) && said.contains("move the pack to your own"), "{said}");
        }
    }

    #[test]
    fn files_are_hashed_links_and_pipes_of_the_project_are_refused_and_the_rest_does_not_matter() {
        let (dir, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let root = dir.path().canonicalize().unwrap();
        let project = Project::new(&root).unwrap();
        std::fs::write(root.join("a.js"), "a").unwrap();
        std::fs::create_dir(root.join("folder")).unwrap();
        std::fs::write(outside.path().join("real"), "b").unwrap();
        std::os::unix::fs::symlink(outside.path().join("real"), outside.path().join("link")).unwrap();
        std::os::unix::fs::symlink(outside.path().join("real"), root.join("link.js")).unwrap();
        std::os::unix::fs::symlink(outside.path(), root.join("out")).unwrap();
        std::os::unix::fs::symlink(&root, outside.path().join("in")).unwrap();
        nix::unistd::mkfifo(&root.join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let hashed = |path: PathBuf| hash(&[path], &project).map(|files| files.len());
        for (path, want) in [
            (root.join("a.js"), Ok(1)),
            (root.join("nothing"), Ok(0)),
            (root.join("a.js/nothing"), Ok(0)),
            (root.join("folder"), Ok(0)),
            (root.join("folder/.."), Ok(0)),
            (outside.path().join("link"), Ok(1)),
            (PathBuf::from("/dev/null"), Ok(0)),
            (PathBuf::from("/"), Ok(0)),
            // By its words it is in the project, so a last link counts as one there.
            (root.join("out/real"), Ok(1)),
            (root.join("out/link"), Err("is a link; name the file that it leads to")),
            (root.join("link.js"), Err("is a link; name the file that it leads to")),
            (outside.path().join("in/link.js"), Err("is a link; name the file that it leads to")),
            (root.join("pipe"), Err("is no regular file")),
        ] {
            let got = hashed(path.clone()).map_err(|error| error.why);
            assert_eq!(got, want.map_err(str::to_owned), "{}", path.display());
        }
    }
}
