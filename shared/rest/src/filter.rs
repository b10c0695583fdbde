//! `include` and `exclude`: which operations become tools.

/// What a pattern looks at.
pub(crate) struct Candidate<'a> {
    /// Upper case.
    pub(crate) method: &'a str,
    /// As the document has it.
    pub(crate) path: &'a str,
    /// The operation id, if it has one.
    pub(crate) id: Option<&'a str>,
    /// The sub-tool's name.
    pub(crate) sub_tool: &'a str,
    /// Its tags.
    pub(crate) tags: &'a [&'a str],
}

/// Whether a pattern means an operation: `tag:<glob>`, `METHOD /path/glob`, else a glob on the operation id, raw or cleaned.
pub(crate) fn matches(pattern: &str, candidate: &Candidate<'_>) -> bool {
    let pattern = pattern.trim();
    if let Some(tag) = pattern.strip_prefix("tag:") {
        return candidate.tags.iter().any(|name| glob(tag.trim(), name));
    }
    match pattern.split_once(char::is_whitespace) {
        Some((method, path)) => {
            glob(&method.to_ascii_uppercase(), candidate.method) && glob(path.trim(), candidate.path)
        }
        None => candidate.id.is_some_and(|id| glob(pattern, id)) || glob(pattern, candidate.sub_tool),
    }
}

/// `*` stands for any characters, `/` too; `?` for one. Nothing else is special: paths are full of braces and brackets.
fn glob(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    let (mut p, mut t) = (0, 0);
    // Where the last star stands and how much of the text it takes.
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(c) if *c == '?' || *c == text[t] => {
                p += 1;
                t += 1;
            }
            Some(_) | None => match star {
                Some((at, taken)) => {
                    star = Some((at, taken + 1));
                    p = at + 1;
                    t = taken + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_means_ids_tags_or_methods_with_paths() {
        let tags = ["issues"];
        let candidate = Candidate {
            method: "GET",
            path: "/repos/{owner}/issues",
            id: Some("repos/list-issues"),
            sub_tool: "repos_list-issues",
            tags: &tags,
        };
        for (pattern, want) in [
            ("repos/*", true),
            ("repos_*", true),
            ("*", true),
            ("repos", false),
            ("tag:iss*", true),
            ("tag:x", false),
            ("get /repos/{owner}/*", true),
            ("GET *", true),
            ("* /repos/*/issues", true),
            ("POST *", false),
            ("G?T /repos/{owner}/issue?", true),
            ("GET /repos", false),
        ] {
            assert_eq!(matches(pattern, &candidate), want, "{pattern}");
        }
    }
}
