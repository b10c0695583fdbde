//! An effects ledger: a file that only the tool writes. What really ran is read there, never from the system's own word.

use std::path::{Path, PathBuf};

use crate::home::Home;

/// The ledger and the program that writes it: `PROGRAM NAME [SECONDS]` appends `begin NAME`, sleeps, appends `end NAME`.
pub struct Ledger {
    file: PathBuf,
    program: PathBuf,
}

impl Ledger {
    /// A ledger in a home, and the permission for its Foot to run the program.
    pub fn new(home: &Home) -> anyhow::Result<Self> {
        let file = home.project().join("ledger.txt");
        std::fs::write(&file, "")?;
        let script = format!(
            "#!/bin/sh\necho \"begin $1\" >> '{0}'\nsleep \"${{2:-0}}\"\necho \"end $1\" >> '{0}'\necho \"wrote $1\"\n",
            file.display()
        );
        let program = home.write_project("ledger", &script)?;
        make_executable(&program)?;
        home.write("permissions.yaml", &format!("allow:\n- exec: [\"{}\"]\n", program.display()))?;
        Ok(Self { file, program })
    }

    /// The program.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Lines so far.
    pub fn lines(&self) -> anyhow::Result<Vec<String>> {
        Ok(std::fs::read_to_string(&self.file)?.lines().map(str::to_owned).collect())
    }

    /// How often something began.
    pub fn begun(&self, name: &str) -> anyhow::Result<usize> {
        let wanted = format!("begin {name}");
        Ok(self.lines()?.iter().filter(|l| **l == wanted).count())
    }

    /// How often something came to its end.
    pub fn ended(&self, name: &str) -> anyhow::Result<usize> {
        let wanted = format!("end {name}");
        Ok(self.lines()?.iter().filter(|l| **l == wanted).count())
    }
}

fn make_executable(path: &Path) -> anyhow::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))?;
    Ok(())
}
