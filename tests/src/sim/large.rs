//! Results that are too large for a frame, which travel in parts, or for a message, which stay where they were made. What is in them
//! follows from the step and the size, so whoever gets one can say whether it is whole. A reader reads what is kept, piece by
//! piece, whatever is cut or killed in between.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;
use tokio::time::sleep;
use vance_brain::blobs;
use vance_brain::hub::Brain;
use vance_brain::rows;
use vance_brain_core::task::{Event, shown_result};
use vance_shared::blob::WHOLE_BYTES;
use vance_shared::call::Outcome;
use vance_shared::ids::BlobHandle;
use vance_shared::limits::{FRAME_BYTES, MESSAGE_BYTES};

use super::line::End;
use super::{OWNER, Shared, disk, lock};

/// Between two places in a text that say where they are.
const LINE_BYTES: usize = 512;

/// Between two looks at what is kept, at most.
const PAUSE_MS: u64 = 3_000;

/// One result of so many does not fit a frame, and of these one in six no message; of 0: few do not fit a frame.
pub(super) fn size(one_in: u32) -> usize {
    if fastrand::u32(0..if one_in > 0 { one_in } else { 60 }) > 0 {
        0
    } else if one_in > 0 && fastrand::u32(0..6) == 0 {
        MESSAGE_BYTES + fastrand::usize(..FRAME_BYTES / 4)
    } else {
        FRAME_BYTES + fastrand::usize(..FRAME_BYTES)
    }
}

/// What is in a result of so many bytes.
pub(super) fn text(step: &str, bytes: usize) -> String {
    piece(step, 0, bytes)
}

/// A piece of it. Each line says where it is.
fn piece(step: &str, from: usize, to: usize) -> String {
    let filler = "0123456789abcdef".repeat(LINE_BYTES / 16);
    let first = from / LINE_BYTES * LINE_BYTES;
    let mut text = String::with_capacity(to - first + LINE_BYTES);
    for at in (first..to).step_by(LINE_BYTES) {
        let place = format!("{step} at {at}: ");
        text.push_str(&place);
        text.push_str(filler.get(place.len() + 1..).unwrap_or_default());
        text.push('\n');
    }
    text.truncate(to - first);
    text.split_off(from - first)
}

/// While there is trouble, the line is often cut in the middle of so many bytes that are about to be sent.
pub(super) fn cut_within(shared: &Shared, foot: usize, bytes: usize) {
    if lock(&shared.person).is_calm || fastrand::u32(0..3) == 0 {
        return;
    }
    let after = fastrand::usize(1..bytes.min(MESSAGE_BYTES));
    shared.story.note(format!("the line of foot {foot} is to be cut after {after} bytes more"));
    lock(&shared.lines).of(foot, End::Foot).iter().for_each(|control| control.cut_after(after));
}

/// Something that is kept, as far as it is read.
#[derive(Debug, Clone, Default)]
pub struct Kept {
    /// The step whose result it is.
    pub step: String,
    /// What the result says of it.
    pub size: usize,
    /// What its keeper said once: that it is not there.
    pub is_gone: bool,
    /// So far, and right.
    pub read: usize,
    /// What was wrong.
    pub wrong: Option<String>,
}

impl Kept {
    fn is_done(&self) -> bool {
        self.is_gone || self.wrong.is_some() || self.read == self.size
    }
}

/// All that is kept, by its handle.
#[derive(Debug, Default)]
pub(super) struct Shelf {
    kept: BTreeMap<String, Kept>,
    /// Events of the disk that were looked at.
    seen: usize,
}

impl Shelf {
    pub(super) fn is_read(&self) -> bool {
        self.kept.values().all(Kept::is_done)
    }

    pub(super) fn all(&self) -> BTreeMap<String, Kept> {
        self.kept.clone()
    }

    fn add(&mut self, handle: String, step: String, size: usize) {
        self.kept.entry(handle).or_insert_with(|| Kept { step, size, ..Kept::default() });
    }
}

