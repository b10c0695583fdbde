//! The task tree file: read once, its text goes to the Brain as it stands.

use std::io::Read;
use std::path::Path;

use vance_shared::doc::{Node, Problem, Problems, read_json, read_yaml};
use vance_shared::ids::SessionId;

use crate::cli::failure::Failure;

/// Largest file, in bytes: thousands of tasks fit; a larger one is not a task tree.
const MAX_FILE_BYTES: u64 = 4 * 1024 * 1024;

/// A file that is at least YAML or JSON; what it means is the Brain's to say.
#[derive(Debug)]
pub(super) struct TreeFile {
    /// As the caller named it.
    pub(super) name: String,
    /// Its text.
    pub(super) text: String,
    /// Its media type.
    pub(super) content_type: &'static str,
    /// The session that it names.
    pub(super) session: Option<SessionId>,
}

impl TreeFile {
    /// Reads a file; `-` is standard input.
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        let name =
            if path == Path::new("-") { "standard input".to_owned() } else { path.to_string_lossy().into_owned() };
        let fault = |why: String| Failure::File { file: name.clone(), why };
        let mut text = String::new();
        let read = if path == Path::new("-") {
            std::io::stdin().lock().take(MAX_FILE_BYTES + 1).read_to_string(&mut text)
        } else {
            std::fs::File::open(path).and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text))
        };
        let bytes = read.map_err(|error| fault(error.to_string()))?;
        if bytes as u64 > MAX_FILE_BYTES {
            return Err(fault(format!("larger than {MAX_FILE_BYTES} bytes, expected a task tree")));
        }
        let is_json = path.extension().is_some_and(|e| e.eq_ignore_ascii_case("json"))
            || (path == Path::new("-") && serde_json::from_str::<serde::de::IgnoredAny>(&text).is_ok());
        Self::of(name, text, is_json)
    }

    fn of(name: String, text: String, is_json: bool) -> Result<Self, Failure> {
        let problems = Problems::new(&name);
        // What the Brain's reader sees in spite of problems, it has more to say about.
        let parsed = if is_json { read_json(&text, &problems) } else { read_yaml(&text, &problems) };
        match parsed {
            Some(root) => {
                let session = root.get("session").and_then(Node::as_str).and_then(|s| SessionId::parse(s).ok());
                let content_type = if is_json { "application/json" } else { "application/yaml" };
                Ok(Self { name, text, content_type, session })
            }
            None => Err(Failure::Mistakes { problems: problems.into_list(), file: name }),
        }
    }

    /// The Brain's problems, under this file's name.
    pub(super) fn mistakes(&self, problems: Vec<crate::api::Problem>) -> Failure {
        let problems = problems.into_iter().map(|p| Problem {
            file: self.name.clone(),
            line: u32::try_from(p.line).unwrap_or(0),
            message: p.message,
        });
        Failure::Mistakes { file: self.name.clone(), problems: problems.collect() }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_session_is_read_and_a_broken_file_has_its_line() {
        let file = TreeFile::of("p.yaml".into(), "session: sess_7\ntasks: []\n".into(), false).unwrap();
        assert_eq!((file.session.unwrap().as_str(), file.content_type), ("sess_7", "application/yaml"));
        let file = TreeFile::of("p.json".into(), "[]".into(), true).unwrap();
        assert_eq!((file.session, file.content_type), (None, "application/json"));
        let Failure::Mistakes { problems, .. } =
            TreeFile::of("p.yaml".into(), "tasks:\n- id: [\n".into(), false).unwrap_err()
        else {
            panic!("mistakes")
        };
        assert!(problems.iter().all(|p| p.file == "p.yaml" && p.line > 0), "{problems:?}");
    }

    #[test]
    fn a_file_that_is_not_there_or_no_text_is_a_file_error() {
        let error = TreeFile::read(Path::new("/nowhere/plan.yaml")).unwrap_err();
        assert!(error.to_string().starts_with("/nowhere/plan.yaml: ") && error.exit() == 2, "{error}");
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), [0xff, 0xfe]).unwrap();
        assert_eq!(TreeFile::read(file.path()).unwrap_err().exit(), 2);
    }
}
