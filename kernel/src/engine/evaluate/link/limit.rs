//! The limit on the shown text of one cell. A cell that prints without end would fill the notebook and the front end's memory.

use crate::environment::OUTPUT_LIMIT_VARIABLE;
use ferrotune_machine::format;

/// The limit on the shown text of the running cell, or of the last cell.
#[derive(Debug, Default)]
pub(super) struct Limit {
    /// The largest number of shown bytes; none if there is no limit.
    limit_bytes: Option<u64>,
    shown_bytes: u64,
    is_told: bool,
}

impl Limit {
    pub(super) fn new(limit_bytes: Option<u64>) -> Self {
        Self { limit_bytes, shown_bytes: 0, is_told: false }
    }

    pub(super) fn begin_cell(&mut self) {
        *self = Self::new(self.limit_bytes);
    }

    /// Cuts off the text beyond the limit. The first cut of a cell returns a line that explains the cut.
    pub(super) fn cut(&mut self, text: &mut String) -> Option<String> {
        let left = self.limit_bytes?.saturating_sub(self.shown_bytes);
        let end = usize::try_from(left).map_or(text.len(), |left| text.floor_char_boundary(left));
        let is_cut = end < text.len();
        text.truncate(end);
        self.shown_bytes += end as u64;
        if !is_cut || std::mem::replace(&mut self.is_told, true) {
            return None;
        }
        // A character that does not fit uses up the limit, so no shorter text follows it.
        self.shown_bytes = self.limit_bytes?;
        let limit = format::precise_bytes(self.limit_bytes?);
        Some(format!(
            "\nthe cell has printed {limit}, and what it prints from here on is not shown; write it to a file, or start \
             Jupyter with {OUTPUT_LIMIT_VARIABLE}=SIZE or {OUTPUT_LIMIT_VARIABLE}=none\n"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_exceeds_the_limit_is_cut_off_and_told_once_for_each_cell() {
        let mut limit = Limit::new(Some(5));
        for _ in 0..2 {
            limit.begin_cell();
            let mut text = "abc".to_owned();
            assert_eq!((limit.cut(&mut text), text.as_str()), (None, "abc"));
            let mut text = "d\u{e9}f".to_owned();
            let line = limit.cut(&mut text).unwrap();
            assert!(line.contains("the cell has printed 5 B") && line.contains(OUTPUT_LIMIT_VARIABLE), "{line}");
            assert_eq!(text, "d");
            let mut text = "g".to_owned();
            assert_eq!((limit.cut(&mut text), text.as_str()), (None, ""));
        }
    }

    #[test]
    fn without_a_limit_everything_is_shown() {
        let mut text = "abc".to_owned();
        assert_eq!((Limit::new(None).cut(&mut text), text.as_str()), (None, "abc"));
    }
}
