//! The links between the HTML files of the book: each leads to a file, and each `#anchor` to an element of that page.
//!
//! Reads what mdBook writes, not all of HTML: attributes have their values in double quotes. Addresses of other hosts are not checked.

use crate::tidy::guide::resolved;
use anyhow::{Context, Result, bail};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The links of a page, and the names that links can have after `#`.
#[derive(Default)]
struct Page {
    links: BTreeSet<String>,
    anchors: BTreeSet<String>,
}

/// Checks all HTML files of a folder. The error names each broken link and its page.
pub(super) fn check(folder: &Path) -> Result<()> {
    let mut files = BTreeMap::new();
    find(folder, "", &mut files)?;
    let pages = files.values().flatten();
    let links: usize = pages.clone().map(|page| page.links.len()).sum();
    let broken = broken(&files);
    if !broken.is_empty() {
        bail!("the book has links that lead nowhere:\n{}", broken.join("\n"));
    }
    eprintln!("{} pages with {links} links", pages.count());
    Ok(())
}

/// Finds the files of a folder by their paths from the book's root; those with HTML are read.
fn find(folder: &Path, prefix: &str, files: &mut BTreeMap<String, Option<Page>>) -> Result<()> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    for entry in entries {
        let path = entry.with_context(|| format!("cannot list {}", folder.display()))?.path();
        let name = format!("{prefix}{}", path.file_name().unwrap_or_default().to_string_lossy());
        if path.is_dir() {
            find(&path, &format!("{name}/"), files)?;
        } else if name.ends_with(".html") {
            let html = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
            files.insert(name, Some(page(&html)));
        } else {
            files.insert(name, None);
        }
    }
    Ok(())
}

/// A line for each link that leads nowhere.
fn broken(files: &BTreeMap<String, Option<Page>>) -> Vec<String> {
    let mut broken = Vec::new();
    for (name, page) in files {
        for link in page.iter().flat_map(|page| &page.links) {
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if path.is_empty() { name.clone() } else { resolved(name, path) };
            match files.get(&target) {
                None => broken.push(format!("{name}: {link}: there is no {target}")),
                Some(Some(page)) if !anchor.is_empty() && !page.anchors.contains(anchor) => {
                    broken.push(format!("{name}: {link}: {target} has no #{anchor}"));
                }
                Some(_) => (),
            }
        }
    }
    broken
}

/// The links to the book's own files, and the anchors, of an HTML file.
fn page(html: &str) -> Page {
    let mut page = Page::default();
    let mut rest = html;
    while let Some((_, after)) = rest.split_once('<') {
        let (name, attributes, end) = tag(after);
        for (attribute, value) in attributes {
            if attribute == "id" {
                page.anchors.insert(value.to_owned());
            } else if matches!(attribute, "href" | "src") && !value.contains(':') {
                page.links.insert(value.replace("&amp;", "&"));
            }
        }
        // A script has text that looks like tags.
        rest = if name == "script" { end.split_once("</script>").map_or("", |(_, after)| after) } else { end };
    }
    page
}

/// The name and the attributes of a tag without its `<`, and the text after the tag. An attribute without a value is left out.
fn tag(text: &str) -> (&str, Vec<(&str, &str)>, &str) {
    let (name, mut rest) = text.split_at(text.find([' ', '\n', '>']).unwrap_or(text.len()));
    let mut attributes = Vec::new();
    loop {
        rest = rest.trim_start();
        let Some(end) = rest.find(['=', '>', ' ', '\n']) else { return (name, attributes, "") };
        let (attribute, after) = rest.split_at(end);
        if let Some(after) = after.strip_prefix('>') {
            return (name, attributes, after);
        }
        rest = after;
        if let Some((value, after)) = after.strip_prefix("=\"").and_then(|value| value.split_once('"')) {
            attributes.push((attribute, value));
            rest = after;
        } else if let Some(after) = after.strip_prefix('=') {
            rest = after;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(pages: &[(&str, &str)]) -> Vec<String> {
        let read = |html: &str| (!html.is_empty()).then(|| page(html));
        broken(&pages.iter().map(|(name, html)| ((*name).to_owned(), read(html))).collect())
    }

    #[test]
    fn a_link_leads_to_a_file_and_an_element() {
        let index = "<a class=\"x > y\" hidden href=\"a/b.html#c\">&lt;a href=\"no\"</a><img src=\"d.png\"><a id=\"e\" href=\"#e\">";
        let page = "<h1 id=\"c\">\n<a\nhref=\"../index.html\"><a href=\"https://example.org/f\">";
        assert_eq!(complaints(&[("index.html", index), ("a/b.html", page), ("d.png", "")]), [""; 0]);
        assert_eq!(
            complaints(&[("index.html", index), ("a/b.html", "<h1 id=\"g\"><a href=\"index.html\">")]),
            [
                "a/b.html: index.html: there is no a/index.html",
                "index.html: a/b.html#c: a/b.html has no #c",
                "index.html: d.png: there is no d.png"
            ]
        );
    }

    #[test]
    fn a_script_has_no_links() {
        let page = "<script src=\"a.js\">if (1 < 2) { x = '<a href=\"no\">'; }</script><a href=\"b\">";
        assert_eq!(
            complaints(&[("index.html", page)]),
            ["index.html: a.js: there is no a.js", "index.html: b: there is no b"]
        );
    }

    #[test]
    fn the_files_of_folders_are_found() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("a")).unwrap();
        fs::write(folder.path().join("a/b.html"), "<a href=\"../c.html\">").unwrap();
        let error = check(folder.path()).unwrap_err().to_string();
        assert_eq!(error, "the book has links that lead nowhere:\na/b.html: ../c.html: there is no c.html");
        fs::write(folder.path().join("c.html"), "").unwrap();
        check(folder.path()).unwrap();
    }
}
