//! Writes an error and its causes in one line, each text only once: many errors contain the text of their cause.

use anyhow::Error;

/// The text of an error, followed by the texts of its causes that it does not contain.
pub(crate) fn in_one_line(error: &Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |line, text| match line {
        line if line.is_empty() => text,
        line if line.contains(&text) => line,
        line => format!("{line}: {text}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferrotune_journal::JournalError;

    #[test]
    fn cause_that_an_error_contains_is_not_repeated() {
        let source = std::io::Error::from_raw_os_error(2);
        let error = JournalError::Io { path: "journal.log".into(), source };
        let line = in_one_line(&Error::from(error).context("cannot open the study"));
        assert_eq!(
            line,
            "cannot open the study: study file journal.log: No such file or directory (os error 2); what is on disk stays valid, so free space or repair access and run it again"
        );
        let bare = Error::from(std::io::Error::from_raw_os_error(2)).context("cannot find it");
        assert_eq!(in_one_line(&bare), "cannot find it: No such file or directory (os error 2)");
    }
}
