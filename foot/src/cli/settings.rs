//! Where this run's home, Brain and token are. Pure up to the one file that may hold a token.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use reqwest::Url;

use super::access::{Access, NoAccess};
use super::args::{Command, brain_of_variable, names_a_brain};
use super::context::Context;
use super::failure::Failure;
use crate::api::{ApiError, Token, is_loopback};

mod address;

/// Longest token file that is read, in bytes: a token is a line.
const TOKEN_FILE_BYTES: u64 = 4096;

/// Where a wrong address comes from.
const ADDRESS_IS_VARIABLE: &str = "the address is VANCE_BRAIN's; if it is not meant: unset VANCE_BRAIN";

/// What the process was given besides its arguments.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    /// `VANCE_HOME`.
    pub vance_home: Option<PathBuf>,
    /// The user's home directory.
    pub user_home: Option<PathBuf>,
    /// `VANCE_TOKEN`.
    pub token: Option<String>,
    /// `VANCE_FOOT_TOOLS_DIR`: replaces the directory of global packs.
    pub foot_tools_dir: Option<PathBuf>,
    /// The program that guards child processes; without one this program itself.
    pub program: Option<PathBuf>,
    /// The Brain's address is the one of `VANCE_BRAIN`.
    pub brain_of_variable: bool,
    /// The home names a Brain and is not used for it, as a sentence.
    pub unused_home: Option<String>,
    /// The Brain that is the project's choice: it gets no token that was meant for another one.
    pub project_brain: Option<Url>,
}

impl Environment {
    /// Of this process. An empty variable counts as unset.
    pub fn of_process() -> Self {
        let path = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        Self {
            vance_home: path("VANCE_HOME"),
            user_home: std::env::home_dir().filter(|p| !p.as_os_str().is_empty()),
            token: std::env::var("VANCE_TOKEN").ok().filter(|t| !t.trim().is_empty()),
            foot_tools_dir: path("VANCE_FOOT_TOOLS_DIR"),
            program: None,
            brain_of_variable: false,
            unused_home: None,
            project_brain: None,
        }
    }

    /// What to type if a variable is what leads to the wrong Brain, or the wrong token to it; `what` is what went wrong.
    pub(super) fn to_unset(&self, what: &ApiError) -> Option<&'static str> {
        match what {
            ApiError::Refused { status: 401, .. } => match (self.token.is_some(), self.brain_of_variable) {
                (true, true) => Some(
                    "the token is VANCE_TOKEN's and the address VANCE_BRAIN's; if one of them is not meant: unset VANCE_TOKEN VANCE_BRAIN",
                ),
                (true, false) => Some("the token is VANCE_TOKEN's; if it is not meant: unset VANCE_TOKEN"),
                (false, true) => Some(ADDRESS_IS_VARIABLE),
                (false, false) => None,
            },
            ApiError::Unreachable { .. }
            | ApiError::NoTrust { .. }
            | ApiError::Broken { .. }
            | ApiError::Strange { .. }
            | ApiError::Setup(_) => self.brain_of_variable.then_some(ADDRESS_IS_VARIABLE),
            ApiError::Refused { .. } => None,
        }
    }

    /// `$VANCE_HOME`, else `~/.vancetope`.
    pub(super) fn home(&self) -> Option<PathBuf> {
        self.vance_home.clone().or_else(|| self.user_home.as_ref().map(|home| home.join(".vancetope")))
    }
}

/// Takes the Brain that this home is paired with, else the one that runs from this home, unless the caller names one. A file that cannot be used stops what needs a Brain: the
/// local one is not what the person meant.
pub(super) fn pair(context: &mut Context, argv: &[OsString], command: Option<&Command>) -> Result<(), Failure> {
    context.environment.brain_of_variable = brain_of_variable(argv);
    let Some(home) = context.environment.home() else { return Ok(()) };
    if names_a_brain(argv) {
        return Ok(());
    }
    if !is_ours(&home) {
        context.environment.unused_home = not_used(&home);
        return Ok(());
    }
    match (Access::read(&home), command) {
        (Ok(Some(access)), _) => {
            context.general.brain = access.brain;
            Ok(())
        }
        (Ok(None), _) => {
            if let Some(brain) = address::of_running(&home) {
                context.general.brain = brain;
            }
            Ok(())
        }
        (
            Err(_),
            Some(
                Command::Packs { .. }
                | Command::Tools { .. }
                | Command::Trust { .. }
                | Command::Doctor
                | Command::Login(_),
            ),
        ) => Ok(()),
        (Err(NoAccess::Mistakes { file, problems }), _) => Err(Failure::Mistakes { file, problems }),
        (Err(NoAccess::File { file, why } | NoAccess::Unsafe { file, why }), _) => Err(Failure::File { file, why }),
    }
}

