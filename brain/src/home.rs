//! The Brain's home: where its files are, and what people wrote into them. All problems of all files are gathered; a file
//! that is not there is nothing said.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use vance_brain_core::config::{BrainConfig, parse_config};
use vance_brain_core::engine::parse_engine;
use vance_brain_core::registry_file::{entry_lines, parse_registry};
use vance_brain_core::spec::{Backing, EngineSpec, Location, RegistryEntry, RegistryFile};
use vance_shared::doc::{Problem, nearest_field};
use vance_shared::launch::Origin;
use vance_shared::names::ToolName;
use vance_shared::pack::{self, Pack, parse_pack};
use vance_shared::show::plain;
use vance_shared::tool::NATIVE_TOOLS;

use crate::secrets::Vault;

use crate::builtin;

mod address;
pub use address::{Address, url as address_url};

/// `brain.yaml` and engines: settings, not data.
const MAX_SETTINGS_BYTES: usize = 256 * 1024;
/// `tools.yaml`: five thousand tools with a description each.
const MAX_REGISTRY_BYTES: usize = 4 * 1024 * 1024;
/// Pack files of one home: each may be a process.
const MAX_PACKS: usize = 64;
/// Engine files of one home.
const MAX_ENGINES: usize = 256;
/// Names looked at in one folder, whatever they are.
const MAX_NAMES: usize = 4096;

/// Where everything is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Home {
    root: PathBuf,
}

