//! What a program writes, in bounded memory: the beginning and the end of a short run, the latest of a long one.

use std::collections::VecDeque;

use super::text::{fit, unfinished};

/// Keeps the first and the last bytes of a stream, and counts what lies between.
#[derive(Debug)]
pub(super) struct HeadTail {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    half: usize,
    total: u64,
}

impl HeadTail {
    /// Keeps at most this many bytes, half of them from the end.
    pub(super) fn new(max_bytes: usize) -> Self {
        Self { head: Vec::new(), tail: VecDeque::new(), half: max_bytes.div_ceil(2), total: 0 }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let room = self.half - self.head.len();
        let (first, rest) = bytes.split_at(room.min(bytes.len()));
        self.head.extend_from_slice(first);
        let rest = &rest[rest.len().saturating_sub(self.half)..];
        let over = (self.tail.len() + rest.len()).saturating_sub(self.half);
        self.tail.drain(..over);
        self.tail.extend(rest);
    }

    /// The text and whether something is missing. Never more than this many bytes as JSON.
    pub(super) fn text(&self, max_json_bytes: usize) -> (String, bool) {
        let (a, b) = self.tail.as_slices();
        let kept = (self.head.len() + self.tail.len()) as u64;
        let lost = self.total - kept;
        let mut bytes = self.head.clone();
        if lost > 0 {
            let cut = unfinished(&bytes);
            bytes.truncate(bytes.len() - cut);
            bytes.extend_from_slice(format!("\n[... {lost} bytes left out ...]\n").as_bytes());
            let tail: Vec<u8> = [a, b].concat();
            let start = tail.iter().take(4).position(|b| b & 0b1100_0000 != 0b1000_0000).unwrap_or(0);
            bytes.extend_from_slice(&tail[start..]);
        } else {
            bytes.extend_from_slice(a);
            bytes.extend_from_slice(b);
        }
        let text = String::from_utf8_lossy(&bytes);
        let fitting = fit(&text, max_json_bytes);
        (fitting.to_owned(), lost > 0 || fitting.len() < text.len())
    }
}

impl HeadTail {
    /// All bytes, if all were kept; else those before the gap. And whether it is all.
    pub(super) fn into_head(mut self) -> (Vec<u8>, bool) {
        let whole = self.total == (self.head.len() + self.tail.len()) as u64;
        if whole {
            self.head.extend(self.tail);
        }
        (self.head, whole)
    }
}

/// Keeps the latest bytes of a stream, with their place in the whole.
#[derive(Debug)]
pub(super) struct Ring {
    kept: VecDeque<u8>,
    max: usize,
    total: u64,
}

/// A part of a stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) text: String,
    /// Where the next read goes on.
    pub(super) next: u64,
    /// Bytes between what was asked for and what is still kept.
    pub(super) lost: u64,
    /// There is more to read now.
    pub(super) more: bool,
}

impl Ring {
    pub(super) fn new(max_bytes: usize) -> Self {
        Self { kept: VecDeque::new(), max: max_bytes, total: 0 }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let bytes = &bytes[bytes.len().saturating_sub(self.max)..];
        let over = (self.kept.len() + bytes.len()).saturating_sub(self.max);
        self.kept.drain(..over);
        self.kept.extend(bytes);
    }

    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// What came after a place, at most so many bytes. Half a character at the end waits, unless nothing more will come.
    pub(super) fn after(&self, place: u64, max_bytes: usize, ended: bool) -> Part {
        let first = self.total - self.kept.len() as u64;
        let start = place.clamp(first, self.total);
        let skip = usize::try_from(start - first).unwrap_or(usize::MAX);
        let mut bytes: Vec<u8> = self.kept.iter().skip(skip).take(max_bytes).copied().collect();
        let at_end = start + bytes.len() as u64 == self.total;
        if !(at_end && ended) {
            let wait = unfinished(&bytes);
            // A limit below one character would never get on.
            if wait < bytes.len() {
                bytes.truncate(bytes.len() - wait);
            }
        }
        let next = start + bytes.len() as u64;
        let lost = first.saturating_sub(place);
        Part { text: String::from_utf8_lossy(&bytes).into_owned(), next, lost, more: next < self.total }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_and_the_end_are_kept() {
        let mut out = HeadTail::new(8);
        for part in ["ab", "cdef", "gh"] {
            out.push(part.as_bytes());
        }
        assert_eq!(out.text(100), ("abcdefgh".to_owned(), false));
        out.push(b"ijklmnopqrstuvwxyz");
        assert_eq!(out.text(100), ("abcd\n[... 18 bytes left out ...]\nwxyz".to_owned(), true));
    }

    #[test]
    fn a_flood_takes_no_more_memory_than_allowed() {
        let (mut short, mut long) = (HeadTail::new(1000), Ring::new(1000));
        for _ in 0..1000 {
            short.push(&[b'x'; 4096]);
            long.push(&[b'x'; 4096]);
        }
        assert!(short.head.len() + short.tail.len() <= 1000 && long.kept.len() <= 1000);
        assert!(short.text(usize::MAX).1);
        assert_eq!(long.after(0, 10, false).lost, 4_096_000 - 1000);
    }

    #[test]
    fn a_ring_goes_on_where_the_last_read_ended() {
        let mut ring = Ring::new(6);
        ring.push("aé".as_bytes());
        assert_eq!(ring.after(0, 2, false), Part { text: "a".to_owned(), next: 1, lost: 0, more: true });
        assert_eq!(ring.after(1, 9, false), Part { text: "é".to_owned(), next: 3, lost: 0, more: false });
        ring.push(b"bcdef");
        assert_eq!(ring.after(0, 9, true).lost, 2);
        assert_eq!(ring.after(99, 9, true), Part { text: String::new(), next: 8, lost: 0, more: false });
    }
}
