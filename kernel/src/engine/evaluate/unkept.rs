//! Errors about variables that evcxr cannot keep for later cells: closures, borrows and types without a name. Each error says what
//! to write instead.

use crate::engine::evaluate::place;

/// evcxr's text for each kind of variable, behind the variable's name.
const CLOSURE: &str = "` is a closure, which cannot be persisted.";
const UNNAMED: &str = "` which cannot be persisted.";
const BORROW: &str = "` contains a reference with a non-static lifetime";

/// One line in place of evcxr's message about a variable that it cannot keep; none for any other message.
pub(in crate::engine) fn reason(message: &str, source: &str) -> Option<String> {
    let (name, rest) = message.strip_prefix("The variable `")?.split_once('`')?;
    let rest = format!("`{rest}");
    if rest.starts_with(CLOSURE) {
        let example = place::boxed_closure(source, name);
        let example = example.map_or_else(String::new, |example| format!("box it, `{example}`, or "));
        return Some(format!("`{name}` is a closure, whose type no later cell can name; {example}write a fn"));
    }
    if rest.starts_with(BORROW) {
        return Some(format!(
            "`{name}` borrows from another variable, and a borrow ends with its cell; keep a clone, or write {{ }} around the cell"
        ));
    }
    let (type_name, _) = rest.strip_prefix("` has type `")?.split_once(UNNAMED)?;
    let cure = match type_name.contains("iter::") {
        true => "keep what it gives, as in `.collect::<Vec<_>>()`",
        false => "keep it as a trait object, as in `Box<dyn Trait>`",
    };
    Some(format!(
        "`{name}` has the type `{type_name}`, which no later cell can name; {cure}, or write {{ }} around the cell"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_kept_has_its_own_cure() {
        let said = |text: &str, source: &str| reason(text, source).unwrap_or_default();
        let closure = "The variable `f` is a closure, which cannot be persisted.\nYou can however …";
        let expected = "`f` is a closure, whose type no later cell can name; box it, `let f: Box<dyn Fn(i32, _) -> _> = \
                        Box::new(move |x: i32, y| x + y);`, or write a fn";
        assert_eq!(said(closure, "let a = 1;\nlet f = move |x: i32, y| x + y;"), expected);
        assert_eq!(
            said(closure, "let (f, g) = both();"),
            "`f` is a closure, whose type no later cell can name; write a fn"
        );
        let iterator =
            "The variable `it` has type `std::iter::Map<X, impl FnMut(i32) -> i32>` which cannot be persisted.\nYou";
        assert!(said(iterator, "").contains("collect::<Vec<_>>()"));
        let borrow = "The variable `r` contains a reference with a non-static lifetime so\ncan't be persisted. You";
        assert!(said(borrow, "").starts_with("`r` borrows from another variable"));
        assert_eq!(reason("Looks like you're missing a semicolon", ""), None);
    }
}
