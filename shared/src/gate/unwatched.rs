//! Commands that find files in a way that no reader of their words can follow. The prompt says so, as consent does not cover those files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::{Project, changes_what_runs, tidy};
use crate::launch::{LaunchPlan, Transport};

/// Programs that take a line of shell.
const SHELLS: [&str; 10] = ["sh", "bash", "dash", "ash", "zsh", "ksh", "mksh", "fish", "rbash", "busybox"];
/// Beginnings of the names of interpreters, and the letters behind which they take code.
const INTERPRETERS: [(&str, &str); 12] = [
    ("python", "c"),
    ("pypy", "c"),
    ("node", "ep"),
    ("bun", "ep"),
    ("tsx", "ep"),
    ("ts-node", "ep"),
    ("perl", "eE"),
    ("ruby", "e"),
    ("php", "rBRE"),
    ("lua", "e"),
    ("Rscript", "e"),
    ("osascript", "e"),
];
/// The long forms of that.
const LONG: [&str; 5] = ["--eval", "--print", "--command", "--run", "eval"];
/// Options whose value is a word of its own.
const WITH_VALUE: [&str; 15] = [
    "-r",
    "--require",
    "--import",
    "--loader",
    "--experimental-loader",
    "--env-file",
    "-C",
    "--conditions",
    "-W",
    "-X",
    "-I",
    "-o",
    "-O",
    "--rcfile",
    "--init-file",
];
/// Interpreters that run the script that they are given and, before it, look at nothing in the directory that they start in: with the letters of
/// options that change nothing of that. Others (bun, deno, ts-node, Rscript …) read a file there that says what to load first.
const PLAIN: [(&str, &str); 14] = [
    ("sh", "eux"),
    ("bash", "eux"),
    ("dash", "eux"),
    ("ash", "eux"),
    ("ksh", "eux"),
    ("zsh", "eux"),
    ("node", ""),
    ("nodejs", ""),
    ("python", "uBEsIPOqb"),
    ("pypy", "uBEsIOq"),
    ("perl", "w"),
    ("ruby", "w"),
    ("php", ""),
    ("lua", ""),
];
/// Long options of those that change nothing, either.
const PLAIN_LONG: [&str; 2] = ["--no-warnings", "--enable-source-maps"];
/// Variables of the user's whose value may be the project.
const HERE: [&str; 3] = ["PWD", "OLDPWD", "INIT_CWD"];
/// First words of a shell line that make more of it than one command with its files.
const MORE_THAN_ONE: [&str; 14] = [
    "cd", "pushd", "popd", "eval", "source", ".", "find", "xargs", "command", "builtin", "export", "set", "alias",
    "trap",
];

const SHELL_LINE: &str = "runs a shell line: files that it finds by itself are not watched";
const CODE: &str = "runs a line of code: files that it finds by itself are not watched";
const FOUND: &str = "may run what it finds in its directory: those files are not watched";
const IN_PROJECT: &str = "may run what it finds in the project: those files are not watched";

/// What to say of a command whose files cannot be told from its words. `watched`: those that consent covers, relative to the project.
///
/// Where a command comes near the project this is said of every one, but for the few whose only code there is known and watched.
pub(super) fn unwatched<V>(
    plan: &LaunchPlan,
    project: &Project,
    watched: &BTreeMap<String, V>,
) -> Option<&'static str> {
    let Transport::Stdio { argv, cwd, env } = &plan.transport else { return None };
    let words: Vec<&str> = argv.iter().map(String::as_str).collect();
    let base = cwd.as_ref().map_or_else(|| project.dir().to_owned(), |cwd| project.dir().join(cwd));
    let here = Here { project: project.dir(), base: &base, watched: &|file| watched.contains_key(file) };
    why(&words).or_else(|| {
        let is_near = cwd.is_some() || argv.iter().any(|word| here.leads(word)) || env.values().any(|v| here.sends(v));
        let is_known = env.iter().all(|(name, value)| here.is_harmless(name, value)) && here.is_known(&words);
        (is_near && !is_known).then_some(if cwd.is_some() { FOUND } else { IN_PROJECT })
    })
}

