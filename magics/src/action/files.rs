//! Requests of the magics about files, folders and the environment.

/// The request of `%%writefile` to write the text of a cell to a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteFile {
    /// The file.
    pub path: String,
    /// Whether to append to the file; if not, its content is replaced.
    pub append: bool,
    /// The text.
    pub text: String,
}

/// The request of `%load` to put a file into the cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Load {
    /// The file.
    pub path: String,
    /// The lines of the file to load; none means all lines.
    pub lines: Option<Lines>,
}

/// A range of line or cell numbers, counted from 1, with the last number included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lines {
    /// The first number, at least 1.
    pub first: u64,
    /// The last number, at least `first`; none means no end.
    pub last: Option<u64>,
}

/// The target folder of `%cd`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Folder {
    /// The user's home folder.
    Home,
    /// The folder before the last `%cd`.
    Previous,
    /// The folder with this path.
    Path(String),
}

/// The action of `%env` on environment variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Env {
    /// Lists all environment variables.
    List,
    /// Shows the value of one environment variable.
    Show {
        /// The name of the variable.
        name: String,
    },
    /// Sets one environment variable.
    Set {
        /// The name of the variable.
        name: String,
        /// The new value of the variable.
        value: String,
    },
}
