//! The reasons of dependencies: each crate in the root manifest has a row in docs/dependencies.md. Does not judge the reasons.

use super::text::backticked;

pub(super) const PAGE: &str = "docs/dependencies.md";
/// The heading above the table of crates.
const HEADING: &str = "## Crates, and why";
/// The section of the root manifest with all dependencies.
const SECTION: &str = "[workspace.dependencies]";
/// The prefix of the names of our own crates, which need no reason.
const OURS: &str = "ferrotune-";

/// Complains about dependencies without a row, and about rows whose crate is not a dependency.
pub(super) fn check(page: &str, manifest: &str) -> Vec<String> {
    let dependencies: Vec<&str> =
        section(manifest, SECTION, "[").filter_map(|line| Some(line.split_once(" = ")?.0)).collect();
    let cells = section(page, HEADING, "## ").filter_map(|line| line.strip_prefix("| ")?.split('|').next());
    let named: Vec<&str> = cells.flat_map(backticked).collect();
    let without = dependencies.iter().filter(|name| !name.starts_with(OURS) && !named.contains(name));
    let without = without.map(|name| format!("{PAGE} has no row for {name}; say why it was chosen over its rivals"));
    let gone = named.iter().filter(|name| !dependencies.contains(name));
    let gone = gone.map(|name| format!("{PAGE} has {name}, which the root Cargo.toml does not; remove it"));
    without.chain(gone).collect()
}

/// The lines below a heading, up to a line that begins with `end`.
fn section<'a>(text: &'a str, heading: &str, end: &str) -> impl Iterator<Item = &'a str> {
    text.lines().skip_while(move |line| *line != heading).skip(1).take_while(move |line| !line.starts_with(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANIFEST: &str = "[workspace.dependencies]\nferrotune-nn = { path = \"nn\" }\n\n# A comment.\nlibc = \"0.2\"\nsyn = \"3\"\n\n[lints]\na = 1\n";

    fn complaints(rows: &str) -> Vec<String> {
        check(
            &format!("# Page\n\n{HEADING}\n\n| crate | why |\n|---|---|\n{rows}\n## By hand\n\n| `b` | c |\n"),
            MANIFEST,
        )
    }

    #[test]
    fn a_dependency_without_a_row_and_a_row_without_a_dependency_are_found() {
        assert_eq!(complaints("| `libc`, `syn` | `a` |\n| ours: `ferrotune-nn` | b |\n"), [""; 0]);
        assert_eq!(
            complaints("| `libc` | a |\n"),
            ["docs/dependencies.md has no row for syn; say why it was chosen over its rivals"]
        );
        let gone = complaints("| `libc`, `syn` | a |\n| `burn` | b |\n");
        assert_eq!(gone, ["docs/dependencies.md has burn, which the root Cargo.toml does not; remove it"]);
    }
}