/// Where a command starts, and what is known of the files there.
struct Here<'a> {
    project: &'a Path,
    base: &'a Path,
    watched: &'a dyn Fn(&str) -> bool,
}

impl Here<'_> {
    /// Whether a word may lead into the project from outside of it.
    fn leads(&self, word: &str) -> bool {
        let project = self.project.to_string_lossy();
        let value = word.split_once('=').map_or(word, |(_, value)| value);
        let joined = word.strip_prefix('-').and_then(|rest| rest.get(1..)).unwrap_or(word);
        // A folder around the project holds it.
        let around = |word: &str| word.starts_with('/') && self.project.starts_with(tidy(Path::new(word)));
        ["$", "`", "..", "file:", "VANCE_PROJECT_DIR", &project].iter().any(|part| word.contains(part))
            || [word, value, joined].into_iter().any(around)
    }

    /// The same for the value of a variable, in which `${env:NAME}` stands for what is known only later.
    fn sends(&self, value: &str) -> bool {
        let mut parts = value.split("${env:");
        let first = parts.next().unwrap_or_default();
        let rest = parts.map(|part| part.split_once('}').unwrap_or((part, "")));
        // `${env:HOME}/src/repo`, `${env:A}${env:B}`.
        let is_path = |(name, after): (&str, &str)| HERE.contains(&name) || after.starts_with('/') || self.leads(after);
        self.leads(first) || rest.into_iter().any(is_path)
    }

    /// Whether a variable cannot bring in code that nobody watches.
    fn is_harmless(&self, name: &str, value: &str) -> bool {
        let is_address = ["https://", "http://"].iter().any(|start| value.starts_with(start));
        let is_place = value.contains('/') || value.starts_with('.');
        !changes_what_runs(name) && !self.sends(value) && (is_address || !is_place || self.is_watched(value))
    }

    fn is_watched(&self, word: &str) -> bool {
        let path: PathBuf = self.base.join(word).components().collect();
        path.strip_prefix(self.project).is_ok_and(|file| (self.watched)(&file.to_string_lossy()))
    }

    /// A program or a script of the project that is watched: what it does with its further words is its own affair.
    fn is_known(&self, words: &[&str]) -> bool {
        let Some((program, rest)) = words.split_first() else { return false };
        if program.contains('/') && self.is_watched(program) {
            return true;
        }
        let is_theirs = program.contains('/') && (!program.starts_with('/') || self.leads(program));
        let version = |rest: &str| rest.chars().all(|c| c.is_ascii_digit() || c == '.');
        let plain = PLAIN.iter().find(|(start, _)| name(program).strip_prefix(start).is_some_and(version));
        let Some((shell, letters)) = plain.filter(|_| !is_theirs) else { return false };
        let is_option = |word: &&str| {
            PLAIN_LONG.contains(word)
                || word
                    .strip_prefix('-')
                    .is_some_and(|rest| !rest.is_empty() && rest.chars().all(|c| letters.contains(c)))
        };
        match rest.iter().position(|word| !is_option(word)).and_then(|at| rest.get(at..)) {
            Some([script, ..]) if self.is_watched(script) => true,
            Some(["-c", line, ..]) if SHELLS.contains(shell) => self.is_known_line(line),
            Some(_) | None => false,
        }
    }

    /// `[exec] PROGRAM WORD…` with nothing to expand but places.
    fn is_known_line(&self, line: &str) -> bool {
        let words: Option<Vec<String>> = line.split_whitespace().map(|word| self.shell_word(word)).collect();
        let words = words.unwrap_or_default();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        is_one_command(line) && self.is_known(words.strip_prefix(&["exec"]).unwrap_or(&words))
    }

    /// What a shell makes of a word: nothing where that takes more than a look.
    fn shell_word(&self, word: &str) -> Option<String> {
        let inner = |quote: char| word.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote));
        let (text, expands) = match (inner('"'), inner('\'')) {
            (Some(text), _) => (text, true),
            (None, Some(text)) => (text, false),
            (None, None) => (word, true),
        };
        let placed = with_places(text, self.project, self.base);
        (!text.contains(['"', '\'', '\\']) && (expands || !text.contains('$')) && !placed.contains('$'))
            .then_some(placed)
    }
}

