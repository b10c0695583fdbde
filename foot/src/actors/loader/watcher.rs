//! Sees that pack files have changed, and says so; they are loaded when somebody asks for it.
//!
//! By looking every two seconds instead of by the kernel's notices: a few dozen files cost nothing, a folder that is made later or replaced as
//! a whole is seen too, and it works on network mounts.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use crate::packs;
use crate::paths::{Paths, shown};

/// How often.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Names in one line.
const MAX_NAMED: usize = 5;

/// A file as it was seen.
type Stamp = (PathBuf, Option<(SystemTime, u64)>);

/// Watches for ever.
pub(super) async fn watch(paths: Paths, local: bool) {
    let look = || {
        let paths = paths.clone();
        tokio::task::spawn_blocking(move || stamps(&paths, local))
    };
    let Ok(mut before) = look().await else { return };
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let Ok(now) = look().await else { return };
        let changed = changed(&before, &now);
        if !changed.is_empty() {
            tracing::info!(
                "packs changed: {}; /tools reload (or `vancetope tools reload`) loads them",
                named(&changed)
            );
        }
        before = now;
    }
}

fn stamps(paths: &Paths, local: bool) -> Vec<Stamp> {
    let stamp = |path: &PathBuf| {
        let meta = path.symlink_metadata().ok()?;
        Some((meta.modified().ok()?, meta.len()))
    };
    let mut stamps: Vec<Stamp> = packs::watched(paths, local)
        .into_iter()
        .map(|path| {
            let seen = stamp(&path);
            (path, seen)
        })
        .collect();
    stamps.sort();
    stamps
}

fn changed(before: &[Stamp], now: &[Stamp]) -> Vec<PathBuf> {
    let came = now.iter().filter(|stamp| !before.contains(stamp)).map(|(path, _)| path);
    let went = before.iter().filter(|(path, stamp)| stamp.is_some() && !now.iter().any(|(p, _)| p == path));
    came.chain(went.map(|(path, _)| path)).cloned().collect()
}

fn named(paths: &[PathBuf]) -> String {
    let name = |path: &PathBuf| path.file_name().map_or_else(|| shown(path), |name| shown(name.as_ref()));
    let mut names: Vec<String> = paths.iter().take(MAX_NAMED).map(name).collect();
    if paths.len() > MAX_NAMED {
        names.push(format!("{} more", paths.len() - MAX_NAMED));
    }
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_changed_or_went_is_named() {
        let at = |seconds| Some((SystemTime::UNIX_EPOCH + Duration::from_secs(seconds), 1));
        let stamp = |name: &str, at| (PathBuf::from(name), at);
        let before = [stamp("a", at(1)), stamp("b", at(1)), stamp("config", None)];
        for (now, wanted) in [
            (vec![stamp("a", at(1)), stamp("b", at(1)), stamp("config", None)], ""),
            (vec![stamp("a", at(2)), stamp("b", at(1)), stamp("config", None)], "a"),
            (vec![stamp("a", at(1)), stamp("c", at(1)), stamp("config", at(1))], "c, config, b"),
        ] {
            assert_eq!(named(&changed(&before, &now)), wanted);
        }
        let many: Vec<PathBuf> = (0..7).map(|n| PathBuf::from(n.to_string())).collect();
        assert_eq!(named(&many), "0, 1, 2, 3, 4, 2 more");
    }
}
