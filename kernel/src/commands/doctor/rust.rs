//! Rows about what compiles cells: toolchain, linker and prelude, and whether the next cell needs the network.

use super::Row;
use crate::chain;
use crate::environment;
use crate::folders;
use crate::prelude::{Prelude, shipped};
use crate::toolchain::{self, Toolchain, own};

/// What a toolchain without the program that expands procedural macros costs.
const EXPANDS_NO_MACROS: &str = "a variable whose type a procedural macro makes is kept only if the type is written; a toolchain of rustup has rust-analyzer-proc-macro-srv, which finds such types";

pub(super) fn rows() -> Vec<Row> {
    let linker = match environment::search("cc") {
        Some(linker) => Row::new("linker", linker.display().to_string()),
        None => Row::new("linker", "no cc on the PATH").stops_cells(toolchain::LINKER_CURE),
    };
    let toolchain = shipped::installed_toolchain();
    let prelude = match &toolchain {
        Ok(Some(toolchain)) => prelude_row(toolchain),
        _ => Row::new("prelude", "unknown without a toolchain").with_cure("mend Rust first"),
    };
    let network = match (&toolchain, prelude.stops_cells) {
        (Ok(Some(_)), false) => "not needed, except for crates of `:dep`",
        _ => "needed before the first cell runs",
    };
    vec![toolchain_row(&toolchain), linker, prelude, Row::new("network", network)]
}

fn toolchain_row(toolchain: &anyhow::Result<Option<Toolchain>>) -> Row {
    match toolchain {
        Ok(Some(toolchain)) => {
            let version = toolchain.version().unwrap_or_else(|| "of an unknown version".to_owned());
            let place = toolchain.sysroot.display();
            let row = Row::new("Rust", format!("{version} in {place}: {}", toolchain.rule.text()));
            match toolchain.expands_macros() {
                true => row,
                false => row.with_cure(EXPANDS_NO_MACROS),
            }
        }
        Ok(None) => {
            let cure = format!("ferrotune setup installs Rust {}; the first cell does so, too", own::VERSION);
            Row::new("Rust", "none").stops_cells(cure)
        }
        // Without a named toolchain, the broken one is that of `ferrotune setup`, and the error says what to do.
        Err(error) => {
            Row::new("Rust", chain::in_one_line(error)).stops_cells(match std::env::var_os(toolchain::VARIABLE) {
                Some(_) => "set FERROTUNE_TOOLCHAIN to a toolchain that is there, or unset it",
                None => "delete that folder, then ferrotune setup",
            })
        }
    }
}

fn prelude_row(toolchain: &Toolchain) -> Row {
    let place = Prelude::place(toolchain);
    let found = place.and_then(|place| Ok((Prelude::open(&place)?, place)));
    match found {
        Ok((Some(prelude), _)) => {
            let cache = folders::cache().ok();
            let origin = if prelude.folder().parent() == cache.as_deref() { "built" } else { "shipped" };
            Row::new("prelude", format!("{origin}, in {}", prelude.folder().display()))
        }
        Ok((None, place)) => Row::new("prelude", format!("none for this toolchain: no {}", place.display()))
            .stops_cells("ferrotune install builds it, in some minutes; the first cell does so, too"),
        Err(error) => Row::new("prelude", chain::in_one_line(&error))
            .stops_cells("delete that folder; ferrotune install builds it again"),
    }
}
