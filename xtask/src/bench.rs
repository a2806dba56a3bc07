//! `cargo xtask bench NAME` measures a table of the pages in `benchmarks/` anew, in turn with its rivals, and writes it into its page.
//! `cargo xtask bench` lists the tables, and `cargo xtask bench --mark` marks those that are older than the newest release.

mod digits;
mod hpo;
mod machine;
pub(crate) mod page;
mod printed;
mod python;
mod steps;

use anyhow::{Context, Result, bail};
use page::{CHANGELOG, FOLDER, Measured, Release};
use std::fs;
use std::path::Path;

/// A table that a command measures.
pub(crate) struct Table {
    pub(crate) name: &'static str,
    /// The name of the page in `benchmarks/`.
    page: &'static str,
    /// What is measured, and after a semicolon the rivals.
    about: &'static str,
    measure: Measure,
}

/// Returns the text of a table, or nothing where the options ask for no page.
type Measure = fn(&Request<'_>) -> Result<Option<String>>;

impl Table {
    const fn new(name: &'static str, page: &'static str, about: &'static str, measure: Measure) -> Table {
        Table { name, page, about, measure }
    }

    /// The path of the page.
    pub(crate) fn path(&self) -> String {
        [FOLDER, self.page].concat()
    }
}

pub(crate) const TABLES: &[Table] = &[
    Table::new("cells", "README.md", "cells; evcxr_jupyter's", python::cells),
    Table::new("class", "README.md", "the memory of thirty kernels", python::kernel),
    Table::new("snapshots", "README.md", "snapshots and interrupts", python::kernel),
    Table::new("output", "README.md", "printed lines", python::kernel),
    Table::new("supervisor", "README.md", "the start and the memory of trials", python::kernel),
    Table::new("all-reduce", "cluster.md", "gradients; OpenMPI's", python::cluster),
    Table::new("studies", "cluster.md", "searches in PostgreSQL; Optuna's", python::cluster),
    Table::new("data", "data.md", "input of training; tf.data's, PyTorch's", python::library),
    Table::new("digits", "digits.md", "searches of real training; Optuna's", digits::run),
    Table::new("examples", "examples.md", "the standard library's examples as cells", python::examples),
    Table::new("hpo", "hpo.md", "searches of formulas; Optuna's", hpo::run),
    Table::new("keras", "keras.md", "a search; Keras Tuner's", python::library),
    Table::new("numbers", "numbers.md", "values of operations; NumPy's, SciPy's, JAX's", python::numbers),
    Table::new("steps", "steps.md", "training steps; candle's, PyTorch's, JAX's, burn's", steps::run),
    Table::new("compiled-step", "steps.md", "a compiled step; its bare execution", printed::compiled_step),
    Table::new("reads", "steps.md", "loops that read a value in each step", printed::reads),
    Table::new("device-process", "steps.md", "steps in the device process; without it", printed::device_process),
    Table::new("fit", "steps.md", "epochs of `Fit`; of a loop by hand", printed::fit),
    Table::new("training", "training.md", "epochs of `Fit`; Keras', Lightning's, PyTorch's", python::training),
    Table::new("trials", "trials.md", "a trial beside its training", python::trials),
];

/// A table to be measured.
struct Request<'a> {
    root: &'a Path,
    name: &'static str,
    options: &'a [String],
}

pub(crate) fn run(root: &Path) -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(2).collect();
    match arguments.split_first() {
        None => list(root),
        Some((option, [])) if option == "--mark" => mark(root),
        Some((name, options)) => measure(root, find(name)?, options),
    }
}

fn find(name: &str) -> Result<&'static Table> {
    let table = TABLES.iter().find(|table| table.name == name);
    table.with_context(|| {
        let names: Vec<&str> = TABLES.iter().map(|table| table.name).collect();
        format!("there is no table `{name}`; the names are {}", names.join(", "))
    })
}

/// Measures a table and writes it into its page, which must have a place for it.
fn measure(root: &Path, table: &'static Table, options: &[String]) -> Result<()> {
    let path = table.path();
    page::table(&read(root, &path)?, table.name).context(path.clone())?;
    let request = Request { root, name: table.name, options };
    let Some(text) = (table.measure)(&request)? else { return Ok(()) };
    let how = ["`cargo xtask bench", table.name].into_iter().chain(options.iter().map(String::as_str));
    let how = how.collect::<Vec<_>>().join(" ") + "`";
    let on = machine::description()? + ".";
    let line = Measured { how: &how, day: &machine::day()?, on: &on }.line(None);
    let text = format!("{line}\n\n{text}");
    eprintln!("{text}");
    // Others may have changed the page in the meantime.
    let page = page::replaced(&read(root, &path)?, table.name, &text).context(path.clone())?;
    write(root, &path, &page)?;
    eprintln!("xtask bench: {path} has the table; read the text around it, which may speak of the figures before");
    Ok(())
}

