//! Variables that borrow from other variables of the notebook.
//!
//! A variable from which others borrow, their owner, stays at its address in the store. The code about to be executed gets a
//! reference to it, and each use of its name becomes a use of what the reference points to. The reference has the lifetime
//! `'evcxr`, which is a parameter of the function that runs the code. So rustc proves that what borrows from the owner leaves the
//! function by no way but the store, and that what goes into the store borrows from nothing else. In the store `'evcxr` is
//! `'static`, and the next code gets it as its own `'evcxr`.

use crate::code_block::CodeBlock;
use crate::code_block::CodeKind;
use crate::code_block::Segment;
use crate::lifetimes::DENY;
use crate::lifetimes::LIFETIME;
use crate::lifetimes::with_lifetime;
use crate::lifetimes::without_lifetime;
use crate::rust_analyzer::EDITION;
use ra_ap_syntax::AstNode;
use ra_ap_syntax::NodeOrToken;
use ra_ap_syntax::SourceFile;
use ra_ap_syntax::SyntaxKind;
use ra_ap_syntax::SyntaxToken;
use ra_ap_syntax::ast;
use regex::Regex;
use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::collections::HashSet;
use std::sync::LazyLock;

/// The owner of what borrows a value without a name. No word of code is equal to it.
pub(crate) const NAMELESS: &str = "&";

/// What other variables may do with the owner of a borrow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// They may read it.
    Shared,
    /// They may not use it as long as the borrower exists.
    Exclusive,
}

/// A variable of the notebook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    pub name: String,
    pub type_name: String,
    pub is_mut: bool,
    /// The variables from which this one may borrow.
    pub borrows: BTreeMap<String, Access>,
}

impl Variable {
    /// The type under which the store has the variable.
    pub fn type_in_store(&self) -> String {
        if self.borrows.is_empty() { self.type_name.clone() } else { with_lifetime(&self.type_name, "'static") }
    }

    /// The type without the paths of its parts. A borrower has no lifetime that could be named.
    pub fn shown_type(&self) -> String {
        static PATH: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"(::)?(\w+::)+").expect("the expression is one"));
        let shown = if self.borrows.is_empty() { self.type_name.clone() } else { without_lifetime(&self.type_name) };
        PATH.replace_all(&shown, "").into_owned()
    }
}

/// How a variable is lent to the code about to be executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loan {
    /// The code can read the variable.
    Shared,
    /// The code can change the variable, and reads it after all else, which rustc refuses if the code keeps an exclusive borrow.
    Probed,
    /// The code can change the variable.
    Exclusive,
}

impl Loan {
    /// What a borrower of the variable leaves to others.
    pub(crate) fn access(self) -> Access {
        match self {
            Loan::Shared | Loan::Probed => Access::Shared,
            Loan::Exclusive => Access::Exclusive,
        }
    }

    /// A reference to a variable of this type at this address in the store. What a variable that does not borrow holds stays
    /// `'static`: it cannot take what the code borrows.
    pub(crate) fn reference(self, name: &str, type_name: &str, borrows: bool, address: &str) -> String {
        let mutability = if self == Loan::Shared { "" } else { "mut " };
        let lent = with_lifetime(type_name, if borrows { LIFETIME } else { "'static" });
        format!(
            "let {name} = {{ {DENY} fn evcxr_lend<{LIFETIME}>(address: *mut u8) -> &{LIFETIME} {mutability}{lent} where {LIFETIME}: {LIFETIME} \
             {{ unsafe {{ &{mutability}*address.cast() }} }} evcxr_lend::<{LIFETIME}>({address}.as_ptr().cast()) }};"
        )
    }
}

/// What the code about to be executed borrows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Loans {
    /// Whether no variable is lent, since that did not compile.
    pub(crate) is_off: bool,
    /// The variables that are lent.
    pub(crate) lent: BTreeMap<String, Loan>,
    /// The variables that are lent up to the `let` of a new variable of their name, which borrows from them: `let s = s.trim();`.
    pub(crate) shadowed: BTreeMap<String, Loan>,
    /// The new variables that are stored as borrowers.
    pub(crate) borrowers: BTreeSet<String>,
    /// Those of them that borrow the value behind the `&` of their `let`, which has no name and goes into the store, too.
    pub(crate) nameless: BTreeSet<String>,
    /// The names of the code that may be variables. Of owners and borrowers, only those that are among them leave the store.
    pub(crate) names: HashSet<String>,
}

impl Loans {
    pub(crate) fn of(code: &str) -> Self {
        Self { names: names_in(code), ..Self::default() }
    }

