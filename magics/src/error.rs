//! Why a cell's magics cannot be carried out. Each error is one line, names what is wrong and shows the cure.
//!
//! The text leaves out the line number; [`MagicError::line`] has it.

/// A cell that cannot be parsed. `line` is the 1-based line of the cell.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "a variant's fields are what its text names")]
pub enum MagicError {
    /// No magic has this name.
    #[error("unknown magic {magic}; {}%lsmagic lists them all", did_you_mean(.nearest.as_deref()))]
    Unknown { line: usize, magic: String, nearest: Option<String> },
    /// A `%` or `%%` that no letter follows.
    #[error("{sigil} needs a name right behind it, as in %device; %lsmagic lists them all")]
    Nameless { line: usize, sigil: String },
    /// A cell magic with one `%`.
    #[error("%{name} is a cell magic: write %%{name} on the first line of a cell and its code below")]
    CellMagicOnLine { line: usize, name: &'static str },
    /// A line magic with two `%`.
    #[error("%%{name} is a line magic: write %{name}")]
    LineMagicOnCell { line: usize, name: &'static str },
    /// A cell magic that something stands above.
    #[error("%%{name} must be on the first line of its cell; move what stands above it to a cell of its own")]
    NotFirst { line: usize, name: &'static str },
    /// A magic in the body of a cell magic.
    #[error("{magic} cannot stand inside {cell_magic}; move it to a cell of its own")]
    Inside { line: usize, magic: String, cell_magic: String },
    /// An option that the magic does not have.
    #[error("unknown option {option}; {}usage: {usage}", did_you_mean(*.nearest))]
    UnknownOption { line: usize, option: String, nearest: Option<&'static str>, usage: &'static str },
    /// An option that must be given.
    #[error("{magic} needs {option} {value}; usage: {usage}")]
    MissingOption { line: usize, magic: String, option: &'static str, value: &'static str, usage: &'static str },
    /// An option without its value.
    #[error("{option} needs a value: {option} {value}; usage: {usage}")]
    MissingValue { line: usize, option: &'static str, value: &'static str, usage: &'static str },
    /// A value for an option that takes none.
    #[error("{option} takes no value, but got {value}; usage: {usage}")]
    UnwantedValue { line: usize, option: &'static str, value: String, usage: &'static str },
    /// An option that is given twice.
    #[error("{option} is given twice; {cure}; usage: {usage}")]
    Repeated { line: usize, option: &'static str, cure: &'static str, usage: &'static str },
    /// A value that the option or argument cannot have.
    #[error("{argument} {value}: {problem}; usage: {usage}")]
    BadValue { line: usize, argument: &'static str, value: String, problem: String, usage: &'static str },
    /// A word that the magic has no place for.
    #[error("unexpected argument {argument}; usage: {usage}")]
    Unexpected { line: usize, argument: String, usage: &'static str },
    /// A quoted value without its end.
    #[error("the quote {quote} has no end; usage: {usage}")]
    UnclosedQuote { line: usize, quote: char, usage: &'static str },
    /// A cell magic without code below, or `%time` without a statement.
    #[error("{magic} has nothing to run; usage: {usage}")]
    Empty { line: usize, magic: String, usage: &'static str },
    /// `%time` with a statement that goes on below.
    #[error(
        "the statement of %time goes on below its line; write %%time on the first line of a cell for several lines"
    )]
    Unfinished { line: usize },
}

impl MagicError {
    /// The 1-based line of the cell on which the error is.
    pub fn line(&self) -> usize {
        match self {
            MagicError::Unknown { line, .. }
            | MagicError::Nameless { line, .. }
            | MagicError::CellMagicOnLine { line, .. }
            | MagicError::LineMagicOnCell { line, .. }
            | MagicError::NotFirst { line, .. }
            | MagicError::Inside { line, .. }
            | MagicError::UnknownOption { line, .. }
            | MagicError::MissingOption { line, .. }
            | MagicError::MissingValue { line, .. }
            | MagicError::UnwantedValue { line, .. }
            | MagicError::Repeated { line, .. }
            | MagicError::BadValue { line, .. }
            | MagicError::Unexpected { line, .. }
            | MagicError::UnclosedQuote { line, .. }
            | MagicError::Empty { line, .. }
            | MagicError::Unfinished { line } => *line,
        }
    }
}

fn did_you_mean(nearest: Option<&str>) -> String {
    nearest.map(|nearest| format!("did you mean {nearest}? ")).unwrap_or_default()
}
