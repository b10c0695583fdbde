//! Judging the start of a program.

use std::path::Path;

use vance_shared::gate::quote;
use vance_shared::show::quoted;

use super::paths::yaml_word;
use super::{Effect, Line, MAX_SHOWN, Matcher, Policy, Program, Rule, Verdict, ask, asked, denied, deny, words};
use crate::command;

/// Words of a command that a suggested rule repeats in full; a longer one is suggested by its first two.
const MAX_SUGGESTED_WORDS: usize = 6;

impl Policy {
    pub(super) fn decide_exec(&self, tool: &str, what: Program<'_>, cwd: &Path, env: &[(&str, &str)]) -> Verdict {
        let wanted = format!("running {}", quoted(&line(what), MAX_SHOWN));
        if let Some(path) = self.named_floor_path(what, cwd) {
            return deny(
                format!("{wanted} is refused: it names {path}, which is protected; no rule can allow it"),
                String::new(),
            );
        }
        let candidates = candidates(what);
        let find = |effect: Effect| {
            self.rules
                .rules
                .iter()
                .find(|rule| rule.effect == effect && self.matches_strictly(rule, tool, &candidates, cwd))
        };
        if let Some(rule) = find(Effect::Deny) {
            return denied(&wanted, rule);
        }
        if let Program::Command(text) = what
            && command::has_metacharacters(text)
        {
            let why = format!("{wanted} needs a yes: shell metacharacters always ask");
            // No rule: one for `sh -c` would allow every script there is.
            return ask(
                why,
                "answer it at a terminal; or put the line into a script file and start that with `argv`, which a rule can allow".to_owned(),
                self.in_full(what, cwd, env),
                None,
            );
        }
        if let Some(rule) = find(Effect::Ask) {
            return asked(&wanted, rule, self.in_full(what, cwd, env));
        }
        if self.rules.tool_rule(Effect::Allow, tool).is_some() {
            return Verdict::Allow;
        }
        if let Some((name, _)) = env.iter().find(|(name, _)| command::changes_what_runs(name)) {
            let rule = format!("- {{tool: {}}}", yaml_word(tool));
            return ask(
                format!("{wanted} with {} set needs a yes: it changes what runs", quoted(name, MAX_SHOWN)),
                self.add(&rule),
                self.in_full(what, cwd, env),
                None,
            );
        }
        let argv = words(what);
        let allowed = |rule: &&Rule| {
            rule.effect == Effect::Allow
                && matches!(&rule.matcher, Matcher::Exec(prefix) if self.is_prefix(prefix, &argv, cwd))
        };
        if self.rules.rules.iter().any(|rule| allowed(&rule)) {
            return Verdict::Allow;
        }
        let remedy = match argv.len() {
            0..=MAX_SUGGESTED_WORDS => self.add(&format!("- {}", self.exactly(&argv, cwd))),
            // Two words of `python3 -c …` allow every program there is.
            _ if argv[1].starts_with('-') => {
                "answer it at a terminal; a rule for its first words would allow far more than this".to_owned()
            }
            _ => self.add(&format!("- {}", self.exactly(&argv[..2], cwd))),
        };
        ask(
            format!("{wanted} needs a yes"),
            remedy,
            self.in_full(what, cwd, env),
            Some(self.exactly(&argv, cwd)).filter(|_| !argv.is_empty()),
        )
    }

    /// The rule that starts with all of these words. A program that is a path is that file, wherever the next Foot works.
    fn exactly(&self, argv: &[String], cwd: &Path) -> String {
        let mut list: Vec<String> = argv.iter().map(|w| yaml_word(w)).collect();
        if let (Some(first), Some(program)) = (list.first_mut(), argv.first().filter(|p| p.contains('/'))) {
            *first = yaml_word(&self.places.absolute_from(cwd, program).to_string_lossy());
        }
        format!("{{exec: [{}]}}", list.join(", "))
    }

