//! Lines between a Foot and the Brain: frames arrive in order, later; a cut loses what is under way; a swallowing line delivers
//! nothing and tells nobody.

use vance_shared::wire::{ToBrain, ToFoot};

use super::{Happening, World};

/// One connection.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) foot: usize,
    /// The Foot's process that opened it.
    pub(super) life: u32,
    /// The connection that the Brain let in under this number.
    pub(super) epoch: Option<u64>,
    pub(super) swallows: bool,
    pub(super) open: bool,
    /// Frames keep their order: none arrives before this.
    to_brain_at: i64,
    to_foot_at: i64,
    pub(super) heard_at: i64,
}

impl Line {
    pub(super) fn new(foot: usize, life: u32, now: i64) -> Self {
        Self { foot, life, epoch: None, swallows: false, open: true, to_brain_at: now, to_foot_at: now, heard_at: now }
    }
}

impl World {
    fn arrival(&mut self, line: u64, up: bool) -> Option<u64> {
        let latency = self.rng.i64(1..=40);
        let now = self.now;
        let line = self.lines.get_mut(&line).filter(|l| l.open && !l.swallows)?;
        let at = if up { &mut line.to_brain_at } else { &mut line.to_foot_at };
        *at = (now + latency).max(*at);
        u64::try_from(*at - now).ok()
    }

    pub(super) fn send_to_brain(&mut self, line: u64, frame: ToBrain) {
        if let Some(ms) = self.arrival(line, true) {
            self.after(ms, Happening::AtBrain { line, frame });
        }
    }

    pub(super) fn send_to_foot(&mut self, line: u64, frame: ToFoot) {
        if let Some(ms) = self.arrival(line, false) {
            self.after(ms, Happening::AtFoot { line, frame });
        }
    }

    /// True if what arrives on the line still counts.
    pub(super) fn is_alive(&self, line: u64) -> bool {
        self.lines.get(&line).is_some_and(|l| l.open && !l.swallows)
    }

    pub(super) fn line_of(&self, foot: usize) -> Option<u64> {
        let life = self.feet.get(foot)?.life;
        self.lines.iter().rev().find(|(_, l)| l.foot == foot && l.life == life && l.open).map(|(id, _)| *id)
    }

    pub(super) fn cut(&mut self, foot: usize) {
        let Some(line) = self.line_of(foot) else { return };
        self.note(format!("cut {line} of foot {foot}"));
        self.close_line(line);
    }

    /// Cuts every line.
    pub fn cut_all(&mut self) {
        for foot in 0..self.feet.len() {
            self.cut(foot);
        }
    }

    /// Both ends hear of it, each at its own time.
    pub(super) fn close_line(&mut self, line: u64) {
        let Some(held) = self.lines.get_mut(&line) else { return };
        if std::mem::replace(&mut held.open, false) {
            let (foot, silent) = (held.foot, held.swallows);
            if !silent {
                let (a, b) = (self.soon(60), self.soon(60));
                self.after(a, Happening::LineEnded { foot, line });
                self.after(b, Happening::LineLost { line });
            }
        }
    }

    pub(super) fn swallow(&mut self, foot: usize) {
        let Some(line) = self.line_of(foot) else { return };
        self.note(format!("line {line} of foot {foot} swallows everything"));
        if let Some(held) = self.lines.get_mut(&line) {
            held.swallows = true;
        }
    }

    /// The Foot's machine has no network for a while.
    pub(super) fn away(&mut self, foot: usize) {
        self.note(format!("foot {foot} is away"));
        self.feet[foot].reachable = false;
        self.cut(foot);
    }

    pub(super) fn heal(&mut self) {
        for foot in &mut self.feet {
            foot.reachable = true;
        }
    }
}
