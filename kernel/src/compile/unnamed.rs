//! Leaves variables of the notebook that a cell does not name in the store. evcxr takes out all variables and puts them back, so
//! each cell would be compiled with code for the types of all variables.

use super::shadows::{BEFORE_STATEMENTS, loaded};
use std::borrow::Cow;
use std::collections::HashSet;

/// The last line of the user's statements and of the lines that store new variables.
const AFTER_STATEMENTS: &str = "::std::result::Result::Ok(())";
const PUT: &str = "evcxr_variable_store.put_variable::<";
/// The attribute that makes the compiler skip a statement. The line stays, because it says whether the variable is `mut`.
const SKIP: &str = "#[cfg(any())] ";
/// The beginning of a name in a macro that joins words to a name.
const JOINED_NAME: &str = "[<";

/// Skips the lines that take out variables that the cell does not name, and those that put them back.
pub(super) fn leave_in_store(lines: &mut [Cow<'_, str>]) {
    let Some(start) = lines.iter().rposition(|line| BEFORE_STATEMENTS.contains(&&**line)) else { return };
    let Some(end) = lines.iter().rposition(|line| line.starts_with(AFTER_STATEMENTS)) else { return };
    let Some(statements) = lines.get(start + 1..end) else { return };
    if statements.iter().any(|line| line.contains(JOINED_NAME)) {
        return;
    }
    // Words of texts and comments count, too: a name may be in a format string.
    let named: HashSet<&str> = statements.iter().flat_map(|line| words(line)).collect();
    let is_left = |name: &str| !named.contains(name.trim_start_matches("r#"));
    let takes = (0..start).filter(|at| loaded(&lines[*at]).is_some_and(|variable| is_left(variable.name)));
    let puts = (end..lines.len()).filter(|at| stored(&lines[*at]).is_some_and(is_left));
    let skipped: Vec<usize> = takes.chain(puts).collect();
    for at in skipped {
        lines[at] = format!("{SKIP}{}", lines[at]).into();
    }
}

fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|character: char| !character.is_alphanumeric() && character != '_')
}

/// The variable that a generated line puts back into the store.
fn stored(line: &str) -> Option<&str> {
    let (_, rest) = line.strip_prefix(PUT)?.rsplit_once(">(::std::stringify!(")?;
    Some(rest.split_once(')')?.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names that a cell with these statements takes out of the store and puts back.
    fn used(statements: &str) -> (Vec<String>, Vec<String>) {
        let source = format!(
            "let mut a = evcxr_variable_store.take_variable::<Vec<u8>>(::std::stringify!(a));
let b = evcxr_variable_store.take_variable::<i32>(::std::stringify!(b));
let r#type = evcxr_variable_store.take_variable::<i32>(::std::stringify!(r#type));
let _ = (|| -> ::std::result::Result<(), EvcxrUserCodeError> {{
{statements}
::std::result::Result::Ok(())}})();
evcxr_variable_store.put_variable::<Vec<u8>>(::std::stringify!(a), a);
evcxr_variable_store.put_variable::<i32>(::std::stringify!(b), b);
evcxr_variable_store.put_variable::<i32>(::std::stringify!(r#type), r#type);
evcxr_variable_store
}}"
        );
        let mut lines: Vec<Cow<'_, str>> = source.lines().map(Cow::from).collect();
        leave_in_store(&mut lines);
        let names =
            |name: fn(&str) -> Option<&str>| lines.iter().filter_map(|line| name(line)).map(str::to_owned).collect();
        (names(|line| loaded(line).map(|variable| variable.name)), names(stored))
    }

    fn check(statements: &str, expected: &[&str]) {
        let expected: Vec<String> = expected.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(used(statements), (expected.clone(), expected), "{statements}");
    }

    #[test]
    fn only_variables_that_the_cell_names_leave_the_store() {
        check("let ab = 1;", &[]);
        check("a.push(1);", &["a"]);
        check("println!(\"{b:?} {a}\");", &["a", "b"]);
        check("r#type + 1", &["r#type"]);
        check("let b = 2;", &["b"]);
    }

    #[test]
    fn a_macro_may_join_words_to_a_name() {
        check("paste! { [<fo o>] }", &["a", "b", "r#type"]);
    }
}