/// The token for a Brain: the variable's, else the one of `vancetope login` for this very Brain, else, on the Brain's own machine, the
/// one that the Brain left in the home. No stored token serves for another Brain than its own.
pub(super) fn token(environment: &Environment, home: &Path, brain: &Url) -> Option<Token> {
    let is_theirs = environment.project_brain.as_ref() == Some(brain);
    if let (Some(text), false) = (&environment.token, is_theirs) {
        return Some(Token::new(text));
    }
    match if is_ours(home) { Access::read(home) } else { Ok(None) } {
        Ok(Some(access)) => {
            if let Some(token) = access.token_for(brain) {
                return Some(token);
            }
        }
        Ok(None) => {}
        Err(error) => tracing::warn!("{error}; going on without it"),
    }
    // Behind TLS its own Brain may have a name instead of the loopback.
    if is_theirs || !(is_loopback(brain) || address::of_running(home).as_ref() == Some(brain)) {
        return None;
    }
    let path = local_token(home);
    match read_token(&path) {
        Ok(text) => Some(Token::new(&text)).filter(|t| !t.reveal().is_empty()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => {
            tracing::warn!("{}: {error}; going on without a token", vance_shared::show::plain(&path.to_string_lossy()));
            None
        }
    }
}

/// Where a token may be stored in this home.
pub(super) fn token_files(home: &Path) -> [PathBuf; 2] {
    [Access::file(home), local_token(home)]
}

fn local_token(home: &Path) -> PathBuf {
    home.join("brain").join("local.token")
}

/// What a home names that is not used, since it may have come with a project.
fn not_used(home: &Path) -> Option<String> {
    let names_one = Access::file(home).exists() || home.join("brain").join("address").exists();
    names_one.then(|| {
        let home = crate::paths::shown(home);
        format!("the home {home} lies below the working directory and may have come with it: neither its Brain nor its token is used; work in another folder, or name both (--brain, VANCE_TOKEN)")
    })
}

/// A home that came with the working directory names no Brain and holds no token of the user's.
fn is_ours(home: &Path) -> bool {
    std::env::current_dir().is_ok_and(|here| crate::trust::is_own_home(home, &here))
}

fn read_token(path: &Path) -> std::io::Result<String> {
    use std::io::Read as _;
    let mut text = String::new();
    vance_own_file::open_linked(path)?.take(TOKEN_FILE_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_token_file_serves_only_the_brain_of_this_machine_and_the_variable_comes_first() {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir(home.path().join("brain")).unwrap();
        std::fs::write(home.path().join("brain/local.token"), "from-file\n").unwrap();
        let with = Environment { token: Some("from-variable".to_owned()), ..Environment::default() };
        let without = Environment::default();
        let theirs = |url| Environment { project_brain: Some(Url::parse(url).unwrap()), ..with.clone() };
        let (here, there) = (theirs("http://127.0.0.1:9990"), theirs("https://brain.example.org"));
        for (environment, url, want) in [
            (&without, "http://127.0.0.1:9990", Some("from-file")),
            (&without, "https://brain.example.org", None),
            (&with, "http://127.0.0.1:9990", Some("from-variable")),
            (&with, "https://brain.example.org", Some("from-variable")),
            (&here, "http://127.0.0.1:9990", None),
            (&there, "https://brain.example.org", None),
            (&there, "https://another.example.org", Some("from-variable")),
        ] {
            let got = token(environment, home.path(), &Url::parse(url).unwrap());
            assert_eq!(got.as_ref().map(Token::reveal), want, "{url}");
        }
        assert_eq!(token(&without, Path::new("/nowhere"), &Url::parse("http://localhost:1").unwrap()), None);
    }

    #[test]
    fn the_token_of_a_login_serves_its_own_brain_before_the_local_file() {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir(home.path().join("brain")).unwrap();
        std::fs::write(home.path().join("brain/local.token"), "from-file\n").unwrap();
        let url = |text: &str| Url::parse(text).unwrap();
        let paired = |brain: &str| {
            let access = Access { brain: url(brain), token: Token::new("from-login"), allow_insecure: false };
            access.write(home.path()).unwrap();
        };
        for (brain, asked, want) in [
            ("https://b.example", "https://b.example", Some("from-login")),
            ("https://b.example", "https://other.example", None),
            ("https://b.example", "http://127.0.0.1:9990", Some("from-file")),
            ("http://127.0.0.1:9990", "http://127.0.0.1:9990", Some("from-login")),
        ] {
            paired(brain);
            let got = token(&Environment::default(), home.path(), &url(asked));
            assert_eq!(got.as_ref().map(Token::reveal), want, "{brain} {asked}");
        }
    }

    #[test]
    fn a_home_that_names_a_brain_and_is_not_used_is_said() {
        let home = tempfile::tempdir().unwrap();
        assert_eq!(not_used(home.path()), None);
        std::fs::create_dir(home.path().join("brain")).unwrap();
        std::fs::write(home.path().join("brain/address"), "http://127.0.0.1:1\n").unwrap();
        assert!(not_used(home.path()).unwrap().contains("below the working directory"));
    }

    #[test]
    fn the_home_is_the_variable_or_dot_vancetope() {
        let environment = Environment { user_home: Some("/home/me".into()), ..Environment::default() };
        assert_eq!(environment.home(), Some("/home/me/.vancetope".into()));
        let environment = Environment { vance_home: Some("/x".into()), ..environment };
        assert_eq!(environment.home(), Some("/x".into()));
    }
}
