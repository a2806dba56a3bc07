//! Statics have one place in memory: the cell that defines one exports it, and later cells link to it.
//!
//! The text of such an item is the same in all cells and has both forms, of which `cfg` chooses one. The compiler is called with
//! `evcxr_linked`, and with the number of the cell as `evcxr_cell`. Without these, as in a library that is loaded alone, each static
//! is defined.

use crate::errors::CompilationError;
use crate::macros;
use crate::macros::names_in;
use crate::rust_analyzer::EDITION;
use once_cell::sync::Lazy;
use ra_ap_syntax::AstNode;
use ra_ap_syntax::SourceFile;
use ra_ap_syntax::SyntaxNode;
use ra_ap_syntax::SyntaxToken;
use ra_ap_syntax::ast;
use ra_ap_syntax::ast::HasAttrs;
use ra_ap_syntax::ast::HasName;
use ra_ap_syntax::ast::HasVisibility;
use regex::Captures;
use regex::Regex;
use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;

/// The condition that the cell with a number is compiled, up to the number.
const IN_CELL: &str = "evcxr_cell = \"";
/// The number of the cell that is compiled next.
const NEXT: &str = "next";
/// The beginning of the exported names.
const SYMBOL: &str = "evcxr_static_";
/// Attributes that do not change where a static is, nor whether it is there.
const HARMLESS: [&str; 6] = ["allow", "deny", "doc", "expect", "rustfmt", "warn"];

/// A name that no static has yet.
fn new_symbol() -> String {
    static LAST: AtomicUsize = AtomicUsize::new(0);
    format!("{SYMBOL}{}", LAST.fetch_add(1, Ordering::Relaxed) + 1)
}

/// An item with the statics in it in both forms, on the same lines; none if it has no static. A static that has a place of its
/// own already stays as it is.
pub(crate) fn shared(item: &str, cell: i32) -> Option<String> {
    if !item.contains("static") {
        return None;
    }
    let file = SourceFile::parse(item, EDITION).tree();
    let mut text = item.to_owned();
    let is_in_another = |place: &ast::Static| place.syntax().ancestors().skip(1).any(|node| ast::Static::can_cast(node.kind()));
    let statics = file.syntax().descendants().filter_map(ast::Static::cast).filter(|place| !is_in_another(place));
    let statics: Vec<_> = statics.collect();
    let mut is_changed = false;
    for place in statics.into_iter().rev() {
        let Some(linked) = Linked::of(&place) else { continue };
        let range = place.syntax().text_range();
        let (start, end) = (usize::from(range.start()), usize::from(range.end()));
        let (symbol, defined) = (new_symbol(), defined_in(cell));
        text.insert_str(end, &linked.text(&symbol, &defined));
        text.insert_str(start, &format!("#[cfg({defined})] #[unsafe(export_name = \"{symbol}\")] "));
        is_changed = true;
    }
    is_changed.then_some(text)
}

/// The statics of a call of `thread_local!`, by name and with both forms, each on one line; none for other code, and for statics
/// that have a place of their own.
pub(crate) fn of_threads(node: &SyntaxNode, cell: i32) -> Option<Vec<(String, String)>> {
    declared_by_thread_local(node)?
        .iter()
        .map(|place| {
            let linked = Linked::of(place)?;
            let (name, body) = (&linked.name, place.body()?.syntax().text().to_string());
            let (type_name, visibility) = (place.ty()?.syntax().text().to_string(), &linked.visibility);
            let key = |type_name: &str| format!("::std::thread::LocalKey<{type_name}>");
            let (symbol, defined) = (new_symbol(), defined_in(cell));
            let definition = format!(
                "#[cfg({defined})] #[unsafe(export_name = \"{symbol}\")] {visibility}static {name}: {} = {{ ::std::thread_local! {{ \
                 static {name}: {type_name} = {body}; }} {name} }};",
                key(&type_name)
            );
            let link = Linked { type_name: key(&linked.type_name), ..linked.clone() }.text(&symbol, &defined);
            Some((name.clone(), one_line(&format!("{definition}{link}"))))
        })
        .collect()
}

