//! "Did you mean": the nearest known name.

/// A third of the name may be wrong; more is another name.
fn near_enough(name: &str) -> usize {
    (name.chars().count() / 3).max(1)
}

/// Names that are compared: a tree has up to ten thousand, and a hint is worth a millisecond.
const MAX_COMPARED: usize = 1_000;

/// Names that a message lists.
const MAX_LISTED: usize = 16;

/// Spelling apart from case and separators: `timeout_seconds` is near to `timeoutSeconds`.
fn folded(name: &str) -> String {
    name.chars().filter(|c| *c != '_' && *c != '-').flat_map(char::to_lowercase).take(128).collect()
}

/// The known name that is nearest to this one, if one is near.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wanted = folded(name);
    let length = name.chars().count();
    known
        .into_iter()
        .filter(|k| k.chars().count().abs_diff(length) <= 8)
        .take(MAX_COMPARED)
        .map(|k| (strsim::osa_distance(&wanted, &folded(k)), k))
        .filter(|(distance, k)| *distance <= near_enough(k))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, k)| k)
}

/// `, did you mean `x`?` or the list of what is known.
pub fn nearest_field(name: &str, known: &[&str]) -> String {
    match nearest(name, known.iter().copied()) {
        Some(near) => format!(", did you mean `{near}`?"),
        None if known.is_empty() => String::new(),
        None if known.len() > MAX_LISTED => format!(", expected one of: {}, ...", known[..MAX_LISTED].join(", ")),
        None => format!(", expected one of: {}", known.join(", ")),
    }
}
