//! A pack whose one tool says in which trace it was called.

use std::path::PathBuf;

use serde_json::json;
use vance_tests::home::Home;

const TELLER: &str = include_str!("teller.py");

/// A teller and its ledger.
pub(crate) struct Teller {
    ledger: PathBuf,
    program: PathBuf,
}

impl Teller {
    pub(crate) fn new(home: &Home) -> anyhow::Result<Self> {
        let ledger = home.write_project("teller.txt", "")?;
        Ok(Self { ledger, program: home.write_project("teller.py", TELLER)? })
    }

    /// Writes a pack file below a home.
    pub(crate) fn pack(&self, home: &Home, file: &str, name: &str) -> anyhow::Result<()> {
        let command = json!(["python3", self.program, self.ledger]);
        let parameters = json!({"transport": "stdio", "command": command});
        home.write(file, &json!({"name": name, "type": "mcp_server", "parameters": parameters}).to_string())?;
        Ok(())
    }

    /// How often a line is in the ledger.
    pub(crate) fn count(&self, line: &str) -> anyhow::Result<usize> {
        Ok(std::fs::read_to_string(&self.ledger)?.lines().filter(|l| *l == line).count())
    }
}
