//! A home of its own for each test.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use tempfile::TempDir;

/// A temporary home, and beside it the working directory of its Foot.
pub struct Home {
    dir: TempDir,
    home: PathBuf,
}

impl Home {
    /// An empty home.
    pub fn new() -> anyhow::Result<Self> {
        let dir = tempfile::Builder::new().prefix("vance-test-").tempdir()?;
        let home = dir.path().join("home");
        std::fs::create_dir_all(&home)?;
        std::fs::create_dir_all(dir.path().join("project"))?;
        Ok(Self { dir, home })
    }

    /// The home.
    pub fn path(&self) -> &Path {
        &self.home
    }

    /// The folder of both, which no other test uses.
    pub fn root(&self) -> &Path {
        self.dir.path()
    }

    /// The working directory of its Foot.
    pub fn project(&self) -> PathBuf {
        self.dir.path().join("project")
    }

    /// Writes a file below the home.
    pub fn write(&self, name: &str, text: &str) -> anyhow::Result<PathBuf> {
        write(self.home.join(name), text)
    }

    /// Writes a file below the working directory.
    pub fn write_project(&self, name: &str, text: &str) -> anyhow::Result<PathBuf> {
        write(self.project().join(name), text)
    }

    /// A home whose Foot uses the Brain of another home: the token is copied.
    pub fn beside(brain: &Self) -> anyhow::Result<Self> {
        let home = Self::new()?;
        let token = std::fs::read_to_string(brain.path().join("brain/local.token"))?;
        home.write("brain/local.token", &token)?;
        Ok(home)
    }
}

fn write(path: PathBuf, text: &str) -> anyhow::Result<PathBuf> {
    let parent = path.parent().context("a file has a folder")?;
    std::fs::create_dir_all(parent)?;
    std::fs::write(&path, text)?;
    Ok(path)
}
