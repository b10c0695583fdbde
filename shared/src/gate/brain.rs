//! `project.eddie.yaml`: a project that names a Brain, or a session, to work with. It is content of the working directory like a pack, and asks
//! with the same prompt; a yes is kept in `trusted-brains.yaml`.

use super::facts::Facts;
use super::{Book, Digest, Entry, Project};
use crate::doc::{Fields, Problem, Problems, read_yaml};
use crate::ids::SessionId;
use crate::names::PackName;
use crate::show::ascii;

/// Largest file: two lines and their comments.
pub const MAX_BINDING_BYTES: usize = 64 * 1024;
/// Tells this hash from every other use of sha256; a new number asks everybody again.
const DOMAIN: &str = "vancetope project brain 1";
/// A project has one binding; this is its entry's name.
const NAME: &str = "brain";

/// What a project wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binding {
    /// The file, as its reader named it.
    pub file: String,
    /// The Brain's address. The shell checks it and puts its normal form here.
    pub brain: Option<String>,
    /// The session to work in.
    pub session: Option<SessionId>,
}

impl Binding {
    /// Reads the file: what it wants, if it wants anything, and what is odd about it.
    pub fn parse(file: &str, text: &str) -> Result<(Option<Self>, Vec<Problem>), Vec<Problem>> {
        let problems = Problems::new(file);
        if text.len() > MAX_BINDING_BYTES {
            problems.add(1, format!("the file has {} bytes, expected at most {MAX_BINDING_BYTES}", text.len()));
            return problems.into_result(None);
        }
        let read = read_yaml(text, &problems).and_then(|node| {
            if node.is_null() {
                return Some((None, Vec::new()));
            }
            let mut fields = Fields::of(&node, "the file", &problems)?;
            let brain = fields.take_str("brain").map(str::to_owned);
            let session = fields.take_parsed("session", SessionId::parse);
            let odd =
                fields.unknown().into_iter().map(|(_, line, message)| Problem::new(file, line, message)).collect();
            let wants = brain.is_some() || session.is_some();
            Some((wants.then(|| Self { file: file.to_owned(), brain, session }), odd))
        });
        problems.into_result(read)
    }

    /// What a yes covers.
    pub fn digest(&self) -> Digest {
        let Self { file: _, brain, session } = self;
        Digest::of(serde_json::json!([DOMAIN, brain, session]).to_string().as_bytes())
    }

    /// The address, or whose session it is, on one line.
    pub fn reach(&self) -> String {
        match (&self.brain, &self.session) {
            (Some(brain), None) => ascii(brain),
            (Some(brain), Some(session)) => format!("{} (session {session})", ascii(brain)),
            (None, Some(session)) => format!("your Brain (session {session})"),
            (None, None) => "nothing".to_owned(),
        }
    }

    /// Whether exactly this was allowed for good.
    pub fn is_allowed(&self, project: &Project, book: &Book) -> bool {
        self.before(project, book).is_some_and(|entry| entry.digest == Some(self.digest()))
    }

    fn before<'a>(&self, project: &Project, book: &'a Book) -> Option<&'a Entry> {
        book.entries().find(|(of, entry)| *of == project.key() && entry.name.as_str() == NAME).map(|(_, entry)| entry)
    }

    /// The prompt, without a blank or a newline behind its last line.
    pub fn question(&self, project: &Project, book: &Book) -> String {
        let mut text = format!("Project Brain from {}\n", ascii(&self.file));
        let mut line = |label: &str, value: &str| text.push_str(&format!("  {label:<13} {value}\n"));
        match &self.brain {
            Some(brain) => {
                line("wants to reach:", &ascii(brain));
                line("may call:", "the tools of this machine, as far as your permissions let it");
                line("gets:", "none of your tokens");
            }
            None => line("wants to reach:", "your Brain"),
        }
        if let Some(session) = &self.session {
            line("in session:", session.as_str());
        }
        if let Some(before) = self.before(project, book) {
            let on = before.since.as_deref().map(|since| format!(" on {}", ascii(since))).unwrap_or_default();
            text.push_str(&format!("  changed since you allowed it{on}:\n"));
            text.push_str(&format!("    - {}\n    + {}\n", ascii(&before.reach), self.reach()));
        }
        text.push_str("Use it? [1] once  [2] always for this project  [3] no \u{203a}");
        text
    }

    /// The entry for a yes that is to last.
    pub fn entry(&self, today: &str) -> Option<Entry> {
        let name = PackName::parse(NAME).ok()?;
        Some(Entry::new(name, self.reach(), self.digest(), &Facts::default(), today))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::path::Path;

    use super::*;

    fn binding(text: &str) -> Binding {
        Binding::parse("/repo/.vancetope/project.eddie.yaml", text).unwrap().0.unwrap()
    }

    #[test]
    fn a_project_s_brain_is_asked_about_until_exactly_it_is_allowed() {
        let project = Project::new(Path::new("/repo")).unwrap();
        let wish = binding("brain: https://brain.example/\nsession: sess_1\n");
        let mut book = Book::brains();
        assert!(!wish.is_allowed(&project, &book));
        assert_eq!(
            wish.question(&project, &book),
            "Project Brain from /repo/.vancetope/project.eddie.yaml\n\
             \x20 wants to reach: https://brain.example/\n\
             \x20 may call:     the tools of this machine, as far as your permissions let it\n\
             \x20 gets:         none of your tokens\n\
             \x20 in session:   sess_1\n\
             Use it? [1] once  [2] always for this project  [3] no \u{203a}"
        );
        book.allow(&project, &wish.entry("2026-03-01").unwrap());
        assert!(wish.is_allowed(&project, &book));
        let written = book.to_yaml().to_owned();
        assert!(written.starts_with("trustedBrains:\n  /repo:\n    - name: brain\n"), "{written}");
        assert!(wish.is_allowed(&project, &Book::parse_brains("f", &written).unwrap()));
        assert!(!wish.is_allowed(&project, &Book::parse("f", &written).unwrap()), "no pack's consent");
        for other in [
            "brain: https://brain.example/\n",
            "brain: https://brain.example.evil/\nsession: sess_1\n",
            "session: sess_1\n",
        ] {
            assert!(!binding(other).is_allowed(&project, &book), "{other}");
        }
        let moved = binding("brain: https://brain.example.evil/\nsession: sess_1\n");
        assert!(moved.question(&project, &book).contains(
            "  changed since you allowed it on 2026-03-01:\n    - https://brain.example/ (session sess_1)\n    + https://brain.example.evil/ (session sess_1)\n"
        ));
        assert!(!wish.is_allowed(&Project::new(Path::new("/other")).unwrap(), &book));
    }

    #[test]
    fn a_file_that_wants_nothing_and_one_that_is_wrong() {
        for (text, want) in [
            ("", Some(0)),
            ("# nothing\n", Some(0)),
            ("colour: red\n", Some(1)),
            ("brain: [1]\n", None),
            ("session: a/b\n", None),
            ("a: &x 1\nbrain: *x\n", None),
        ] {
            let got = Binding::parse("f", text);
            assert_eq!(got.as_ref().ok().map(|(_, odd)| odd.len()), want, "{text:?}: {got:?}");
            assert!(got.is_err() || got.unwrap().0.is_none(), "{text:?}");
        }
    }
}
