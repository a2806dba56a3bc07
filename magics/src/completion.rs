//! Completion of a magic's line. It reads only the table of magics: for any other names, the answer says which kind of names can
//! follow.

use crate::magic::{Magic, MagicOption, Values};
use crate::table::{find, options_end, table};

/// The possible completions of the last word of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The start of the completed word, in bytes of the line.
    pub start: usize,
    /// The possible completions of the word.
    pub matches: Matches,
}

/// The possible completions of a word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Matches {
    /// These names, which begin with the word.
    Names(Vec<&'static str>),
    /// All values of this kind that begin with the word.
    Of(Values),
    /// Rust, which the line contains from [`Completion::start`] on.
    Rust,
}

/// The possible completions of `line`, which begins with a magic and ends at the cursor.
///
/// ```
/// use ferrotune_magics::{Completion, Matches, Values, complete};
/// assert_eq!(complete("%bes"), Completion { start: 0, matches: Matches::Names(vec!["%best"]) });
/// assert_eq!(complete("%%tune --oracle t"), Completion { start: 16, matches: Matches::Of(Values::Oracle) });
/// ```
pub fn complete(line: &str) -> Completion {
    let start = line.len() - line.trim_start().len();
    let Some((name, rest)) = line[start..].split_once(char::is_whitespace) else {
        return Completion { start, matches: Matches::Names(forms(&line[start..])) };
    };
    let behind = line.len() - rest.len();
    match find(name) {
        None => Completion { start: line.len(), matches: Matches::Names(Vec::new()) },
        Some(magic) if magic.runs_line => Completion { start: behind + options_end(rest), matches: Matches::Rust },
        Some(magic) => {
            let (start, matches) = word(magic, name.starts_with("%%"), rest);
            Completion { start: behind + start, matches }
        }
    }
}

/// The offset of the Rust in a line whose magic runs the rest of the line; none for any other line.
///
/// ```
/// assert_eq!(ferrotune_magics::rust_in("%timeit -n 5 data.len()"), Some(12));
/// assert_eq!(ferrotune_magics::rust_in("%best 3"), None);
/// ```
pub fn rust_in(line: &str) -> Option<usize> {
    let (name, rest) = line.trim_start().split_once(char::is_whitespace)?;
    let runs_line = name.starts_with('%') && find(name).is_some_and(|magic| magic.runs_line);
    runs_line.then(|| line.len() - rest.len() + options_end(rest))
}

/// The start of the last word behind a magic's name, and the possible completions of that word.
fn word(magic: &'static Magic, is_cell: bool, rest: &str) -> (usize, Matches) {
    let word = rest.rsplit(char::is_whitespace).next().unwrap_or(rest);
    let start = rest.len() - word.len();
    let before = &rest[..start];
    let given: Vec<&str> = before.split_whitespace().collect();
    if let Some((name, _)) = word.split_once('=').filter(|_| word.starts_with('-')) {
        return (start + name.len() + 1, Matches::Of(values_of(magic, name)));
    }
    if word.starts_with('-') {
        return (start, Matches::Names(options(magic, &given, word)));
    }
    let takes_value = |name: &&str| option(magic, name).is_some_and(|option| option.needs_value);
    if let Some(name) = given.last().filter(|name| takes_value(name)) {
        return (start, Matches::Of(values_of(magic, name)));
    }
    let values = (0..given.len()).filter(|place| *place > 0 && takes_value(&given[place - 1])).count();
    let arguments = given.iter().filter(|word| !word.starts_with('-')).count().saturating_sub(values);
    match magic.arguments.get(arguments).filter(|_| !is_cell || !magic.has_line_form()) {
        Some(argument) if argument.values != Values::Any => (start, Matches::Of(argument.values)),
        _ => (start, Matches::Names(options(magic, &given, word))),
    }
}

fn option(magic: &'static Magic, name: &str) -> Option<&'static MagicOption> {
    magic.options.iter().find(|option| option.name == name)
}

fn values_of(magic: &'static Magic, name: &str) -> Values {
    option(magic, name).map_or(Values::Any, |option| option.values)
}

/// The options that begin with the word and are not given yet.
fn options(magic: &'static Magic, given: &[&str], word: &str) -> Vec<&'static str> {
    let names = magic.options.iter().map(|option| option.name);
    names.filter(|name| name.starts_with(word) && !given.contains(name)).collect()
}

/// The forms of magics that begin with `prefix`, sorted.
fn forms(prefix: &str) -> Vec<&'static str> {
    let mut forms: Vec<&'static str> = table().iter().flat_map(|magic| forms_of(magic, prefix)).collect();
    forms.sort_unstable();
    forms
}

/// The forms of a magic that begin with `prefix`. If there are none, a prefix such as `%ht` completes to a cell form such as `%%html`.
fn forms_of(magic: &Magic, prefix: &str) -> Vec<&'static str> {
    let begun: Vec<&'static str> = magic.forms.iter().copied().filter(|form| form.starts_with(prefix)).collect();
    if !begun.is_empty() {
        return begun;
    }
    let cell_prefix = format!("%{prefix}");
    magic.forms.iter().copied().filter(|form| form.starts_with(&cell_prefix)).collect()
}
