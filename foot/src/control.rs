//! A running Foot hears the other commands of its home: over a socket in its slot's folder, one JSON line each way. It reloads, lists and ends packs;
//! a question that comes up is asked at the Foot's own terminal, never over this.
//!
//! Each line shows the key, a file beside the socket: the kernel lets a program behind the sandbox connect to a socket, but not read that.
//!
//! ```text
//! {"key":"…","do":"reload"}       → {"ok":true,"summary":"loaded 2 pack(s) → …","left_out":[{"pack","file","reason"}]}
//!                                   before it, while that takes long: {"ok":true,"waits":"person"}
//! {"key":"…","do":"packs"}        → {"ok":true,"packs":[{"pack","file","project","state","reason","tools"}]}
//! {"key":"…","do":"stop","pack":"chrome"} → {"ok":true,"stopped":true}
//! ```

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use vance_foot_core::merge::LeftOut;
use vance_shared::show::plain;

use crate::engine::PackStatus;

mod ask;
mod serve;
pub(crate) use ask::{Reached, Unanswered, every_foot, one_foot};
pub(crate) use serve::{Control, Serving};

/// The one sign beyond ASCII in what a Foot says.
const ARROW: &str = "\u{2192}";
/// The socket's name in a slot's folder.
const FILE: &str = "control.sock";
/// The key's name in there.
const KEY: &str = "control.key";
/// Longest answer: a list of a folder's packs with their reasons.
const MAX_ANSWER_BYTES: u64 = 1024 * 1024;
/// Longest request: a key and a pack's name.
const MAX_REQUEST_BYTES: u64 = 4 * 1024;

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub(crate) enum Request {
    /// Read the packs again.
    Reload,
    /// How they are.
    Packs,
    /// End one.
    Stop {
        /// Its name.
        pack: String,
    },
}

/// A request as it is sent.
#[derive(Serialize)]
struct Asked<'a> {
    key: &'a str,
    #[serde(flatten)]
    request: &'a Request,
}

/// What is looked at first of one.
#[derive(Deserialize)]
struct Shown {
    #[serde(default)]
    key: String,
}

/// What is answered; the fields that the request is about.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Answer {
    /// False: see `error`.
    pub(crate) ok: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) summary: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) left_out: Vec<Left>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) packs: Vec<PackStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) stopped: Option<bool>,
    /// No answer yet: why it takes that long. The answer comes in a line of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) waits: Option<Waits>,
}

/// Why an answer takes so long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Waits {
    /// Servers start.
    Work,
    /// A question stands at the Foot's terminal.
    Person,
}

impl Answer {
    /// Made safe to print, whatever answers there. A project's folder stays as it is: it is compared, and never shown.
    fn made_plain(mut self) -> Self {
        for text in [&mut self.error, &mut self.summary].into_iter().flatten() {
            *text = text.split(ARROW).map(plain).collect::<Vec<_>>().join(ARROW);
        }
        for Left { pack, file, reason } in &mut self.left_out {
            for text in [pack, file, reason] {
                *text = plain(text);
            }
        }
        for pack in &mut self.packs {
            (pack.pack, pack.file) = (plain(&pack.pack), plain(&pack.file));
            pack.reason = pack.reason.take().map(|reason| plain(&reason));
        }
        self
    }
}

/// A pack that is not loaded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Left {
    pub(crate) pack: String,
    pub(crate) file: String,
    pub(crate) reason: String,
}

impl From<&LeftOut> for Left {
    fn from(left: &LeftOut) -> Self {
        Self { pack: left.pack.clone(), file: left.file.clone(), reason: left.reason.clone() }
    }
}

/// Longest path that a socket's address holds; what is longer is reached through the folder's descriptor.
const MAX_ADDRESS_BYTES: usize = 100;

fn socket(slot: &Path) -> PathBuf {
    slot.join(FILE)
}

fn key(slot: &Path) -> PathBuf {
    slot.join(KEY)
}

/// The socket's address. It holds for as long as the file beside it is open.
fn address(slot: &Path) -> io::Result<(PathBuf, Option<File>)> {
    let path = socket(slot);
    if path.as_os_str().len() <= MAX_ADDRESS_BYTES {
        return Ok((path, None));
    }
    let folder = File::open(slot)?;
    Ok((PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd())).join(FILE), Some(folder)))
}
