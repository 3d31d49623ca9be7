//! What was logged, until somebody takes it: bounded, whatever a component writes.

use crate::Limits;

pub use crate::bindings::dsh::plugin::log::Level;

/// One line of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// How much it matters.
    pub level: Level,
    /// What it says.
    pub message: String,
}

/// Lines of one store.
pub(crate) struct LogQueue {
    most_lines: usize,
    most_bytes: usize,
    line_bytes: usize,
    lines: Vec<LogLine>,
    bytes: usize,
    dropped: u64,
}

impl LogQueue {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            most_lines: limits.log_lines_per_call,
            most_bytes: limits.log_bytes_per_call,
            line_bytes: limits.log_line_bytes,
            lines: Vec::new(),
            bytes: 0,
            dropped: 0,
        }
    }

    pub(crate) fn push(&mut self, level: Level, mut message: String) {
        if message.len() > self.line_bytes {
            message.truncate(message.floor_char_boundary(self.line_bytes));
            message.push('…');
        }
        if self.lines.len() >= self.most_lines || self.bytes + message.len() > self.most_bytes {
            self.dropped += 1;
            return;
        }
        self.bytes += message.len();
        self.lines.push(LogLine { level, message });
    }

    /// The last line, if it tells of an error: as a rule why a component is about to trap.
    pub(crate) fn last_words(&self) -> Option<&str> {
        self.lines.last().filter(|line| line.level == Level::Error).map(|line| line.message.as_str())
    }

    /// Everything kept, and how many lines were not.
    pub(crate) fn drain(&mut self) -> (Vec<LogLine>, u64) {
        self.bytes = 0;
        (std::mem::take(&mut self.lines), std::mem::take(&mut self.dropped))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(lines: usize, bytes: usize, line_bytes: usize) -> LogQueue {
        LogQueue::new(&Limits {
            log_lines_per_call: lines,
            log_bytes_per_call: bytes,
            log_line_bytes: line_bytes,
            ..Limits::default()
        })
    }

    #[test]
    fn lines_are_cut_at_a_character() {
        let mut queue = queue(10, 10_000, 101);
        queue.push(Level::Info, "ä".repeat(100));
        let (lines, dropped) = queue.drain();
        assert_eq!((lines[0].message.as_str(), dropped), (format!("{}…", "ä".repeat(50)).as_str(), 0));
    }

    #[test]
    fn a_flood_is_counted_and_ends_with_its_taking() {
        let mut queue = queue(100, 100_000, 1_000);
        for n in 0..1_000 {
            queue.push(Level::Info, format!("{n}"));
        }
        let (lines, dropped) = queue.drain();
        assert_eq!((lines.len(), dropped), (100, 900));
        assert_eq!(queue.drain(), (Vec::new(), 0));
        queue.push(Level::Info, "after".into());
        assert_eq!(queue.drain().0.len(), 1);
    }

    #[test]
    fn few_long_lines_are_cut_by_size() {
        let mut queue = queue(100, 10_000, 1_000);
        for _ in 0..100 {
            queue.push(Level::Info, "x".repeat(1_000));
        }
        let (lines, dropped) = queue.drain();
        assert_eq!((lines.len(), dropped), (10, 90));
    }
}
