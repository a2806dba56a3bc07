//! Errors for users: a name, one line, and the place in the user's own cell.

mod cargo;
mod imports;

use crate::diagnostic;
use crate::engine::evaluate::insertions::Insertions;
use crate::engine::evaluate::places::Found;
use crate::failure::{BLUE, ErrorName, Failure, PLAIN, RED};
use evcxr::CompilationError;
use ferrotune_link::CellEnding;
use ferrotune_machine::format::bytes;
use ferrotune_space::record::signal_name;

/// Beginnings of the compiler's notes that do not help in a notebook: about the compiler, or about deleted files.
const IDLE_NOTES: [&str; 4] = [
    "this error originates in the",
    "the full ",
    "consider using `--verbose`",
    // This note names a private path of a library.
    "required by a bound in `ferrotune",
];

/// The failure of a cell whose process has ended and whose variables are lost.
pub(in crate::engine) fn died(ending: &CellEnding) -> Failure {
    Failure::new(
        error_name(ending),
        format!("{}; a new process has been started, and the variables are lost", ended(ending)),
    )
}

/// The failure of a cell whose process has ended and has been replaced by its snapshot.
pub(in crate::engine) fn taken_over(ending: &CellEnding, threads: &[String]) -> Failure {
    let text = format!("{}; every variable is as it was before the cell{}", ended(ending), gone(threads));
    Failure::new(error_name(ending), text)
}

/// The message about a process that has ended between two cells and has been replaced by its snapshot.
pub(in crate::engine) fn taken_over_between_cells(ending: &CellEnding, threads: &[String]) -> String {
    format!("after the cell had ended, {}; every variable is as the cell left it{}", ended(ending), gone(threads))
}

/// The message, beside a cell's own failure, that the cell had moved a variable and that all variables have been restored.
pub(in crate::engine) fn taken_back(threads: &[String]) -> String {
    format!("the cell has moved a variable, and every variable is as it was before the cell{}\n", gone(threads))
}

fn gone(threads: &[String]) -> String {
    match threads {
        [] => String::new(),
        threads => format!(
            ", but these threads of earlier cells are gone: {}; a lock that one of them held stays locked, and a cell that \
             takes it waits until you interrupt it",
            threads.join(", ")
        ),
    }
}

fn error_name(ending: &CellEnding) -> ErrorName {
    match ending {
        CellEnding::Stopped => ErrorName::Interrupted,
        CellEnding::OutOfMemory { .. } => ErrorName::OutOfMemory,
        CellEnding::Exited { .. } | CellEnding::Signalled { .. } | CellEnding::TakenBack => ErrorName::CellDied,
    }
}

fn ended(ending: &CellEnding) -> String {
    match ending {
        CellEnding::Stopped => "the cell did not stop when it was asked to, and was ended".to_owned(),
        CellEnding::Signalled { signal } => format!("the process of the cells was ended by {}", signal_name(*signal)),
        CellEnding::Exited { code } => format!("the process of the cells exited with {code}"),
        CellEnding::OutOfMemory { peak_bytes, limit_bytes: Some(limit) } => {
            let (peak, limit) = (bytes(*peak_bytes), bytes(*limit));
            format!("the cell held {peak}, the limit is {limit}, and it was ended; raise it with %memory limit")
        }
        CellEnding::OutOfMemory { peak_bytes, limit_bytes: None } => {
            format!("the cell held {} and the machine had no more memory, so it was ended", bytes(*peak_bytes))
        }
        CellEnding::TakenBack => "the cell failed".to_owned(),
    }
}

/// The failure for the compiler's errors, each with the user's line.
///
/// Only the `visible` lines of `source` are shown, which are the lines that the user wrote. Insertions are removed from these lines.
pub(in crate::engine) fn compilation(
    errors: &[CompilationError],
    source: &str,
    visible: impl Fn(usize) -> bool,
    insertions: &Insertions,
) -> Failure {
    let (mut traceback, mut first, mut wants_import) = (Vec::new(), None, false);
    // The compiler reports warnings too. If there is no error, a warning must be the reason.
    let has_error = errors.iter().any(|error| error.level() == "error");
    for error in errors.iter().filter(|error| error.level() == "error" || !has_error) {
        let message = error.message();
        let head = match error.code() {
            Some(code) => format!("error[{code}]: {message}"),
            None => format!("error: {}", cargo::reason(&message).unwrap_or(message)),
        };
        // The compiler may report the same error for another part of the generated source.
        let head_line = format!("{RED}{head}{PLAIN}");
        if error.spanned_messages().iter().all(|message| !message.span.is_some_and(|span| visible(span.start_line)))
            && traceback.contains(&head_line)
        {
            continue;
        }
        let place =
            error.primary_spanned_message().and_then(|message| message.span).filter(|span| visible(span.start_line));
        let head = head.strip_prefix("error: error: ").map(|rest| format!("error: {rest}")).unwrap_or(head);
        let import = imports::wanted(error);
        let head = import.as_ref().map_or_else(|| head.clone(), |import| format!("{head}; write `{import}`"));
        wants_import |= import.is_some();
        // evcxr splits `use` items, and forgets their places.
        let place = place.map(|span| (span.start_line, span.start_column)).or_else(|| imported(error, source));
        let line = head.lines().next().unwrap_or_default();
        first.get_or_insert_with(|| match place {
            Some((number, column)) => {
                format!("{line} (line {number}, column {})", insertions.original_column(number, column))
            }
            None => line.to_owned(),
        });
        traceback.push(format!("{RED}{head}{PLAIN}"));
        traceback.extend(places(error, &visible, insertions));
        traceback.extend(notes(error).map(|note| format!("{BLUE}note{PLAIN}: {note}")));
        // A line with an insertion is not the user's own line.
        let is_own = |line: &str| {
            let mut same = source.lines().zip(1..).filter(|(own, _)| own.trim() == line.trim());
            same.all(|(own, number)| insertions.original_line(number, own) == own)
        };
        // rustc's suggestions are about a foreign crate, or another type of the same name.
        let helps = helps(error, &visible, is_own).filter(|_| import.is_none());
        traceback.extend(helps.map(|help| format!("{BLUE}help{PLAIN}: {help}")));
    }
    if wants_import {
        let help = format!("`{}` brings all that a notebook which trains needs", imports::PRELUDE);
        traceback.push(format!("{BLUE}help{PLAIN}: {help}"));
    }
    let text = first.unwrap_or_else(|| "the cell does not compile".to_owned());
    Failure { name: ErrorName::CompilationError, text, traceback }
}

