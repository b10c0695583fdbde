//! Where things are, for one run.

use std::path::{Path, PathBuf};

/// Folders of one run. Only names: nothing is opened here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paths {
    /// `$VANCE_HOME`, else `~/.vancetope`.
    pub home: PathBuf,
    /// The Foot's own state: identities, journals, private working directories.
    pub state: PathBuf,
    /// Packs of the user's own.
    pub global_packs: PathBuf,
    /// The working directory.
    pub project: PathBuf,
    /// Packs that come with the working directory (no search upwards).
    pub project_packs: PathBuf,
}

impl Paths {
    /// `packs_dir` (`VANCE_FOOT_TOOLS_DIR`) replaces the folder of global packs only.
    pub fn new(home: &Path, project: &Path, packs_dir: Option<&Path>) -> Self {
        Self {
            home: home.to_owned(),
            state: home.join("state"),
            global_packs: packs_dir.map_or_else(|| home.join("foot-tools"), Path::to_owned),
            project: project.to_owned(),
            project_packs: project.join(".vancetope").join("foot-tools"),
        }
    }
}

/// A path for people: what would steer a terminal is escaped.
pub(crate) fn shown(path: &Path) -> String {
    vance_shared::show::plain(&path.to_string_lossy())
}
