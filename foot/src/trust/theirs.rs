//! Reading what came with the working directory: no link is followed, and only a regular file of the user's own is read.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::Mode;

/// Reads a file below `base`, which itself is the user's choice; none if it is not there. One byte over the limit is enough for the parser to say so.
pub(crate) fn read_theirs<T: AsRef<OsStr>>(base: &Path, parts: &[T], max_bytes: usize) -> io::Result<Option<String>> {
    let Some((file, folders)) = parts.split_last() else { return Ok(None) };
    let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
    let mut at = match open(base, flags | OFlag::O_DIRECTORY, Mode::empty()) {
        Ok(base) => base,
        Err(Errno::ENOENT) => return Ok(None),
        Err(errno) => return Err(errno.into()),
    };
    for folder in folders {
        match step(&at, folder.as_ref(), flags | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW)? {
            Some(next) => at = next,
            None => return Ok(None),
        }
    }
    // Not blocking: a pipe in its place must not hold us up.
    let Some(file) = step(&at, file.as_ref(), flags | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK)? else { return Ok(None) };
    let file = File::from(file);
    let meta = file.metadata()?;
    if !meta.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    if meta.uid() != nix::unistd::geteuid().as_raw() {
        return Err(io::Error::other(format!("it belongs to another user ({})", meta.uid())));
    }
    let mut text = String::new();
    file.take(max_bytes as u64 + 1).read_to_string(&mut text)?;
    Ok(Some(text))
}

fn step(at: &OwnedFd, name: &OsStr, flags: OFlag) -> io::Result<Option<OwnedFd>> {
    match openat(at, name, flags, Mode::empty()) {
        Ok(next) => Ok(Some(next)),
        Err(Errno::ENOENT) => Ok(None),
        Err(Errno::ELOOP | Errno::ENOTDIR) if flags.contains(OFlag::O_DIRECTORY) => {
            let name = vance_shared::show::plain(&name.to_string_lossy());
            Err(io::Error::other(format!("{name} is a link or no folder")))
        }
        Err(Errno::ELOOP) => Err(io::Error::other("is a link, which is not followed")),
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::os::unix::fs::{chown, symlink};

    use super::*;

    #[test]
    fn only_a_regular_file_of_ones_own_is_read_and_no_link_is_followed() {
        let dir = tempfile::tempdir().unwrap();
        let here = dir.path();
        std::fs::create_dir_all(here.join("a/b")).unwrap();
        std::fs::write(here.join("a/file"), "text").unwrap();
        std::fs::write(here.join("a/theirs"), "text").unwrap();
        symlink("file", here.join("a/link")).unwrap();
        symlink("a", here.join("folder-link")).unwrap();
        nix::unistd::mkfifo(&here.join("a/pipe"), Mode::S_IRWXU).unwrap();
        let root = chown(here.join("a/theirs"), Some(12345), None).is_ok();
        for (path, want) in [
            ("a/file", Ok(Some("tex"))),
            ("a/nothing", Ok(None)),
            ("nothing/file", Ok(None)),
            ("a/link", Err("is a link, which is not followed")),
            ("folder-link/file", Err("folder-link is a link or no folder")),
            ("a/file/x", Err("file is a link or no folder")),
            ("a/pipe", Err("not a regular file")),
            ("a/b", Err("not a regular file")),
            ("a/theirs", if root { Err("it belongs to another user (12345)") } else { Ok(Some("tex")) }),
        ] {
            let parts: Vec<&str> = path.split('/').collect();
            let got = read_theirs(here, &parts, 2).map_err(|error| error.to_string());
            assert_eq!(got, want.map(|text| text.map(str::to_owned)).map_err(str::to_owned), "{path}");
        }
    }
}
