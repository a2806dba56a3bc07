//! The cell that made each variable, and the reason why an earlier variable is gone. An error about the variable's name can then
//! say what to do.

use crate::engine::evaluate::place;
use crate::failure::{Failure, PLAIN};
use evcxr::CompilationError;
use std::collections::HashMap;

/// rustc's error code for a value that is not in scope.
const NO_VALUE: &str = "E0425";

/// The number that Jupyter shows beside a cell; none if Jupyter shows no number.
type Count = Option<u32>;

/// The cell that made each variable, and the reason why each missing variable is gone.
#[derive(Debug, Default)]
pub(in crate::engine) struct Origins {
    made: HashMap<String, Count>,
    gone: HashMap<String, Gone>,
}

/// The reason why a variable is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Gone {
    /// A cell has moved its value.
    Moved(Count),
    /// The cell that was to make it has failed.
    Failed(Count),
    /// The cell that made it could not keep it, for this reason.
    Unkept(Count, String),
    /// The variable's type has been redefined.
    Outdated,
    /// The process that held the variable has ended.
    Lost,
}

impl Origins {
    /// Records that a cell with this source has run, and has changed the names of the variables from `before` to `now`.
    pub(in crate::engine) fn ran(&mut self, cell: Count, source: &str, before: &[String], now: &[&str]) {
        let declared = place::declared(source);
        let moved = before.iter().chain(&declared).filter(|name| !now.contains(&name.as_str()));
        self.gone.extend(moved.map(|name| (name.clone(), Gone::Moved(cell))));
        self.made.extend(declared.into_iter().map(|name| (name, cell)));
    }

    /// Records that a cell that has run has failed with a panic or an error, so that its own variables are gone.
    pub(in crate::engine) fn failed(&mut self, cell: Count) {
        for (name, gone) in &mut self.gone {
            if *gone == Gone::Moved(cell) && self.made.get(name) == Some(&cell) {
                *gone = Gone::Failed(cell);
            }
        }
    }

    /// Records the variables that ended with a cell, and the reasons.
    pub(in crate::engine) fn unkept(&mut self, cell: Count, variables: &[(String, String)]) {
        let unkept = variables.iter().map(|(name, reason)| (name.clone(), Gone::Unkept(cell, reason.clone())));
        self.gone.extend(unkept);
    }

    /// Records that the process that held these variables has ended.
    pub(in crate::engine) fn lost<N: Into<String>>(&mut self, names: impl IntoIterator<Item = N>) {
        self.gone.extend(names.into_iter().map(|name| (name.into(), Gone::Lost)));
    }

    /// Records that a variable was dropped because its type has been redefined. Returns how the user can make the variable again.
    pub(in crate::engine) fn outdated(&mut self, name: &str) -> String {
        self.gone.insert(name.to_owned(), Gone::Outdated);
        self.remake(name)
    }

    /// Records that the notebook is back in an earlier state, in which no variable is gone.
    pub(in crate::engine) fn returned(&mut self) {
        self.gone.clear();
    }

    fn remake(&self, name: &str) -> String {
        match self.made.get(name) {
            Some(Some(cell)) => format!("run In [{cell}] again"),
            _ => "run the cell that makes it again".to_owned(),
        }
    }

    /// Adds to the failure the reasons why names in these errors are unknown, as far as there are recorded reasons. `now` are the names
    /// of the present variables.
    pub(in crate::engine) fn explain(
        &self,
        errors: &[CompilationError],
        now: &[&str],
        mut failure: Failure,
    ) -> Failure {
        for error in errors.iter().filter(|error| error.code() == Some(NO_VALUE)) {
            let message = error.message();
            let name = ["cannot find value `", "cannot find function `"];
            let name = name.iter().find_map(|start| message.strip_prefix(start)?.split_once('`'));
            let Some(reason) = name.and_then(|(name, _)| self.reason(name, now)) else { continue };
            let explained = format!("{message}: {reason}");
            failure.text = failure.text.replacen(&message, &explained, 1);
            for line in failure.traceback.iter_mut().filter(|line| line.ends_with(&format!("{message}{PLAIN}"))) {
                *line = line.replace(&message, &explained);
            }
        }
        failure
    }

    fn reason(&self, name: &str, now: &[&str]) -> Option<String> {
        if now.contains(&name) {
            return Some(format!(
                "`{name}` is a variable, and no fn or other item sees variables; pass it as an argument, or write a closure"
            ));
        }
        Some(match self.gone.get(name)? {
            Gone::Moved(Some(cell)) => format!("`{name}` was moved by In [{cell}]; clone it there, or %undo"),
            Gone::Moved(None) => format!("`{name}` was moved by an earlier cell; clone it there, or %undo"),
            Gone::Failed(Some(cell)) => format!("In [{cell}], which makes `{name}`, has failed; run it again"),
            Gone::Failed(None) => format!("the cell that makes `{name}` has failed; run it again"),
            Gone::Unkept(Some(cell), reason) => format!("`{name}` ended with In [{cell}]: {reason}"),
            Gone::Unkept(None, reason) => format!("`{name}` ended with its cell: {reason}"),
            Gone::Outdated => {
                format!("`{name}` was dropped, since its type has been defined anew; {}", self.remake(name))
            }
            Gone::Lost => format!("`{name}` is gone with the process that had it; {}", self.remake(name)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_of_a_name_is_why_it_is_gone() {
        let mut origins = Origins::default();
        origins.ran(Some(3), "let sold = vec![1]; let (kept, mut other) = (1, 2);", &[], &["kept", "other", "sold"]);
        assert_eq!(origins.reason("sold", &[]), None);
        origins.ran(Some(4), "drop(sold); let gone = 1;", &["kept".to_owned(), "sold".to_owned()], &["kept", "other"]);
        let moved = |name: &str| format!("`{name}` was moved by In [4]; clone it there, or %undo");
        assert_eq!(
            ["sold", "gone"].map(|name| origins.reason(name, &[])),
            ["sold", "gone"].map(|name| Some(moved(name)))
        );
        origins.failed(Some(4));
        let failed = "In [4], which makes `gone`, has failed; run it again";
        assert_eq!(origins.reason("gone", &[]).as_deref(), Some(failed));
        assert_eq!(origins.reason("sold", &[]), Some(moved("sold")));
        assert_eq!(origins.outdated("other"), "run In [3] again");
        let expected = "`other` was dropped, since its type has been defined anew; run In [3] again";
        assert_eq!(origins.reason("other", &[]).as_deref(), Some(expected));
        origins.lost(["kept"]);
        let expected = "`kept` is gone with the process that had it; run In [3] again";
        assert_eq!(origins.reason("kept", &[]).as_deref(), Some(expected));
        let seen = origins.reason("kept", &["kept"]);
        assert!(seen.is_some_and(|reason| reason.contains("no fn or other item sees variables")));
        origins.returned();
        assert_eq!(origins.reason("sold", &[]), None);
    }
}
