//! The types of new variables as the compiler tells them, for the time in which rust-analyzer is busy or has not read its crates. The
//! compiler gets code that it refuses: for each variable a call that needs a trait without implementations. The error has the type.

use crate::code_block::CodeBlock;
use crate::macros;
use crate::rust_analyzer::{EDITION, TypeName, VariableInfo, is_type_valid};
use ra_ap_syntax::ast::{self, AstNode as _, HasName as _};
use ra_ap_syntax::{SourceFile, SyntaxKind};
use regex::Regex;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::sync::LazyLock;

/// The environment variable of a `cargo check` whose messages have to write types with their paths, and whole.
pub const WHOLE_TYPES: &str = "EVCXR_WHOLE_TYPES";

/// What every module can write without a path.
const IN_SCOPE: [&str; 12] = [
    "std::boxed::Box",
    "std::iter::DoubleEndedIterator",
    "std::iter::Iterator",
    "std::marker::Send",
    "std::marker::Sync",
    "std::ops::Fn",
    "std::ops::FnMut",
    "std::ops::FnOnce",
    "std::option::Option",
    "std::result::Result",
    "std::string::String",
    "std::vec::Vec",
];

/// The items that the questions use.
pub(crate) const ITEMS: &str = "trait EvcxrType<const N: usize> {} fn evcxr_type<T: ?Sized + EvcxrType<N>, const N: usize>(_: &T) {}";

/// A variable that statements declare.
#[derive(Debug, PartialEq)]
pub(crate) struct Declared {
    name: String,
    is_mutable: bool,
    /// The type that the statement says, if it says all of it.
    type_name: Option<String>,
}

/// The variables that statements declare, one for each name; none where only rust-analyzer can say which these are.
pub(crate) fn declared<T>(statements: &str, items: &HashMap<String, T>) -> Option<Vec<Declared>> {
    let file = SourceFile::parse(&format!("async fn f() {{{statements}\n;}}"), EDITION);
    if !file.errors().is_empty() {
        return None;
    }
    let functions = file.tree().syntax().children().find_map(ast::Fn::cast);
    let mut found = BTreeMap::new();
    for statement in functions?.body()?.statements() {
        if macros::whole_call(statement.syntax()).is_some_and(|call| macros::declares(&call, items)) {
            return None;
        }
        let ast::Stmt::LetStmt(statement) = statement else { continue };
        let pattern = statement.pat()?;
        if pattern.syntax().descendants().any(|node| ast::MacroPat::can_cast(node.kind())) {
            return None;
        }
        let stated = statement.ty().map(|stated| stated.syntax().text().to_string());
        let stated = stated.filter(|stated| is_type_valid(stated));
        for part in pattern.syntax().descendants().filter_map(ast::IdentPat::cast) {
            let name = part.name()?.text().to_string();
            // This may be a constant, or a variant of an enum.
            if name.starts_with(char::is_uppercase) {
                return None;
            }
            // The type is that of the whole pattern.
            let is_stated = part.syntax() == pattern.syntax() && part.ref_token().is_none();
            let type_name = stated.clone().filter(|_| is_stated);
            found.insert(name.clone(), Declared { name, is_mutable: part.mut_token().is_some(), type_name });
        }
    }
    Some(found.into_values().collect())
}

/// What the compiler says about new variables.
pub(crate) enum Told {
    /// All variables, each with its type.
    All(HashMap<String, VariableInfo>),
    /// Some variables. rust-analyzer has to say the others.
    Some(HashMap<String, VariableInfo>),
    /// The code has an error, and so some types are not known.
    Wrong,
}

/// The statements that ask for the types of these variables.
pub(crate) fn questions(variables: &[Declared]) -> String {
    let ask = |(index, variable): (usize, &Declared)| format!("evcxr_type::<_, {index}>(&{});", variable.name);
    // The answer to the last question shows whether types have their paths.
    let probe = format!("evcxr_type::<::std::string::String, {}>(&::std::string::String::new());", variables.len());
    variables.iter().enumerate().map(ask).chain([probe]).collect()
}

/// The variables with their types from the compiler's messages, without those whose types are missing or cannot be written in code.
/// `items` are the notebook's items, `use` statements included.
pub(crate) fn answers(
    variables: Vec<Declared>,
    messages: &[Value],
    items: &HashMap<String, CodeBlock>,
) -> HashMap<String, VariableInfo> {
    static ANSWER: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"^the trait bound `(.*): EvcxrType<(\d+)>` is not satisfied$").expect("the expression is one")
    });
    let answer = |message: &Value| {
        let found = ANSWER.captures(message["message"].as_str()?)?;
        // The compiler says this before it decides on the type of literals whose type is open.
        let told = found[1].replace("{integer}", "i32").replace("{float}", "f64");
        Some((found[2].parse().ok()?, told))
    };
    let types: HashMap<usize, String> = messages.iter().filter_map(answer).collect();
    if types.get(&variables.len()).is_none_or(|probe| probe != "std::string::String") {
        return HashMap::new();
    }
    let with_type = |(index, Declared { name, is_mutable, type_name }): (usize, Declared)| {
        let told = || types.get(&index).filter(|told| can_be_written(told)).map(|told| shortened(told, items));
        Some((name, VariableInfo { type_name: TypeName::Named(type_name.or_else(told)?), is_mutable }))
    };
    variables.into_iter().enumerate().filter_map(with_type).collect()
}

