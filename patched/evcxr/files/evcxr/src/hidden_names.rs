//! Paths of types that a crate has for its macros alone, as `quote::__private::TokenStream`. rust-analyzer leaves out paths that are
//! hidden in the documentation.

use crate::rust_analyzer::EDITION;
use ra_ap_hir as ra_hir;
use ra_ap_ide as ra_ide;
use ra_ap_hir::ModuleDef;
use ra_ap_hir::ScopeDef;
use std::collections::HashSet;

/// How many modules a path may have behind its crate.
const DEPTH: usize = 3;

/// The path of a type without parameters in one of the user's crates; none if there is none, or if the type has parameters.
pub(crate) fn path(ty: &ra_hir::Type, db: &ra_ide::RootDatabase, module: ra_hir::Module) -> Option<String> {
    let adt = ty.as_adt().filter(|_| ty.type_arguments().next().is_none())?;
    let is_it = |found: &ModuleDef| match found {
        ModuleDef::Adt(found) => *found == adt,
        ModuleDef::TypeAlias(alias) => alias.ty(db).as_adt() == Some(adt) && alias.ty(db).type_arguments().next().is_none(),
        _ => false,
    };
    let crates = module.krate(db).dependencies(db).into_iter().filter(|found| !found.krate.is_builtin(db));
    let mut open: Vec<(String, ra_hir::Module, usize)> =
        crates.map(|found| (format!("::{}", found.name.display(db, EDITION)), found.krate.root_module(db), 0)).collect();
    let mut seen: HashSet<ra_hir::Module> = open.iter().map(|(_, module, _)| *module).collect();
    while !open.is_empty() {
        let mut deeper = Vec::new();
        for (path, visited, depth) in open {
            for (name, found) in visited.scope(db, Some(module)) {
                let ScopeDef::ModuleDef(found) = found else { continue };
                let path = || format!("{path}::{}", name.display(db, EDITION));
                if is_it(&found) {
                    return Some(path());
                }
                if let ModuleDef::Module(inner) = found
                    && depth < DEPTH
                    && !inner.krate(db).is_builtin(db)
                    && seen.insert(inner)
                {
                    deeper.push((path(), inner, depth + 1));
                }
            }
        }
        open = deeper;
    }
    None
}