/// Prints the tables that a command measures, then those that were measured by hand.
fn list(root: &Path) -> Result<()> {
    let changelog = read(root, CHANGELOG)?;
    let newest = Release::newest(&changelog);
    let mark = |measured: &Measured<'_>| match newest {
        Some(release) if measured.is_older_than(release) => format!(" before version {}", release.version),
        _ => String::new(),
    };
    eprintln!("usage: cargo xtask bench NAME | --mark\n");
    for table in TABLES {
        let path = table.path();
        let page = read(root, &path)?;
        let first = page::measured(page::table(&page, table.name).context(path.clone())?).next();
        let day = first.map_or_else(|| "never".to_owned(), |(_, measured)| [measured.day, &mark(&measured)].concat());
        eprintln!("  {:14}  {:50}  {path:22}  {day}", table.name, table.about);
    }
    eprintln!("\nmeasured by hand:\n");
    for path in pages(root)? {
        for (number, measured) in page::measured(&read(root, &path)?).filter(|(_, measured)| measured.how == "hand") {
            eprintln!("  {:26}  {}{}", format!("{path}:{number}"), measured.day, mark(&measured));
        }
    }
    Ok(())
}

/// Marks the tables of all pages that are older than the newest release, and no others.
fn mark(root: &Path) -> Result<()> {
    let changelog = read(root, CHANGELOG)?;
    for path in pages(root)? {
        let page = read(root, &path)?;
        let marked = page::marked(&page, Release::newest(&changelog));
        if marked != page {
            write(root, &path, &marked)?;
            eprintln!("xtask bench: {path} has other marks");
        }
    }
    Ok(())
}

/// The paths of the pages, in the order of their names.
fn pages(root: &Path) -> Result<Vec<String>> {
    let mut pages = Vec::new();
    for entry in fs::read_dir(root.join(FOLDER)).with_context(|| format!("cannot read {FOLDER}"))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.ends_with(".md") {
            pages.push([FOLDER, &name].concat());
        }
    }
    pages.sort();
    Ok(pages)
}

fn read(root: &Path, path: &str) -> Result<String> {
    fs::read_to_string(root.join(path)).with_context(|| format!("cannot read {path}"))
}

fn write(root: &Path, path: &str, page: &str) -> Result<()> {
    fs::write(root.join(path), page).with_context(|| format!("cannot write {path}"))
}

/// Refuses options for a table that has none.
fn without_options(request: &Request<'_>) -> Result<()> {
    if let Some(option) = request.options.first() {
        bail!("the table {} has no option `{option}`; leave it out", request.name);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measured_table_is_written_into_its_page_below_its_line() {
        static TABLE: Table =
            Table::new("one", "page.md", "", |request| Ok(request.options.first().map(|_| "| 7 |\n".to_owned())));
        let root = tempfile::tempdir().unwrap();
        let page = format!("# Page\n\n{}\nBy hand.\n", page::marks("one").concat());
        fs::create_dir(root.path().join(FOLDER)).unwrap();
        write(root.path(), &TABLE.path(), &page).unwrap();
        measure(root.path(), &TABLE, &[]).unwrap();
        assert_eq!(read(root.path(), &TABLE.path()).unwrap(), page);
        measure(root.path(), &TABLE, &["--rounds".to_owned(), "3".to_owned()]).unwrap();
        let written = read(root.path(), &TABLE.path()).unwrap();
        let (line, text) = page::table(&written, "one").unwrap().split_once('\n').unwrap();
        let measured = Measured::read(line).unwrap();
        assert_eq!((measured.how, text), ("`cargo xtask bench one --rounds 3`", "\n| 7 |\n"));
        assert!(measured.on.contains(" GiB of memory, rustc "), "{line}");
        assert_eq!(page::replaced(&written, "one", "").unwrap(), page::replaced(&page, "one", "").unwrap());
    }

    #[test]
    fn a_name_that_no_table_has_is_answered_with_all_names() {
        assert_eq!(find("hpo").unwrap().page, "hpo.md");
        let error = find("kernels").err().unwrap().to_string();
        assert!(error.starts_with("there is no table `kernels`; the names are cells, class, snapshots, "), "{error}");
        assert!(!error.contains('\n'), "{error}");
    }
}
