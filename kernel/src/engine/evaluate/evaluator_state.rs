//! The state of evcxr at one moment: its items, variables and crates. evcxr can return to that state when the variables are restored.
//!
//! evcxr has no interface to save or restore its state. But the source of the last cell that evcxr compiled contains every
//! item of the notebook, and evcxr lists the variables with their types. One cell made of these items and variables gives the
//! state back to an evcxr that has forgotten everything.

use crate::engine::evaluate::place::{self, STATEMENTS};
use anyhow::{Context, Result};
use std::collections::HashMap;
use syn::visit::{self, Visit};

/// The line of the generated source that ends the items. Every notebook has it, since its first cell uses `?`.
const BELOW_ITEMS: &str = "struct EvcxrUserCodeError {}";

/// The first line of the generated source.
const ABOVE_ITEMS: &str = "#![allow(unused_imports, unused_mut, dead_code)]";

/// The beginning of an inner attribute, a line that must precede all items.
const ATTRIBUTE: &str = "#![";

/// The first item without a name, which every notebook has. evcxr writes the items with names above this item.
const FIRST_UNNAMED: &str = "use ::ferrotune::cell::shown::*;";

/// A `let` that waits for the cell that decides its type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::engine) struct Undecided {
    /// The names that the statement declares.
    pub(in crate::engine) names: Vec<String>,
    /// The statement, in one line.
    pub(in crate::engine) statement: String,
}

/// The state of evcxr after a cell.
#[derive(Clone, Debug, Default)]
pub(in crate::engine) struct EvaluatorState {
    /// The generated source of the last cell.
    source: String,
    /// Names and types of the variables.
    variables: Vec<(String, String)>,
    /// The crates that the user has added, as arguments of `:dep`.
    dependencies: Vec<String>,
    /// The `let` statements that wait for the cell that decides their types.
    pub(in crate::engine) undecided: Vec<Undecided>,
    /// The `let` statements of numbers whose types the compiler has assumed, `i32` or `f64`, until a cell needs other types.
    pub(in crate::engine) assumed: Vec<Undecided>,
}

impl EvaluatorState {
    pub(in crate::engine) fn new(source: String, variables: Vec<(String, String)>, dependencies: Vec<String>) -> Self {
        Self { source, variables, dependencies, undecided: Vec::new(), assumed: Vec::new() }
    }

    pub(in crate::engine) fn dependencies(&self) -> &[String] {
        &self.dependencies
    }

    /// The crates that the user has added, one line each.
    pub(in crate::engine) fn dependencies_text(&self) -> String {
        match self.dependencies.as_slice() {
            [] => "no crate has been added; :dep NAME = \"VERSION\" adds one".to_owned(),
            dependencies => dependencies.join("\n"),
        }
    }

    /// Forgets the variables, whose process is gone, and keeps the items. Their statics are defined by the cell that declares them next.
    pub(in crate::engine) fn lose_variables(&mut self) {
        self.source = evcxr::statics_of_next_cell(&self.source);
        self.variables.clear();
        self.undecided.clear();
        self.assumed.clear();
    }

    /// Forgets the statements whose types a cell has decided, and those whose names it declares anew.
    pub(in crate::engine) fn decide(&mut self, cell: &str, decided: &[Undecided]) {
        let declared = place::declared(cell);
        let is_declared = |undecided: &Undecided| undecided.names.iter().any(|name| declared.contains(name));
        let is_open = |undecided: &Undecided| !decided.contains(undecided) && !is_declared(undecided);
        self.undecided.retain(is_open);
        self.assumed.retain(is_open);
    }

    /// Whether a variable has numbers of the types that the compiler assumes.
    pub(in crate::engine) fn has_assumed_numbers(&self, name: &str) -> bool {
        let is_word = |letter: char| letter.is_alphanumeric() || letter == '_';
        let is_assumed =
            |type_name: &str| type_name.split(|letter| !is_word(letter)).any(|word| ["i32", "f64"].contains(&word));
        self.variables.iter().any(|(known, type_name)| known == name && is_assumed(type_name))
    }

