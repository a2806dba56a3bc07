//! The separation of the user's `:dep` crates from the crates that are part of every cell.

use crate::engine::evaluate::commands::Call;
use crate::prelude;

/// The crate of a `:dep` argument, if that crate is part of every cell.
pub(in crate::engine) fn crate_of_every_cell(dependency: &str) -> Option<String> {
    let name = dependency.split(|c: char| !(c.is_alphanumeric() || c == '-' || c == '_')).next()?.replace('-', "_");
    prelude::CRATES.contains(&name.as_str()).then_some(name)
}

/// Removes the `:dep` commands for crates that are part of every cell, blanks their lines, and returns these crates.
pub(in crate::engine) fn leave_out(calls: &mut Vec<Call>, lines: &mut [&str]) -> Vec<String> {
    let mut left_out = Vec::new();
    calls.retain(|call| {
        let own = crate_of_every_cell(&call.argument).filter(|_| call.name == ":dep");
        if own.is_some() {
            lines[call.line] = "";
        }
        let is_users = own.is_none();
        left_out.extend(own);
        is_users
    });
    left_out
}

/// The crates that the user has added, from evcxr's list of all crates. Each crate is written as an argument of `:dep`.
pub(in crate::engine) fn of_user(list: &str) -> Vec<String> {
    list.lines().filter(|line| crate_of_every_cell(line).is_none()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::evaluate::commands;

    #[test]
    fn only_crates_of_every_cell_are_left_out() {
        let source = ":dep candle-core = \"0.9\"\n:dep itoa = \"1\"\n:doc candle_core\n:dep ferrotune\n1";
        let mut lines: Vec<&str> = source.split('\n').collect();
        let mut calls = commands::calls(source).unwrap();
        assert_eq!(leave_out(&mut calls, &mut lines), ["candle_core", "ferrotune"]);
        assert_eq!(lines, ["", ":dep itoa = \"1\"", ":doc candle_core", "", "1"]);
        assert_eq!(calls.iter().map(|call| call.line).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(of_user("candle-nn = { path = \"/x\" }\nitoa = \"1\""), ["itoa = \"1\""]);
    }
}
