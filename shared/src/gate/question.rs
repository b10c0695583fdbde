//! What a person is asked, and what comes of the answer.

use std::fmt::Write as _;

use super::facts::{Facts, assignment};
use super::reach::too_long;
use super::unwatched::unwatched;
use super::{Digest, Entry, MAX_SHOWN_BYTES, Project, TrustedLaunch, changes_what_runs, quote, reach};
use crate::launch::{LaunchPlan, Transport};
use crate::show::ascii;

/// The last line of the prompt, without its end.
const CHOICES: &str = "Load it? [1] once  [2] always for this project  [3] no \u{203a}";

/// The same where a document leads elsewhere: the pack itself has its yes.
const LEADS_CHOICES: &str = "Load it? [1] once  [2] always for this project  [3] no, only what the pack names \u{203a}";

/// A pack that waits for an answer. What is launched later is exactly what is shown.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    launch: TrustedLaunch,
    project: Project,
    /// Of the pack alone; the launch's is also of where its document leads.
    digest: Digest,
    facts: Facts,
    text: String,
}

/// What a person said. Everything that is neither `1` nor `2` is a no.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// For this run.
    Once,
    /// For this project, until something changes.
    Always,
    /// Not now.
    No,
}

impl Answer {
    /// A whole line, without its end.
    pub fn of(line: &str) -> Self {
        match line.trim() {
            "1" => Self::Once,
            "2" => Self::Always,
            _ => Self::No,
        }
    }
}

/// Why there was no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unasked {
    /// There is nobody to ask.
    Nobody(Nobody),
    /// A person said no.
    Refused,
    /// Nobody answered in time.
    TimedOut,
    /// Two questions before were not answered in time.
    GivenUp,
}

/// Why there is nobody to ask, as a clause, and what a person can do about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nobody {
    /// `there is no terminal to ask on`.
    pub why: &'static str,
    /// `start vancetope in a terminal`.
    pub way_out: &'static str,
}

impl Nobody {
    /// Standard input or standard error is no terminal.
    pub const NO_TERMINAL: Self =
        Self { why: "there is no terminal to ask on", way_out: "start vancetope in a terminal" };
}

impl Default for Nobody {
    fn default() -> Self {
        Self::NO_TERMINAL
    }
}

/// Timeouts in a row after which the rest of a load is not asked any more: nobody is there.
const PATIENCE: u8 = 2;

/// Whether it makes sense to ask on, within one load.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Patience(u8);

impl Patience {
    /// False once two questions in a row were not answered in time.
    pub fn asks(self) -> bool {
        self.0 < PATIENCE
    }

    /// Somebody is there, whatever they said.
    pub fn answered(&mut self) {
        self.0 = 0;
    }

    /// Nobody said anything.
    pub fn timed_out(&mut self) {
        self.0 = self.0.saturating_add(1);
    }
}

/// An approval that names another digest than the pack has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("pack '{pack}' has the digest {is}, not {given}: look at it again with `vancetope trust show {pack}`")]
pub struct WrongDigest {
    /// The pack.
    pub pack: String,
    /// What was approved.
    pub given: Digest,
    /// What is there.
    pub is: Digest,
}

impl Question {
    /// The error is the reason why it cannot be asked.
    pub(super) fn new(
        launch: TrustedLaunch,
        project: &Project,
        digest: Digest,
        facts: Facts,
        before: Option<Entry>,
        replaces: Option<&LaunchPlan>,
    ) -> Result<Self, String> {
        let plan = launch.plan();
        let mut text = head(plan, project, &facts, replaces);
        let choices = if facts.leads.is_empty() { CHOICES } else { LEADS_CHOICES };
        if text.len() + choices.len() > MAX_SHOWN_BYTES {
            return Err(too_long(text.len() + choices.len()));
        }
        if let Some(before) = before {
            changed(&mut text, &before, plan, &facts);
        }
        text.push_str(choices);
        Ok(Self { project: project.clone(), digest, facts, text, launch })
    }

    /// The prompt, without a blank or a newline behind its last line.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// What would be launched.
    pub fn plan(&self) -> &LaunchPlan {
        self.launch.plan()
    }

    /// Whose pack it is.
    pub fn project(&self) -> &Project {
        &self.project
    }

    /// What consent would cover.
    pub fn digest(&self) -> Digest {
        self.launch.digest().unwrap_or(self.digest)
    }

    /// Whether it is about where the pack's document leads, and the pack itself is allowed.
    pub fn is_about_document(&self) -> bool {
        !self.facts.leads.is_empty()
    }

    /// The launch if the answer allows it, and the entry to write down if it is meant to last. `today` as `2026-03-01`.
    pub fn answered(self, answer: Answer, today: &str) -> Option<(TrustedLaunch, Option<Entry>)> {
        match answer {
            Answer::Once => Some((self.launch, None)),
            Answer::Always => {
                let entry = self.entry(today);
                Some((self.launch, Some(entry)))
            }
            Answer::No => None,
        }
    }

    /// Approval without a terminal: only for exactly the digest that was looked at.
    pub fn approved(self, digest: Digest, today: &str) -> Result<(TrustedLaunch, Entry), WrongDigest> {
        if digest != self.digest() {
            return Err(WrongDigest { pack: self.plan().pack.to_string(), given: digest, is: self.digest() });
        }
        let entry = self.entry(today);
        Ok((self.launch, entry))
    }

