//! A magic and a call of it in a cell.

use crate::action::Action;
use crate::error::{MagicError, Problem};

/// A magic: its names, its arguments and options, and its help.
#[derive(Debug)]
pub struct Magic {
    /// The forms in which the magic is typed: `%name` on a line, `%%name` on the first line of a cell, or both.
    pub forms: &'static [&'static str],
    /// The usage, in which `{options}` stands for the options.
    pub(crate) usage: &'static str,
    /// The summary of a few words for lists of magics.
    pub summary: &'static str,
    /// The help text of several lines, with an example. [`crate::help`] adds the usage and the options.
    pub(crate) help: &'static str,
    /// The positional arguments, in their order.
    pub(crate) arguments: &'static [Argument],
    /// The options, which are given by name.
    pub options: &'static [MagicOption],
    /// Whether the rest of the magic's line is Rust.
    pub(crate) runs_line: bool,
    pub(crate) build: fn(&Invocation<'_>) -> Result<Action, MagicError>,
}

impl Magic {
    /// The magic's name without `%`.
    pub fn name(&self) -> &'static str {
        self.forms[0].trim_start_matches('%')
    }

    /// The usage as one line with every option.
    pub fn usage(&self) -> String {
        let options: Vec<String> = self.options.iter().map(MagicOption::usage).collect();
        self.usage.replace("{options}", &options.join(" "))
    }

    pub(crate) fn has_line_form(&self) -> bool {
        self.forms.iter().any(|form| !form.starts_with("%%"))
    }

    pub(crate) fn has_cell_form(&self) -> bool {
        self.forms.iter().any(|form| form.starts_with("%%"))
    }
}

/// A positional argument of a magic.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Argument {
    /// The argument's name in the usage.
    pub(crate) name: &'static str,
    pub(crate) values: Values,
}

/// The kind of values that an argument or an option accepts. The kernel looks up the values of each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Values {
    /// Any text.
    Any,
    /// One of these words.
    Words(&'static [&'static str]),
    /// The name of an oracle.
    Oracle,
    /// The name of a pruner.
    Pruner,
    /// The name of a terminator.
    Terminator,
    /// The name of a plot.
    Plot,
    /// The name of a file format.
    Format,
    /// The name of a magic.
    Magic,
    /// The name of a study.
    Study,
    /// The name of a checkpoint of the notebook.
    Checkpoint,
    /// The path of a file or folder.
    Path,
}

impl Argument {
    pub(crate) const fn new(name: &'static str, values: Values) -> Argument {
        Argument { name, values }
    }
}

/// An option of a magic, as `--name` with or without a value.
#[derive(Clone, Copy, Debug)]
pub struct MagicOption {
    /// The option's name with its dashes.
    pub name: &'static str,
    /// The value's placeholder in the usage; none if the option takes no value.
    pub(crate) value: Option<&'static str>,
    pub(crate) needs_value: bool,
    pub(crate) values: Values,
    /// The effect of an option that is not given.
    absence: Absence,
    /// The summary of a few words for the help.
    summary: &'static str,
}

#[derive(Clone, Copy, Debug)]
enum Absence {
    /// The option is required.
    Refused,
    /// The option may be absent. The summary describes the effect, if there is one.
    Allowed,
    /// The option then has this default value.
    Default(fn() -> String),
}

impl MagicOption {
    pub(crate) const fn flag(name: &'static str, summary: &'static str) -> MagicOption {
        MagicOption { name, value: None, needs_value: false, values: Values::Any, absence: Absence::Allowed, summary }
    }

    pub(crate) const fn new(name: &'static str, value: &'static str, summary: &'static str) -> MagicOption {
        MagicOption {
            name,
            value: Some(value),
            needs_value: true,
            values: Values::Any,
            absence: Absence::Allowed,
            summary,
        }
    }