    fn in_full(&self, what: Program<'_>, cwd: &Path, env: &[(&str, &str)]) -> Vec<Line> {
        let line = match what {
            Program::Argv(argv) => words::line(argv.iter().map(String::as_str)),
            Program::Command(text) => words::line(["sh", "-c", text]),
        };
        let mut lines = vec![("wants to run", line)];
        if cwd != self.places.working_dir {
            lines.push(("in folder", quote(&cwd.to_string_lossy())));
        }
        for (name, value) in env {
            let warning = if command::changes_what_runs(name) { "   (!) changes what runs" } else { "" };
            lines.push(("with env", format!("{}={}{warning}", quote(name), quote(value))));
        }
        lines
    }

    /// For `deny` and `ask`: the program also by its bare name, and each command that the words may start.
    fn matches_strictly(&self, rule: &Rule, tool: &str, candidates: &[Vec<String>], cwd: &Path) -> bool {
        match &rule.matcher {
            Matcher::Tool(name) => name == tool,
            Matcher::Exec(prefix) => {
                candidates.iter().any(|words| self.is_prefix(prefix, words, cwd) || is_prefix_by_name(prefix, words))
            }
            Matcher::Read(_) | Matcher::Write(_) => false,
        }
    }

    /// Token prefix. A program with a `/` is the same file or it is another program: `./build.sh` in another folder does not match.
    fn is_prefix(&self, prefix: &[String], words: &[String], cwd: &Path) -> bool {
        let (Some((rule_program, rule_rest)), Some((program, rest))) = (prefix.split_first(), words.split_first())
        else {
            return false;
        };
        let same_program = if program.contains('/') || rule_program.contains('/') {
            program.contains('/')
                && rule_program.contains('/')
                && self.places.absolute(rule_program) == self.places.absolute_from(cwd, program)
        } else {
            program == rule_program
        };
        same_program && rest.starts_with(rule_rest)
    }

    /// A tripwire, not a wall: a program can reach a path without naming it.
    fn named_floor_path(&self, what: Program<'_>, cwd: &Path) -> Option<String> {
        let separators = |c: char| {
            c.is_whitespace()
                || matches!(
                    c,
                    '\'' | '"' | '=' | ':' | ',' | ';' | '&' | '|' | '<' | '>' | '(' | ')' | '`' | '{' | '}' | '@'
                )
        };
        let text = match what {
            Program::Argv(argv) => argv.join("\n"),
            Program::Command(text) => text.to_owned(),
        };
        let text = text.replace("${HOME}", "~").replace("$HOME", "~");
        text.split(separators).find_map(|word| {
            if !word.contains(['/', '~']) && !word.starts_with('.') {
                return None;
            }
            let path = self.places.absolute_from(cwd, word);
            self.places.is_floor(&path, false).then(|| quoted(word, MAX_SHOWN))
        })
    }
}

fn is_prefix_by_name(prefix: &[String], words: &[String]) -> bool {
    let (Some((rule_program, rule_rest)), Some((program, rest))) = (prefix.split_first(), words.split_first()) else {
        return false;
    };
    command::program_name(rule_program) == command::program_name(program) && rest.starts_with(rule_rest)
}

fn line(what: Program<'_>) -> String {
    match what {
        Program::Argv(argv) => argv.join(" "),
        Program::Command(text) => text.to_owned(),
    }
}

/// The words that an `allow` rule is compared with: exactly what starts.
fn words(what: Program<'_>) -> Vec<String> {
    match what {
        Program::Argv(argv) => argv.to_vec(),
        Program::Command(text) => command::tokens(text).unwrap_or_default(),
    }
}

fn candidates(what: Program<'_>) -> Vec<Vec<String>> {
    match what {
        Program::Command(text) => {
            let mut all = command::segments(text);
            all.push(vec!["sh".to_owned(), "-c".to_owned(), text.to_owned()]);
            all
        }
        Program::Argv(argv) => {
            let mut all = command::unwrapped(argv);
            all.extend(command::shell_script(argv).map(command::segments).unwrap_or_default());
            all
        }
    }
}
