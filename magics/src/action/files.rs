//! What the magics ask for that are about files, folders and the environment.

/// Write the text of a cell to a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteFile {
    /// The file.
    pub path: String,
    /// Write behind what the file has, in place of it.
    pub append: bool,
    /// The text.
    pub text: String,
}

/// Put a file into the cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Load {
    /// The file.
    pub path: String,
    /// Which of its lines; none means all.
    pub lines: Option<Lines>,
}

/// Numbers from 1, the last one included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lines {
    /// The first one, at least 1.
    pub first: u64,
    /// The last one, at least `first`; none means no end.
    pub last: Option<u64>,
}

/// A folder to go to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Folder {
    /// The user's own one.
    Home,
    /// That before the last `%cd`.
    Previous,
    /// This one.
    Path(String),
}

/// What to do with environment variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Env {
    /// List them all.
    List,
    /// Show the value of one.
    Show {
        /// Its name.
        name: String,
    },
    /// Set one.
    Set {
        /// Its name.
        name: String,
        /// Its value.
        value: String,
    },
}
