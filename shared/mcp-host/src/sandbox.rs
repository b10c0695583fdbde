//! What a sandboxed child may reach: an allow-list of folders, enforced by the kernel (Landlock) for the child and all that it starts.
//!
//! It names what programs need in order to run; everything else of the home, where the secrets are, cannot be opened. Beside files it keeps
//! a child from signalling processes outside of it. The network stays as it is, and so does what `/proc` tells of other processes of the user.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use vance_shared::launch::{LaunchPlan, Origin, Transport};

use crate::guard;

/// Programs, libraries and settings of the system, and what the kernel tells of itself.
const SYSTEM: &[&str] = &[
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/etc",
    "/opt",
    "/nix",
    "/snap",
    "/proc",
    "/sys",
    "/run/systemd/resolve",
    "/run/resolvconf",
    "/run/NetworkManager",
    "/System",
    "/Library",
];
/// Devices that programs write to without harm. No terminals: who opens the one that a person sits at reads what they type, answers in their place
/// and paints over what they are asked. Beneath a folder everything is open, so `/dev/pts` for a program's own would be theirs, too.
const DEVICES: &[&str] = &["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/shm", "/dev/fd"];
/// Below the home: programs, and what package runners have unpacked.
const HOME_READ: &[&str] = &[
    ".local/bin",
    ".local/lib",
    ".local/pipx",
    ".local/share/pipx",
    ".local/share/virtualenvs",
    ".local/share/mise",
    ".local/share/fnm",
    ".nvm",
    ".volta",
    ".bun",
    ".deno",
    ".asdf",
    ".pyenv",
    ".rustup",
    ".cargo/bin",
    ".cargo/registry",
    ".cargo/git",
    "go",
    "sdk",
    "bin",
    ".gitconfig",
    ".config/git/config",
    ".config/git/ignore",
    ".config/git/attributes",
];
/// Below the home: caches, which nobody can do without.
const HOME_WRITE: &[&str] =
    &[".cache", ".npm/_cacache", ".npm/_npx", ".npm/_logs", ".local/share/uv", ".local/share/pnpm"];

/// Folders and files that a child may use. One that does not exist is passed over.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sandbox {
    /// Read, list and execute below these.
    pub read: Vec<PathBuf>,
    /// All of that, and create, change and delete.
    pub write: Vec<PathBuf>,
}

impl Sandbox {
    /// What every program needs on this machine: the system's folders, the programs of `PATH`, temporary files, caches. `env` is the environment of
    /// the program that asks.
    pub fn of_machine(env: &BTreeMap<OsString, OsString>) -> Self {
        let var = |name: &str| env.get(OsStr::new(name)).map(PathBuf::from).filter(|path| path.is_absolute());
        let home = var("HOME");
        let mut read: Vec<PathBuf> = SYSTEM.iter().map(PathBuf::from).collect();
        let mut write: Vec<PathBuf> = DEVICES.iter().map(PathBuf::from).collect();
        write.extend(["/tmp", "/var/tmp"].map(PathBuf::from));
        write.extend(var("TMPDIR").filter(|dir| !holds(dir, home.as_deref())));
        if let Some(home) = &home {
            read.extend(HOME_READ.iter().map(|below| home.join(below)));
            write.extend(HOME_WRITE.iter().map(|below| home.join(below)));
        }
        let path = env.get(OsStr::new("PATH")).map(OsString::as_os_str).unwrap_or_default();
        for folder in std::env::split_paths(path).filter(|folder| folder.is_absolute()) {
            read.extend(install_of(&folder, home.as_deref()));
        }
        Self { read, write }
    }

    /// Adds the folder that a program is installed in.
    pub fn with_program(mut self, program: &Path, home: Option<&Path>) -> Self {
        let real = std::fs::canonicalize(program).unwrap_or_else(|_| program.to_owned());
        for file in [program, &real] {
            self.read.push(file.to_owned());
            self.read.extend(file.parent().and_then(|folder| install_of(folder, home)));
        }
        self
    }

    /// For a pack's server: its working directory, the program's installation, and, for a pack of the user's own, the paths that its command names.
    pub(crate) fn for_pack(
        mut self,
        plan: &LaunchPlan,
        argv: &[String],
        cwd: &Path,
        env: &BTreeMap<OsString, OsString>,
    ) -> Self {
        let home = env.get(OsStr::new("HOME")).map(Path::new);
        let own = plan.origin != Origin::Project;
        // A project's pack names its folder itself; outside of what is open it gets none.
        if own || matches!(&plan.transport, Transport::Stdio { cwd: None, .. }) {
            self.write.push(cwd.to_owned());
        }
        let path = env.get(OsStr::new("PATH")).map(OsString::as_os_str);
        if own && let Some(Ok(program)) = argv.first().map(|word| guard::find_program(word, path, cwd)) {
            self = self.with_program(&program, home);
        }
        for word in argv.iter().skip(1).filter(|_| own) {
            let value = word.split_once('=').map_or(word.as_str(), |(_, value)| value);
            let named = Path::new(value);
            match named.metadata() {
                Ok(_) if !named.is_absolute() || holds(named, home) => {}
                Ok(meta) if meta.is_dir() => self.write.push(named.to_owned()),
                Ok(_) => self.read.extend(around(named, home)),
                Err(_) => {}
            }
        }
        self
    }