/// Any word may be a program: `env`, `nice` and their like stand before one.
fn why(words: &[&str]) -> Option<&'static str> {
    words.iter().enumerate().find_map(|(at, word)| {
        let (name, rest) = (name(word), &words[at + 1..]);
        if SHELLS.contains(&name) {
            let line = code(rest, "c")?;
            return match line {
                Some(line) if is_one_command(line) => why(&split(line)),
                Some(_) | None => Some(SHELL_LINE),
            };
        }
        let (_, letters) = INTERPRETERS.iter().find(|(start, _)| name.starts_with(start))?;
        code(rest, letters).map(|_| CODE)
    })
}

fn name(word: &str) -> &str {
    word.rsplit_once('/').map_or(word, |(_, name)| name)
}

/// Whether there is an option that takes code, before the script that an interpreter runs; and the code where it is a word of its own.
fn code<'a>(words: &[&'a str], letters: &str) -> Option<Option<&'a str>> {
    let mut is_value = false;
    for (at, word) in words.iter().enumerate() {
        let long = word.split_once('=').map_or(*word, |(option, _)| option);
        let short = word.strip_prefix(['-', '+']).filter(|rest| rest.chars().all(|c| c.is_ascii_alphabetic()));
        // Behind `m` stands a module's name.
        let first = short.and_then(|rest| rest.chars().find(|c| letters.contains(*c) || *c == 'm'));
        if LONG.contains(&long) || first.is_some_and(|letter| letters.contains(letter)) {
            return Some(words[at + 1..].iter().find(|word| !word.starts_with('-')).copied());
        }
        // A joined form: `-c'…'` in one word.
        if word.len() > 2 && !word.starts_with("--") && short.is_none() {
            let joined = word.strip_prefix('-').is_some_and(|rest| rest.starts_with(|c| letters.contains(c)));
            if joined {
                return Some(None);
            }
        }
        if !word.starts_with(['-', '+']) && !is_value && !SHELLS.contains(word) {
            return None;
        }
        is_value = WITH_VALUE.contains(word);
    }
    None
}

/// One command with words that mean nothing but themselves, or a place that is known.
fn is_one_command(line: &str) -> bool {
    let line = with_places(line, Path::new("/place"), Path::new("/place"));
    let plain = |c: char| c.is_ascii_alphanumeric() || "_@%+=:,./- \t'\"".contains(c);
    let words = split(&line);
    let first = words.iter().find(|word| **word != "exec");
    line.chars().all(plain)
        && first
            .is_some_and(|word| !word.contains('=') && !MORE_THAN_ONE.contains(word) && !SHELLS.contains(&name(word)))
}

/// The places that are known, in a word or a line. `$PWDX` is another variable than `$PWD`.
fn with_places(line: &str, project: &Path, base: &Path) -> String {
    let (project, base) = (project.to_string_lossy(), base.to_string_lossy());
    let ends = |rest: &str| !rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
    super::files::PLACES.iter().zip([&project, &project, &base, &base]).fold(line.to_owned(), |line, (place, value)| {
        let mut parts = line.split(place);
        let mut out = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let text: &str = if place.ends_with('}') || ends(part) { value } else { place };
            out.push_str(text);
            out.push_str(part);
        }
        out
    })
}

