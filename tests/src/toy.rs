//! A tool server whose effects are lines in a ledger, as a pack of a Foot or of the Brain.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::home::Home;

/// The program.
const TOY: &str = include_str!("toy.py");

/// A toy and its ledger. Several packs may write one ledger.
#[derive(Debug, Clone)]
pub struct Toy {
    file: PathBuf,
    program: PathBuf,
}

impl Toy {
    /// A toy whose files are in a home's project folder.
    pub fn new(home: &Home) -> anyhow::Result<Self> {
        let file = home.write_project("toy-ledger.txt", "")?;
        let program = home.write_project("toy.py", TOY)?;
        Ok(Self { file, program })
    }

    /// Gives a home's Foot the pack `toy`.
    pub fn for_foot(&self, home: &Home) -> anyhow::Result<()> {
        self.pack(home, "foot-tools/toy.json", "toy", &[]).map(drop)
    }

    /// Gives a home's Brain a pack of that name.
    pub fn for_brain(&self, home: &Home, name: &str, words: &[&str]) -> anyhow::Result<()> {
        self.pack(home, &format!("brain/packs/{name}.json"), name, words).map(drop)
    }

    /// Writes a pack file below a home; `words` are the toy's.
    pub fn pack(&self, home: &Home, file: &str, name: &str, words: &[&str]) -> anyhow::Result<PathBuf> {
        let mut command =
            vec!["python3".to_owned(), self.program.display().to_string(), self.file.display().to_string()];
        command.extend(words.iter().map(|w| (*w).to_owned()));
        let parameters = json!({
            "transport": "stdio", "command": command,
            "restart": {"maxRestarts": 1000, "windowSeconds": 60},
        });
        home.write(file, &json!({"name": name, "type": "mcp_server", "parameters": parameters}).to_string())
    }

    /// The ledger's path: every process of this toy has it in its command line.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// How often each step began.
    pub fn begun(&self) -> anyhow::Result<HashMap<String, usize>> {
        let mut begun = HashMap::new();
        for line in std::fs::read_to_string(&self.file)?.lines() {
            if let Some(name) = line.strip_prefix("begin ") {
                *begun.entry(name.to_owned()).or_default() += 1;
            }
        }
        Ok(begun)
    }

    /// How often one step began.
    pub fn begun_of(&self, name: &str) -> anyhow::Result<usize> {
        Ok(self.begun()?.get(name).copied().unwrap_or(0))
    }
}
