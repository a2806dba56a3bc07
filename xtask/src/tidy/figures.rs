//! The pages in `benchmarks/`: each table says how and when it was measured, one that is older than the newest release has a mark, and
//! `cargo xtask bench` finds the place of each of its tables. Does not judge the figures.

use crate::bench::TABLES;
use crate::bench::page::{self, CHANGELOG, FOLDER, Release};
use std::collections::BTreeMap;

/// Complains about the pages, which are Markdown by path. `version` is that of the workspace.
pub(super) fn check(pages: &BTreeMap<String, String>, version: &str) -> Vec<String> {
    let text = |path: &str| pages.get(path).map_or("", String::as_str);
    let changelog = text(CHANGELOG);
    let mut complaints: Vec<String> = heading(changelog, version).into_iter().collect();
    for table in TABLES {
        if let Err(error) = page::table(text(&table.path()), table.name) {
            complaints.push(format!("{}: {error}", table.path()));
        }
    }
    for (path, page) in pages.iter().filter(|(path, _)| path.starts_with(FOLDER)) {
        for number in page::undated(page) {
            complaints.push(format!(
                "{path}:{number}: nothing says when this table was measured; write `Measured by hand on YYYY-MM-DD: COMMANDS, MACHINE` in a line above it"
            ));
        }
        if page::marked(page, Release::newest(changelog)) != *page {
            complaints.push(format!(
                "{path}: marks of tables older than a release are missing or wrong; run `cargo xtask bench --mark`"
            ));
        }
    }
    complaints
}

/// Complains if the changelog's first version is not the workspace's, or has neither a day nor the word `unreleased`.
fn heading(changelog: &str, version: &str) -> Option<String> {
    let mut headings = changelog.lines().filter_map(|line| line.strip_prefix("## "));
    let first = headings.find(|heading| *heading != "Unreleased").unwrap_or_default();
    let is_released = Release::read(first).is_some_and(|release| release.version == version);
    let is_right = is_released || first == format!("{version} (unreleased)");
    (!is_right).then(|| {
        format!("{CHANGELOG}: its first version is `{first}`, but the root Cargo.toml has {version}; write `## {version} (YYYY-MM-DD)`, or `(unreleased)`")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "Measured by hand on 2026-11-20: 2 cores.\n";

    /// The complaints about a page beside one that has all tables.
    fn complaints(changelog: &str, page: &str) -> Vec<String> {
        let mut pages: BTreeMap<String, String> = BTreeMap::new();
        for table in TABLES {
            pages.entry(table.path()).or_default().push_str(&page::marks(table.name).concat());
        }
        pages.insert(CHANGELOG.to_owned(), changelog.to_owned());
        pages.insert("benchmarks/page.md".to_owned(), page.to_owned());
        check(&pages, "0.2.0")
    }

    #[test]
    fn a_release_fails_until_the_tables_before_it_are_marked() {
        assert_eq!(complaints("## Unreleased\n## 0.2.0 (unreleased)\n", LINE), [""; 0]);
        assert_eq!(complaints("## 0.2.0 (2026-11-20)\n", LINE), [""; 0]);
        let released = "## 0.2.0 (2026-11-21)\n";
        let missing = "benchmarks/page.md: marks of tables older than a release are missing or wrong; run `cargo xtask bench --mark`";
        assert_eq!(complaints(released, LINE), [missing]);
        let marked = page::marked(LINE, Release::newest(released));
        assert_eq!(complaints(released, &marked), [""; 0]);
        assert_eq!(complaints("## 0.2.0 (unreleased)\n", &marked), [missing]);
    }

    #[test]
    fn a_version_without_its_heading_in_the_changelog_is_found() {
        for changelog in ["", "## 0.1.0 (2026-11-20)\n", "## 0.2.0\n", "## 0.2.0 (soon)\n"] {
            let found = complaints(changelog, "");
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].ends_with("write `## 0.2.0 (YYYY-MM-DD)`, or `(unreleased)`"), "{found:?}");
        }
    }

    #[test]
    fn a_table_without_a_day_or_a_place_is_found() {
        let found = complaints("## 0.2.0 (unreleased)\n", "# Page\n\n| a |\n|---|\n");
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("benchmarks/page.md:4: nothing says when this table was measured; "), "{found:?}");
        let places = check(&BTreeMap::from([(CHANGELOG.to_owned(), "## 0.2.0 (unreleased)\n".to_owned())]), "0.2.0");
        assert_eq!(places.len(), TABLES.len(), "{places:?}");
        assert!(places[0].starts_with("benchmarks/README.md: no place for the table cells; write "), "{places:?}");
    }
}
