//! Variables that cannot be kept for later cells, and values that are kept in another form.

use crate::loans::Access;
use crate::rust_analyzer::EDITION;
use ra_ap_syntax::AstNode;
use ra_ap_syntax::SourceFile;
use ra_ap_syntax::ast;
use std::fmt;

/// The reason why a variable lives only to the end of its cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unkept {
    /// It borrows from this variable, or from a value without a name.
    Borrows(Option<String>),
    /// Its type has no name that another cell can write; the type as far as it is known.
    Unnamed(Option<String>),
    /// Its type is not known before it runs.
    Unknown,
    /// Its type is private.
    Private(String),
    /// It borrowed, or may have borrowed, from this variable, which the code uses in a way that the borrow excludes.
    Ended { owner: String, access: Access, is_certain: bool },
}

/// A change of a value's form, which gives it a type with a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Own,
    /// The value becomes a function pointer by itself.
    Pointer,
    Boxed,
    Pinned,
    /// The value has this type if its `let` says so.
    Typed,
}

/// A variable that is kept in another form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Converted {
    pub name: String,
    pub type_name: String,
}

impl Form {
    /// The expression that gives a variable this form.
    pub(crate) fn of(self, variable: &str) -> String {
        match self {
            Form::Own | Form::Pointer | Form::Typed => variable.to_owned(),
            Form::Boxed => format!("::std::boxed::Box::new({variable})"),
            Form::Pinned => format!("::std::boxed::Box::pin({variable})"),
        }
    }
}

/// A `let` statement of this variable whose closure has copies of what it captures; none for other statements.
pub(crate) fn with_copies(code: &str, variable: &str) -> Option<String> {
    const HEAD: &str = "fn f() {";
    let file = SourceFile::parse(&format!("{HEAD}{code}}}"), EDITION).tree();
    let mut lets = file.syntax().descendants().filter_map(ast::LetStmt::cast);
    let closure = lets.find_map(|statement| {
        let ast::Pat::IdentPat(pattern) = statement.pat()? else { return None };
        let is_of_variable = ast::HasName::name(&pattern)?.text() == variable;
        ast::ClosureExpr::cast(statement.initializer()?.syntax().clone()).filter(|_| is_of_variable)
    })?;
    let at = usize::from(closure.syntax().text_range().start()) - HEAD.len();
    closure.move_token().is_none().then(|| format!("{}move {}", &code[..at], &code[at..]))
}

/// A `let` statement of this variable that says the variable's type; none for other statements.
pub(crate) fn with_type(code: &str, variable: &str, type_name: &str) -> Option<String> {
    const HEAD: &str = "fn f() {";
    let file = SourceFile::parse(&format!("{HEAD}{code}}}"), EDITION).tree();
    let mut lets = file.syntax().descendants().filter_map(ast::LetStmt::cast);
    let pattern = lets.find_map(|statement| {
        let ast::Pat::IdentPat(pattern) = statement.pat()? else { return None };
        let is_of_variable = ast::HasName::name(&pattern)?.text() == variable && statement.ty().is_none();
        is_of_variable.then_some(pattern)
    })?;
    let at = usize::from(pattern.syntax().text_range().end()) - HEAD.len();
    Some(format!("{}: {type_name}{}", &code[..at], &code[at..]))
}

impl fmt::Display for Unkept {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unkept::Borrows(Some(owner)) => write!(formatter, "it borrows `{owner}`"),
            Unkept::Borrows(None) => formatter.write_str("it borrows a value without a name"),
            Unkept::Unnamed(Some(type_name)) => {
                write!(formatter, "no later cell can write its type `{type_name}`")
            }
            Unkept::Unnamed(None) => formatter.write_str("no later cell can write its type"),
            Unkept::Unknown => formatter.write_str("its type is not known before it runs; write it, as in `let name: Type = …`"),
            Unkept::Ended { owner, access, is_certain } => {
                let borrows = if *is_certain { "borrows" } else { "may borrow" };
                match access {
                    Access::Shared => write!(formatter, "it {borrows} `{owner}`, which this cell changes or moves"),
                    Access::Exclusive => {
                        write!(formatter, "it {borrows} `{owner}` for itself alone, and this cell uses `{owner}`")
                    }
                }
            }
            Unkept::Private(type_name) => write!(formatter, "its type `{type_name}` is private"),
        }
    }
}
