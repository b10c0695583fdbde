//! Command lines as the permissions see them: tokens, shell metacharacters, and the commands hidden in a longer line.
//!
//! Nothing here runs a shell or pretends to be one. A `command` string is either plain words (then its tokens are known
//! exactly) or it holds something that only a shell can read (then no `allow` rule covers it).

/// Characters that make `sh` do more than start one program with the words as written. Quotes are not among them: they are
/// read here the way `sh` reads them. Expansion inside double quotes is, so `$`, backquote and backslash count everywhere.
const METACHARACTERS: &[char] =
    &[';', '&', '|', '<', '>', '(', ')', '$', '`', '\\', '\n', '\r', '*', '?', '[', ']', '{', '}', '!', '#', '\0'];

/// Words before a program that start the program behind them.
const WRAPPERS: &[&str] = &[
    "sudo", "doas", "env", "nohup", "nice", "time", "exec", "command", "builtin", "eval", "xargs", "timeout", "setsid",
    "stdbuf", "then", "do", "else", "if", "while", "until",
];

/// True if only a shell can say what the line does.
pub fn has_metacharacters(command: &str) -> bool {
    command.contains(METACHARACTERS) || tokens(command).is_none()
}

/// The words of a line, quotes removed as `sh` does it; `None` if a quote is not closed.
pub fn tokens(command: &str) -> Option<Vec<String>> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None::<char>);
    for c in command.chars() {
        match (quote, c) {
            (Some(open), c) if open == c => quote = None,
            (Some(_), c) => word.get_or_insert_default().push(c),
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, c) if c.is_ascii_whitespace() => words.extend(word.take()),
            (None, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    quote.is_none().then_some(words)
}

/// Every command that a line may start, as far as it can be seen: split at metacharacters, assignments and wrappers such as
/// `sudo` skipped. For `deny` and `ask` rules, where finding too much is harmless.
pub fn segments(command: &str) -> Vec<Vec<String>> {
    let splits = |c: char| METACHARACTERS.contains(&c) && !matches!(c, '\\' | '*' | '?' | '[' | ']' | '#' | '!');
    let mut found = Vec::new();
    for part in command.split(splits) {
        let unquoted: String = part.chars().filter(|c| !matches!(c, '\\')).collect();
        let words = tokens(&unquoted)
            .unwrap_or_else(|| unquoted.replace(['\'', '"'], "").split_whitespace().map(str::to_owned).collect());
        found.extend(unwrapped(&words));
    }
    found
}

/// The words themselves and what is left of them behind each leading assignment, wrapper and wrapper's option.
pub fn unwrapped(words: &[String]) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let mut rest = words;
    let mut behind_wrapper = false;
    while let Some(first) = rest.first() {
        found.push(rest.to_vec());
        let name = program_name(first);
        let wrapper = WRAPPERS.contains(&name);
        let skipped = wrapper
            || is_assignment(first)
            || (behind_wrapper && (first.starts_with('-') || first.starts_with(|c: char| c.is_ascii_digit())));
        if !skipped {
            break;
        }
        behind_wrapper |= wrapper;
        rest = &rest[1..];
    }
    found
}

/// The script of `sh -c SCRIPT` (and its like), if the words are that.
pub fn shell_script(argv: &[String]) -> Option<&str> {
    const SHELLS: &[&str] = &["sh", "bash", "dash", "zsh", "ksh", "ash", "fish", "busybox"];
    let program = argv.first()?;
    if !SHELLS.contains(&program_name(program)) {
        return None;
    }
    let at =
        argv.iter().position(|a| a.len() >= 2 && a.starts_with('-') && !a.starts_with("--") && a.ends_with('c'))?;
    argv.get(at + 1).map(String::as_str)
}