    /// Whether a path lies in what may be used.
    pub fn opens(&self, path: &Path) -> bool {
        self.read.iter().chain(&self.write).any(|allowed| path.starts_with(allowed))
    }

    /// As arguments of the guard.
    pub(crate) fn to_args(&self) -> Vec<OsString> {
        let one = |word: &str, path: &PathBuf| [OsString::from(word), path.clone().into_os_string()];
        let read = self.read.iter().flat_map(|path| one(READ, path));
        let write = self.write.iter().flat_map(|path| one(WRITE, path));
        std::iter::once(OsString::from(SANDBOX)).chain(read).chain(write).collect()
    }

    /// Reads the guard's arguments up to `--`. The outer `None`: they are none of ours.
    pub(crate) fn from_args(args: &mut impl Iterator<Item = OsString>) -> Option<Option<Self>> {
        let mut sandbox = None;
        loop {
            let word = args.next()?;
            match word.to_str()? {
                "--" => return Some(sandbox),
                SANDBOX => sandbox = Some(Self::default()),
                READ => sandbox.as_mut()?.read.push(args.next()?.into()),
                WRITE => sandbox.as_mut()?.write.push(args.next()?.into()),
                _ => return None,
            }
        }
    }
}

const SANDBOX: &str = "--sandbox";
const READ: &str = "--read";
const WRITE: &str = "--write";

/// `…/bin` → what stands beside it, too: the libraries of an installation. Never a folder that holds the home.
fn install_of(folder: &Path, home: Option<&Path>) -> Option<PathBuf> {
    let whole = if folder.ends_with("bin") { folder.parent() } else { None };
    whole.into_iter().chain([folder]).find(|folder| !holds(folder, home)).map(Path::to_owned)
}

/// A script, by its name and by what it leads to, with what stands beside it, and the packages that it belongs to.
fn around(script: &Path, home: Option<&Path>) -> Vec<PathBuf> {
    let real = script.canonicalize().unwrap_or_else(|_| script.to_owned());
    let packages = |path: &Path| {
        path.ancestors().find(|folder| folder.file_name() == Some(OsStr::new("node_modules"))).map(Path::to_owned)
    };
    let one = |path: &Path| [path.parent().map(Path::to_owned), packages(path)];
    let folders = [one(script), one(&real)].into_iter().flatten().flatten().filter(|folder| !holds(folder, home));
    [script.to_owned(), real.clone()].into_iter().chain(folders).collect()
}

/// Whether the home lies in the folder, or is it.
fn holds(folder: &Path, home: Option<&Path>) -> bool {
    folder.parent().is_none() || home.is_some_and(|home| home.starts_with(folder))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn env(path: &str) -> BTreeMap<OsString, OsString> {
        BTreeMap::from([("HOME".into(), "/home/me".into()), ("PATH".into(), path.into())])
    }

    #[test]
    fn nothing_that_holds_the_home_is_opened_whatever_the_path_says() {
        for path in ["/home/me/bin", "/home/bin", "/home/me", "/home", "/", "relative", "", "/bin:/home/me/x/bin"] {
            let sandbox = Sandbox::of_machine(&env(path));
            for secret in ["/home/me/.ssh/id", "/home/me/.vancetope/access.yaml", "/home/me/.aws", "/home/other/x"] {
                assert!(!sandbox.opens(Path::new(secret)), "{path}: {secret}");
            }
            assert!(sandbox.opens(Path::new("/usr/bin/env")));
        }
        let sandbox = Sandbox::of_machine(&env("/home/me/node/bin"));
        assert!(sandbox.opens(Path::new("/home/me/node/lib/x.js")));
    }

    #[test]
    fn a_sandbox_travels_to_the_guard_as_words() {
        let sandbox = Sandbox { read: vec!["/a b".into(), "--".into()], write: vec!["/c".into()] };
        let mut words = sandbox.to_args();
        words.extend(["--", "prog", "--read"].map(OsString::from));
        let mut words = words.into_iter();
        assert_eq!(Sandbox::from_args(&mut words), Some(Some(sandbox)));
        assert_eq!(words.collect::<Vec<_>>(), ["prog", "--read"]);
        assert_eq!(Sandbox::from_args(&mut ["--".into()].into_iter()), Some(None));
        assert_eq!(Sandbox::from_args(&mut ["--read".into(), "/x".into(), "--".into()].into_iter()), None);
        assert_eq!(Sandbox::from_args(&mut ["x".into()].into_iter()), None);
    }
}
