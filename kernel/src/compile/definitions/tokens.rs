//! Turns a definition into text without the parts that do not affect a layout: visibility, docs, derives, most attributes, and
//! formatting.

use proc_macro2::{Delimiter, Group, Ident, Spacing, TokenStream, TokenTree};
use std::collections::{BTreeSet, HashSet};
use std::iter::Peekable;

/// Attributes that affect a layout.
const ATTRIBUTES: [&str; 3] = ["cfg", "cfg_attr", "repr"];

/// Names that the source imports. An attribute with such a name is a macro, which may change anything.
pub(crate) type Imported = HashSet<String>;

/// The text of a definition without the parts that do not affect a layout.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Text {
    pub(crate) text: String,
    /// All names in the text, with called functions in the form of [`call`].
    pub(crate) names: BTreeSet<String>,
}

/// The name under which a function's calls count. It differs from the plain name, since a field and a method often share one.
pub(super) fn call(function: &Ident) -> String {
    format!("{function}()")
}

impl Text {
    pub(crate) fn of(tokens: TokenStream, imported: &Imported) -> Self {
        let mut text = Self::default();
        text.push(tokens, imported);
        text
    }

    fn push(&mut self, tokens: TokenStream, imported: &Imported) {
        let mut tokens = tokens.into_iter().peekable();
        let mut after_fn = false;
        while let Some(token) = tokens.next() {
            match &token {
                TokenTree::Punct(punct) if punct.as_char() == '#' => {
                    if let Some(attribute) = take_attribute(&mut tokens)
                        && affects_layout(&attribute, imported)
                    {
                        self.word("#");
                        self.push_group(&attribute, imported);
                    }
                    continue;
                }
                TokenTree::Ident(name) if name == "pub" => skip_restriction(&mut tokens),
                TokenTree::Ident(name) => self.push_name(name, !after_fn && is_called(&mut tokens)),
                TokenTree::Group(group) => self.push_group(group, imported),
                // A trailing comma matters only in a tuple with one element.
                token if is_comma(token) && tokens.peek().is_none() => self.text.push(','),
                TokenTree::Punct(_) | TokenTree::Literal(_) => self.word(&token.to_string()),
            }
            after_fn = matches!(&token, TokenTree::Ident(name) if name == "fn");
        }
    }

    fn push_name(&mut self, name: &Ident, is_called: bool) {
        let name_text = name.to_string();
        self.word(&name_text);
        if is_called {
            self.names.insert(call(name));
        }
        self.names.insert(name_text);
    }

    fn push_group(&mut self, group: &Group, imported: &Imported) {
        let (open, close) = match group.delimiter() {
            Delimiter::Parenthesis => ("(", ")"),
            Delimiter::Brace => ("{", "}"),
            Delimiter::Bracket => ("[", "]"),
            Delimiter::None => return self.push(group.stream(), imported),
        };
        self.word(open);
        self.push(group.stream(), imported);
        if self.text.ends_with(',') && !(open == "(" && is_single(group)) {
            self.text.pop();
        }
        self.word(close);
    }

    fn word(&mut self, word: &str) {
        if !self.text.is_empty() {
            self.text.push(' ');
        }
        self.text.push_str(word);
    }
}

fn is_comma(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == ',')
}

fn is_single(group: &Group) -> bool {
    group.stream().into_iter().filter(is_comma).count() == 1
}

type Tokens = Peekable<proc_macro2::token_stream::IntoIter>;

/// The brackets of an outer or inner attribute.
fn take_attribute(tokens: &mut Tokens) -> Option<Group> {
    tokens.next_if(|token| matches!(token, TokenTree::Punct(punct) if punct.as_char() == '!'));
    let token =
        tokens.next_if(|token| matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Bracket));
    match token {
        Some(TokenTree::Group(group)) => Some(group),
        _ => None,
    }
}

fn affects_layout(attribute: &Group, imported: &Imported) -> bool {
    let mut tokens = attribute.stream().into_iter();
    let Some(TokenTree::Ident(name)) = tokens.next() else { return false };
    let name = name.to_string();
    // A path names a macro or a tool.
    let is_path = matches!(tokens.next(), Some(TokenTree::Punct(punct)) if punct.as_char() == ':');
    ATTRIBUTES.contains(&name.as_str()) || is_path || imported.contains(&name)
}

/// Skips the parentheses of `pub(crate)`; those of `pub (u8, u8)` are a type.
fn skip_restriction(tokens: &mut Tokens) {
    tokens.next_if(|token| match token {
        TokenTree::Group(group) if group.delimiter() == Delimiter::Parenthesis => {
            let first = group.stream().into_iter().next();
            matches!(first, Some(TokenTree::Ident(name)) if ["crate", "self", "super", "in"].iter().any(|word| name == word))
        }
        _ => false,
    });
}

/// Whether the next tokens make a name a call: parentheses, or generic arguments before them.
fn is_called(tokens: &mut Tokens) -> bool {
    match tokens.peek() {
        Some(TokenTree::Group(group)) => group.delimiter() == Delimiter::Parenthesis,
        Some(TokenTree::Punct(punct)) => punct.as_char() == ':' && punct.spacing() == Spacing::Joint,
        _ => false,
    }
}
