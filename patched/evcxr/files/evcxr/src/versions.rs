//! Types that are defined anew stand in modules of their own, so that the compiler takes none of them for an older one.

use crate::code_block::CodeBlock;
use crate::rust_analyzer::EDITION;
use crate::statics::first_word;
use ra_ap_syntax::AstNode;
use ra_ap_syntax::SourceFile;
use ra_ap_syntax::SyntaxElement;
use ra_ap_syntax::SyntaxKind;
use ra_ap_syntax::SyntaxNode;
use ra_ap_syntax::T;
use ra_ap_syntax::WalkEvent;
use ra_ap_syntax::ast;
use ra_ap_syntax::ast::HasName;
use ra_ap_syntax::ast::HasVisibility;
use std::collections::BTreeSet;

/// What a type's fields and a type in a module are visible for: the rest of the crate.
const VISIBLE: &str = "pub(super) ";

/// A part of a type that has a visibility, and the place of that.
type Part = (Option<ast::Visibility>, SyntaxElement);

/// Whether the text of an item defines a type or a trait.
pub(crate) fn is_type(item: &str) -> bool {
    definition(item).is_some()
}

fn definition(item: &str) -> Option<ast::Item> {
    // Most items are functions, and parsing takes time.
    ["struct", "enum", "union", "trait"].iter().any(|word| item.contains(word)).then_some(())?;
    let item = SourceFile::parse(item, EDITION).tree().syntax().children().find_map(ast::Item::cast)?;
    matches!(item, ast::Item::Struct(_) | ast::Item::Enum(_) | ast::Item::Union(_) | ast::Item::Trait(_)).then_some(item)
}

/// What decides the meaning of an item's name in a type, and the names in that: the tokens of a type, a trait, a constant or an import
/// without those that change no value's form in memory. None for other items.
pub(crate) fn meaning(block: &str) -> Option<(String, BTreeSet<String>)> {
    let file = SourceFile::parse(block, EDITION).tree();
    let item = file.syntax().children().filter_map(ast::Item::cast).find(|item| {
        matches!(
            item,
            ast::Item::Struct(_) | ast::Item::Enum(_) | ast::Item::Union(_) | ast::Item::TypeAlias(_)
                | ast::Item::Trait(_) | ast::Item::Const(_) | ast::Item::Use(_) | ast::Item::Module(_)
        )
    })?;
    let is_body = |node: &SyntaxNode| {
        ast::BlockExpr::can_cast(node.kind()) && matches!(item, ast::Item::Trait(_)) && node.parent().is_some_and(|parent| ast::Fn::can_cast(parent.kind()))
    };
    let mut tokens = Vec::new();
    let mut walk = item.syntax().preorder_with_tokens();
    while let Some(step) = walk.next() {
        match step {
            WalkEvent::Enter(SyntaxElement::Node(node)) if ast::Visibility::can_cast(node.kind()) || is_body(&node) => walk.skip_subtree(),
            WalkEvent::Enter(SyntaxElement::Node(node)) if ast::Attr::cast(node.clone()).is_some_and(is_for_code) => walk.skip_subtree(),
            WalkEvent::Enter(SyntaxElement::Token(token)) if !token.kind().is_trivia() => tokens.push(token),
            _ => {}
        }
    }
    let names = tokens.iter().filter(|token| token.kind() == SyntaxKind::IDENT).map(|token| token.text().to_owned()).collect();
    let mut text = String::new();
    for (at, token) in tokens.iter().enumerate() {
        let is_last_comma = token.kind() == T![,] && tokens.get(at + 1).is_some_and(|next| next.kind() == T!['}']);
        if !is_last_comma {
            text.push_str(token.text());
            text.push(' ');
        }
    }
    Some((text, names))
}

/// Whether an attribute changes no value's form in memory.
fn is_for_code(attribute: ast::Attr) -> bool {
    first_word(&attribute).is_some_and(|word| !["cfg", "cfg_attr", "repr"].contains(&word.text()))
}

/// The block of an item, whose first segment is a type, with the type in a module; none if the type cannot be in one.
pub(crate) fn in_module(block: &CodeBlock, name: &str, version: i32) -> Option<CodeBlock> {
    let mut segments = block.segments.iter().cloned();
    let mut segment = segments.next()?;
    let (text, is_public) = visible(&segment.code)?;
    segment.code = text;
    let module = format!("evcxr_{name}_{version}");
    let code = CodeBlock::new().generated(format!("mod {module} {{ use super::*;")).with_segment(segment);
    let public = if is_public { "pub " } else { "" };
    let code = code.generated(format!("}} {public}use self::{module}::{name};"));
    Some(segments.fold(code, CodeBlock::with_segment))
}

