//! The errors of a cell's magics. Each error is one line, names the mistake and shows the cure.

/// The largest number of characters of a usage in an error. A longer usage would hide the mistake before it.
const LONGEST_USAGE: usize = 200;

/// The error of a cell that cannot be parsed. The text does not contain the line number.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.text())]
pub struct MagicError {
    /// The 1-based line of the cell on which the mistake is.
    pub line: usize,
    /// The mistake.
    pub problem: Problem,
    /// The usage of the magic, if it helps to correct the mistake.
    pub usage: Option<String>,
}

/// A mistake in a cell's magics.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "a variant's fields are what its text names")]
pub enum Problem {
    /// No magic has this name.
    #[error("unknown magic {magic}{}%lsmagic lists them all", did_you_mean(*.nearest))]
    UnknownMagic { magic: String, nearest: Option<&'static str> },
    /// A `%` or `%%` that no letter follows.
    #[error("{sigil} needs a name right behind it, as in %device; %lsmagic lists them all")]
    Nameless { sigil: &'static str },
    /// A cell magic with one `%`.
    #[error("{magic} is a cell magic: write %{magic} on the first line of a cell and its code below")]
    CellMagicOnLine { magic: String },
    /// A line magic with two `%`.
    #[error("%{form} is a line magic: write {form}")]
    LineMagicOnCell { form: &'static str },
    /// A cell magic that is not on the first line of its cell.
    #[error("{magic} must be on the first line of its cell; move what stands above it to a cell of its own")]
    NotFirst { magic: String },
    /// A magic in the Rust that another magic runs.
    #[error("{magic} cannot stand inside {outer}; move it to a cell of its own")]
    Inside { magic: String, outer: String },
    /// An option that the magic does not have.
    #[error("unknown option {option}")]
    UnknownOption { option: String, nearest: Option<&'static str> },
    /// An option or argument that must be given.
    #[error("{magic} needs {argument} {value}")]
    Missing { magic: String, argument: &'static str, value: &'static str },
    /// An option without its value.
    #[error("{option} needs a value: {option} {value}")]
    MissingValue { option: &'static str, value: &'static str },
    /// A value for an option that takes none.
    #[error("{option} takes no value, but got {value}")]
    UnwantedValue { option: &'static str, value: String },
    /// An option that is given twice.
    #[error("{option} is given twice; {cure}")]
    Repeated { option: &'static str, cure: &'static str },
    /// A value that the option or argument cannot have.
    #[error("{argument} {value}: {problem}")]
    BadValue { argument: &'static str, value: String, problem: String },
    /// A word that the magic does not accept.
    #[error("unexpected argument {argument}")]
    Unexpected { argument: String },
    /// A quoted value without its end.
    #[error("the quote {quote} has no end")]
    UnclosedQuote { quote: char },
    /// A cell magic without code below, or `%time` without a statement.
    #[error("{magic} has nothing to run")]
    Empty { magic: String },
    /// `%time` with a statement that continues below its line.
    #[error(
        "the statement of {magic} goes on below its line; write %{magic} on the first line of a cell for several lines"
    )]
    Unfinished { magic: &'static str },
}

impl MagicError {
    /// The error as one line. Control characters in the typed text, which could end or overwrite the line, are escaped.
    fn text(&self) -> String {
        let text = format!("{}{}", self.problem, self.usage_after());
        let shown = |character: char| match character.is_control() {
            true => character.escape_default().to_string(),
            false => character.to_string(),
        };
        text.chars().map(shown).collect()
    }

    fn usage_after(&self) -> String {
        let Some(usage) = &self.usage else { return String::new() };
        let separator = match self.problem {
            Problem::UnknownOption { nearest, .. } => did_you_mean(nearest),
            _ => "; ".to_owned(),
        };
        if usage.len() > LONGEST_USAGE {
            let magic = usage.split(' ').next().unwrap_or_default();
            return format!("{separator}{magic}? lists all options");
        }
        format!("{separator}usage: {usage}")
    }
}

fn did_you_mean(nearest: Option<&str>) -> String {
    nearest.map_or("; ".to_owned(), |nearest| format!("; did you mean {nearest}? "))
}