    /// The user's code with all uses of lent variables written as uses of what a reference points to. `settled` is the line that
    /// makes a new variable a reference. None if there is no such line, or if a name means several variables.
    pub(crate) fn apply(&self, code: CodeBlock, settled: impl Fn(&str) -> Option<String>) -> Option<CodeBlock> {
        if self.lent.is_empty() && self.shadowed.is_empty() && self.nameless.is_empty() {
            return Some(code);
        }
        let mut known: BTreeSet<&str> = BTreeSet::new();
        let mut declared: BTreeSet<&str> = BTreeSet::new();
        let texts: Vec<BTreeSet<String>> = code.segments.iter().map(|segment| bound_in(segment)).collect();
        for name in self.lent.keys() {
            match texts.iter().filter(|names| names.contains(name)).count() {
                0 => known.insert(name),
                1 => declared.insert(name),
                _ => return None,
            };
        }
        for name in self.shadowed.keys() {
            if texts.iter().filter(|names| names.contains(name)).count() != 1 {
                return None;
            }
            known.insert(name);
        }
        let mut out = CodeBlock::new();
        for (segment, bound) in code.segments.into_iter().zip(&texts) {
            let mut segment = segment;
            for name in &self.nameless {
                segment.code = with_settled_value(&segment.code, name).unwrap_or(segment.code);
            }
            if is_users(&segment) && !known.is_empty() {
                segment.code = with_dereferenced(&segment.code, &known)?;
            }
            known.retain(|name| !(self.shadowed.contains_key(*name) && bound.contains(*name)));
            let is_let = matches!(segment.kind, CodeKind::OriginalUserCode(_));
            out = out.with_segment(segment);
            for name in declared.iter().filter(|name| bound.contains(**name)) {
                if !is_let {
                    return None;
                }
                out = out.generated(settled(name)?);
                known.insert(name);
            }
        }
        Some(out)
    }
}

/// Whether a segment is code of the user's.
pub(crate) fn is_users(segment: &Segment) -> bool {
    matches!(segment.kind, CodeKind::OriginalUserCode(_) | CodeKind::OtherUserCode | CodeKind::WithFallback(_))
}

const HEAD: &str = "fn f() {";

/// The names that patterns and items in a segment of the user's give to something.
fn bound_in(segment: &Segment) -> BTreeSet<String> {
    if !is_users(segment) {
        return BTreeSet::new();
    }
    let file = SourceFile::parse(&format!("{HEAD}{}}}", segment.code), EDITION).tree();
    let names = file.syntax().descendants().filter_map(ast::Name::cast);
    names.skip(1).map(|name| name.text().to_string()).collect()
}

/// The names of code that may be variables: used or declared, also in the arguments of macros, and within the texts of formats.
fn names_in(code: &str) -> HashSet<String> {
    let file = SourceFile::parse(&format!("{HEAD}{code}}}"), EDITION).tree();
    let tokens = file.syntax().descendants_with_tokens().filter_map(NodeOrToken::into_token);
    let mut names = HashSet::new();
    for token in tokens {
        match token.kind() {
            SyntaxKind::IDENT => {
                let is_declared = token.parent().is_some_and(|parent| ast::Name::can_cast(parent.kind()));
                if is_declared || dereferenced(&token).is_some() {
                    names.insert(token.text().to_owned());
                }
            }
            SyntaxKind::STRING => {
                let parts = token.text().split('{').skip(1);
                let is_of_name = |letter: char| letter.is_alphanumeric() || letter == '_';
                names.extend(parts.map(|part| part.chars().take_while(|letter| is_of_name(*letter)).collect::<String>()));
            }
            _ => {}
        }
    }
    names
}

/// Code in which each use of a variable of these names is a use of what it points to.
fn with_dereferenced(code: &str, names: &BTreeSet<&str>) -> Option<String> {
    let file = SourceFile::parse(&format!("{HEAD}{code}}}"), EDITION).tree();
    let mut out = String::with_capacity(code.len());
    let mut end = HEAD.len();
    let all = format!("{HEAD}{code}}}");
    let tokens = file.syntax().descendants_with_tokens().filter_map(NodeOrToken::into_token);
    for token in tokens.filter(|token| token.kind() == SyntaxKind::IDENT && names.contains(token.text())) {
        let Some(text) = dereferenced(&token) else { continue };
        let range = token.text_range();
        out += all.get(end..usize::from(range.start()))?;
        out += &text;
        end = usize::from(range.end());
    }
    out += all.get(end..all.len() - 1)?;
    Some(out)
}

/// A `let` statement of this variable in which the value behind its `&` is in the store; none for other statements.
fn with_settled_value(code: &str, variable: &str) -> Option<String> {
    let all = format!("{HEAD}{code}}}");
    let file = SourceFile::parse(&all, EDITION).tree();
    let mut lets = file.syntax().descendants().filter_map(ast::LetStmt::cast);
    let reference = lets.find_map(|statement| {
        let ast::Pat::IdentPat(pattern) = statement.pat()? else { return None };
        let is_of_variable = ast::HasName::name(&pattern)?.text() == variable;
        ast::RefExpr::cast(statement.initializer()?.syntax().clone()).filter(|_| is_of_variable)
    })?;
    let range = reference.syntax().text_range();
    let mutability = if reference.mut_token().is_some() { "mut " } else { "" };
    let settled = format!(
        "{{ let evcxr_lent: &{LIFETIME} {mutability}_ = unsafe {{ &{mutability}*evcxr_variable_store.settle_nameless({}).as_ptr() }}; \
         evcxr_lent }}",
        reference.expr()?.syntax()
    );
    let (start, end) = (usize::from(range.start()), usize::from(range.end()));
    Some(format!("{}{settled}{}", &all[HEAD.len()..start], &all[end..all.len() - 1]))
}

