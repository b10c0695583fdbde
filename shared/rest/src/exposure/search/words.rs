//! The words of a name, of a path and of a sentence, so that they can be compared.

/// Words that say nothing about an operation.
const SILENT: [&str; 22] = [
    "a", "an", "the", "of", "to", "for", "in", "on", "by", "with", "and", "or", "from", "all", "my", "this", "that",
    "is", "are", "at", "as", "it",
];
/// A shorter word says too little to be the beginning of another one.
const MIN_BEGINNING: usize = 3;

/// The words of a text: what is between signs, and between the parts of `pullRequests` and `HTTPServer`; small, without a plural's end.
pub(super) fn of(text: &str) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    let (mut words, mut word) = (Vec::new(), String::new());
    for (at, &c) in chars.iter().enumerate() {
        let before = at.checked_sub(1).map(|before| chars[before]);
        let starts = c.is_uppercase()
            && before.is_some_and(|before| {
                before.is_lowercase()
                    || before.is_numeric()
                    || (before.is_uppercase() && chars.get(at + 1).is_some_and(|next| next.is_lowercase()))
            });
        if (starts || !c.is_alphanumeric()) && !word.is_empty() {
            words.push(stem(&std::mem::take(&mut word)));
        }
        if c.is_alphanumeric() {
            word.extend(c.to_lowercase());
        }
    }
    if !word.is_empty() {
        words.push(stem(&word));
    }
    words.retain(|word| !SILENT.contains(&word.as_str()));
    words
}

/// The words of a question: those that say something, or, if none does, all.
pub(super) fn asked(text: &str, most: usize) -> Vec<String> {
    let mut words = of(text);
    words.retain(|word| word.chars().nth(1).is_some());
    if words.is_empty() {
        words =
            text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).map(str::to_lowercase).collect();
    }
    words.truncate(most);
    words
}

/// How well a word of a question fits a known one: 2 the same, 1 the beginning of it, 0 not.
pub(super) fn fit(asked: &str, known: &str) -> usize {
    match known.strip_prefix(asked) {
        Some("") => 2,
        Some(_) if asked.chars().count() >= MIN_BEGINNING => 1,
        Some(_) | None => 0,
    }
}

/// 2: the words are the text; 1: they stand in it side by side, and are more than one.
pub(super) fn phrase(asked: &[String], text: &[String]) -> u8 {
    match asked.len() {
        0 => 0,
        _ if asked == text => 2,
        1 => 0,
        many => u8::from(text.windows(many).any(|part| part == asked)),
    }
}

/// `repositories` is `repository`, `branches` is `branch`, `issues` is `issue`.
fn stem(word: &str) -> String {
    let long = word.chars().count() > MIN_BEGINNING;
    if long && ["ches", "shes", "sses", "xes", "zes"].iter().any(|end| word.ends_with(end)) {
        return word[..word.len() - 2].to_owned();
    }
    match (word.strip_suffix("ies"), word.strip_suffix('s')) {
        (Some(begin), _) if long && begin.chars().count() > 1 => format!("{begin}y"),
        (_, Some(begin)) if long && !begin.ends_with(['s', 'u', 'i']) => begin.to_owned(),
        (_, _) => word.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_paths_and_sentences_give_the_same_words() {
        for (text, want) in [
            ("listPullRequests", "list pull request"),
            ("pulls_list-files", "pull list file"),
            ("/repos/{owner}/branches", "repo owner branch"),
            ("getHTTPServer2Status", "get http server2 status"),
            ("Get a repository", "get repository"),
            ("Lists the repositories of the analysis bus", "list repository analysis bus"),
            ("Größe des Geräts", "größe des gerät"),
        ] {
            assert_eq!(of(text).join(" "), want, "{text}");
        }
        assert_eq!(asked("the a of", 16), ["the", "a", "of"], "nothing else is left");
        assert_eq!(asked("x y z", 2), ["x", "y"]);
    }
}