    /// The reason to show for a pack that was not allowed. `own`: the folder of the user's own packs.
    pub fn reason(&self, unasked: Unasked, own: &str) -> String {
        let (pack, own) = (&self.plan().pack, ascii(own));
        match unasked {
            Unasked::Nobody(Nobody { why, way_out }) if self.is_about_document() => format!(
                "its document leads to {}, which the pack does not name, and {why}; {way_out}, or name it in `allowedHosts` or `baseUrl`",
                self.facts.leads.iter().map(|lead| quote(lead)).collect::<Vec<_>>().join(", ")
            ),
            Unasked::Nobody(Nobody { why, way_out }) => format!(
                "comes with the working directory and needs consent, and {why}; {way_out}, allow it with `vancetope trust allow --pack {pack} --digest {}`, or move it to {own}",
                self.digest
            ),
            Unasked::Refused => "you said no; /tools reload asks again".to_owned(),
            Unasked::TimedOut => "nobody answered in time, which counts as no; /tools reload asks again".to_owned(),
            Unasked::GivenUp => "not asked, as nobody answered the ones before; /tools reload asks again".to_owned(),
        }
    }

    fn entry(&self, today: &str) -> Entry {
        let plan = self.plan();
        let mut entry = Entry::new(plan.pack.clone(), reach(&without_document(plan)), self.digest, &self.facts, today);
        entry.document = self.launch.digest().filter(|_| self.is_about_document());
        entry
    }
}

/// As the pack was judged before its document was fetched.
fn without_document(plan: &LaunchPlan) -> LaunchPlan {
    let mut plan = plan.clone();
    if let Transport::Rest(rest) = &mut plan.transport
        && !rest.leads().is_empty()
    {
        (rest.document_base, rest.document_hosts) = (None, Vec::new());
    }
    plan
}

/// `run: COMMAND` or `reach: URL`.
fn verb(plan: &LaunchPlan) -> (&'static str, &'static str) {
    match plan.transport {
        Transport::Stdio { .. } => ("run", "runs"),
        Transport::Http { .. } | Transport::Rest(_) => ("reach", "reaches"),
    }
}

fn head(plan: &LaunchPlan, project: &Project, facts: &Facts, replaces: Option<&LaunchPlan>) -> String {
    let Facts { env, headers, access, sends, cwd, files, args, replay, labels: _, leads } = facts;
    let mut text = format!("Project tool pack '{}' from {}\n", plan.pack, ascii(&plan.source.file));
    let mut line = |label: &str, value: &str| {
        let written = writeln!(text, "  {label:<13} {value}");
        debug_assert!(written.is_ok(), "writing to a String cannot fail");
    };
    line(&format!("wants to {}:", verb(plan).0), &reach(plan));
    for lead in leads {
        line("leads to:", &format!("{} (says its document, not the pack)", quote(lead)));
    }
    if let Some(cwd) = cwd {
        let place = if cwd == "." { "the project directory".to_owned() } else { quote(cwd) };
        line("works in:", &place);
    }
    for (name, value) in env {
        let mark = if changes_what_runs(name) { "   (!) changes what runs" } else { "" };
        line("with env:", &format!("{}{mark}", assignment(name, value)));
    }
    for (name, value) in headers {
        line("with header:", &assignment(name, value));
    }
    for (name, value) in access {
        line("with access:", &assignment(name, value));
    }
    for (key, value) in args {
        line("with args:", &assignment(key, value));
    }
    for (tool, word) in replay {
        line("with replay:", &assignment(tool, word));
    }
    for name in sends {
        line("sends:", &format!("${}", ascii(name)));
    }
    for file in files.keys() {
        let label = if std::path::Path::new(file).is_absolute() { "local file:" } else { "repo code:" };
        line(label, &format!("{} (asks again when it changes)", quote(file)));
    }
    if let Some(own) = replaces {
        line("replaces:", &format!("your global pack '{}', which {}: {}", own.pack, verb(own).1, reach(own)));
    }
    if let Some(why) = unwatched(plan, project, files) {
        text.push_str(&format!("  (!) {why}\n"));
    }
    text
}

/// The lines that are gone and the ones that are new.
fn changed(text: &mut String, before: &Entry, plan: &LaunchPlan, facts: &Facts) {
    let on = before.since.as_deref().map(|since| format!(" on {}", ascii(since))).unwrap_or_default();
    text.push_str(&format!("  changed since you allowed it{on}:\n"));
    let (mut old, mut new) = (before.facts().lines(), facts.lines());
    old.insert(0, format!("{} {}", verb(plan).0, ascii(&before.reach)));
    new.insert(0, format!("{} {}", verb(plan).0, reach(&without_document(plan))));
    let mut same = true;
    let gone = old.iter().filter(|line| !new.contains(line)).map(|line| ('-', line));
    let come = new.iter().filter(|line| !old.contains(line)).map(|line| ('+', line));
    for (sign, line) in gone.chain(come) {
        same = false;
        text.push_str(&format!("    {sign} {line}\n"));
    }
    if same {
        text.push_str("    ~ other settings of the pack\n");
    }
}
