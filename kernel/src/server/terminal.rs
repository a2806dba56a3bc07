//! Translates display updates for `jupyter console`, a front end in a terminal. It ignores updates of displays, so progress would
//! stay at its first state for ever. Here, a display's new text overwrites its old text if nothing was printed below. Otherwise
//! the last state of the display is printed at the end of its cell.

use std::path::Path;

use ferrotune_machine::process;
use serde_json::{Value, json};

/// The longest line that can be overwritten: a longer line may take more than one line of the terminal.
const WIDTH: usize = 79;
/// The most lines of a display that can be overwritten: a longer display may be higher than the terminal.
const MOST_LINES: usize = 20;

/// The displays of one cell that the terminal shows, or shows in an old state.
#[derive(Debug, Default)]
pub(super) struct Terminal {
    /// The display in the last lines: its id and its text.
    last: Option<(String, String)>,
    /// The ids and present texts of displays whose present text is not shown, in their order.
    behind: Vec<(String, String)>,
}

/// Whether the process that has started this kernel ignores updates of displays.
pub(super) fn ignores_updates() -> bool {
    let Some(pid) = std::env::var("JPY_PARENT_PID").ok().and_then(|pid| pid.trim().parse::<u32>().ok()) else {
        return false;
    };
    match process::command(pid) {
        Ok(command) => is_console(&String::from_utf8_lossy(&command)),
        Err(error) => {
            tracing::debug!(pid, %error, "the front end's command is not known");
            false
        }
    }
}

/// Whether a command, in which a zero byte ends each word, runs `jupyter console`.
fn is_console(command: &str) -> bool {
    let words: Vec<&str> = command.split('\0').collect();
    let is_script = |word: &str| Path::new(word).file_name().is_some_and(|name| name == "jupyter-console");
    // The interpreter, perhaps with options, and the script.
    words.iter().filter(|word| !word.starts_with('-')).take(2).any(|word| is_script(word))
        || words.windows(2).take(4).any(|pair| pair == ["-m", "jupyter_console"])
}

impl Terminal {
    /// The message that is published in place of a message; none if nothing is published.
    pub(super) fn translate<'a>(&mut self, msg_type: &'a str, content: Value) -> Option<(&'a str, Value)> {
        let id = content["transient"]["display_id"].as_str().map(str::to_owned);
        let text = content["data"]["text/plain"].as_str().map(str::to_owned);
        match (msg_type, id, text) {
            ("update_display_data", Some(id), Some(text)) => Some(("stream", printed(self.update(id, text)?))),
            ("update_display_data", ..) => None,
            ("display_data", Some(id), Some(text)) => {
                self.behind.retain(|(behind, _)| *behind != id);
                self.last = Some((id, text));
                Some((msg_type, content))
            }
            _ => {
                self.last = None;
                Some((msg_type, content))
            }
        }
    }

    /// The message that is published at the end of the cell: all texts that are not shown yet.
    pub(super) fn finish(&mut self) -> Option<(&'static str, Value)> {
        self.last = None;
        let texts: Vec<String> = self.behind.drain(..).map(|(_, text)| format!("{text}\n")).collect();
        (!texts.is_empty()).then(|| ("stream", printed(texts.concat())))
    }

    /// The text that overwrites the display's old text; none if the old text is not in the last lines.
    fn update(&mut self, id: String, text: String) -> Option<String> {
        match &mut self.last {
            Some((last, shown)) if *last == id && fits(shown) && fits(&text) => {
                let up = shown.lines().count().max(1);
                let over = format!("\x1b[{up}F\x1b[J{text}\n");
                *shown = text;
                Some(over)
            }
            _ => {
                match self.behind.iter_mut().find(|(behind, _)| *behind == id) {
                    Some((_, behind)) => *behind = text,
                    None => self.behind.push((id, text)),
                }
                None
            }
        }
    }
}

fn fits(text: &str) -> bool {
    text.lines().count() <= MOST_LINES && text.lines().all(|line| line.chars().count() <= WIDTH)
}

fn printed(text: String) -> Value {
    json!({"name": "stdout", "text": text})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn display(text: &str) -> Value {
        json!({"data": {"text/plain": text}, "metadata": {}, "transient": {"display_id": "bar"}})
    }

    fn updated(terminal: &mut Terminal, text: &str) -> Option<String> {
        let (msg_type, content) = terminal.translate("update_display_data", display(text))?;
        assert_eq!((msg_type, &content["name"]), ("stream", &json!("stdout")));
        content["text"].as_str().map(str::to_owned)
    }

    #[test]
    fn only_the_console_ignores_updates() {
        for (command, is) in [
            ("/usr/bin/python3\0/usr/bin/jupyter-console\0--kernel\0ferrotune\0", true),
            ("/usr/bin/python3\0-s\0/usr/bin/jupyter-console\0", true),
            ("python\0-m\0jupyter_console\0", true),
            ("/usr/bin/python3\0/usr/bin/jupyter-lab\0/home/jupyter-console/\0", false),
            ("python\0-m\0jupyter\0lab\0jupyter-console\0", false),
            ("", false),
        ] {
            assert_eq!(is_console(command), is, "{command:?}");
        }
    }

    #[test]
    fn a_display_in_the_last_lines_is_written_over() {
        let mut terminal = Terminal::default();
        assert_eq!(terminal.translate("display_data", display(" 0%")), Some(("display_data", display(" 0%"))));
        assert_eq!(updated(&mut terminal, "50%\ninner"), Some("\x1b[1F\x1b[J50%\ninner\n".to_owned()));
        assert_eq!(updated(&mut terminal, "100%"), Some("\x1b[2F\x1b[J100%\n".to_owned()));
        assert_eq!(terminal.finish(), None);
    }

    #[test]
    fn what_cannot_be_written_over_is_printed_at_the_end() {
        let mut terminal = Terminal::default();
        let stream = json!({"name": "stdout", "text": "between\n"});
        for text in ["wide ".repeat(20), "lines\n".repeat(30)] {
            terminal.translate("display_data", display(&text)).unwrap();
            assert_eq!(updated(&mut terminal, "short"), None);
            assert_eq!(terminal.finish(), Some(("stream", printed("short\n".to_owned()))));
        }
        terminal.translate("display_data", display(" 0%")).unwrap();
        assert_eq!(terminal.translate("stream", stream.clone()), Some(("stream", stream)));
        assert_eq!(updated(&mut terminal, "50%"), None);
        assert_eq!(updated(&mut terminal, "100%"), None);
        assert_eq!(terminal.finish(), Some(("stream", printed("100%\n".to_owned()))));
        assert_eq!(terminal.finish(), None);
    }
}