    /// An option whose value can be left out.
    pub(crate) const fn with_or_without(name: &'static str, value: &'static str, summary: &'static str) -> MagicOption {
        MagicOption { needs_value: false, ..MagicOption::new(name, value, summary) }
    }

    pub(crate) const fn taking(self, values: Values) -> MagicOption {
        MagicOption { values, ..self }
    }

    pub(crate) const fn or(self, default: fn() -> String) -> MagicOption {
        MagicOption { absence: Absence::Default(default), ..self }
    }

    pub(crate) const fn required(self) -> MagicOption {
        MagicOption { absence: Absence::Refused, ..self }
    }

    fn is_required(&self) -> bool {
        matches!(self.absence, Absence::Refused)
    }

    fn with_value(&self) -> String {
        match self.value {
            None => self.name.to_owned(),
            Some(value) if self.needs_value => format!("{} {value}", self.name),
            Some(value) => format!("{} [{value}]", self.name),
        }
    }

    fn usage(&self) -> String {
        if self.is_required() { self.with_value() } else { format!("[{}]", self.with_value()) }
    }

    pub(crate) fn row(&self) -> (String, String) {
        let behind = match self.absence {
            Absence::Refused => "; always needed".to_owned(),
            Absence::Allowed => String::new(),
            Absence::Default(default) => format!(" (default: {})", default()),
        };
        (self.with_value(), format!("{}{behind}", self.summary))
    }
}

/// A call of a magic in a cell.
pub(crate) struct Invocation<'a> {
    pub(crate) magic: &'static Magic,
    /// The 1-based line of the magic in the cell.
    pub(crate) line: usize,
    /// The text behind the name, without the line ending.
    pub(crate) rest: &'a str,
    /// The number of characters before `rest` on its line.
    pub(crate) column: usize,
    /// The lines below a cell magic; none for a line magic.
    pub(crate) body: Option<&'a str>,
}

impl Invocation<'_> {
    /// The magic as it was typed.
    pub(crate) fn typed(&self) -> String {
        format!("{}{}", if self.body.is_some() { "%%" } else { "%" }, self.magic.name())
    }

    /// The error for a mistake that the magic's usage helps to correct.
    pub(crate) fn error(&self, problem: Problem) -> MagicError {
        MagicError { line: self.line, problem, usage: Some(self.magic.usage()) }
    }

    pub(crate) fn nothing_to_run(&self) -> MagicError {
        self.error(Problem::Empty { magic: self.typed() })
    }

    pub(crate) fn unexpected(&self, argument: &str) -> MagicError {
        self.error(Problem::Unexpected { argument: argument.to_owned() })
    }

    pub(crate) fn bad_value(&self, argument: &'static str, value: &str, problem: impl Into<String>) -> MagicError {
        let is_plain = !value.trim().is_empty() && !value.contains(char::is_control);
        let value = if is_plain { value.to_owned() } else { format!("{value:?}") };
        self.error(Problem::BadValue { argument, value, problem: problem.into() })
    }

    pub(crate) fn missing(&self, argument: &'static str, value: &'static str) -> MagicError {
        self.error(Problem::Missing { magic: self.typed(), argument, value })
    }
}

/// The known name that is most similar to the typed name; none if no name is similar.
pub(crate) fn nearest(typed: &str, known: impl Iterator<Item = &'static str>) -> Option<&'static str> {
    let bare = |text: &str| text.trim_start_matches(['%', '-']).to_lowercase();
    let typed = bare(typed);
    let allowed = (typed.chars().count() / 3).max(1);
    known
        .filter_map(|name| {
            let distance = strsim::osa_distance(&typed, &bare(name));
            let is_long = typed.chars().count() >= 3;
            let is_beginning = is_long && bare(name).starts_with(&typed);
            let is_end = is_long && bare(name).ends_with(&format!("-{typed}"));
            (distance <= allowed || is_beginning || is_end).then_some((!is_beginning, distance, name))
        })
        .min()
        .map(|(_, _, name)| name)
}
