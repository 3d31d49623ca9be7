//! What was logged, until somebody takes it: bounded, whatever a component writes.

pub use crate::bindings::dsh::plugin::log::Level;

/// One line of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// How much it matters.
    pub level: Level,
    /// What it says.
    pub message: String,
}

/// A line of a component is cut after so many bytes.
pub(crate) const MAX_LINE_BYTES: usize = 4 << 10;
/// Of a component's lines so many are kept until taken.
pub(crate) const MAX_LINES: usize = 256;
/// Of a component's lines so many bytes are kept until taken.
pub(crate) const MAX_BYTES: usize = 64 << 10;

/// Lines of one store.
#[derive(Default)]
pub(crate) struct LogQueue {
    lines: Vec<LogLine>,
    bytes: usize,
    dropped: u64,
}

impl LogQueue {
    pub(crate) fn push(&mut self, level: Level, mut message: String) {
        if message.len() > MAX_LINE_BYTES {
            message.truncate(message.floor_char_boundary(MAX_LINE_BYTES));
            message.push('…');
        }
        if self.lines.len() >= MAX_LINES || self.bytes + message.len() > MAX_BYTES {
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

    /// Everything kept, with a last line that says how many were not.
    pub(crate) fn drain(&mut self) -> Vec<LogLine> {
        let mut lines = std::mem::take(&mut self.lines);
        self.bytes = 0;
        let dropped = std::mem::take(&mut self.dropped);
        if dropped > 0 {
            lines.push(LogLine {
                level: Level::Warn,
                message: format!("the component logged too much: {dropped} lines dropped"),
            });
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_cut_at_a_character() {
        let mut queue = LogQueue::default();
        queue.push(Level::Info, "ä".repeat(MAX_LINE_BYTES));
        let lines = queue.drain();
        assert_eq!(lines[0].message, format!("{}…", "ä".repeat(MAX_LINE_BYTES / 2)));
    }

    #[test]
    fn a_flood_is_counted_and_ends_with_its_taking() {
        let mut queue = LogQueue::default();
        for n in 0..1_000 {
            queue.push(Level::Info, format!("{n}"));
        }
        let lines = queue.drain();
        assert_eq!(lines.len(), MAX_LINES + 1);
        assert!(lines[MAX_LINES].message.contains(&format!("{} lines dropped", 1_000 - MAX_LINES)));
        assert!(queue.drain().is_empty());
        queue.push(Level::Info, "after".into());
        assert_eq!(queue.drain().len(), 1);
    }

    #[test]
    fn few_long_lines_are_cut_by_size() {
        let mut queue = LogQueue::default();
        for _ in 0..MAX_LINES {
            queue.push(Level::Info, "x".repeat(MAX_LINE_BYTES));
        }
        assert_eq!(queue.drain().len(), MAX_BYTES / MAX_LINE_BYTES + 1);
    }
}
