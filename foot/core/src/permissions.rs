//! What the tools of this Foot may do: `deny` beats `ask` beats `allow`, and a floor that no rule lifts.
//!
//! | asked for | order of judgement |
//! |---|---|
//! | read, write | floor → outside the roots: deny → `deny` → `ask` → `allow` → reads are allowed, writes ask |
//! | exec | floor (paths that the words name) → `deny` → shell metacharacters: ask → `ask` → `allow` → ask |
//! | a tool without more to judge | `deny` → `ask` → allowed |
//!
//! Pure: paths come in absolute and without `.` or `..`; whoever opens a file resolves its links and asks again for the
//! real path. `Ask` without somebody to answer is a no.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use vance_shared::show::{plain, quoted};

mod exec;
mod parse;
mod paths;
mod sandbox;
mod words;
pub use parse::parse_permissions;
pub use paths::{Places, normal};
pub use sandbox::Fence;

use paths::PathGlob;

/// Characters of a foreign path or word in a message.
const MAX_SHOWN: usize = 200;

/// What a rule says about what it matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Goes without a question.
    Allow,
    /// A person answers.
    Ask,
    /// Never.
    Deny,
}

impl Effect {
    fn word(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::Deny => "deny",
        }
    }
}

#[derive(Debug, Clone)]
enum Matcher {
    Exec(Vec<String>),
    Read(PathGlob),
    Write(PathGlob),
    Tool(String),
}

#[derive(Debug, Clone)]
struct Rule {
    effect: Effect,
    matcher: Matcher,
    file: Arc<str>,
    line: u32,
}

impl Rule {
    fn at(&self) -> String {
        format!("{}:{} (`{}`)", plain(&self.file), self.line, self.effect.word())
    }
}

/// The rules of one `permissions.yaml`, or of two of them after [`Rules::tightened_by`].
#[derive(Debug, Clone)]
pub struct Rules {
    file: Arc<str>,
    rules: Vec<Rule>,
    roots: Vec<String>,
    fence: Option<Fence>,
    /// Where `roots` and `sandbox` stand; none if they do not.
    roots_line: Option<u32>,
    fence_line: Option<u32>,
}

impl Rules {
    /// No rules: the defaults hold. `file` is where a person would add some; refusals name it.
    pub fn none(file: &str) -> Self {
        Self {
            file: file.into(),
            rules: Vec::new(),
            roots: Vec::new(),
            fence: None,
            roots_line: None,
            fence_line: None,
        }
    }

    /// The file that a person edits to allow something.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Adds a project's rules. They can only tighten: its `allow` entries and `roots` have no effect, each is a warning.
    pub fn tightened_by(mut self, project: Self) -> (Self, Vec<String>) {
        let mut warnings = Vec::from_iter(self.fence_of(&project));
        for rule in project.rules {
            match rule.effect {
                Effect::Ask | Effect::Deny => self.rules.push(rule),
                Effect::Allow => warnings.push(format!(
                    "{}: a project cannot allow anything; put the rule into {}",
                    rule.at(),
                    plain(&self.file)
                )),
            }
        }
        if let Some(line) = project.roots_line.filter(|_| !project.roots.is_empty()) {
            let (from, to) = (plain(&project.file), plain(&self.file));
            warnings.push(format!("{from}:{line} (`roots`): a project cannot add `roots`; put them into {to}"));
        }
        (self, warnings)
    }

    /// The sandbox of programs, if there is to be one.
    pub fn fence(&self) -> Option<&Fence> {
        self.fence.as_ref()
    }

    /// Where file tools may look, absolute: the `roots`, or the working directory if there are none.
    pub fn root_paths(&self, places: &Places) -> Vec<PathBuf> {
        if self.roots.is_empty() {
            return vec![places.working_dir.clone()];
        }
        self.roots.iter().map(|root| places.absolute(root)).collect()
    }

    /// The roots as they are written, and the line of `roots:`.
    pub fn roots(&self) -> (&[String], Option<u32>) {
        (&self.roots, self.roots_line)
    }

    /// What the rules say about a tool as a whole. `None` if they do not name it.
    fn tool_rule(&self, effect: Effect, tool: &str) -> Option<&Rule> {
        self.rules.iter().find(|r| r.effect == effect && matches!(&r.matcher, Matcher::Tool(name) if name == tool))
    }
}

/// What somebody wants to do.
#[derive(Debug, Clone, Copy)]
pub enum Action<'a> {
    /// Read a file or a folder; the path is absolute and normal.
    Read(&'a Path),
    /// Create, change or delete; the path is absolute and normal.
    Write(&'a Path),
    /// Start a program.
    Exec {
        /// The words, or the line for `sh -c`.
        what: Program<'a>,
        /// Where it starts, absolute.
        cwd: &'a Path,
        /// The variables that the call sets, with their values.
        env: &'a [(&'a str, &'a str)],
    },
    /// Use the tool; there is nothing more to judge (also the tools of packs that may run).
    Use,
}

/// How a program is named.
#[derive(Debug, Clone, Copy)]
pub enum Program<'a> {
    /// Program and arguments; no shell reads them.
    Argv(&'a [String]),
    /// A line for `sh -c`.
    Command(&'a str),
}

/// The judgement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Go on.
    Allow,
    /// A person decides.
    Ask(Reason),
    /// No.
    Deny(Reason),
}

impl Verdict {
    /// The stricter of two verdicts on the same thing (its name and what its links lead to).
    pub fn and(self, other: Self) -> Self {
        match (&self, &other) {
            (Self::Deny(_), _) => self,
            (_, Self::Deny(_)) => other,
            (Self::Ask(_), _) => self,
            (_, Self::Ask(_) | Self::Allow) => other,
        }
    }
}

/// Why it is not simply allowed, and what a person can do about it. Safe to print.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason {
    /// What was wanted and which rule stands against it.
    pub why: String,
    /// What to change, as a sentence's second half: ``add `- {write: out.txt}` under `allow:` in FILE``. Empty if nothing can allow it.
    pub remedy: String,
    /// For whoever is asked: all of what is wanted, nothing cut. Empty unless it is a question.
    pub lines: Vec<Line>,
    /// For whoever is asked: the entry under `allow:` that answers exactly this for ever, as YAML. None if no entry does.
    pub rule: Option<String>,
}