/// The failure for the compiler's errors in generated Rust, which has no line of the user's.
pub(in crate::engine) fn generated(errors: &[CompilationError]) -> Failure {
    compilation(errors, "", |_| false, &Insertions::default())
}

/// Line and column, from 1, of the name that an error is about, if the name is in a `use` item of the source.
fn imported(error: &CompilationError, source: &str) -> Option<(usize, usize)> {
    let text = &diagnostic::primary_span(&error.json)?["text"][0];
    if !is_use(text["text"].as_str()?) {
        return None;
    }
    let path = diagnostic::highlighted(text)?;
    let name = path.rsplit("::").next().filter(|name| !name.is_empty())?;
    let mut is_within = false;
    source.lines().zip(1..).find_map(|(line, number)| {
        is_within |= is_use(line);
        let found = line.match_indices(name).map(|(at, _)| at).find(|at| is_word(line, *at, name.len()));
        let found = found.filter(|_| is_within).map(|at| (number, line[..at].chars().count() + 1));
        is_within &= !line.contains(';');
        found
    })
}

/// Whether a `use` item begins on a line.
fn is_use(line: &str) -> bool {
    let line = line.trim_start();
    let behind = line.strip_prefix("pub").map_or(line, |rest| rest.split_once(')').map_or(rest, |(_, rest)| rest));
    behind.trim_start().starts_with("use ")
}

/// Whether a part of a line is a whole word, without a letter, digit or underscore before or after it.
fn is_word(line: &str, start: usize, length: usize) -> bool {
    let is_letter = |character: char| character.is_alphanumeric() || character == '_';
    !line[..start].ends_with(is_letter) && !line[start + length..].starts_with(is_letter)
}

/// The compiler's notes without a place, such as the message of a trait's author for a type that does not implement the trait.
fn notes(error: &CompilationError) -> impl Iterator<Item = &str> {
    let children = error.json["children"].as_array().into_iter().flatten();
    let points_nowhere = |child: &&serde_json::Value| child["spans"].as_array().is_none_or(Vec::is_empty);
    let notes = children.filter(|child| child["level"] == "note").filter(points_nowhere);
    let notes = notes.filter_map(|note| note["message"].as_str());
    notes.filter(|note| !IDLE_NOTES.iter().any(|idle| note.starts_with(idle)))
}

/// The compiler's suggestions, each with the changed line if the line `is_own`.
fn helps(
    error: &CompilationError,
    visible: impl Fn(usize) -> bool,
    is_own: impl Fn(&str) -> bool,
) -> impl Iterator<Item = String> {
    let children = error.json["children"].as_array().into_iter().flatten().filter(|child| child["level"] == "help");
    // A suggestion about generated lines is of no use.
    let children =
        children.filter(move |child| diagnostic::number(&child["spans"][0], "line_start").is_none_or(&visible));
    children.filter_map(move |child| {
        let message = child["message"].as_str()?;
        if let Some(name) =
            message.strip_prefix("you might be missing a crate named `").and_then(|rest| rest.strip_suffix('`'))
        {
            return Some(format!("{message}; `:dep {name}` adds it"));
        }
        let line = child["spans"][0]["text"][0]["text"].as_str();
        let own = line.filter(|line| is_own(line)).and_then(|_| suggested(child));
        let shown = own.map_or_else(|| diagnostic::replacements(child), |line| vec![format!("`{line}`")]);
        Some(diagnostic::with_suggested(message, &shown))
    })
}

