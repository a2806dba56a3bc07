//! `cargo xtask book` makes a book of the guide with mdBook: `target/book/html/index.html`. It installs mdBook under `target/` from crates.io.
//!
//! The book begins with the README. It has copies of all files that its pages link to, in the same folders, so that each link works.
//! At the end the links of the HTML files are checked. A link to a folder is an error, since a browser shows no page for it.

mod links;

use crate::environment::cargo;
use crate::step::{run as run_command, step};
use crate::tidy::guide::{self, SUMMARY};
use anyhow::{Context, Result};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The version of mdBook.
const VERSION: &str = "0.5.4";
/// The book's folder, and the folders of its pages and of its HTML files.
const BOOK: &str = "target/book";
const PAGES: &str = "target/book/src";
const HTML: &str = "target/book/html";
/// The folder of mdBook.
const TOOLS: &str = "target/book-tools";
/// The first page. mdBook writes it as `index.html`, too, where its links must work: so it is in the book's root.
const FIRST: &str = "README.md";
/// mdBook's settings. Without its preprocessors a `README.md` becomes a `README.html`, as links have it.
const SETTINGS: &str = "\
[book]
title = \"Ferrotune\"
language = \"en\"

[build]
build-dir = \"html\"
use-default-preprocessors = false

[output.html]
no-section-label = true
input-404 = \"\"
";

pub(crate) fn run(root: &Path) -> Result<()> {
    let program = root.join(TOOLS).join("bin/mdbook");
    if !program.exists() {
        step("install mdBook", || install(root))?;
    }
    step("copy the pages", || copy_pages(root))?;
    step("make the book", || run_command(Command::new(&program).arg("build").arg(root.join(BOOK))))?;
    step("check the links", || links::check(&root.join(HTML)))?;
    eprintln!("wrote {}", root.join(HTML).join("index.html").display());
    Ok(())
}

fn install(root: &Path) -> Result<()> {
    let mut install = cargo(root);
    install.args([
        "install",
        "mdbook",
        "--version",
        VERSION,
        "--locked",
        "--no-default-features",
        "--features",
        "search",
    ]);
    run_command(install.arg("--root").arg(root.join(TOOLS)))
}

/// Copies the README, the pages of the guide, and all that they and the copied pages link to.
fn copy_pages(root: &Path) -> Result<()> {
    let pages = root.join(PAGES);
    if pages.exists() {
        fs::remove_dir_all(&pages).with_context(|| format!("cannot remove {}", pages.display()))?;
    }
    let files = linked_files(root)?;
    for file in &files {
        copy(root, file)?;
    }
    write(&pages.join("SUMMARY.md"), &summary(root, &files)?)?;
    write(&root.join(BOOK).join("book.toml"), SETTINGS)
}

/// The README, the guide's order of reading, and the files that can be reached from them by links.
fn linked_files(root: &Path) -> Result<BTreeSet<String>> {
    let mut files = BTreeSet::new();
    let mut to_read = vec![FIRST.to_owned(), SUMMARY.to_owned()];
    while let Some(file) = to_read.pop() {
        if !root.join(&file).is_file() || !files.insert(file.clone()) || !file.ends_with(".md") {
            continue;
        }
        let text = read(root, &file)?;
        let links = guide::links(&text).into_iter().map(|(_, link)| link.split('#').next().unwrap_or_default());
        to_read.extend(links.filter(|link| !link.is_empty()).map(|link| guide::resolved(&file, link)));
    }
    Ok(files)
}

/// mdBook's list of pages: the README, the guide, and all other pages, since mdBook makes a page only of what the list has.
fn summary(root: &Path, files: &BTreeSet<String>) -> Result<String> {
    let guide = read(root, SUMMARY)?;
    let listed: Vec<String> =
        guide::links(&guide).into_iter().map(|(_, link)| guide::resolved(SUMMARY, link)).collect();
    let mut summary = format!("[Ferrotune]({FIRST})\n\n{}\n# Other pages\n\n", guide.replace("](", "](docs/"));
    for file in files.iter().filter(|file| file.ends_with(".md") && !listed.contains(*file) && *file != FIRST) {
        let text = read(root, file)?;
        let title = text.lines().find_map(|line| line.strip_prefix("# ")).unwrap_or(file);
        summary.push_str(&format!("- [{title}]({file})\n"));
    }
    Ok(summary)
}

fn copy(root: &Path, file: &str) -> Result<()> {
    let to = root.join(PAGES).join(file);
    let folder = to.parent().with_context(|| format!("{file} has no folder"))?;
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    fs::copy(root.join(file), &to).map(drop).with_context(|| format!("cannot copy {file}"))
}

fn read(root: &Path, file: &str) -> Result<String> {
    fs::read_to_string(root.join(file)).with_context(|| format!("cannot read {file}"))
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
