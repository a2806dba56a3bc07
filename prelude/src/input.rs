//! Asks the user for a line through the front end, as a read of the standard input does.

use ferrotune_link::{Answer, KernelFrame, connection};
use ferrotune_trial::{BoxError, Result, located};

/// Asks the user for a line of text, and waits for the line.
///
/// # Errors
/// If the front end takes no input, as in a scripted notebook; in a trial; or after an interrupt.
///
/// ```ignore
/// let name = ferrotune::input("Your name: ")?;
/// ```
#[track_caller]
pub fn input(prompt: &str) -> Result<String> {
    located(ask(prompt, false))
}

/// Asks for a line as [`input`] does, but the front end hides the typed text.
///
/// # Errors
/// The errors of [`input`].
#[track_caller]
pub fn input_password(prompt: &str) -> Result<String> {
    located(ask(prompt, true))
}

fn ask(prompt: &str, password: bool) -> Result<String, BoxError> {
    match answer(prompt, password)? {
        Answer::Line { text: Some(text) } => Ok(text),
        Answer::Refused { reason } => Err(reason.into()),
        _ => Err(NO_ONE.into()),
    }
}

/// The error if no user can be asked.
pub(crate) const NO_ONE: &str = "there is no one to ask: this front end does not take input";

/// The kernel's answer to the request for a line. The kernel refuses after an interrupt.
pub(crate) fn answer(prompt: &str, password: bool) -> std::io::Result<Answer> {
    connection::send(&KernelFrame::Input { prompt: prompt.to_owned(), password })
}