/// The last component of a program's path.
pub fn program_name(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

/// True for variables that make an allowed program run other code (`PATH`, `LD_PRELOAD`, `NODE_OPTIONS`, `GIT_SSH_COMMAND`, ...).
/// Rather too many than too few: a call that sets one asks, it is not refused.
pub fn changes_what_runs(variable: &str) -> bool {
    const EXACT: &[&str] =
        &["ENV", "IFS", "PS4", "HOME", "SHELL", "EDITOR", "VISUAL", "PAGER", "BROWSER", "SHELLOPTS", "XDG_CONFIG_HOME"];
    const STARTS: &[&str] = &[
        "LD_", "DYLD_", "BASH_", "GIT_", "NODE_", "NPM_", "PYTHON", "PERL", "RUBY", "GEM_", "BUNDLE_", "JAVA_", "JDK_",
        "_JAVA", "MAVEN_", "GRADLE_", "CARGO_", "RUSTC", "RUSTUP_", "RUSTDOC", "GOROOT", "GOTOOL", "PHP", "LUA",
        "LESS", "MAKE", "ZDOTDIR", "SSH_", "DOTNET_", "VANCE_",
    ];
    const ENDS: &[&str] =
        &["PATH", "_OPTIONS", "_OPTS", "_COMMAND", "_WRAPPER", "_PRELOAD", "FLAGS", "_SHELL", "_EDITOR", "_PAGER"];
    let name = variable.to_ascii_uppercase();
    EXACT.contains(&name.as_str())
        || STARTS.iter().any(|s| name.starts_with(s))
        || ENDS.iter().any(|e| name.ends_with(e))
}

fn is_assignment(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty()
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            && !name.starts_with(|c: char| c.is_ascii_digit())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(list: &[&str]) -> Vec<String> {
        list.iter().map(|w| (*w).to_owned()).collect()
    }

    #[test]
    fn quotes_are_read_as_sh_reads_them() {
        for (line, want) in [
            ("git status", Some(words(&["git", "status"]))),
            ("git commit -m 'a b' \"c d\"", Some(words(&["git", "commit", "-m", "a b", "c d"]))),
            ("a''b \"\"", Some(words(&["ab", ""]))),
            ("  ", Some(words(&[]))),
            ("echo 'open", None),
        ] {
            assert_eq!(tokens(line), want, "{line}");
        }
    }

    #[test]
    fn whatever_only_a_shell_can_read_is_a_metacharacter() {
        for (line, want) in [
            ("git status", false),
            ("git log --format='a b'", false),
            ("cat ~/x", false),
            ("a; b", true),
            ("a && b", true),
            ("a | b", true),
            ("a > b", true),
            ("echo $HOME", true),
            ("echo \"$(id)\"", true),
            ("echo `id`", true),
            ("a\nb", true),
            ("ls *.rs", true),
            ("echo 'unclosed", true),
            ("a \\; b", true),
        ] {
            assert_eq!(has_metacharacters(line), want, "{line}");
        }
    }

    #[test]
    fn a_hidden_command_is_seen() {
        for (line, want) in [
            ("echo hi; rm -rf x", "rm"),
            ("true && sudo -n rm x", "rm"),
            ("X=1 rm x", "rm"),
            ("echo $(rm x)", "rm"),
            ("echo `rm x`", "rm"),
            ("a | xargs rm", "rm"),
            ("r\\m x", "rm"),
            ("'r'm x; echo \"", "rm"),
            ("if rm x; then echo; fi", "rm"),
        ] {
            let found = segments(line);
            assert!(found.iter().any(|s| s.first().is_some_and(|p| p == want)), "{line}: {found:?}");
        }
        assert!(!segments("echo rm").iter().any(|s| s[0] == "rm"), "an argument is not a command");
    }

    #[test]
    fn a_shell_script_is_found_behind_its_flags() {
        assert_eq!(shell_script(&words(&["sh", "-c", "x"])), Some("x"));
        assert_eq!(shell_script(&words(&["/bin/bash", "-e", "-lc", "x"])), Some("x"));
        assert_eq!(shell_script(&words(&["git", "-c", "x"])), None);
    }

    #[test]
    fn variables_that_change_what_runs_are_known() {
        for (name, want) in [
            ("PATH", true),
            ("LD_PRELOAD", true),
            ("node_options", true),
            ("GIT_SSH_COMMAND", true),
            ("PYTHONPATH", true),
            ("FOO", false),
            ("DEBUG", false),
            ("API_BASE", false),
        ] {
            assert_eq!(changes_what_runs(name), want, "{name}");
        }
    }
}
