//! The one table of magics, and what comes straight from it: help, `%lsmagic`, completion and suggestions.

mod entries;
mod memory;
mod results;

use crate::action::Action;
use crate::arguments::Invocation;
use crate::error::MagicError;
pub use entries::table;
pub(crate) use entries::unknown;

/// Where a magic may stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `%name`, on a line of its own.
    Line,
    /// `%%name`, on the first line of a cell.
    Cell,
    /// Either.
    Both,
}

/// A magic: what it is called, what it takes, what it is for.
#[derive(Debug)]
pub struct Magic {
    /// The name without `%`.
    pub name: &'static str,
    /// Where it may stand.
    pub kind: Kind,
    /// The name as it is typed: `%name`, `%%name` or both.
    pub forms: &'static [&'static str],
    /// One line with every option.
    pub usage: &'static str,
    /// A few words.
    pub summary: &'static str,
    /// Several lines, with an example. [`help`] puts usage and options around it.
    pub help: &'static str,
    /// What the arguments without a name are called, with blanks between them, if there are any.
    pub positional: Option<&'static str>,
    /// What may be given by name.
    pub options: &'static [MagicOption],
    pub(crate) build: fn(&Invocation<'_>) -> Result<Action, MagicError>,
}

/// `--name`, perhaps with a value.
#[derive(Debug)]
pub struct MagicOption {
    /// With its dashes.
    pub name: &'static str,
    /// What the value is called in the usage; none if the option takes no value.
    pub value: Option<&'static str>,
    /// The value where the option is not given.
    pub default: Option<&'static str>,
    /// A few words.
    pub summary: &'static str,
}

/// The magic of a name, with or without its `%`.
pub(crate) fn find(name: &str) -> Option<&'static Magic> {
    let name = name.trim_start_matches('%');
    table().iter().find(|magic| magic.name == name)
}

/// The help of a magic by name, with or without its `%`; none if there is no such magic.
pub fn help(name: &str) -> Option<String> {
    let magic = find(name)?;
    let mut text = format!("{}\n\n{}\n\n{}\n", magic.usage, magic.summary, magic.help.trim_end());
    if !magic.options.is_empty() {
        text.push_str("\nOptions\n");
        let rows: Vec<(String, String)> = magic.options.iter().map(option_row).collect();
        push_rows(&mut text, &rows);
    }
    Some(text)
}

/// All magics with their summaries.
pub fn lsmagic() -> String {
    let mut text = String::new();
    for (title, sigil) in [("Line magics", "%"), ("Cell magics, on the first line of a cell", "%%")] {
        let forms = |magic: &'static Magic| magic.forms.iter().find(|form| sigil_of(form) == sigil);
        let rows: Vec<(String, String)> =
            table().iter().filter_map(|magic| Some(((*forms(magic)?).to_owned(), magic.summary.to_owned()))).collect();
        text.push_str(title);
        text.push('\n');
        push_rows(&mut text, &rows);
        text.push('\n');
    }
    text.push_str("A question mark behind a name shows its help, as in %%tune?\n");
    text
}

/// What may stand in place of `prefix`, the text from a magic's `%` to the cursor: magics, or options of one.
pub fn complete(prefix: &str) -> Vec<&'static str> {
    let Some((name, rest)) = prefix.split_once(char::is_whitespace) else {
        let mut forms: Vec<&'static str> = table().iter().flat_map(|magic| forms_for(magic, prefix)).collect();
        forms.sort_unstable();
        return forms;
    };
    let word = rest.rsplit(char::is_whitespace).next().unwrap_or(rest);
    let options = find(name).map_or(&[][..], |magic| magic.options);
    let given = |option: &MagicOption| rest.split_whitespace().any(|word| word == option.name);
    if !word.starts_with('-') {
        return Vec::new();
    }
    options
        .iter()
        .filter(|option| option.name.starts_with(word) && (option.name == word || !given(option)))
        .map(|option| option.name)
        .collect()
}

/// The forms that begin with `prefix`; who types `%tu` may mean `%%tune`.
fn forms_for(magic: &Magic, prefix: &str) -> Vec<&'static str> {
    let begun: Vec<&'static str> = magic.forms.iter().copied().filter(|form| form.starts_with(prefix)).collect();
    if !begun.is_empty() {
        return begun;
    }
    let cell_prefix = format!("%{prefix}");
    magic.forms.iter().copied().filter(|form| form.starts_with(&cell_prefix)).collect()
}

/// The known name that was most probably meant.
pub(crate) fn nearest(typed: &str, known: impl Iterator<Item = &'static str>) -> Option<&'static str> {
    let bare = |text: &str| text.trim_start_matches(['%', '-']).to_lowercase();
    let typed = bare(typed);
    let allowed = (typed.chars().count() / 3).max(1);
    known
        .filter_map(|name| {
            let distance = strsim::osa_distance(&typed, &bare(name));
            let is_beginning = typed.chars().count() >= 3 && bare(name).starts_with(&typed);
            (distance <= allowed || is_beginning).then_some((!is_beginning, distance, name))
        })
        .min()
        .map(|(_, _, name)| name)
}

fn option_row(option: &MagicOption) -> (String, String) {
    let name = option.value.map_or(option.name.to_owned(), |value| format!("{} {value}", option.name));
    let default = option.default.map(|default| format!(" (default: {default})")).unwrap_or_default();
    (name, format!("{}{default}", option.summary))
}

fn push_rows(text: &mut String, rows: &[(String, String)]) {
    let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    for (name, summary) in rows {
        text.push_str(&format!("  {name:width$}  {summary}\n"));
    }
}

fn sigil_of(form: &str) -> &'static str {
    if form.starts_with("%%") { "%%" } else { "%" }
}
