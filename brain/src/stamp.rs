//! Whether a file is another one than before, at the cost of one look at its folder entry. Files of ours are replaced as a whole, so
//! each change is a new file.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// A file at one moment; a file that is not there has one, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stamp(Option<(u64, u64, i64, i64)>);

impl Stamp {
    /// Of the file behind a path, links followed.
    pub fn of(path: &Path) -> Self {
        let meta = std::fs::metadata(path).ok();
        Self(meta.map(|meta| (meta.ino(), meta.size(), meta.mtime(), meta.mtime_nsec())))
    }
}