/// Why there is no home.
#[derive(Debug, thiserror::Error)]
pub enum HomeError {
    /// Neither flag nor variable.
    #[error("no home: HOME is not set, set VANCE_HOME or give --home")]
    Unset,
    /// A path that cannot be used.
    #[error("cannot use {}: {source}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl Home {
    /// The flag's folder, else `$VANCE_HOME`, else `~/.vancetope`. The lookup gives an environment variable's value.
    pub fn resolve(flag: Option<&Path>, lookup: impl Fn(&str) -> Option<OsString>) -> Result<Self, HomeError> {
        let set = |name: &str| lookup(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let wanted = flag.map(Path::to_owned).or_else(|| set("VANCE_HOME"));
        let root = wanted.or_else(|| set("HOME").map(|home| home.join(".vancetope"))).ok_or(HomeError::Unset)?;
        // A relative one means the folder of now, also if the process moves.
        let root = std::path::absolute(&root).map_err(|source| HomeError::Io { path: root, source })?;
        Ok(Self { root })
    }

    /// The home itself, shared with the Foot.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// `<home>/brain`.
    pub fn brain(&self) -> PathBuf {
        self.root.join("brain")
    }

    /// The store's folder.
    pub fn data(&self) -> PathBuf {
        self.brain().join("data")
    }

    /// The local token.
    pub fn token(&self) -> PathBuf {
        self.brain().join("local.token")
    }

    /// Where it listens, while it runs.
    pub fn address(&self) -> PathBuf {
        self.brain().join("address")
    }

    /// `brain.yaml`.
    pub fn config(&self) -> PathBuf {
        self.brain().join("brain.yaml")
    }

    /// `tools.yaml`.
    pub fn registry(&self) -> PathBuf {
        self.brain().join("tools.yaml")
    }

    /// Server packs.
    pub fn packs(&self) -> PathBuf {
        self.brain().join("packs")
    }

    /// Engines.
    pub fn engines(&self) -> PathBuf {
        self.brain().join("engines")
    }

    /// Private working folder of a server pack.
    pub fn work(&self, pack: &str) -> PathBuf {
        self.brain().join("work").join(pack)
    }

    /// Makes the home and the Brain's folder in it, for the owner alone. A Brain's folder that others may enter is narrowed.
    pub fn prepare(&self) -> Result<(), HomeError> {
        let brain = self.brain();
        private_dir(&brain).map_err(|source| HomeError::Io { path: brain, source })
    }
}

/// Makes a folder for the owner alone. One that is there is narrowed.
pub(crate) fn private_dir(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let mut permissions = std::fs::metadata(dir)?.permissions();
    if permissions.mode() & 0o077 != 0 {
        permissions.set_mode(0o700);
        std::fs::set_permissions(dir, permissions)?;
    }
    Ok(())
}

/// What the files say.
#[derive(Debug, Clone, Default)]
pub struct Loaded {
    /// `brain.yaml`; defaults without one; `None`: it has problems.
    pub config: Option<BrainConfig>,
    /// `tools.yaml`; empty without one; `None`: it has problems.
    pub registry: Option<RegistryFile>,
    /// The packs without problems, by file name, enabled or not.
    pub packs: Vec<Pack>,
    /// The file of each pack, by the pack's name.
    pub pack_files: BTreeMap<String, String>,
    /// The engines without problems, by id.
    pub engines: BTreeMap<String, EngineSpec>,
    /// The file of each engine, by the engine's id.
    pub engine_files: BTreeMap<String, String>,
    /// All that is wrong, file by file.
    pub problems: Vec<Problem>,
    /// What is odd but does no harm.
    pub warnings: Vec<Problem>,
}

/// Reads everything.
pub fn load(home: &Home) -> Loaded {
    let mut loaded = Loaded::default();
    let problems = &mut loaded.problems;
    loaded.config = read_or_default(&home.config(), MAX_SETTINGS_BYTES, problems, parse_config);
    loaded.registry = read_or_default(&home.registry(), MAX_REGISTRY_BYTES, problems, parse_registry);
    let names = &mut loaded.pack_files;
    for path in list(&home.packs(), "json", MAX_PACKS, problems) {
        let Some(text) = read(&path, pack::MAX_FILE_BYTES, problems).flatten() else { continue };
        let file = path.display().to_string();
        let parsed = parse_pack(&file, &text, Origin::Server);
        problems.extend(parsed.problems);
        loaded.warnings.extend(parsed.warnings);
        let Some(pack) = parsed.pack else { continue };
        match names.get(pack.name.as_str()) {
            Some(first) => problems.push(Problem::new(
                file,
                1,
                format!("the pack `{}` is there twice, first in {first}", pack.name),
            )),
            None => {
                names.insert(pack.name.to_string(), file);
                loaded.packs.push(pack);
            }
        }
    }
    let ids = &mut loaded.engine_files;
    for path in list(&home.engines(), "yaml", MAX_ENGINES, problems) {
        let Some(text) = read(&path, MAX_SETTINGS_BYTES, problems).flatten() else { continue };
        let file = path.display().to_string();
        match parse_engine(&file, &text) {
            Err(list) => problems.extend(list),
            Ok(engine) => match ids.get(&engine.id) {
                Some(first) => problems.push(Problem::new(
                    file,
                    1,
                    format!("the engine `{}` is there twice, first in {first}", engine.id),
                )),
                None => {
                    ids.insert(engine.id.clone(), file);
                    loaded.engines.insert(engine.id.clone(), engine);
                }
            },
        }
    }
    // What packs need of it they hear when they start; that nothing of it can be had is everybody's matter.
    let vault = Vault::new(&home.data());
    if let Err(error) = vault.is_readable() {
        loaded.problems.push(Problem::new(vault.file().display().to_string(), 1, error.to_string()));
    }
    compare(home, &mut loaded);
    loaded
}

/// What is right in each file by itself and does not fit together. Warnings: the rest of such a Brain works.
fn compare(home: &Home, loaded: &mut Loaded) {
    let Some(registry) = &loaded.registry else { return };
    let remarks: Vec<(&ToolName, String)> =
        registry.values().filter_map(|entry| Some((&entry.name, misfit(entry, &loaded.packs)?))).collect();
    if remarks.is_empty() {
        return;
    }
    // Read a moment ago; what is wrong with it was said then.
    let text = read(&home.registry(), MAX_REGISTRY_BYTES, &mut Vec::new()).flatten().unwrap_or_default();
    let (lines, file) = (entry_lines(&text), home.registry().display().to_string());
    let line = |name: &ToolName| lines.get(name.as_str()).copied().unwrap_or(1);
    loaded.warnings.extend(remarks.into_iter().map(|(name, text)| Problem::new(file.clone(), line(name), text)));
}

/// Why a side of an entry has nothing behind it.
fn misfit(entry: &RegistryEntry, packs: &[Pack]) -> Option<String> {
    let (name, is_on_server) = (&entry.name, entry.location != Location::Client);
    let is_built_in = builtin::NAMES.contains(&name.as_str());
    match &entry.backing {
        Some(Backing::McpServer { pack, .. }) if is_on_server => match packs.iter().find(|p| p.name.as_str() == pack) {
            Some(found) if found.enabled => None,
            Some(_) => Some(format!("`{name}` needs the server pack '{pack}', which is turned off")),
            None => Some(format!(
                "`{name}` needs the server pack '{pack}', which is not there; put {pack}.json into the packs folder"
            )),
        },
        Some(Backing::BuiltIn) if is_on_server && !is_built_in => {
            let hint = nearest_field(name.as_str(), &builtin::NAMES);
            Some(format!("the Brain has no built-in tool `{name}`{hint}"))
        }
        Some(Backing::Native) if !NATIVE_TOOLS.contains(&name.as_str()) => {
            let hint = nearest_field(name.as_str(), &NATIVE_TOOLS);
            Some(format!(
                "tasks wait for `{name}` until a client that is no Foot reports it: a Foot has no native tool of this name{hint}"
            ))
        }
        Some(Backing::Native) if is_on_server && !is_built_in => Some(format!(
            "`{name}` is a tool of the client, and the server has none of this name; say `location: client`"
        )),
        Some(Backing::McpServer { .. } | Backing::BuiltIn | Backing::Native) | None => None,
    }
}

/// The files that [`load`] reads, as far as they are there, and those that may come. None while this process may open no more files: then a
/// folder looks as if it were empty.
pub fn watched(home: &Home) -> Option<Vec<PathBuf>> {
    for folder in [home.packs(), home.engines()] {
        let error = std::fs::read_dir(folder).err().and_then(|error| error.raw_os_error());
        if matches!(error.map(Errno::from_raw), Some(Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM)) {
            return None;
        }
    }
    let mut files = vec![home.config(), home.registry(), Vault::new(&home.data()).file().to_owned()];
    // What is wrong with a folder is said when it is read.
    let mut unsaid = Vec::new();
    files.extend(list(&home.packs(), "json", MAX_PACKS, &mut unsaid));
    files.extend(list(&home.engines(), "yaml", MAX_ENGINES, &mut unsaid));
    Some(files)
}

/// All problems of all files.
pub fn check(home: &Home) -> Vec<Problem> {
    load(home).problems
}

type Parse<T> = fn(&str, &str) -> Result<T, Vec<Problem>>;

fn read_or_default<T: Default>(path: &Path, limit: usize, problems: &mut Vec<Problem>, parse: Parse<T>) -> Option<T> {
    match read(path, limit, problems)? {
        None => Some(T::default()),
        Some(text) => parse(&path.display().to_string(), &text).map_err(|list| problems.extend(list)).ok(),
    }
}

/// A file's text; `Some(None)`: there is no such file; `None`: it cannot be read, and the problem is noted.
fn read(path: &Path, limit: usize, problems: &mut Vec<Problem>) -> Option<Option<String>> {
    let mut problem = |line: usize, message: String| {
        let line = u32::try_from(line).unwrap_or(u32::MAX);
        problems.push(Problem::new(path.display().to_string(), line, message));
        None
    };
    // Without blocking: a pipe in place of the file would hold the start for ever.
    let file = OpenOptions::new().read(true).custom_flags(nix::fcntl::OFlag::O_NONBLOCK.bits()).open(path);
    let file = match file {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => match dangling(path) {
            Some(why) => return problem(1, why),
            None => return Some(None),
        },
        Err(error) => return problem(1, format!("cannot be read: {error}")),
    };
    match file.metadata() {
        Ok(metadata) if metadata.is_file() => (),
        Ok(_) => return problem(1, "is no regular file".to_owned()),
        Err(error) => return problem(1, format!("cannot be read: {error}")),
    }
    let mut bytes = Vec::new();
    if let Err(error) = file.take(limit as u64 + 1).read_to_end(&mut bytes) {
        return problem(1, format!("cannot be read: {error}"));
    }
    if bytes.len() > limit {
        return problem(1, format!("the file is too large, expected at most {limit} bytes"));
    }
    match String::from_utf8(bytes) {
        Ok(text) => Some(Some(text)),
        Err(error) => {
            let good = error.utf8_error().valid_up_to();
            let line = error.as_bytes().iter().take(good).filter(|byte| **byte == b'\n').count() + 1;
            problem(line, "the file is not UTF-8".to_owned())
        }
    }
}

/// Why a name that leads nowhere is there all the same. It was not taken away: who deploys by links is between two of them, or has made a
/// mistake.
fn dangling(path: &Path) -> Option<String> {
    let target = std::fs::read_link(path).ok()?;
    let target = plain(&target.to_string_lossy());
    Some(format!("is a link to {target}, which is not there; put it there, or remove the link"))
}

/// A folder's files with an extension, by name; hidden ones (editors' leftovers) are none.
fn list(dir: &Path, extension: &str, limit: usize, problems: &mut Vec<Problem>) -> Vec<PathBuf> {
    let mut problem = |message: String| problems.push(Problem::new(dir.display().to_string(), 1, message));
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            dangling(dir).map(problem);
            return Vec::new();
        }
        Err(error) => {
            problem(format!("cannot be read: {error}"));
            return Vec::new();
        }
    };
    let mut files = Vec::new();
    for (index, entry) in entries.enumerate() {
        if index == MAX_NAMES {
            problem(format!("more than {MAX_NAMES} names in the folder, the rest was not looked at"));
            break;
        }
        match entry {
            Ok(entry) => files.push(entry.path()),
            Err(error) => problem(format!("cannot be read: {error}")),
        }
    }
    let hidden = |path: &Path| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
    files.retain(|path| path.extension().is_some_and(|found| found == extension) && !hidden(path));
    files.sort();
    if files.len() > limit {
        problem(format!(
            "{} files, expected at most {limit}; those after {} are not read",
            files.len(),
            files[limit - 1].display()
        ));
        files.truncate(limit);
    }
    files
}

#[cfg(test)]
mod tests;
