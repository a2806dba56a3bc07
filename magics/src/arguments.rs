//! The words behind a magic's name, read by the options and arguments that the table defines for the magic.

use crate::error::{MagicError, Problem};
use crate::magic::{Invocation, MagicOption, nearest};
use std::iter::Peekable;
use std::vec::IntoIter;

/// The options and the positional arguments of a magic's call.
pub(crate) struct Arguments<'a> {
    invocation: &'a Invocation<'a>,
    options: Vec<(&'static MagicOption, String)>,
    positional: Vec<String>,
}

impl<'a> Arguments<'a> {
    pub(crate) fn read(invocation: &'a Invocation<'a>) -> Result<Arguments<'a>, MagicError> {
        let mut arguments = Arguments { invocation, options: Vec::new(), positional: Vec::new() };
        let mut words = words(invocation)?.into_iter().peekable();
        while let Some(word) = words.next() {
            if word.is_option() {
                arguments.push_option(&word.text, &mut words)?;
            } else if let Some(argument) = invocation.magic.arguments.get(arguments.positional.len()) {
                arguments.positional.push(not_blank(invocation, argument.name, word.text)?);
            } else {
                return Err(invocation.unexpected(&word.text));
            }
        }
        Ok(arguments)
    }

    /// Reads `--name`, `--name=value`, `-n5`, or `--name` with its value as the next word.
    fn push_option(&mut self, text: &str, words: &mut Peekable<IntoIter<Word>>) -> Result<(), MagicError> {
        let (name, inline) = name_and_value(text);
        let option = self.known(name)?;
        if self.has(option) {
            // The placeholder of an option that takes several values has `,…`.
            let is_list = option.value.is_some_and(|value| value.contains(",…"));
            let cure = if is_list { "write all of it once, with commas between" } else { "keep one" };
            return Err(self.invocation.error(Problem::Repeated { option: option.name, cure }));
        }
        let value = match (option.value, inline) {
            (None, None) => String::new(),
            (None, Some(value)) => {
                return Err(self.invocation.error(Problem::UnwantedValue { option: option.name, value }));
            }
            (Some(_), Some(value)) => not_blank(self.invocation, option.name, value)?,
            (Some(value), None) => match words.next_if(|word| !word.is_option()) {
                Some(word) => not_blank(self.invocation, option.name, word.text)?,
                None if !option.needs_value => String::new(),
                None => return Err(self.invocation.error(Problem::MissingValue { option: option.name, value })),
            },
        };
        self.options.push((option, value));
        Ok(())
    }

    fn known(&self, name: &str) -> Result<&'static MagicOption, MagicError> {
        let options = self.invocation.magic.options;
        options.iter().find(|option| option.name == name).ok_or_else(|| {
            let nearest = nearest(name, options.iter().map(|option| option.name));
            self.invocation.error(Problem::UnknownOption { option: name.to_owned(), nearest })
        })
    }

    /// The options that are given.
    pub(crate) fn given(&self) -> impl Iterator<Item = &'static MagicOption> {
        self.options.iter().map(|(option, _)| *option)
    }

    pub(crate) fn has(&self, option: &MagicOption) -> bool {
        self.given().any(|given| given.name == option.name)
    }

    /// The option's value as converted by `read`, if the option is given. The value of a flag is empty, and so is an omitted value.
    pub(crate) fn option<T>(
        &self,
        option: &MagicOption,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<Option<T>, MagicError> {
        let value = self.options.iter().find(|(given, _)| given.name == option.name).map(|(_, value)| value);
        value.map(|value| self.value(option.name, value, read)).transpose()
    }

    /// The value of a required option.
    pub(crate) fn required(&self, option: &MagicOption) -> Result<String, MagicError> {
        let value = self.option(option, |value| Ok(value.to_owned()))?;
        value.ok_or_else(|| self.invocation.missing(option.name, option.value.unwrap_or_default()))
    }

    fn value<T>(
        &self,
        name: &'static str,
        value: &str,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<T, MagicError> {
        read(value).map_err(|problem| self.invocation.bad_value(name, value, problem))
    }

    /// The first positional argument as converted by `read`; none if there is no such argument.
    pub(crate) fn first<T>(&self, read: impl FnOnce(&str) -> Result<T, String>) -> Result<Option<T>, MagicError> {
        let (argument, value) = (self.invocation.magic.arguments.first(), self.positional.first());
        argument.zip(value).map(|(argument, value)| self.value(argument.name, value, read)).transpose()
    }

    /// The positional argument, if there is exactly one.
    pub(crate) fn only(&self) -> Option<&str> {
        self.positional.first().filter(|_| self.positional.len() == 1).map(String::as_str)
    }

    /// All positional arguments, which are required; `what` describes each argument for the error about a missing argument.
    pub(crate) fn all<const N: usize>(&self, what: [&'static str; N]) -> Result<[String; N], MagicError> {
        self.positional.clone().try_into().map_err(|given: Vec<String>| {
            self.invocation.missing(self.invocation.magic.arguments[given.len()].name, what[given.len()])
        })
    }
}

fn name_and_value(text: &str) -> (&str, Option<String>) {
    if let Some((name, value)) = text.split_once('=') {
        return (name, Some(value.to_owned()));
    }
    match text.split_at_checked(2) {
        Some((name, value)) if name != "--" && value.starts_with(|c: char| c.is_ascii_digit()) => {
            (name, Some(value.to_owned()))
        }
        _ => (text, None),
    }
}

fn not_blank(invocation: &Invocation<'_>, name: &'static str, value: String) -> Result<String, MagicError> {
    if value.trim().is_empty() {
        return Err(invocation.bad_value(name, &value, "give a value that is not blank"));
    }
    Ok(value)
}

struct Word {
    text: String,
    /// Whether the word began with a quote. Such a word is a value, whatever its first character is.
    is_quoted: bool,
}

impl Word {
    /// Whether the word is an option, as `--name` or `-n`; `-3` is a value.
    fn is_option(&self) -> bool {
        let mut chars = self.text.chars();
        !self.is_quoted && chars.next() == Some('-') && chars.next().is_some_and(|c| c == '-' || c.is_alphabetic())
    }
}

/// Splits the text at blanks outside quotes. Unlike in a shell, a backslash and `#` have no special meaning.
fn words(invocation: &Invocation<'_>) -> Result<Vec<Word>, MagicError> {
    let mut words = Vec::new();
    let mut word: Option<Word> = None;
    let mut quote = None;
    for c in invocation.rest.chars() {
        match (quote, c) {
            (Some(open), _) if c == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert(Word { text: String::new(), is_quoted: true });
            }
            (None, _) if c.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert(Word { text: String::new(), is_quoted: false }).text.push(c),
        }
    }
    if let Some(quote) = quote {
        return Err(invocation.error(Problem::UnclosedQuote { quote }));
    }
    words.extend(word);
    Ok(words)
}