/// The names that a call of `thread_local!` declares; none for other code.
pub(crate) fn names_of_threads(node: &SyntaxNode) -> Option<Vec<String>> {
    let names = declared_by_thread_local(node)?.into_iter().filter_map(|place| Some(place.name()?.text().to_string()));
    Some(names.collect())
}

fn declared_by_thread_local(node: &SyntaxNode) -> Option<Vec<ast::Static>> {
    let call = macros::whole_call(node).filter(|_| macros::attributes(node).next().is_none())?;
    if call.path()?.segment()?.name_ref()?.text() != "thread_local" {
        return None;
    }
    let tokens = call.token_tree()?.syntax().text().to_string();
    let inside = tokens.get(1..tokens.len().checked_sub(1)?)?;
    let file = SourceFile::parse(&format!("{};", inside.trim_end().trim_end_matches(';')), EDITION);
    let statics: Vec<_> = file.tree().syntax().children().filter_map(ast::Static::cast).collect();
    (file.errors().is_empty() && !statics.is_empty()).then_some(statics)
}

/// The first word in the brackets of an attribute.
pub(crate) fn first_word(attribute: &ast::Attr) -> Option<SyntaxToken> {
    attribute.meta()?.syntax().first_token()
}

/// The condition that a static or a function is defined here: in its own cell, and in a library that is loaded alone.
pub(crate) fn defined_in(cell: i32) -> String {
    format!("any({IN_CELL}{cell}\", not(evcxr_linked))")
}

/// A static as other cells declare it.
#[derive(Clone)]
struct Linked {
    name: String,
    visibility: String,
    /// `safe`, or nothing for a `static mut`.
    qualifier: &'static str,
    mutable: &'static str,
    type_name: String,
}

impl Linked {
    /// The declaration of a static; none if it has a place already or is no static of Rust.
    fn of(place: &ast::Static) -> Option<Linked> {
        let is_harmless = |attribute: ast::Attr| first_word(&attribute).is_some_and(|word| HARMLESS.contains(&word.text()));
        let is_extern = place.syntax().ancestors().any(|node| ast::ExternItemList::can_cast(node.kind()));
        if is_extern || !place.attrs().all(is_harmless) {
            return None;
        }
        place.body()?;
        let is_mutable = place.mut_token().is_some();
        Some(Linked {
            name: place.name()?.text().to_string(),
            visibility: place.visibility().map(|visibility| format!("{} ", visibility.syntax().text())).unwrap_or_default(),
            qualifier: if is_mutable { "" } else { "safe " },
            mutable: if is_mutable { "mut " } else { "" },
            type_name: with_static_references(place.ty()?.syntax()),
        })
    }

    /// The declaration in later cells, and, where the static is defined, one that proves that the type can be written there.
    fn text(&self, symbol: &str, defined: &str) -> String {
        let Linked { name, visibility, qualifier, mutable, type_name } = self;
        let declaration = |visibility: &str| {
            format!("unsafe extern \"Rust\" {{ #[link_name = \"{symbol}\"] {visibility}{qualifier}static {mutable}{name}: {type_name}; }}")
        };
        let (declared, proof) = (declaration(visibility), declaration(""));
        one_line(&format!(" #[cfg(not({defined}))] {declared} #[cfg({defined})] const _: () = {{ {proof} }};"))
    }
}

/// The text on one line. Line comments do not come with it.
fn one_line(text: &str) -> String {
    let lines = text.lines().map(|line| line.split_once("//").map_or(line, |(code, _)| code).trim());
    lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
}

/// A type whose references without a lifetime are `'static`, as those of a static are. Those in the signature of a function have a
/// lifetime of their own.
fn with_static_references(written: &SyntaxNode) -> String {
    let start = written.text_range().start();
    let mut text = written.text().to_string();
    let references: Vec<_> = written.descendants().filter_map(ast::RefType::cast).collect();
    for reference in references.into_iter().rev() {
        let is_of_function = reference.syntax().ancestors().skip(1).take_while(|node| node.text_range() != written.text_range()).any(|node| {
            ast::ParamList::can_cast(node.kind()) || ast::RetType::can_cast(node.kind()) || ast::ParenthesizedArgList::can_cast(node.kind())
        });
        if reference.lifetime().is_none() && !is_of_function && let Some(ampersand) = reference.amp_token() {
            text.insert_str(usize::from(ampersand.text_range().end() - start), "'static ");
        }
    }
    text
}