    /// Names of the variables, sorted.
    pub(in crate::engine) fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.variables.iter().map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        names
    }

    pub(in crate::engine) fn forget(&mut self, names: &[String]) {
        self.variables.retain(|(name, _)| !names.contains(name));
    }

    /// Declarations, without values, of the variables that `later` does not have.
    pub(in crate::engine) fn declarations_missing_in(&self, later: &EvaluatorState) -> Result<String> {
        let known = later.names();
        let missing: Vec<_> = self.variables.iter().filter(|(name, _)| !known.contains(&name.as_str())).collect();
        let mutable = if missing.is_empty() { HashMap::new() } else { mutability(&self.source)? };
        let declare = |(name, type_name): &&(String, String)| {
            format!("{} {name}: {type_name} = ::std::unreachable!();\n", keyword(&mutable, name))
        };
        Ok(missing.iter().map(declare).collect())
    }

    /// A cell that restores this state in evcxr. The process that runs the cell already has the variables: the cell takes each
    /// variable out of the store and declares it as a new variable.
    pub(in crate::engine) fn declaration(&self) -> Result<String> {
        let mut cell = self.items();
        let mutable = if self.source.is_empty() { HashMap::new() } else { mutability(&self.source)? };
        // These lines equal evcxr's own, since `compile/source.rs` searches for them. The store drops variables of another type.
        cell += "{\nlet mut vars_ok = true;\n";
        for (name, type_name) in &self.variables {
            cell +=
                &format!("vars_ok &= evcxr_variable_store.check_variable::<{type_name}>(::std::stringify!({name}));\n");
        }
        cell += "if !vars_ok { return ::std::result::Result::Ok(()); }\n}\n";
        for (name, type_name) in &self.variables {
            let keyword = keyword(&mutable, name);
            cell += &format!(
                "{keyword} {name}: {type_name} = evcxr_variable_store.take_variable::<{type_name}>(::std::stringify!({name}));\n"
            );
        }
        Ok(cell)
    }

    /// The items, those without a name first: evcxr treats an unnamed item as a part of the named item above it, and forgets
    /// both when the named item is redefined.
    pub(in crate::engine) fn items(&self) -> String {
        let lines: Vec<&str> = self.source.lines().collect();
        let end = (0..lines.len()).find(|at| is_below_items(&lines[*at..])).unwrap_or(lines.len());
        let attributes = lines[..end].iter().take_while(|line| line.starts_with(ATTRIBUTE)).count();
        let (attributes, items) = lines[..end].split_at(attributes);
        let first_unnamed = items.iter().position(|line| line.trim() == FIRST_UNNAMED);
        let (named, unnamed) = items.split_at(first_unnamed.unwrap_or(items.len()));
        let attributes = attributes.iter().filter(|line| line.trim() != ABOVE_ITEMS);
        let unnamed = unnamed.iter().filter(|line| line.trim() != FIRST_UNNAMED);
        attributes.chain(unnamed).chain(named).flat_map(|line| [*line, "\n"]).collect()
    }
}

fn keyword(mutable: &HashMap<String, bool>, name: &str) -> &'static str {
    if mutable.get(name).copied().unwrap_or(true) { "let mut" } else { "let" }
}

/// Whether the items end at these lines. In a cell that has only items, evcxr writes one function below the items, and no error type.
fn is_below_items(lines: &[&str]) -> bool {
    match lines {
        [first, ..] if first.trim() == BELOW_ITEMS => true,
        [first, second, ..] => first.trim() == "#[unsafe(no_mangle)]" && second.starts_with(STATEMENTS),
        _ => false,
    }
}

/// Whether each variable of the cell is `mut`, by name.
fn mutability(source: &str) -> Result<HashMap<String, bool>> {
    let file = syn::parse_file(source).context("the source of the last cell cannot be read")?;
    let mut lets = Lets::default();
    lets.visit_file(&file);
    // The user's statements are in the block that stores new variables. They shadow the variables that outer blocks load.
    lets.blocks.sort_by_key(|block| block.stores);
    Ok(lets.blocks.into_iter().flat_map(|block| block.names).collect())
}

/// The blocks that load or store variables of the notebook.
#[derive(Default)]
struct Lets {
    blocks: Vec<Block>,
}

struct Block {
    names: Vec<(String, bool)>,
    /// Whether the block stores variables and loads none: such a block has the user's statements.
    stores: bool,
}

impl<'ast> Visit<'ast> for Lets {
    fn visit_block(&mut self, block: &'ast syn::Block) {
        let mut names = Names::default();
        let mut stores = false;
        let mut loads = false;
        for statement in &block.stmts {
            match statement {
                syn::Stmt::Local(local) => {
                    loads |= local.init.as_ref().is_some_and(|init| calls_store(&init.expr, "take_variable"));
                    names.visit_pat(&local.pat);
                }
                syn::Stmt::Expr(expression, _) => stores |= calls_store(expression, "put_variable"),
                _ => {}
            }
        }
        if stores || loads {
            self.blocks.push(Block { names: names.0, stores: stores && !loads });
        }
        visit::visit_block(self, block);
    }
}

