//! Which processes descend from one: read from `/proc`, because the parent of a process that called `setsid` is still its parent.

use nix::unistd::Pid;

/// All descendants of a process, nearest first.
pub(super) fn descendants_of(root: Pid) -> Vec<Pid> {
    below(root.as_raw(), &processes()).into_iter().map(Pid::from_raw).collect()
}

/// `(pid, parent)` of every process that can be seen. One that ends meanwhile is simply not there.
#[cfg(target_os = "linux")]
fn processes() -> Vec<(i32, i32)> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
        .filter_map(|pid| Some((pid, parent_in(&std::fs::read(format!("/proc/{pid}/stat")).ok()?)?)))
        .collect()
}

#[cfg(not(target_os = "linux"))]
fn processes() -> Vec<(i32, i32)> {
    Vec::new()
}

/// The parent's pid in a `/proc/PID/stat`: the second word after the command, which may itself hold blanks and parentheses.
#[cfg_attr(not(target_os = "linux"), allow(dead_code))]
fn parent_in(stat: &[u8]) -> Option<i32> {
    let end_of_name = stat.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(stat.get(end_of_name + 1..)?).ok()?;
    rest.split_whitespace().nth(1)?.parse().ok()
}

fn below(root: i32, processes: &[(i32, i32)]) -> Vec<i32> {
    let mut found = vec![root];
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        found.extend(processes.iter().filter(|(pid, of)| *of == parent && *pid != parent).map(|(pid, _)| *pid));
        next += 1;
    }
    found.remove(0);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descendants_are_found_at_any_depth_and_others_are_not() {
        assert_eq!(below(10, &[(1, 0), (10, 1), (11, 10), (12, 11), (13, 1), (14, 10), (15, 13)]), [11, 14, 12]);
        assert_eq!(below(10, &[]), Vec::<i32>::new());
    }

    #[test]
    fn a_command_name_cannot_forge_its_parent() {
        assert_eq!(parent_in(b"42 (sh) S 7 42 42 0"), Some(7));
        assert_eq!(parent_in(b"42 (a) S 1 (b) R 9 42"), Some(9));
        assert_eq!(parent_in(b"garbage"), None);
    }
}
