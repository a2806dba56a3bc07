//! The state of evcxr at one moment: its items, variables and crates. evcxr can return to that state when the variables are restored.
//!
//! evcxr has no interface to save or restore its items. But the source of the last cell that evcxr compiled contains every item of
//! the notebook. One cell made of these items gives them back to an evcxr that has forgotten everything.

use crate::engine::evaluate::place::{self, STATEMENTS};
use evcxr::Variable;

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
    variables: Vec<Variable>,
    /// The crates that the user has added, as arguments of `:dep`.
    dependencies: Vec<String>,
    /// The `let` statements that wait for the cell that decides their types.
    pub(in crate::engine) undecided: Vec<Undecided>,
    /// The `let` statements of numbers whose types the compiler has assumed, `i32` or `f64`, until a cell needs other types.
    pub(in crate::engine) assumed: Vec<Undecided>,
}

impl EvaluatorState {
    pub(in crate::engine) fn new(source: String, variables: Vec<Variable>, dependencies: Vec<String>) -> Self {
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
        self.variables.iter().any(|variable| variable.name == name && is_assumed(&variable.type_name))
    }

    /// Names of the variables, sorted.
    pub(in crate::engine) fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.variables.iter().map(|variable| variable.name.as_str()).collect();
        names.sort_unstable();
        names
    }

    pub(in crate::engine) fn forget(&mut self, names: &[String]) {
        self.variables.retain(|variable| !names.contains(&variable.name));
    }

    pub(in crate::engine) fn variables(&self) -> &[Variable] {
        &self.variables
    }

    pub(in crate::engine) fn set_variables(&mut self, variables: Vec<Variable>) {
        self.variables = variables;
    }

    /// The variables that `later` does not have.
    pub(in crate::engine) fn variables_missing_in(&self, later: &EvaluatorState) -> Vec<Variable> {
        let known = later.names();
        self.variables.iter().filter(|variable| !known.contains(&variable.name.as_str())).cloned().collect()
    }

    /// A cell that restores the items of this state in evcxr, and checks that the process which runs it has the variables. The store
    /// drops variables of another type.
    pub(in crate::engine) fn declaration(&self) -> String {
        let mut cell = self.items();
        // These lines equal evcxr's own, since `compile/source.rs` searches for them.
        cell += "{\nlet mut vars_ok = true;\n";
        for variable in &self.variables {
            let (Variable { name, borrows, .. }, type_name) = (variable, variable.type_in_store());
            let check = if borrows.is_empty() { "check_variable" } else { "check_borrower" };
            cell += &format!("vars_ok &= evcxr_variable_store.{check}::<{type_name}>(::std::stringify!({name}));\n");
        }
        cell += "if !vars_ok { return ::std::result::Result::Ok(()); }\n}\n";
        cell
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

/// Whether the items end at these lines. In a cell that has only items, evcxr writes one function below the items, and no error type.
fn is_below_items(lines: &[&str]) -> bool {
    match lines {
        [first, ..] if first.trim() == BELOW_ITEMS => true,
        [first, second, ..] => first.trim() == "#[unsafe(no_mangle)]" && second.starts_with(STATEMENTS),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

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
evcxr_variable_store
}
"#;

    fn variables(names: &[&str]) -> Vec<Variable> {
        let variable = |name: &&str| Variable {
            name: (*name).to_owned(),
            type_name: "i32".to_owned(),
            is_mut: false,
            borrows: BTreeMap::new(),
        };
        names.iter().map(variable).collect()
    }

    #[test]
    fn a_state_becomes_a_cell_with_items_that_checks_the_variables() {
        let cell = EvaluatorState::new(SOURCE.to_owned(), variables(&["a", "c"]), Vec::new()).declaration();
        let expected = "#![feature(test)]\nuse std::ops::*;\nimpl P { fn x(&self) -> f64 { self.x } }\n\
            struct P { x: f64 }\n{\nlet mut vars_ok = true;\n\
            vars_ok &= evcxr_variable_store.check_variable::<i32>(::std::stringify!(a));\n\
            vars_ok &= evcxr_variable_store.check_variable::<i32>(::std::stringify!(c));\n\
            if !vars_ok { return ::std::result::Result::Ok(()); }\n}\n";
        assert_eq!(cell, expected);
    }

    #[test]
    fn variables_that_a_later_state_lacks_are_found() {
        let state = |names: &[&str]| EvaluatorState::new(SOURCE.to_owned(), variables(names), Vec::new());
        assert_eq!(state(&["c", "d", "x"]).variables_missing_in(&state(&["x", "y"])), variables(&["c", "d"]));
        assert_eq!(state(&["x"]).variables_missing_in(&state(&["x"])), []);
    }

    #[test]
    fn nothing_is_left_of_an_empty_notebook() {
        let nothing = "{\nlet mut vars_ok = true;\nif !vars_ok { return ::std::result::Result::Ok(()); }\n}\n";
        assert_eq!(EvaluatorState::default().declaration(), nothing);
    }
}
