//! The pages for people: their links lead somewhere, the guide's pages are short, and each has its place in the order of reading.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

/// The page with the guide's order of reading.
pub(crate) const SUMMARY: &str = "docs/SUMMARY.md";
/// The most words that a page of the guide has.
const MOST_WORDS: usize = 2500;

/// Complains about the pages, which are Markdown by path. `exists` says whether the repository has a file or folder.
pub(super) fn check(pages: &BTreeMap<String, String>, exists: impl Fn(&str) -> bool) -> Vec<String> {
    let mut complaints = Vec::new();
    let anchors: BTreeMap<&str, BTreeSet<String>> =
        pages.iter().map(|(path, text)| (path.as_str(), anchors(text))).collect();
    for (path, text) in pages {
        for (number, link) in links(text) {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { path.clone() } else { resolved(path, file) };
            if !exists(&target) {
                complaints.push(format!("{path}:{number}: the link {link} leads nowhere"));
            } else if !anchor.is_empty()
                && anchors.get(target.as_str()).is_some_and(|anchors| !anchors.contains(anchor))
            {
                complaints.push(format!("{path}:{number}: {target} has no heading for #{anchor}"));
            }
        }
    }
    let listed: BTreeSet<String> = pages.get(SUMMARY).map_or_else(BTreeSet::new, |summary| {
        links(summary).into_iter().map(|(_, link)| resolved(SUMMARY, link)).collect()
    });
    let guide = pages.iter().filter(|(path, _)| path.starts_with("docs/") && *path != SUMMARY);
    for (path, text) in guide {
        if !listed.contains(path) {
            complaints.push(format!("{path}: {SUMMARY} does not list this page"));
        }
        let words = text.split_whitespace().count();
        if words > MOST_WORDS {
            complaints
                .push(format!("{path}: {words} words, and a page has at most {MOST_WORDS}; make two pages of it"));
        }
    }
    complaints
}

/// The relative links of a page with their lines, without those in code.
pub(crate) fn links(text: &str) -> Vec<(usize, &str)> {
    let mut links = Vec::new();
    for (number, line) in outside_code(text) {
        // Every second part is code.
        for part in line.split('`').step_by(2) {
            let ends = part.match_indices("](").map(|(at, bracket)| &part[at + bracket.len()..]);
            let targets = ends.filter_map(|rest| rest.split_once(')')).map(|(target, _)| target);
            links.extend(targets.filter(|target| !target.contains("://")).map(|target| (number, target)));
        }
    }
    links
}

/// The anchors of a page's headings, as GitHub and mdBook make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    for (_, line) in outside_code(text).into_iter().filter(|(_, line)| line.starts_with('#')) {
        let heading = line.trim_start_matches('#').trim().to_lowercase();
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        let plain: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect();
        let again = (1..).map(|count| format!("{plain}-{count}"));
        let anchor = std::iter::once(plain.clone()).chain(again).find(|anchor| !anchors.contains(anchor));
        anchors.extend(anchor);
    }
    anchors
}

/// The lines of a page that are not in a block of code, with their numbers.
fn outside_code(text: &str) -> Vec<(usize, &str)> {
    let mut is_code = false;
    let is_outside = |(_, line): &(usize, &str)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    };
    (1..).zip(text.lines()).filter(is_outside).collect()
}

/// The path, from the repository's root, of a link in a page.
pub(crate) fn resolved(page: &str, link: &str) -> String {
    let mut path = PathBuf::new();
    for component in Path::new(page).parent().unwrap_or(Path::new("")).join(link).components() {
        match component {
            Component::ParentDir => {
                path.pop();
            }
            component => path.push(component),
        }
    }
    path.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(pages: &[(&str, &str)]) -> Vec<String> {
        let pages: BTreeMap<String, String> =
            pages.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
        check(&pages, |path| pages.contains_key(path) || path == "benchmarks")
    }

    #[test]
    fn links_lead_to_pages_and_headings() {
        let page = "# One `two`\n[a](b.md#c-d) [b](../benchmarks) [c](#one-two) `[d](e)` [f](https://g/h)\n```\n[i](j)\n# k\n```\n";
        let summary = "[a](a.md) [b](b.md)\n";
        assert!(complaints(&[(SUMMARY, summary), ("docs/a.md", page), ("docs/b.md", "## C: d\n")]).is_empty());
        assert_eq!(
            complaints(&[(SUMMARY, summary), ("docs/a.md", page), ("docs/b.md", "## C\n")]),
            ["docs/a.md:2: docs/b.md has no heading for #c-d"]
        );
        assert_eq!(complaints(&[("a.md", "\n[b](c.md)")]), ["a.md:2: the link c.md leads nowhere"]);
    }

    #[test]
    fn a_page_of_the_guide_is_listed_and_short() {
        let long = "word ".repeat(2501);
        assert_eq!(
            complaints(&[(SUMMARY, ""), ("docs/a.md", &long)]),
            [
                "docs/a.md: docs/SUMMARY.md does not list this page",
                "docs/a.md: 2501 words, and a page has at most 2500; make two pages of it"
            ]
        );
    }
}