/// Whether code can write this type: it has no closure, no function's own type, and no part that is open or has no name.
fn can_be_written(told: &str) -> bool {
    let parsed = SourceFile::parse(&format!("const _: {told} = f();"), EDITION);
    let is_unnamed = |kind| matches!(kind, SyntaxKind::IMPL_TRAIT_TYPE | SyntaxKind::NEVER_TYPE | SyntaxKind::BLOCK_EXPR);
    is_type_valid(told)
        && !told.contains("evcxr_")
        && !parsed.syntax_node().descendants().any(|node| is_unnamed(node.kind()))
}

/// The type without the paths that the cells need not write.
fn shortened(told: &str, items: &HashMap<String, CodeBlock>) -> String {
    static PATH: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"(\w+::)+\w+").expect("the expression is one"));
    let short = |found: &regex::Captures<'_>| {
        let path = &found[0];
        let name = path.rsplit("::").next().unwrap_or(path);
        let is_short = match items.get(name).map(CodeBlock::code_string) {
            Some(item) => item.trim().trim_end_matches(';').strip_prefix("use ").is_some_and(|used| used.trim_start_matches("::") == path),
            None => IN_SCOPE.contains(&path),
        };
        if is_short { name.to_owned() } else { path.to_owned() }
    };
    PATH.replace_all(told, short).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(statements: &str) -> Option<Vec<String>> {
        let items = HashMap::from([("assert".to_owned(), ())]);
        Some(declared(statements, &items)?.into_iter().map(|variable| variable.name).collect())
    }

    fn told(types: &[&str], probe: &str) -> Vec<Value> {
        let types = types.iter().chain([&probe]).enumerate();
        let message = |(index, told)| format!("the trait bound `{told}: EvcxrType<{index}>` is not satisfied");
        types.map(|answer| serde_json::json!({ "message": message(answer), "level": "error" })).collect()
    }

    #[test]
    fn patterns_declare_variables_and_macros_of_the_notebook_may() {
        assert_eq!(names("let x = 1; let (mut y, Some(z)) = f() else { return }; println!(\"{x}\")").unwrap(), ["x", "y", "z"]);
        assert_eq!(names("let Point { x, y: [first, ..] } = p; for a in 0..3 { let b = a; }").unwrap(), ["first", "x"]);
        assert_eq!(names("let whole @ Some(part) = f();").unwrap(), ["part", "whole"]);
        assert_eq!(names("f(1);").unwrap(), [""; 0]);
        for unknown in ["assert!(a);", "own!(a);", "let None = f() else { return };", "let pattern!(a) = f();", "let = 3;"] {
            assert_eq!(names(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn answers_are_types_that_code_can_write() {
        let imported = CodeBlock::new().other_user_code("use std::collections::HashMap;".to_owned());
        let items = HashMap::from([("HashMap".to_owned(), imported)]);
        let variables = || declared("let mut a = f(); let b: Vec<u8> = f();", &items).unwrap();
        let answer = |told: &[Value]| answers(variables(), told, &items).remove("a");
        let map = "std::collections::HashMap<std::string::String, std::vec::Vec<{integer}>>";
        let found = answer(&told(&[map, "u8"], "std::string::String")).unwrap();
        assert_eq!(found.type_name, TypeName::Named("HashMap<String, Vec<i32>>".to_owned()));
        assert!(found.is_mutable);
        // The statement says the type of `b`.
        assert!(answer(&told(&["&str", "_"], "std::string::String")).is_some());
        for unnamed in ["Vec<_>", "{closure@src/lib.rs:1:2: 1:5}", "fn(i32) -> i32 {f}", "impl Iterator<Item = u8>", "!", "{type error}"] {
            assert!(answer(&told(&[unnamed, "u8"], "std::string::String")).is_none(), "{unnamed}");
        }
        assert!(answer(&told(&["u8"], "u8")).is_none(), "an answer is missing");
        assert!(answer(&told(&["Tensor", "u8"], "String")).is_none(), "types have no paths");
    }

    #[test]
    fn a_name_that_the_notebook_has_otherwise_keeps_its_path() {
        let own = CodeBlock::new().other_user_code("struct Vec { a: i32 }".to_owned());
        let items = HashMap::from([("Vec".to_owned(), own)]);
        assert_eq!(shortened("std::vec::Vec<std::option::Option<Vec>>", &items), "std::vec::Vec<Option<Vec>>");
    }
}
