//! `impl`s in a cell. An `impl` has no name, and evcxr never forgets it, so a second `impl` for the same type would be in conflict
//! with the first. This file puts each `impl` behind a type alias of its own. evcxr replaces the alias together with its `impl`. No
//! line moves.

use crate::engine::evaluate::insertions::Text;
use proc_macro2::{Ident, LineColumn, TokenStream, TokenTree};
use quote::ToTokens;
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use syn::{ImplItem, Item, ItemImpl, Stmt};

/// The prefix of an alias. The hash of the implemented part follows, and then the names of the cell's own types and traits in the
/// head of the `impl`, each after its length.
pub(in crate::engine) const PREFIX: &str = "ferrotune_impl_";
const HASH_DIGITS: usize = 12;

/// The texts to insert into a cell: aliases, and the brackets that divide its `impl`s into parts that can be replaced separately.
/// `items` are the names of the notebook's items: a type that is defined again loses the `impl`s of its earlier cell.
pub(in crate::engine) fn texts<'a>(statements: &[Stmt], items: impl Iterator<Item = &'a str>) -> Vec<Text> {
    let known: Vec<&str> = items.filter(|name| name.starts_with(PREFIX)).collect();
    let defined: Vec<(String, LineColumn)> = statements.iter().filter_map(definition).collect();
    let mut aliases = Aliases { defined: &defined, known: &known, written: BTreeSet::new(), texts: Vec::new() };
    for statement in statements {
        match statement {
            Stmt::Item(Item::Impl(item)) => aliases.implement(item),
            // evcxr keeps an item without a name together with the item above it, which may be a part of an `impl`.
            Stmt::Item(Item::ForeignMod(_)) => aliases.keep(statement),
            Stmt::Item(Item::Const(item)) if item.ident == "_" => aliases.keep(statement),
            _ => {}
        }
    }
    for (name, start) in &defined {
        let of_name = known.iter().filter(|alias| types_of(alias).contains(&name.as_str()));
        for alias in of_name {
            if aliases.written.insert((*alias).to_owned()) {
                aliases.texts.push((*start, empty(alias)));
            }
        }
    }
    aliases.texts
}

struct Aliases<'a> {
    defined: &'a [(String, LineColumn)],
    known: &'a [&'a str],
    written: BTreeSet<String>,
    texts: Vec<Text>,
}

impl Aliases<'_> {
    fn implement(&mut self, item: &ItemImpl) {
        let Some(start) = start(item.to_token_stream()) else { return };
        let head = head(item);
        let types = self.types_in(&head);
        // A doc comment stays with the first part; any other attribute applies to all parts.
        let is_plain = item.attrs.iter().all(|attribute| attribute.path().is_ident("doc"));
        let parts = if item.trait_.is_none() && is_plain { item.items.as_slice() } else { &[] };
        let Some((first, rest)) = parts.split_first() else {
            let part = if item.trait_.is_some() { String::new() } else { body(item) };
            return self.alias(&format!("{head} {part}"), &types, start, "");
        };
        self.alias(&format!("{head} {}", name(first)), &types, start, "");
        for part in rest {
            if let Some(start) = self::start(part.to_token_stream()) {
                self.alias(&format!("{head} {}", name(part)), &types, start, &format!("{head} {{ "));
            }
        }
    }

    fn keep(&mut self, statement: &Stmt) {
        let tokens = statement.to_token_stream();
        if let Some(start) = start(tokens.clone()) {
            self.alias(&tokens.to_string(), "", start, "");
        }
    }

    /// Begins a part of an `impl` under its own alias. With a `head`, the part leaves the `impl` around it and gets an `impl` of its own.
    fn alias(&mut self, part: &str, types: &str, start: LineColumn, head: &str) {
        let hash = hash(part);
        let alias = format!("{PREFIX}{hash}{types}");
        let same = format!("{PREFIX}{hash}");
        let earlier = self.known.iter().filter(|known| known.starts_with(&same) && **known != alias);
        let names: Vec<String> = earlier.map(|known| (*known).to_owned()).chain([alias.clone()]).collect();
        // If one cell has the same part twice, the compiler reports the error.
        let new = names.into_iter().filter(|name| self.written.insert(name.clone()));
        let aliases: String = new.map(|name| empty(&name)).collect();
        let close = if head.is_empty() { "" } else { "} " };
        self.texts.push((start, format!("{close}{aliases}{head}")));
    }

    /// The names of this cell's own types and traits in the head of an `impl`, as a part of its alias.
    fn types_in(&self, head: &str) -> String {
        let Ok(tokens) = head.parse::<TokenStream>() else { return String::new() };
        let mut words = BTreeSet::new();
        add_words(tokens, &mut words);
        let own = self.defined.iter().map(|(name, _)| name).filter(|name| words.contains(*name));
        own.map(|name| format!("_{}{name}", name.chars().count())).collect()
    }
}

/// The item of an alias. With no `impl` behind it, this item removes the `impl` that an earlier cell has put behind the same alias.
fn empty(alias: &str) -> String {
    format!("type {alias} = (); ")
}

