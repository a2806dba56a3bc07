//! The table of all magics, and the texts that are made from it: help, `%lsmagic` and suggestions.

mod compiler;
mod devices;
mod environment;
mod files;
mod memory;
mod profile;
mod results;
mod search;
mod session;
pub(crate) mod shell;
mod show;
mod time;
mod tune;
mod variables;

pub(crate) use time::options_end;

use crate::action::Action;
use crate::arguments::Invocation;
use crate::error::{MagicError, Problem};

/// Every magic, by name.
static TABLE: &[Magic] = &[
    shell::BASH,
    results::BEST,
    environment::CD,
    memory::CHECKPOINT,
    memory::CHECKPOINTS,
    compiler::DEP,
    devices::DEVICE,
    devices::DEVICES,
    compiler::DOC,
    environment::ENV,
    results::EXPORT,
    memory::GC,
    session::HISTORY,
    show::HTML,
    show::LATEX,
    files::LOAD,
    session::LSMAGIC,
    show::MARKDOWN,
    time::MEMIT,
    memory::MEMORY,
    compiler::OPT,
    results::PLOT,
    profile::PROFILE,
    session::RESET,
    memory::RESTORE,
    search::RESUME,
    files::RUN,
    results::SPACE,
    results::STUDIES,
    time::TIME,
    time::TIMEIT,
    devices::TPU_CHECK,
    devices::TPU_CONNECT,
    results::TRIALS,
    tune::TUNE,
    memory::UNDO,
    variables::WHO,
    variables::WHOS,
    files::WRITEFILE,
];

/// A magic: its names, its arguments and options, and its help.
#[derive(Debug)]
pub struct Magic {
    /// The forms in which the magic is typed: `%name` on a line, `%%name` on the first line of a cell, or both.
    pub forms: &'static [&'static str],
    /// The usage, in which `{options}` stands for the options.
    usage: &'static str,
    /// The summary of a few words for lists of magics.
    pub summary: &'static str,
    /// The help text of several lines, with an example. [`help`] adds the usage and the options.
    help: &'static str,
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
    const fn new(name: &'static str, values: Values) -> Argument {
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
    const fn flag(name: &'static str, summary: &'static str) -> MagicOption {
        MagicOption { name, value: None, needs_value: false, values: Values::Any, absence: Absence::Allowed, summary }
    }

    const fn new(name: &'static str, value: &'static str, summary: &'static str) -> MagicOption {
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
    const fn with_or_without(name: &'static str, value: &'static str, summary: &'static str) -> MagicOption {
        MagicOption { needs_value: false, ..MagicOption::new(name, value, summary) }
    }

    const fn taking(self, values: Values) -> MagicOption {
        MagicOption { values, ..self }
    }

    const fn or(self, default: fn() -> String) -> MagicOption {
        MagicOption { absence: Absence::Default(default), ..self }
    }

    const fn required(self) -> MagicOption {
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

    fn row(&self) -> (String, String) {
        let behind = match self.absence {
            Absence::Refused => "; always needed".to_owned(),
            Absence::Allowed => String::new(),
            Absence::Default(default) => format!(" (default: {})", default()),
        };
        (self.with_value(), format!("{}{behind}", self.summary))
    }
}

/// Every magic, by name.
pub fn table() -> &'static [Magic] {
    TABLE
}

/// The magic with this name, which may have its `%`.
pub(crate) fn find(name: &str) -> Option<&'static Magic> {
    let name = name.trim_start_matches('%');
    TABLE.iter().find(|magic| magic.name() == name)
}

/// The help of the magic with this name, which may have its `%`; none if there is no such magic.
pub fn help(name: &str) -> Option<String> {
    let magic = find(name)?;
    let mut text = format!("{}\n\n{}\n\n{}\n", magic.usage(), magic.summary, magic.help.trim_end());
    if !magic.options.is_empty() {
        text.push_str("\nOptions\n");
        let rows: Vec<(String, String)> = magic.options.iter().map(MagicOption::row).collect();
        push_rows(&mut text, &rows);
    }
    Some(text)
}

/// All magics with their summaries.
pub fn lsmagic() -> String {
    let mut text = String::new();
    for (title, is_cell_form) in [("Line magics", false), ("Cell magics, on the first line of a cell", true)] {
        let form = |magic: &'static Magic| magic.forms.iter().find(|form| form.starts_with("%%") == is_cell_form);
        let rows: Vec<(String, String)> =
            TABLE.iter().filter_map(|magic| Some(((*form(magic)?).to_owned(), magic.summary.to_owned()))).collect();
        text.push_str(title);
        text.push('\n');
        push_rows(&mut text, &rows);
        text.push('\n');
    }
    text.push_str("A question mark behind a name shows its help, as in %%tune?\n");
    text
}

/// The error about an unknown magic, whose name is typed with or without `%`.
pub(crate) fn unknown(line: usize, typed: &str) -> MagicError {
    let forms = TABLE.iter().map(|magic| {
        let same_sigil = |form: &&&'static str| form.starts_with("%%") == typed.starts_with("%%");
        *magic.forms.iter().find(same_sigil).unwrap_or(&magic.forms[0])
    });
    let magic = if typed.starts_with('%') { typed.to_owned() } else { format!("%{typed}") };
    let problem = Problem::UnknownMagic { magic, nearest: nearest(typed, forms) };
    MagicError { line, problem, usage: None }
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

fn push_rows(text: &mut String, rows: &[(String, String)]) {
    let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    for (name, summary) in rows {
        text.push_str(&format!("  {name:width$}  {summary}\n"));
    }
}