fn split(line: &str) -> Vec<&str> {
    line.split(|c: char| c.is_whitespace() || c == '\'' || c == '"').filter(|word| !word.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{plan, project, stdio};
    use super::*;

    #[test]
    fn what_cannot_be_followed_is_said() {
        for (words, want) in [
            (&["node", "./x.js"][..], None),
            (&["npx", "-y", "chrome-devtools-mcp@latest"], None),
            (&["sh", "./x.sh", "-c", "conf"], None),
            (&["sh", "-c", "exit 3"], None),
            (&["sh", "-c", "exec node ./x.js --port 3"], None),
            (&["sh", "-c", "\"$VANCE_PROJECT_DIR/x.py\""], None),
            (&["sh", "-c", "exec ${VANCE_PROJECT_DIR}/x.py"], None),
            (&["sh", "-c", "cd sub && python3 s.py"], Some(SHELL_LINE)),
            (&["sh", "-c", "cd sub"], Some(SHELL_LINE)),
            (&["sh", "-c", "node $X"], Some(SHELL_LINE)),
            (&["sh", "-c", "node ${VANCE_PROJECT_DIR%/}/x"], Some(SHELL_LINE)),
            (&["sh", "-c", "node *.js"], Some(SHELL_LINE)),
            (&["sh", "-c", "node `ls`"], Some(SHELL_LINE)),
            (&["sh", "-c", "A=b node x.js"], Some(SHELL_LINE)),
            (&["sh", "-c", ". ./x.sh"], Some(SHELL_LINE)),
            (&["sh", "-c", "~/x"], Some(SHELL_LINE)),
            (&["sh", "-c", "a\nb"], Some(SHELL_LINE)),
            (&["sh", "-c", "bash x"], Some(SHELL_LINE)),
            (&["/bin/bash", "-lc", "a; b"], Some(SHELL_LINE)),
            (&["bash", "--rcfile", "x", "-o", "pipefail", "-ec", "a|b"], Some(SHELL_LINE)),
            (&["busybox", "sh", "-c", "a|b"], Some(SHELL_LINE)),
            (&["env", "A=b", "sh", "-c", "a|b"], Some(SHELL_LINE)),
            (&["sh", "-c"], Some(SHELL_LINE)),
            (&["fish", "--command=a"], Some(SHELL_LINE)),
            (&["python3", "-c", "x"], Some(CODE)),
            (&["python3", "-uc", "x"], Some(CODE)),
            (&["python3", "-cimport x"], Some(CODE)),
            (&["python3", "-mcalc"], None),
            (&["python3", "-m", "mod", "-c", "x"], None),
            (&["python3", "server.py", "-c", "conf"], None),
            (&["node", "--require", "./a.cjs", "-e", "x"], Some(CODE)),
            (&["node", "--eval=x"], Some(CODE)),
            (&["node", "-r./pre.cjs", "x.js"], None),
            (&["deno-less", "x"], None),
            (&["sh", "-c", "python3 -c x"], Some(CODE)),
        ] {
            assert_eq!(why(words), want, "{words:?}");
        }
    }

    /// The note of a command with its directory and variables, where these files are watched.
    fn note(words: &[&str], cwd: Option<&str>, env: &[(&str, &str)]) -> Option<&'static str> {
        let argv = words.iter().map(|word| (*word).to_owned()).collect();
        let env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let mut plan = plan(&stdio("a", r#""command": ["x"]"#));
        plan.transport = Transport::Stdio { argv, cwd: cwd.map(str::to_owned), env };
        let watched = ["x.js", "x.sh", "sub/x.sh", "tools/chrome", "bin/server", "a"];
        unwatched(&plan, &project(), &watched.iter().map(|file| ((*file).to_owned(), ())).collect())
    }

    #[test]
    fn a_command_in_the_project_is_said_to_find_code_unless_all_of_it_is_watched() {
        for words in [
            &["node", "./x.js"][..],
            &["node", "--no-warnings", "x.js", "anything", "."],
            &["/usr/bin/python3.12", "-u", "x.sh"],
            &["bash", "-eu", "x.sh"],
            &["sh", "sub/x.sh", "-c", "y"],
            &["./bin/server", "--root", "."],
            &["/Users/me/src/repo/bin/server"],
            &["sh", "-c", "exec node ./x.js --port 3"],
            &["sh", "-c", "exec \"$VANCE_PROJECT_DIR/bin/server\""],
            &["sh", "-c", "${PWD}/bin/server '-x'"],
        ] {
            assert_eq!(note(words, Some("."), &[("PORT", "3"), ("URL", "https://a/b")]), None, "{words:?}");
        }
        for words in [
            &["npm", "start"][..],
            &["/usr/bin/npx", "-y", "chrome-devtools-mcp@latest"],
            &["bash", "-c", "npm start"],
            &["node", "."],
            &["node", "./y.js"],
            &["node", "--import", "./x.js", "./y"],
            &["node", "--import", "data:text/javascript,import('./l'+'ib')", "x.js"],
            &["python3", "-m", "x"],
            &["perl", "-I.", "-MFoo", "/dev/null"],
            &["ruby", "-r./boot", "/usr/bin/x"],
            &["/usr/bin/kubectl-mcp"],
            &["bun", "x.js"],
            &["tsx", "x.js"],
            &["deno", "run", "-A", "./x.js"],
            &["./bin/node", "x.js"],
            &["./y", "x.js"],
            &["flock", "/tmp/l", "-c", "cd sub; ./*.sh"],
            &["env", "-S", "bash -c 'cd sub; . ./*.sh'"],
            &["env", "node", "x.js"],
            &["git", "-c", "alias.x=!./e*", "x"],
            &["find", ".", "-name", "ev*", "-exec", "{}", ";"],
            &["java", "-cp", ".", "Main"],
            &["bash", "--init-file", "x.sh", "-i"],
            &["bash", "-s"],
            &["sh", "-c", "./a'b'"],
            &["sh", "-c", "'$PWD/bin/server'"],
            &["sh", "-c", "$PWDX/bin/server"],
            &["sh", "-c", "exec -a node ./bin/server"],
            &["make"],
            &[],
        ] {
            assert!(note(words, Some("."), &[]).is_some(), "{words:?}");
        }
        for (name, value) in [
            ("NODE_OPTIONS", "--import=./x.js"),
            ("PYTHONPATH", "lib"),
            ("ZDOTDIR", "sub"),
            ("BROWSER_BIN", "./tools"),
            ("BROWSER_BIN", "tools/y"),
            ("X", "${env:HOME}/src/repo/x"),
            ("X", "${env:PWD}"),
        ] {
            assert_eq!(note(&["node", "x.js"], Some("."), &[(name, value)]), Some(FOUND), "{name}={value}");
        }
        assert_eq!(note(&["node", "x.js"], Some("."), &[("BROWSER_BIN", "./tools/chrome")]), None);
        assert_eq!(note(&["./x.sh"], Some("sub"), &[]), None);
        assert_eq!(note(&["./server"], Some("sub"), &[]), Some(FOUND));
    }

    #[test]
    fn in_its_private_folder_only_what_leads_into_the_project_is_said() {
        let npx = ["npx", "-y", "chrome-devtools-mcp@latest"];
        let token = ("TOKEN", "${env:GITHUB_TOKEN}");
        for words in [&npx[..], &["uvx", "mcp-server-git"], &["make"], &["npx", "-y", "x", "--url", "https://a/b?c=d"]]
        {
            assert_eq!(note(words, None, &[token, ("DB", "postgres://u:${env:DB_PWD}@h/d")]), None, "{words:?}");
        }
        for words in [
            &["npm", "--prefix", "/Users/me/src/repo", "start"][..],
            &["npm", "--prefix=/Users/me/src/repo/sub", "start"],
            &["make", "-C/Users/me/src"],
            &["make", "-C", "../../../../src/repo"],
            &["find", "/", "-name", "evil", "-exec", "{}", ";"],
            &["ssh", "-o", "ProxyCommand=cd $V*; ./e*", "x"],
            &["make", "--eval=$(shell $$VANCE_PROJECT_DIR/x)"],
            &["node", "--import", "file:///Users/me/src/re%70o/m.mjs", "/usr/x.js"],
            &["flock", "/tmp/l", "-c", "`printenv VANCE_PROJECT_DIR`/x"],
        ] {
            assert_eq!(note(words, None, &[]), Some(IN_PROJECT), "{words:?}");
        }
        for value in ["/Users/me/src/repo/tools", "${env:PWD}/tools/y", "${env:HOME}/src/repo/x", "--eval=$(shell x)"] {
            assert_eq!(note(&npx, None, &[("X", value)]), Some(IN_PROJECT), "{value}");
        }
        assert_eq!(note(&["node", "/Users/me/src/repo/x.js"], None, &[]), None);
    }
}
