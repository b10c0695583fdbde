//! Commands that find files in a way that no reader of their words can follow. The prompt says so, as consent does not cover those files.

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
/// Programs that run what a file of their directory says.
const FINDERS: [&str; 25] = [
    "npm", "npx", "pnpm", "pnpx", "yarn", "bun", "bunx", "deno", "make", "gmake", "just", "task", "rake", "bundle",
    "cargo", "go", "gradle", "mvn", "uv", "uvx", "poetry", "pipenv", "tox", "docker", "podman",
];
/// First words of a shell line that make more of it than one command with its files.
const MORE_THAN_ONE: [&str; 14] = [
    "cd", "pushd", "popd", "eval", "source", ".", "find", "xargs", "command", "builtin", "export", "set", "alias",
    "trap",
];

const SHELL_LINE: &str = "runs a shell line: files that it finds by itself are not watched";
const CODE: &str = "runs a line of code: files that it finds by itself are not watched";
const FOUND: &str = "runs what it finds in its directory: those files are not watched";

/// What to say of a command whose files cannot be told from its words.
pub(super) fn unwatched(plan: &LaunchPlan) -> Option<&'static str> {
    let Transport::Stdio { argv, cwd, .. } = &plan.transport else { return None };
    let words: Vec<&str> = argv.iter().map(String::as_str).collect();
    why(&words).or_else(|| (cwd.is_some() && is_finder(&words)).then_some(FOUND))
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

fn is_finder(words: &[&str]) -> bool {
    let is_before = |word: &&&str| name(word) == "env" || word.contains('=') || word.starts_with('-');
    words.iter().find(|word| !is_before(word)).is_some_and(|word| FINDERS.contains(&name(word)))
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
    let line = without_places(line);
    let plain = |c: char| c.is_ascii_alphanumeric() || "_@%+=:,./- \t'\"".contains(c);
    let words = split(&line);
    let first = words.iter().find(|word| **word != "exec");
    line.chars().all(plain)
        && first
            .is_some_and(|word| !word.contains('=') && !MORE_THAN_ONE.contains(word) && !SHELLS.contains(&name(word)))
}

/// Variables whose value is known, as what they stand for.
fn without_places(line: &str) -> String {
    super::files::PLACES.iter().fold(line.to_owned(), |line, place| line.replace(place, "/place"))
}

fn split(line: &str) -> Vec<&str> {
    line.split(|c: char| c.is_whitespace() || c == '\'' || c == '"').filter(|word| !word.is_empty()).collect()
}

#[cfg(test)]
mod tests {
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
        for (words, want) in
            [(&["npm", "start"][..], true), (&["env", "A=b", "/usr/bin/npx", "x"], true), (&["node", "npm"], false)]
        {
            assert_eq!(is_finder(words), want, "{words:?}");
        }
    }
}