fn calls_store(expression: &syn::Expr, method: &str) -> bool {
    let syn::Expr::MethodCall(call) = expression else { return false };
    call.method.to_string().starts_with(method)
        && matches!(&*call.receiver, syn::Expr::Path(path) if path.path.is_ident("evcxr_variable_store"))
}

/// The names that a pattern binds, each with whether it is `mut`.
#[derive(Default)]
struct Names(Vec<(String, bool)>);

impl<'ast> Visit<'ast> for Names {
    fn visit_pat_ident(&mut self, pattern: &'ast syn::PatIdent) {
        self.0.push((pattern.ident.to_string(), pattern.mutability.is_some()));
        visit::visit_pat_ident(self, pattern);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = r#"#![allow(unused_imports, unused_mut, dead_code)]
#![feature(test)]
struct P { x: f64 }
use ::ferrotune::cell::shown::*;
use std::ops::*;
impl P { fn x(&self) -> f64 { self.x } }
            struct EvcxrUserCodeError {}
            impl<T: std::fmt::Debug> From<T> for EvcxrUserCodeError { fn from(error: T) -> Self { EvcxrUserCodeError {} } }
#[unsafe(no_mangle)]
pub extern "C-unwind" fn run_user_code_3(mut evcxr_variable_store: *mut S) -> *mut S {
let evcxr_variable_store = unsafe {&mut *evcxr_variable_store};
let mut a = evcxr_variable_store.take_variable::<P>(::std::stringify!(a));
let b = evcxr_variable_store.take_variable::<i32>(::std::stringify!(b));
match ::std::panic::catch_unwind(::std::panic::AssertUnwindSafe(||{
let _ = (|| -> std::result::Result<(), EvcxrUserCodeError> {
let a = b;
let (mut c, d) = { let mut d = 1; (d, 2) };
evcxr_variable_store.put_variable::<i32>(::std::stringify!(c), c);
::std::result::Result::Ok(())})();
})) { Ok(_) => {} Err(_) => {} }
evcxr_variable_store.put_variable::<P>(::std::stringify!(a), a);
evcxr_variable_store
}
"#;

    #[test]
    fn a_state_becomes_a_cell_with_items_and_variables() {
        let variables = [("a", "i32"), ("c", "i32"), ("d", "i32"), ("b", "i32")];
        let variables = variables.map(|(name, type_name)| (name.to_owned(), type_name.to_owned())).to_vec();
        let cell = EvaluatorState::new(SOURCE.to_owned(), variables, Vec::new()).declaration().unwrap();
        let expected = "#![feature(test)]\nuse std::ops::*;\nimpl P { fn x(&self) -> f64 { self.x } }\n\
            struct P { x: f64 }\n{\nlet mut vars_ok = true;\n\
            vars_ok &= evcxr_variable_store.check_variable::<i32>(::std::stringify!(a));\n\
            vars_ok &= evcxr_variable_store.check_variable::<i32>(::std::stringify!(c));\n\
            vars_ok &= evcxr_variable_store.check_variable::<i32>(::std::stringify!(d));\n\
            vars_ok &= evcxr_variable_store.check_variable::<i32>(::std::stringify!(b));\n\
            if !vars_ok { return ::std::result::Result::Ok(()); }\n}\n\
            let a: i32 = evcxr_variable_store.take_variable::<i32>(::std::stringify!(a));\n\
            let mut c: i32 = evcxr_variable_store.take_variable::<i32>(::std::stringify!(c));\n\
            let d: i32 = evcxr_variable_store.take_variable::<i32>(::std::stringify!(d));\n\
            let b: i32 = evcxr_variable_store.take_variable::<i32>(::std::stringify!(b));\n";
        assert_eq!(cell, expected);
    }

    #[test]
    fn variables_that_a_later_state_lacks_are_declared() {
        let state = |names: &[&str]| {
            let variables = names.iter().map(|name| ((*name).to_owned(), "i32".to_owned())).collect();
            EvaluatorState::new(SOURCE.to_owned(), variables, Vec::new())
        };
        let declared = state(&["c", "d", "x"]).declarations_missing_in(&state(&["x", "y"])).unwrap();
        assert_eq!(declared, "let mut c: i32 = ::std::unreachable!();\nlet d: i32 = ::std::unreachable!();\n");
        assert_eq!(state(&["x"]).declarations_missing_in(&state(&["x"])).unwrap(), "");
    }

    #[test]
    fn nothing_is_left_of_an_empty_notebook() {
        let nothing = "{\nlet mut vars_ok = true;\nif !vars_ok { return ::std::result::Result::Ok(()); }\n}\n";
        assert_eq!(EvaluatorState::default().declaration().unwrap(), nothing);
    }
}