/// The text of items whose statics are gone with their process: the cell that is compiled next defines them.
pub fn statics_of_next_cell(items: &str) -> String {
    static CELL: Lazy<Regex> = Lazy::new(|| Regex::new("(evcxr_cell = \")[0-9]+\"").expect("it is valid"));
    CELL.replace_all(items, format!("${{1}}{NEXT}\"")).into_owned()
}

/// The text of an item in which this cell defines the statics that the next cell is to define; none if there are none.
pub(crate) fn defined_now(item: &str, cell: i32) -> Option<String> {
    let next = format!("{IN_CELL}{NEXT}\"");
    item.contains(&next).then(|| item.replace(&next, &format!("{IN_CELL}{cell}\"")))
}

/// The text of an item whose statics this cell defines anew. `symbols` has the new exported names by the old ones.
pub(crate) fn renewed(item: &str, cell: i32, symbols: &mut BTreeMap<String, String>) -> String {
    static EXPORTED: Lazy<Regex> = Lazy::new(|| Regex::new("evcxr_static_[0-9]+").expect("it is valid"));
    let text = statics_of_next_cell(item);
    let text = defined_now(&text, cell).unwrap_or(text);
    EXPORTED
        .replace_all(&text, |found: &Captures<'_>| symbols.entry(found[0].to_owned()).or_insert_with(new_symbol).clone())
        .into_owned()
}

/// The statics that a constant reads, which it cannot do where they are in another library, by the compiler's errors.
pub(crate) fn read_by_constants(errors: &[CompilationError]) -> BTreeSet<String> {
    static READ: Lazy<Regex> = Lazy::new(|| Regex::new("cannot access extern static `([^`]+)`").expect("it is valid"));
    let read = errors.iter().flat_map(|error| READ.captures_iter(&error.message()).map(|found| found[1].to_owned()).collect::<Vec<_>>());
    read.map(|path| path.rsplit("::").next().unwrap_or_default().to_owned()).collect()
}

/// The text of an item in which each cell defines the statics of this name, which never change; none if it has no such static.
pub(crate) fn copied(item: &str, name: &str) -> Option<String> {
    static DECLARED: Lazy<Regex> =
        Lazy::new(|| Regex::new("link_name = \"(evcxr_static_[0-9]+)\"\\] [^;{}]*static ([^ :]+):").expect("it is valid"));
    static CONDITION: Lazy<Regex> = Lazy::new(|| {
        let condition = "any\\(evcxr_cell = \"[^\"]*\", not\\(evcxr_linked\\)\\)";
        let beginning = "(?:#\\[unsafe\\(export_name|(?:const _: \\(\\) = \\{ )?unsafe extern \"Rust\" \\{ #\\[link_name)";
        Regex::new(&format!("{condition}(\\)+\\] {beginning} = \"(evcxr_static_[0-9]+)\")")).expect("it is valid")
    });
    let symbols: BTreeSet<String> =
        DECLARED.captures_iter(item).filter(|found| &found[2] == name).map(|found| found[1].to_owned()).collect();
    let text = CONDITION.replace_all(item, |found: &Captures<'_>| match symbols.contains(&found[2]) {
        true => format!("all(){}", &found[1]),
        false => found[0].to_owned(),
    });
    (text != item).then(|| text.into_owned())
}

/// Whether an item has statics that cells link to.
pub(crate) fn is_shared(item: &str) -> bool {
    item.contains(SYMBOL)
}

/// The names in the types of an item's statics that cells link to.
pub(crate) fn names_in_types(item: &str) -> BTreeSet<String> {
    let file = SourceFile::parse(item, EDITION).tree();
    let types = file.syntax().descendants().filter_map(ast::Static::cast).filter_map(|place| place.ty());
    types.flat_map(|written| names_in(written.syntax())).collect()
}
