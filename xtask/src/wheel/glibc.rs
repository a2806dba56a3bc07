//! The version of the C library that a program or library needs, read from the versions of its symbols.

use crate::step;
use anyhow::{Result, bail};
use std::fmt;
use std::fs;
use std::path::Path;
use std::process::Command;

/// A version of glibc.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Glibc {
    pub(super) major: u32,
    pub(super) minor: u32,
}

impl fmt::Display for Glibc {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}", self.major, self.minor)
    }
}

/// Fails if a program or library below a folder needs a newer version than `oldest`. Prints the version that each needs.
pub(super) fn check(folder: &Path, oldest: Glibc) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            check(&path, oldest)?;
        } else if is_elf(&path)? {
            let symbols = step::output(Command::new("objdump").arg("-T").arg(&path))?;
            let Some((needed, symbol)) = newest(&symbols) else { bail!("{} asks glibc for nothing", path.display()) };
            eprintln!("{} needs glibc {needed}", path.display());
            if needed > oldest {
                bail!("{} needs glibc {needed} for {symbol}, which is newer than {oldest}", path.display());
            }
        }
    }
    Ok(())
}

fn is_elf(path: &Path) -> Result<bool> {
    Ok(fs::read(path)?.starts_with(b"\x7fELF"))
}

/// The newest version among the symbols that `objdump -T` lists, and a symbol of that version.
fn newest(symbols: &str) -> Option<(Glibc, &str)> {
    let versions = symbols.lines().filter_map(|line| {
        let (_, rest) = line.split_once("GLIBC_")?;
        let (version, symbol) = rest.split_once(')').or_else(|| rest.split_once(' '))?;
        let mut numbers = version.split('.').map(|number| number.parse().ok());
        Some((Glibc { major: numbers.next()??, minor: numbers.next()?? }, symbol.trim()))
    });
    versions.max_by_key(|(version, _)| *version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        let symbols = "\
            0000000000000000      DF *UND*\t0000000000000000 (GLIBC_2.9) pipe2\n\
            0000000000000000      DF *UND*\t0000000000000000 (GLIBC_2.28) statx\n\
            0000000000000000      DF *UND*\t0000000000000000 (GLIBC_2.2.5) write\n\
            0000000000000000      DF *UND*\t0000000000000000  GLIBC_2.3 old\n\
            0000000000000000 g    DF .text\t0000000000000010  Base        own\n";
        assert_eq!(newest(symbols), Some((Glibc { major: 2, minor: 28 }, "statx")));
        assert_eq!(newest("0000000000000000 g    DF .text\t0000000000000010  Base        own\n"), None);
    }
}