/// What stands in place of a name, if it is a use of a variable.
fn dereferenced(token: &SyntaxToken) -> Option<String> {
    let parent = token.parent()?;
    if parent.kind() == SyntaxKind::TOKEN_TREE {
        return is_value_in_macro(token).then(|| format!("(*{token})"));
    }
    let name = ast::NameRef::cast(parent)?;
    let segment = ast::PathSegment::cast(name.syntax().parent()?)?;
    let path = ast::Path::cast(segment.syntax().parent()?)?;
    let value = ast::PathExpr::cast(path.syntax().parent()?)?;
    if path.qualifier().is_some() {
        return None;
    }
    let field = value.syntax().parent().and_then(ast::RecordExprField::cast);
    Some(match field {
        Some(field) if field.colon_token().is_none() => format!("{token}: (*{token})"),
        _ => format!("(*{token})"),
    })
}

/// Whether a name in the arguments of a macro stands where a value can stand. The compiler refuses what is no value after all.
fn is_value_in_macro(token: &SyntaxToken) -> bool {
    let next = |token: &SyntaxToken| {
        std::iter::successors(token.next_token(), SyntaxToken::next_token).find(|token| !token.kind().is_trivia())
    };
    let previous = |token: &SyntaxToken| {
        std::iter::successors(token.prev_token(), SyntaxToken::prev_token).find(|token| !token.kind().is_trivia())
    };
    let kind = |token: &Option<SyntaxToken>| token.as_ref().map(SyntaxToken::kind);
    let (before, after) = (previous(token), next(token));
    let is_field = kind(&before) == Some(SyntaxKind::DOT)
        && kind(&before.as_ref().and_then(previous)) != Some(SyntaxKind::DOT);
    let is_path = kind(&before) == Some(SyntaxKind::COLON) && kind(&before.as_ref().and_then(previous)) == Some(SyntaxKind::COLON);
    let is_named = match kind(&after) {
        Some(SyntaxKind::COLON | SyntaxKind::BANG) => kind(&after.as_ref().and_then(next)) != Some(SyntaxKind::EQ),
        Some(SyntaxKind::EQ) => kind(&after.as_ref().and_then(next)) != Some(SyntaxKind::EQ),
        _ => false,
    };
    !is_field && !is_path && !is_named
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uses_of_variables_are_dereferenced_and_other_names_stay() {
        let changed = |code: &str| with_dereferenced(code, &BTreeSet::from(["a"])).unwrap();
        for (code, expected) in [
            ("a.iter()", "(*a).iter()"),
            ("b.a + a[0]", "b.a + (*a)[0]"),
            ("S { a, b: a }", "S { a: (*a), b: (*a) }"),
            ("a::f(a)", "a::f((*a))"),
            ("println!(\"{a} {}\", a.len())", "println!(\"{a} {}\", (*a).len())"),
            ("assert!(b.a == a && 0..a < a)", "assert!(b.a == (*a) && 0..(*a) < (*a))"),
            ("f!(a = a, S { a: 1 }, a == 1, a != a)", "f!(a = (*a), S { a: 1 }, (*a) == 1, (*a) != (*a))"),
            ("ab + r#a", "ab + r#a"),
        ] {
            assert_eq!(changed(code), expected, "{code}");
        }
    }

    #[test]
    fn names_are_those_of_variables() {
        let names = names_in("a.b(c.d, \"e {f} {g:?} {{\"); // h\nm!(i, j.k, \"{l}\"); let n = o { p }; \"q\";");
        let mut names: Vec<&str> = names.iter().map(String::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["", "a", "c", "f", "g", "i", "j", "l", "n", "p"]);
    }

    #[test]
    fn the_value_behind_the_reference_of_a_let_goes_into_the_store() {
        let settled = with_settled_value("let x: &mut [u8] = &mut [0, 1]; // x\n", "x").unwrap();
        let (before, after) = settled.split_once("settle_nameless([0, 1]).as_ptr() }; evcxr_lent }").unwrap();
        assert_eq!(
            (before, after),
            ("let x: &mut [u8] = { let evcxr_lent: &'evcxr mut _ = unsafe { &mut *evcxr_variable_store.", "; // x\n")
        );
        assert_eq!(with_settled_value("let y = &mut 1;", "x"), None);
    }
}
