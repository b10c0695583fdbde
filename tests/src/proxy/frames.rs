//! Cuts one direction of a WebSocket connection into its HTTP head and frames, and unmasks the latter.

/// Longest HTTP head that is looked for.
const HEAD_BYTES: usize = 64 * 1024;

/// Bytes of one direction.
#[derive(Debug, Default)]
pub(super) struct Frames {
    bytes: Vec<u8>,
    /// The HTTP head has passed.
    upgraded: bool,
}

impl Frames {
    /// Bytes that came.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next whole frame: as it travels, and its payload in clear. Before the upgrade: the head.
    pub(super) fn next(&mut self) -> Option<(Vec<u8>, Vec<u8>)> {
        if !self.upgraded {
            let end = self.bytes.windows(4).position(|w| w == b"\r\n\r\n").map(|at| at + 4);
            let end = end.or((self.bytes.len() > HEAD_BYTES).then_some(self.bytes.len()))?;
            self.upgraded = true;
            return Some((self.bytes.drain(..end).collect(), Vec::new()));
        }
        let second = *self.bytes.get(1)?;
        let number = |at: usize, size: usize| {
            let bytes = self.bytes.get(at..at + size)?;
            Some(bytes.iter().fold(0usize, |n, b| (n << 8) | usize::from(*b)))
        };
        let (length, mut at) = match second & 0x7f {
            126 => (number(2, 2)?, 4),
            127 => (number(2, 8)?, 10),
            short => (usize::from(short), 2),
        };
        let mask: [u8; 4] = if second & 0x80 == 0 {
            [0; 4]
        } else {
            let mask = self.bytes.get(at..at + 4)?.try_into().ok()?;
            at += 4;
            mask
        };
        let payload = self.bytes.get(at..at + length)?;
        let payload = payload.iter().zip(mask.iter().cycle()).map(|(b, m)| b ^ m).collect();
        Some((self.bytes.drain(..at + length).collect(), payload))
    }
}
