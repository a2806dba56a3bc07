//! Hidden files, which patterns and folders leave out.

use glob::Pattern;

/// The folder into which macOS puts metadata of the files of an archive.
const MACOSX: &str = "__MACOSX";

/// Whether a name is that of a hidden file or folder, or of the folder with macOS' metadata in archives.
pub(super) fn is_hidden(name: &str) -> bool {
    name == MACOSX || name.starts_with('.') && !matches!(name, "." | "..")
}

/// Whether a file that matches a pattern is left out, because a part of its path is hidden and no part of the pattern names it.
pub(super) fn is_left_out(path: &str, pattern: &str) -> bool {
    let named: Vec<Pattern> =
        pattern.split('/').filter(|part| is_hidden(part)).filter_map(|part| Pattern::new(part).ok()).collect();
    path.split('/').any(|part| is_hidden(part) && !named.iter().any(|named| named.matches(part)))
}
