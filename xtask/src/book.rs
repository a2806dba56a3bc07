//! `cargo xtask book` makes a book of the guide with mdBook: `target/book/html/index.html`. It installs mdBook under `target/` from crates.io.
//!
//! The book has copies of the pages, and of all files that they link to, in the same folders, so that each link works.

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
/// The book's folder, and the folder of its pages in it.
const BOOK: &str = "target/book";
const PAGES: &str = "target/book/src";
/// The folder of mdBook.
const TOOLS: &str = "target/book-tools";
const SETTINGS: &str = "[book]\ntitle = \"Ferrotune\"\nlanguage = \"en\"\n\n[build]\nbuild-dir = \"html\"\n\n[output.html]\nno-section-label = true\n";

pub(crate) fn run(root: &Path) -> Result<()> {
    let program = root.join(TOOLS).join("bin/mdbook");
    if !program.exists() {
        step("install mdBook", || install(root))?;
    }
    step("copy the pages", || copy_pages(root))?;
    step("make the book", || run_command(Command::new(&program).arg("build").arg(root.join(BOOK))))?;
    eprintln!("wrote {}", root.join(BOOK).join("html/index.html").display());
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

/// Copies the pages of the guide and all that they link to.
fn copy_pages(root: &Path) -> Result<()> {
    let pages = root.join(PAGES);
    if pages.exists() {
        fs::remove_dir_all(&pages).with_context(|| format!("cannot remove {}", pages.display()))?;
    }
    let summary = read(root, SUMMARY)?;
    let listed: Vec<String> =
        guide::links(&summary).into_iter().map(|(_, link)| guide::resolved(SUMMARY, link)).collect();
    let mut files: BTreeSet<String> = listed.iter().cloned().collect();
    for page in &listed {
        let text = read(root, page)?;
        let links = guide::links(&text).into_iter().map(|(_, link)| link.split('#').next().unwrap_or_default());
        files.extend(links.filter(|file| !file.is_empty()).map(|file| guide::resolved(page, file)));
    }
    // mdBook makes a page only of what its summary has.
    let others = files.iter().filter(|file| file.ends_with(".md") && !listed.contains(*file) && *file != SUMMARY);
    let others: String = others.map(|file| format!("- [{file}]({file})\n")).collect();
    let summary = format!("{}\n# Pages of the repository\n\n{others}", summary.replace("](", "](docs/"));
    for file in files.iter().filter(|file| root.join(file).is_file()) {
        copy(root, file)?;
    }
    write(&pages.join("SUMMARY.md"), &summary)?;
    write(&root.join(BOOK).join("book.toml"), SETTINGS)
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