/// The text of a type whose private parts are visible outside of its module, and whether the type is public; none if a part is visible
/// for a module that the text names.
fn visible(item: &str) -> Option<(String, bool)> {
    let definition = definition(item)?;
    let head = head(&definition)?;
    let is_public = head.0.as_ref().is_some_and(|visibility| visibility.syntax().text() == "pub");
    let mut places = Vec::new();
    for (visibility, place) in std::iter::once(head).chain(fields(&definition)?) {
        match visibility.map(|visibility| visibility.syntax().text().to_string()).as_deref() {
            None => places.push(usize::from(place.text_range().start())),
            Some("pub" | "pub(crate)") => {}
            Some(_) => return None,
        }
    }
    let mut text = item.to_owned();
    for place in places.into_iter().rev() {
        text.insert_str(place, VISIBLE);
    }
    Some((text, is_public))
}

/// The visibility of a type, and where it would stand.
fn head(definition: &ast::Item) -> Option<Part> {
    let (visibility, token) = match definition {
        ast::Item::Struct(item) => (item.visibility(), item.struct_token()),
        ast::Item::Enum(item) => (item.visibility(), item.enum_token()),
        ast::Item::Union(item) => (item.visibility(), item.union_token()),
        ast::Item::Trait(item) => (item.visibility(), item.unsafe_token().or_else(|| item.trait_token())),
        _ => return None,
    };
    Some((visibility, token?.into()))
}

/// The same of each field of a type.
fn fields(definition: &ast::Item) -> Option<Vec<Part>> {
    let list = match definition {
        ast::Item::Struct(item) => item.field_list(),
        ast::Item::Union(item) => item.record_field_list().map(ast::FieldList::RecordFieldList),
        _ => None,
    };
    match list {
        Some(ast::FieldList::RecordFieldList(list)) => {
            list.fields().map(|field| Some((field.visibility(), field.name()?.syntax().clone().into()))).collect()
        }
        Some(ast::FieldList::TupleFieldList(list)) => {
            list.fields().map(|field| Some((field.visibility(), field.ty()?.syntax().clone().into()))).collect()
        }
        None => Some(Vec::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_parts_of_a_type_become_visible_for_the_crate() {
        for (item, text, is_public) in [
            ("struct P { x: u8, pub y: u8 }", "pub(super) struct P { pub(super) x: u8, pub y: u8 }", false),
            (
                "/// Text.\n#[derive(Debug)]\npub struct P<T>(T, #[a] pub(crate) u8) where T: Copy;",
                "/// Text.\n#[derive(Debug)]\npub struct P<T>(pub(super) T, #[a] pub(crate) u8) where T: Copy;",
                true,
            ),
            ("enum E { A { x: u8 } }", "pub(super) enum E { A { x: u8 } }", false),
            ("unsafe trait T { fn f(); }", "pub(super) unsafe trait T { fn f(); }", false),
            ("union U { x: u8 }", "pub(super) union U { pub(super) x: u8 }", false),
        ] {
            assert_eq!(visible(item), Some((text.to_owned(), is_public)));
        }
        assert_eq!(visible("struct P { pub(in crate::m) x: u8 }"), None);
        assert_eq!(visible("fn f() { struct P; }"), None);
    }

    #[test]
    fn meaning_is_that_of_a_value_in_memory() {
        let meaning = |item: &str| meaning(item).map(|(text, _)| text);
        for (before, after) in [
            ("struct P { x: u8 }", "/// Text.\n#[derive(Debug)]\npub struct P {\n    pub x: u8, // x\n}"),
            ("trait T { fn f() {} }", "trait T { fn f() { g() } }"),
        ] {
            assert_eq!(meaning(before), meaning(after));
        }
        for (before, after) in [
            ("struct P { x: u8 }", "struct P { x: u16 }"),
            ("struct P { x: u8 }", "#[repr(C)] struct P { x: u8 }"),
            ("trait T { fn f(); }", "trait T { fn g(); }"),
        ] {
            assert_ne!(meaning(before), meaning(after));
        }
        assert_eq!(super::meaning("trait T { fn f() -> A { B } }").map(|(_, names)| names.into_iter().collect()), Some(vec!["A".to_owned(), "T".into(), "f".into()]));
    }
}