/// A line of a question: `("wants to run", "git status")`.
pub type Line = (&'static str, String);

impl Reason {
    /// Both halves.
    pub fn sentence(&self) -> String {
        if self.remedy.is_empty() { self.why.clone() } else { format!("{}; {}", self.why, self.remedy) }
    }
}

/// Rules at their place: with the folders that they are about.
#[derive(Debug, Clone)]
pub struct Policy {
    rules: Rules,
    places: Places,
    roots: Vec<PathBuf>,
}

impl Policy {
    /// Rules, the places they speak of, and the roots (in every spelling: as written and with links resolved).
    pub fn new(rules: Rules, places: Places, roots: Vec<PathBuf>) -> Self {
        Self { rules, places, roots }
    }

    /// The places.
    pub fn places(&self) -> &Places {
        &self.places
    }

    /// Judges.
    pub fn decide(&self, tool: &str, action: Action<'_>) -> Verdict {
        match action {
            Action::Read(path) => self.decide_path(tool, path, false),
            Action::Write(path) => self.decide_path(tool, path, true),
            Action::Exec { what, cwd, env } => self.decide_exec(tool, what, cwd, env),
            Action::Use => self.decide_tool(tool),
        }
    }

    fn decide_tool(&self, tool: &str) -> Verdict {
        let wanted = format!("using the tool {}", quoted(tool, MAX_SHOWN));
        if let Some(rule) = self.rules.tool_rule(Effect::Deny, tool) {
            return denied(&wanted, rule);
        }
        match self.rules.tool_rule(Effect::Ask, tool) {
            Some(rule) => asked(&wanted, rule, Vec::new()),
            None => Verdict::Allow,
        }
    }

    fn decide_path(&self, tool: &str, path: &Path, writing: bool) -> Verdict {
        let shown = quoted(&path.to_string_lossy(), MAX_SHOWN);
        let wanted = format!("{} {shown}", if writing { "writing" } else { "reading" });
        if self.places.is_floor(path, writing) {
            return deny(format!("{wanted} is refused: it is protected and no rule can allow it"), String::new());
        }
        if !self.roots.iter().any(|root| path.starts_with(root)) {
            return self.outside(&wanted);
        }
        let spellings = self.places.spellings(path);
        let find = |effect: Effect| {
            self.rules.rules.iter().find(|rule| {
                rule.effect == effect
                    && match &rule.matcher {
                        Matcher::Tool(name) => name == tool,
                        Matcher::Read(glob) if !writing => {
                            glob.covers(&spellings, &self.places, effect != Effect::Allow)
                        }
                        Matcher::Write(glob) if writing => {
                            glob.covers(&spellings, &self.places, effect != Effect::Allow)
                        }
                        Matcher::Read(_) | Matcher::Write(_) | Matcher::Exec(_) => false,
                    }
            })
        };
        if let Some(rule) = find(Effect::Deny) {
            return denied(&wanted, rule);
        }
        if let Some(rule) = find(Effect::Ask) {
            return asked(&wanted, rule, vec![in_full(path, writing)]);
        }
        if !writing || find(Effect::Allow).is_some() {
            return Verdict::Allow;
        }
        let exactly = path.to_str().map(|path| format!("{{write: {}}}", paths::exact_glob(path)));
        let remedy = match &exactly {
            Some(rule) => self.add(&format!("- {rule}")),
            None => "its name is no text, so no rule can be about it alone".to_owned(),
        };
        ask(format!("{wanted} needs a yes"), remedy, vec![in_full(path, writing)], exactly)
    }

    fn outside(&self, wanted: &str) -> Verdict {
        let roots: Vec<String> = self.roots.iter().map(|r| quoted(&r.to_string_lossy(), MAX_SHOWN)).collect();
        let why =
            format!("{wanted} is refused: it is outside the folders that file tools may use ({})", roots.join(", "));
        deny(
            why,
            format!(
                "to allow it, add its folder under `roots:` in {} (with the working directory, `.`, if that is to stay)",
                plain(&self.rules.file)
            ),
        )
    }

    fn add(&self, rule: &str) -> String {
        format!("to allow it, add `{}` under `allow:` in {}", plain(rule), plain(&self.rules.file))
    }
}

fn denied(wanted: &str, rule: &Rule) -> Verdict {
    deny(format!("{wanted} is denied by {}", rule.at()), String::new())
}

fn asked(wanted: &str, rule: &Rule, mut lines: Vec<Line>) -> Verdict {
    lines.push(("asked by", rule.at()));
    ask(format!("{wanted} needs a yes, says {}", rule.at()), "to allow it, take that rule out".to_owned(), lines, None)
}

fn deny(why: String, remedy: String) -> Verdict {
    Verdict::Deny(Reason { why, remedy, lines: Vec::new(), rule: None })
}

fn ask(why: String, remedy: String, lines: Vec<Line>, rule: Option<String>) -> Verdict {
    Verdict::Ask(Reason { why, remedy, lines, rule })
}

fn in_full(path: &Path, writing: bool) -> Line {
    (if writing { "wants to write" } else { "wants to read" }, vance_shared::gate::quote(&path.to_string_lossy()))
}

#[cfg(test)]
mod tests;
