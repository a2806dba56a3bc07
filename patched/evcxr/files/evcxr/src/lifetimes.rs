//! The lifetimes in the types of variables that borrow from other variables of the notebook.

use crate::rust_analyzer::EDITION;
use ra_ap_syntax::AstNode;
use ra_ap_syntax::SourceFile;
use ra_ap_syntax::SyntaxKind;
use ra_ap_syntax::SyntaxNode;
use ra_ap_syntax::ast;

/// The attribute of functions whose types have to write all lifetimes. One that is left out would be inferred, and could be any.
pub(crate) const DENY: &str = "#[deny(elided_lifetimes_in_paths)]";

/// The lifetime of what code borrows from variables of the notebook.
pub(crate) const LIFETIME: &str = "'evcxr";

/// In the type of a stored borrower: a lifetime that is not that of the borrow. It is `'static` in code.
const OWN: &str = "'evcxr_own";

/// A type with this lifetime in place of all lifetimes that it leaves open or has as `'static` or `'evcxr`. The parameters and results of
/// functions in it have lifetimes of their own.
pub(crate) fn with_lifetime(type_name: &str, lifetime: &str) -> String {
    with_lifetimes(type_name, |_| lifetime).replace(OWN, "'static")
}

/// The type of a stored borrower.
pub(crate) fn stored(type_name: &str) -> String {
    with_lifetimes(type_name, |_| "'static")
}

/// The type of a borrower with the lifetime of the borrow at one place only, the next one after that in the given type, and `'static` at
/// the others: what is behind `&mut` may have lifetimes of its own. None if there is no such place.
pub(crate) fn narrowed(type_name: &str) -> Option<String> {
    let open = |type_name: &str| with_lifetimes(type_name, |_| "'_");
    let all = opened(type_name);
    let mut places = 0;
    with_lifetimes(&all, |_| {
        places += 1;
        "'_"
    });
    let mut narrow = (0..places).map(|place| once(&all, place));
    if is_narrowed(type_name) {
        narrow.find(|other| open(other) == open(type_name));
    }
    narrow.next().filter(|_| places > 1)
}

/// Whether a type is one that [`narrowed`] has made.
pub(crate) fn is_narrowed(type_name: &str) -> bool {
    type_name.contains(OWN)
}

/// The type before [`narrowed`] has changed it.
pub(crate) fn opened(type_name: &str) -> String {
    type_name.replace(OWN, "'_")
}

/// A type in which only one of the lifetimes that it leaves open, that at this place, can be the lifetime of a borrow.
fn once(type_name: &str, place: usize) -> String {
    with_lifetimes(type_name, |other| if other == place { "'_" } else { OWN })
}

/// A type with other lifetimes in place of all that it leaves open or has as `'static` or `'evcxr`, by their number.
fn with_lifetimes<'a>(type_name: &str, mut lifetime: impl FnMut(usize) -> &'a str) -> String {
    const HEAD: &str = "const _: ";
    let text = format!("{HEAD}{type_name} = x;");
    let file = SourceFile::parse(&text, EDITION).tree();
    let is_of_function = |node: &SyntaxNode| {
        let kinds = [SyntaxKind::FN_PTR_TYPE, SyntaxKind::PARENTHESIZED_ARG_LIST, SyntaxKind::RET_TYPE];
        node.ancestors().any(|ancestor| kinds.contains(&ancestor.kind()))
    };
    let mut out = String::new();
    let mut end = HEAD.len();
    let mut place = 0;
    for node in file.syntax().descendants().filter(|node| !is_of_function(node)) {
        let (range, replacement) = if let Some(reference) = ast::RefType::cast(node.clone()) {
            let Some(sign) = reference.amp_token().filter(|_| reference.lifetime().is_none()) else { continue };
            (sign.text_range(), format!("&{} ", lifetime(place)))
        } else if ast::Lifetime::can_cast(node.kind()) && ["'_", "'static", LIFETIME].iter().any(|open| node.text() == *open) {
            (node.text_range(), lifetime(place).to_owned())
        } else {
            continue;
        };
        place += 1;
        out += &text[end..usize::from(range.start())];
        out += &replacement;
        end = usize::from(range.end());
    }
    out + &text[end..HEAD.len() + type_name.len()]
}

/// A stored type of a borrower as the user writes it.
pub(crate) fn without_lifetime(type_name: &str) -> String {
    with_lifetime(type_name, "'_").replace("&'_ ", "&")
}

/// An expression that gives a value of a borrower's type the lifetime of the store, or one of the store the lifetime of the code.
pub(crate) fn converted(value: &str, type_name: &str, from: &str, to: &str) -> String {
    let (given, result) = (with_lifetime(type_name, from), with_lifetime(type_name, to));
    format!(
        "{{ {DENY} fn evcxr_convert<{LIFETIME}>(value: {given}) -> {result} where {LIFETIME}: {LIFETIME} \
         {{ unsafe {{ ::std::mem::transmute::<{given}, {result}>(value) }} }} evcxr_convert::<{LIFETIME}>({value}) }}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_gets_the_lifetime_wherever_it_leaves_one_open() {
        for (type_name, expected) in [
            ("&mut i32", "&'e mut i32"),
            ("Iter<'_, &'static str>", "Iter<'e, &'e str>"),
            ("(&[u8], Foo<'a>)", "(&'e [u8], Foo<'a>)"),
            ("Box<dyn Fn(&u8) -> &u8 + '_>", "Box<dyn Fn(&u8) -> &u8 + 'e>"),
            ("(&str, fn(&str, Foo<'_>))", "(&'e str, fn(&str, Foo<'_>))"),
            ("&&[&'static dyn for<'a> Fn(&'a u8)]", "&'e &'e [&'e dyn for<'a> Fn(&'a u8)]"),
            ("Map<'_, fn(&u8) -> u8>", "Map<'e, fn(&u8) -> u8>"),
            ("Vec<u8>", "Vec<u8>"),
        ] {
            assert_eq!(with_lifetime(type_name, "'e"), expected);
        }
        assert_eq!(stored("Request<'evcxr, 'evcxr_own>"), "Request<'static, 'evcxr_own>");
        assert_eq!(with_lifetime("Request<'static, 'evcxr_own>", "'e"), "Request<'e, 'static>");
        let narrower = |type_name: &str| narrowed(type_name).unwrap_or_default();
        assert_eq!(narrower("Request<'static, '_>"), "Request<'_, 'evcxr_own>");
        assert_eq!(narrower("Request<'_, 'evcxr_own>"), "Request<'evcxr_own, '_>");
        assert_eq!(narrower("Request<'evcxr_own, '_>"), "");
        assert_eq!(narrower("Iter<'_, u8>"), "");
        assert_eq!(narrower("&mut [&str]"), "&'_ mut [&'evcxr_own str]");
        assert_eq!(without_lifetime("(&'static mut u8, Iter<'static, u8>)"), "(&mut u8, Iter<'_, u8>)");
    }
}
