//! Separates what a cell prints from the lines that evcxr's generated code sends to evcxr.
//!
//! Both come over the cell's standard output. A marker is recognised by its text alone, so a line of the user's that
//! imitates a marker may be lost. The end of a cell is not reported by a marker, so evcxr and the supervisor stay in step.

/// A piece of a cell's standard output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// The user's bytes.
    Text(Vec<u8>),
    /// A line for evcxr, without its end.
    Line(String),
    /// The cell panicked (also a line for evcxr).
    Panicked,
    /// The cell ended at a `?` (also a line for evcxr).
    Failed,
    /// The cell was not run: the type of this variable has been defined anew.
    Changed(String),
}

const PREFIX: &[u8] = b"EVCXR_";
const BEGIN_CONTENT: &str = "EVCXR_BEGIN_CONTENT ";
const END_CONTENT: &str = "EVCXR_END_CONTENT";
const PANIC: &str = "EVCXR_PANIC_NOTIFICATION";
const ERROR: &str = "EVCXR_ERROR_OCCURRED";
const CHANGED_TYPE: &str = "EVCXR_VARIABLE_CHANGED_TYPE:";

/// A parser that splits standard output into [`Piece`]s as the bytes arrive.
#[derive(Debug, Default)]
pub(super) struct Markers {
    held: Vec<u8>,
    in_content: bool,
}

impl Markers {
    /// Adds bytes, and returns the pieces that they complete. Bytes that may still become a marker are held back.
    pub(super) fn push(&mut self, bytes: Vec<u8>) -> Vec<Piece> {
        if self.held.is_empty() {
            self.held = bytes;
        } else {
            self.held.extend_from_slice(&bytes);
        }
        let mut pieces = Vec::new();
        while self.step(&mut pieces) {}
        pieces
    }

    /// Returns the bytes that are held back outside of content. The cell writes no more for now, so they are the user's.
    pub(super) fn release(&mut self) -> Vec<Piece> {
        if self.in_content || self.held.is_empty() {
            return Vec::new();
        }
        vec![Piece::Text(std::mem::take(&mut self.held))]
    }

    /// Returns everything that is held back, because the cell has ended, and closes open content.
    pub(super) fn finish(&mut self) -> Vec<Piece> {
        let mut pieces = Vec::new();
        if std::mem::take(&mut self.in_content) {
            let rest = String::from_utf8_lossy(&std::mem::take(&mut self.held)).into_owned();
            pieces.extend(rest.lines().map(|line| Piece::Line(line.to_owned())));
            pieces.push(Piece::Line(END_CONTENT.to_owned()));
        } else if !self.held.is_empty() {
            pieces.push(Piece::Text(std::mem::take(&mut self.held)));
        }
        pieces
    }

    fn step(&mut self, pieces: &mut Vec<Piece>) -> bool {
        if self.in_content {
            let Some(line) = self.take_line() else { return false };
            if line == PANIC {
                // For evcxr, too, a panic ends the content.
                self.in_content = false;
                pieces.push(Piece::Panicked);
                return true;
            }
            self.in_content = line != END_CONTENT;
            pieces.push(Piece::Line(line));
            return true;
        }
        let start = find_prefix(&self.held);
        if start > 0 {
            let rest = self.held.split_off(start);
            pieces.push(Piece::Text(std::mem::replace(&mut self.held, rest)));
        }
        if self.held.len() < PREFIX.len() {
            return false;
        }
        let Some(line) = self.take_line() else { return false };
        match line.as_str() {
            PANIC => pieces.push(Piece::Panicked),
            ERROR => pieces.push(Piece::Failed),
            _ if line.starts_with(BEGIN_CONTENT) => {
                self.in_content = true;
                pieces.push(Piece::Line(line));
            }
            _ if line.starts_with(CHANGED_TYPE) => pieces.push(Piece::Changed(line[CHANGED_TYPE.len()..].to_owned())),
            _ => pieces.push(Piece::Text(format!("{line}\n").into_bytes())),
        }
        true
    }

    fn take_line(&mut self) -> Option<String> {
        let end = self.held.iter().position(|byte| *byte == b'\n')?;
        let line: Vec<u8> = self.held.drain(..=end).collect();
        Some(String::from_utf8_lossy(&line[..end]).into_owned())
    }
}

/// The start of the first marker, or of bytes that may become one; the length of the bytes if there is none.
fn find_prefix(bytes: &[u8]) -> usize {
    let mut start = 0;
    // Most bytes are not the first byte of a marker, and `position` skips them fast.
    while let Some(found) = bytes[start..].iter().position(|byte| *byte == PREFIX[0]) {
        start += found;
        let rest = &bytes[start..];
        let length = rest.len().min(PREFIX.len());
        if rest[..length] == PREFIX[..length] {
            return start;
        }
        start += 1;
    }
    bytes.len()
}

/// The line that evcxr gets for a piece, if any.
pub(super) fn line_for_evcxr(piece: &Piece) -> Option<&str> {
    match piece {
        Piece::Text(_) | Piece::Changed(_) => None,
        Piece::Line(line) => Some(line),
        Piece::Panicked => Some(PANIC),
        Piece::Failed => Some(ERROR),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Piece {
        Piece::Text(text.as_bytes().to_vec())
    }

    #[test]
    fn a_marker_after_an_unfinished_line_is_found() {
        let mut markers = Markers::default();
        assert_eq!(markers.push(b"half a lineEVCXR_PANIC_NOTI".to_vec()), [text("half a line")]);
        assert_eq!(markers.push(b"FICATION\nmore".to_vec()), [Piece::Panicked, text("more")]);
    }

    #[test]
    fn what_only_looks_like_a_marker_is_the_users() {
        let mut markers = Markers::default();
        assert_eq!(markers.push(b"EVCXR_EXECUTION_COMPLETE\nE".to_vec()), [text("EVCXR_EXECUTION_COMPLETE\n")]);
        assert_eq!(markers.push(b"nd".to_vec()), [text("End")]);
    }

    #[test]
    fn content_goes_to_evcxr_and_is_closed_at_the_end_of_the_cell() {
        let mut markers = Markers::default();
        let line = |line: &str| Piece::Line(line.to_owned());
        let pieces = markers.push(b"EVCXR_BEGIN_CONTENT text/html\n<b>\nEVCXR_END_CONTENT\nx".to_vec());
        assert_eq!(pieces, [line("EVCXR_BEGIN_CONTENT text/html"), line("<b>"), line(END_CONTENT), text("x")]);
        markers.push(b"EVCXR_BEGIN_CONTENT text/html\nhalf".to_vec());
        assert_eq!(markers.finish(), [line("half"), line(END_CONTENT)]);
    }

    #[test]
    fn what_is_held_back_is_released_before_a_frame() {
        let mut markers = Markers::default();
        assert_eq!(markers.push(b"DONE".to_vec()), [text("DON")]);
        assert_eq!(markers.release(), [text("E")]);
        assert_eq!(markers.release(), []);
    }

    #[test]
    fn bytes_that_are_no_utf8_pass() {
        let mut markers = Markers::default();
        assert_eq!(markers.push(vec![0xff, 0x00, b'E', b'x']), [Piece::Text(vec![0xff, 0x00, b'E', b'x'])]);
    }
}
