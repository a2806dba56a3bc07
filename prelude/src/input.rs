//! Asking the user for a line, through the front end. A cell's standard input is empty.

use ferrotune_link::{Answer, KernelFrame, connection};
use ferrotune_trial::Result;

/// Asks the user for a line of text, and waits for it.
///
/// # Errors
/// Where there is no one to ask: in a scripted notebook, or in a trial.
///
/// ```ignore
/// let name = ferrotune::input("Your name: ")?;
/// ```
pub fn input(prompt: &str) -> Result<String> {
    ask(prompt, false)
}

/// As [`input`], for what must not be shown while it is typed.
///
/// # Errors
/// Those of [`input`].
pub fn input_password(prompt: &str) -> Result<String> {
    ask(prompt, true)
}

fn ask(prompt: &str, password: bool) -> Result<String> {
    match connection::send(&KernelFrame::Input { prompt: prompt.to_owned(), password })? {
        Answer::Line { text: Some(text) } => Ok(text),
        Answer::Refused { reason } => Err(reason.into()),
        _ => Err("there is no one to ask: this front end does not take input".into()),
    }
}