/// The names of types in an alias.
fn types_of(alias: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let mut rest = alias.get(PREFIX.len() + HASH_DIGITS..).unwrap_or_default();
    while let Some(named) = rest.strip_prefix('_') {
        let digits = named.find(|character: char| !character.is_ascii_digit()).unwrap_or(named.len());
        let (length, named) = named.split_at(digits);
        let Ok(length) = length.parse::<usize>() else { break };
        let end = named.char_indices().nth(length).map_or(named.len(), |(at, _)| at);
        names.push(&named[..end]);
        rest = &named[end..];
    }
    names
}

/// The name of the type or trait that a statement defines, and the place where the statement begins.
fn definition(statement: &Stmt) -> Option<(String, LineColumn)> {
    let Stmt::Item(item) = statement else { return None };
    let name = match item {
        Item::Enum(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some((plain(name), start(item.to_token_stream())?))
}

fn plain(name: &Ident) -> String {
    let name = name.to_string();
    name.strip_prefix("r#").map(str::to_owned).unwrap_or(name)
}

/// The head of an `impl`: all its tokens before its block.
fn head(item: &ItemImpl) -> String {
    let mut tokens = item.unsafety.to_token_stream();
    item.impl_token.to_tokens(&mut tokens);
    item.generics.to_tokens(&mut tokens);
    let mut text = tokens.to_string();
    if let Some((path, _)) = &item.trait_ {
        text += &format!(" {} for", path.to_token_stream());
    }
    text += &format!(" {}", item.self_ty.to_token_stream());
    if let Some(conditions) = &item.generics.where_clause {
        text += &format!(" {}", conditions.to_token_stream());
    }
    text
}

fn body(item: &ItemImpl) -> String {
    item.items.iter().map(|part| part.to_token_stream().to_string()).collect()
}

/// The name of a part of an `impl`, or the whole part if it has no name.
fn name(part: &ImplItem) -> String {
    match part {
        ImplItem::Const(item) => item.ident.to_string(),
        ImplItem::Fn(item) => item.sig.ident.to_string(),
        ImplItem::Type(item) => item.ident.to_string(),
        part => part.to_token_stream().to_string(),
    }
}

fn hash(text: &str) -> String {
    let digest = Sha256::digest(text);
    digest.iter().take(HASH_DIGITS / 2).map(|byte| format!("{byte:02x}")).collect()
}

fn add_words(tokens: TokenStream, words: &mut BTreeSet<String>) {
    for token in tokens {
        match token {
            TokenTree::Ident(word) => {
                words.insert(plain(&word));
            }
            TokenTree::Group(group) => add_words(group.stream(), words),
            _ => {}
        }
    }
}

/// The place where tokens begin.
pub(in crate::engine) fn start(tokens: TokenStream) -> Option<LineColumn> {
    tokens.into_iter().next().map(|token| token.span().start())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::evaluate::insertions::Insertions;

    /// The cell with its aliases; `known` are the aliases of earlier cells.
    fn prepared(cell: &str, known: &[String]) -> String {
        let statements = crate::statements::parse(cell.parse().unwrap()).unwrap().statements;
        Insertions::into(cell, texts(&statements, known.iter().map(String::as_str))).0
    }

    fn alias(part: &str, types: &str) -> String {
        format!("{PREFIX}{}{types}", hash(part))
    }

    #[test]
    fn a_trait_is_implemented_under_one_name() {
        let own = alias("impl T for A ", "_1A");
        let expected = format!("struct A; type {own} = (); impl T for A {{}}");
        assert_eq!(prepared("struct A; impl T for A {}", &[]), expected);
        let again = alias("impl T for A ", "");
        let expected = format!("let a = 1;\ntype {own} = (); type {again} = (); impl T for A {{}}");
        assert_eq!(prepared("let a = 1;\nimpl T for A {}", std::slice::from_ref(&own)), expected);
        assert_eq!(prepared("enum A {}", std::slice::from_ref(&own)), format!("type {own} = (); enum A {{}}"));
        assert_eq!(prepared("struct B; let a = 1;", &[own]), "struct B; let a = 1;");
    }

    #[test]
    fn each_method_has_its_own_name() {
        let (one, two) = (alias("impl < T > A < T > one", ""), alias("impl < T > A < T > two", ""));
        let expected = format!(
            "type {one} = (); impl<T> A<T> {{\n    fn one() {{}}\n    }} type {two} = (); impl < T > A < T > {{ /// Doc\n    fn two() {{}}\n}}"
        );
        assert_eq!(prepared("impl<T> A<T> {\n    fn one() {}\n    /// Doc\n    fn two() {}\n}", &[]), expected);
    }

    #[test]
    fn types_of_an_alias_are_those_that_were_written() {
        assert_eq!(types_of(&alias("x", "_1A_7größe_3")), ["A", "größe_3"]);
        assert_eq!(types_of(&alias("x", "")), [""; 0]);
        assert_eq!(types_of(&alias("x", "_4a_b2_2T1")), ["a_b2", "T1"]);
    }
}