/// The source line that a suggestion is about, with the suggestion applied; none if there is no such line, or if there are
/// several suggestions for the same place.
fn suggested(child: &serde_json::Value) -> Option<String> {
    let spans = child["spans"].as_array()?;
    let first = spans.first()?;
    let mut line: Vec<char> = first["text"][0]["text"].as_str()?.chars().collect();
    let mut edits = Vec::new();
    for span in spans {
        if span["line_start"] != first["line_start"] || span["line_end"] != first["line_start"] {
            return None;
        }
        let (start, end) = (diagnostic::index(span, "column_start")?, diagnostic::index(span, "column_end")?);
        edits.push((start, end, span["suggested_replacement"].as_str()?));
    }
    // Edits are applied from the right, so that no edit moves another edit.
    edits.sort_unstable_by(|left, right| right.cmp(left));
    if edits.windows(2).any(|pair| pair[0].0 == pair[1].0 || pair[1].1 > pair[0].0) {
        return None;
    }
    for (start, end, text) in edits {
        if start > end || end > line.len() {
            return None;
        }
        line.splice(start..end, text.chars());
    }
    Some(line.into_iter().collect::<String>().trim().to_owned())
}

/// The lines that an error points to, with the columns marked.
fn places(error: &CompilationError, visible: &impl Fn(usize) -> bool, insertions: &Insertions) -> Vec<String> {
    let mut lines = Vec::new();
    for message in error.spanned_messages() {
        let Some(span) = message.span.filter(|span| visible(span.start_line)) else { continue };
        let start_column = insertions.original_column(span.start_line, span.start_column);
        let end_column = insertions.original_column(span.end_line, span.end_column);
        lines.push(format!("{BLUE} --> {PLAIN}line {}, column {start_column}", span.start_line));
        // evcxr appends the lines again each time it reads an error.
        let count = span.end_line.saturating_sub(span.start_line) + 1;
        for (offset, text) in message.lines.iter().take(count).enumerate() {
            let number = span.start_line + offset;
            let text = insertions.original_line(number, text);
            let end = if number == span.end_line { end_column } else { text.chars().count() + 1 };
            let start =
                if offset == 0 { start_column } else { text.chars().take_while(|c| c.is_whitespace()).count() + 1 };
            let marks = "^".repeat(end.saturating_sub(start).max(1));
            let label = if number == span.end_line { message.label.as_str() } else { "" };
            lines.extend(marked(number, &text, start, &format!("{RED}{marks} {label}{PLAIN}")));
        }
    }
    lines
}

/// A line of the cell, and a line with `marks` below a column.
pub(in crate::engine) fn marked(number: usize, text: &str, column: usize, marks: &str) -> [String; 2] {
    let before = text.chars().take(column.saturating_sub(1));
    // Tabs stay tabs, so that the marks are below the column.
    let blank: String = before.map(|character| if character == '\t' { '\t' } else { ' ' }).collect();
    [format!("{BLUE}{number:4} |{PLAIN} {text}"), format!("{BLUE}     |{PLAIN} {blank}{marks}")]
}

/// The failure for a panic or the error of a `?`: the message's first line with the place, the whole message, and the backtrace.
pub(in crate::engine) fn ended_early(
    name: ErrorName,
    message: &str,
    place: Option<String>,
    backtrace: &[Found],
) -> Failure {
    let first = message.lines().next().unwrap_or_default();
    let place = place.map_or_else(String::new, |place| format!(" ({place})"));
    let mut failure = Failure::new(name, format!("{first}{place}"));
    if message.lines().nth(1).is_some() {
        failure.traceback = vec![format!("{RED}{name}{PLAIN}: {message}{place}")];
    }
    // A single place is already in the first line.
    if backtrace.len() > 1 {
        let steps = backtrace.iter().map(|found| format!("{BLUE} --> {PLAIN}{}: {}", found.name, found.line.trim()));
        failure.traceback.extend(steps);
    }
    failure
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_are_gone_are_named_with_the_locks_that_they_leave() {
        let ending = CellEnding::Exited { code: 3 };
        let expected = "the process of the cells exited with 3; every variable is as it was before the cell, but these \
                        threads of earlier cells are gone: one, two; a lock that one of them held stays locked, and a cell \
                        that takes it waits until you interrupt it";
        assert_eq!(taken_over(&ending, &["one".to_owned(), "two".to_owned()]).text, expected);
    }

    #[test]
    fn a_panic_of_several_lines_and_places_is_shown_whole() {
        let found = |name: &str| Found { name: name.to_owned(), line: "  f();".to_owned() };
        let places = [found("In [1] line 2"), found("line 3 of the cell")];
        let failure = ended_early(ErrorName::Panic, "one\ntwo", Some("In [1] line 2".to_owned()), &places);
        assert_eq!(failure.text, "one (In [1] line 2)");
        let text = failure.traceback.join("\n");
        let text = [RED, BLUE, PLAIN].iter().fold(text, |text, colour| text.replace(colour, ""));
        assert_eq!(text, "Panic: one\ntwo (In [1] line 2)\n --> In [1] line 2: f();\n --> line 3 of the cell: f();");
        assert_eq!(ended_early(ErrorName::Error, "one", None, &places[..1]), Failure::new(ErrorName::Error, "one"));
    }
}
