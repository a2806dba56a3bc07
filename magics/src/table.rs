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

use crate::error::{MagicError, Problem};
use crate::magic::{Magic, MagicOption, nearest};

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

fn push_rows(text: &mut String, rows: &[(String, String)]) {
    let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    for (name, summary) in rows {
        text.push_str(&format!("  {name:width$}  {summary}\n"));
    }
}