/// Says what is wrong with a result, in the shape in which the API shows it; what is kept of it is read from now on.
pub(super) fn look(shelf: &mut Shelf, result: &Value) -> Result<(), String> {
    let said = &result["structured"];
    let (step, bytes) = (said["step"].as_str().unwrap_or_default(), said["bytes"].as_u64().unwrap_or_default());
    let bytes = usize::try_from(bytes).unwrap_or_default();
    let content = result["content"].as_array().map(Vec::as_slice).unwrap_or_default();
    let link = content.iter().find(|part| part["type"] == "resource_link");
    let Some(link) = link else {
        let whole = content.first().and_then(|part| part["text"].as_str()).unwrap_or_default();
        if bytes > WHOLE_BYTES || whole != text(step, bytes) {
            return Err(format!("{step}: {} bytes that are not the {bytes} that it gave", whole.len()));
        }
        return Ok(());
    };
    let handle = link["uri"].as_str().and_then(|uri| uri.strip_prefix("blob:")).unwrap_or_default();
    if link["size"] != bytes || BlobHandle::parse(handle).is_err() {
        return Err(format!("{step}: {link} in place of {bytes} bytes"));
    }
    shelf.add(handle.to_owned(), step.to_owned(), bytes);
    Ok(())
}

/// Reads what is kept, for one life of the Brain.
pub(super) async fn live(brain: Brain, shared: Shared) {
    loop {
        sleep(Duration::from_millis(fastrand::u64(100..PAUSE_MS))).await;
        find(&shared);
        let open: Vec<String> = {
            let shelf = lock(&shared.large);
            shelf.kept.iter().filter(|(_, kept)| !kept.is_done()).map(|(handle, _)| handle.clone()).collect()
        };
        for handle in open {
            // An error is asked again: that is all that a reader can do.
            if let Err(why) = read(&brain, &shared, &handle).await {
                shared.story.note(format!("reader: {handle}: {why}"));
            }
        }
    }
}

/// Handles in results that were stored since.
pub(super) fn find(shared: &Shared) {
    let disk = disk::look(&shared.disk);
    let mut shelf = lock(&shared.large);
    for stored in disk.since(shelf.seen).filter(|event| event.data.get().contains("resource_link")) {
        for (event, _) in rows::events(std::slice::from_ref(stored)).into_iter().flatten() {
            if let Event::CallEnded { outcome: Outcome::Done(result), .. } = event {
                // Whether it is right is looked at in the end.
                look(&mut shelf, &shown_result(&result)).ok();
            }
        }
    }
    shelf.seen = disk.count();
}

async fn read(brain: &Brain, shared: &Shared, handle: &str) -> Result<(), String> {
    let id = BlobHandle::parse(handle).map_err(|e| e.to_string())?;
    let keeper = id.client().and_then(|client| client.as_str().strip_prefix("foot_")?.parse().ok());
    if let (Some(foot), Some(kept)) = (keeper, lock(&shared.large).kept.get(handle)) {
        cut_within(shared, foot, kept.size - kept.read);
    }
    loop {
        let (step, size, from) = match lock(&shared.large).kept.get(handle) {
            Some(kept) if !kept.is_done() => (kept.step.clone(), kept.size, kept.read),
            Some(_) | None => return Ok(()),
        };
        let piece = blobs::read(brain, OWNER, &id, from as u64).await;
        let mut shelf = lock(&shared.large);
        let Some(kept) = shelf.kept.get_mut(handle) else { return Ok(()) };
        match piece {
            Ok(piece) => {
                let to = from + piece.bytes.len();
                let right = piece.kept.handle == id && piece.kept.size == size as u64 && !piece.bytes.is_empty();
                if !right || self::piece(&step, from, to).as_bytes() != piece.bytes {
                    kept.wrong = Some(format!("{} bytes from {from} on of {:?}", piece.bytes.len(), piece.kept));
                }
                kept.read = to;
                if to == size {
                    shared.story.note(format!("reader: {handle} of {step} is read"));
                }
            }
            Err(error) if error.status == 404 => kept.is_gone = true,
            Err(error) => return Err(format!("{} {} at {from}", error.status, error.fault.code)),
        }
    }
}
