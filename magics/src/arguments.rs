//! The words behind a magic's name, read against the options that the table gives the magic.

use crate::error::MagicError;
use crate::quantity;
use crate::table::{Magic, nearest};

/// A magic as it stands in a cell.
pub(crate) struct Invocation<'a> {
    pub(crate) magic: &'static Magic,
    /// The 1-based line of the cell.
    pub(crate) line: usize,
    /// What stands behind the name, without the line ending.
    pub(crate) rest: &'a str,
    /// How many characters stand before `rest` on its line.
    pub(crate) column: usize,
    /// The lines below, for a cell magic.
    pub(crate) body: Option<&'a str>,
}

impl Invocation<'_> {
    /// The magic as it was typed.
    pub(crate) fn typed(&self) -> String {
        format!("{}{}", if self.body.is_some() { "%%" } else { "%" }, self.magic.name)
    }

    pub(crate) fn nothing_to_run(&self) -> MagicError {
        MagicError::Empty { line: self.line, magic: self.typed(), usage: self.magic.usage }
    }

    pub(crate) fn bad_value(&self, argument: &'static str, value: &str, problem: impl Into<String>) -> MagicError {
        let plain = !value.trim().is_empty() && !value.contains(char::is_control);
        let (value, problem) = (if plain { value.to_owned() } else { format!("{value:?}") }, problem.into());
        MagicError::BadValue { line: self.line, argument, value, problem, usage: self.magic.usage }
    }
}

/// A magic's options and its other arguments, with the table's defaults filled in.
pub(crate) struct Arguments<'a> {
    invocation: &'a Invocation<'a>,
    given: Vec<(&'static str, String)>,
    positional: Vec<String>,
}

impl<'a> Arguments<'a> {
    pub(crate) fn read(invocation: &'a Invocation<'a>) -> Result<Arguments<'a>, MagicError> {
        let mut arguments = Arguments { invocation, given: Vec::new(), positional: Vec::new() };
        let (line, usage) = (invocation.line, invocation.magic.usage);
        let mut words = words(invocation)?.into_iter().peekable();
        while let Some(word) = words.next() {
            if !word.is_option() {
                if arguments.positional.len() == positional_names(invocation.magic).count() {
                    return Err(MagicError::Unexpected { line, argument: word.text, usage });
                }
                arguments.positional.push(word.text);
                continue;
            }
            let (name, inline) = match word.text.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (word.text.as_str(), None),
            };
            let Some(option) = invocation.magic.options.iter().find(|option| option.name == name) else {
                let nearest = nearest(name, invocation.magic.options.iter().map(|option| option.name));
                return Err(MagicError::UnknownOption { line, option: name.to_owned(), nearest, usage });
            };
            if arguments.given.iter().any(|(given, _)| *given == option.name) {
                // Where one option takes several things, the placeholder says so.
                let is_list = option.value.is_some_and(|value| value.contains(",…"));
                let cure = if is_list { "write all of it once, with commas between" } else { "keep one" };
                return Err(MagicError::Repeated { line, option: option.name, cure, usage });
            }
            let value = match (option.value, inline) {
                (None, None) => String::new(),
                (None, Some(value)) => {
                    return Err(MagicError::UnwantedValue { line, option: option.name, value, usage });
                }
                (Some(_), Some(value)) => value,
                (Some(value), None) => match words.next_if(|word| !word.is_option()) {
                    Some(word) => word.text,
                    None => {
                        return Err(MagicError::MissingValue { line, option: option.name, value, usage });
                    }
                },
            };
            arguments.given.push((option.name, value));
        }
        Ok(arguments)
    }

    /// Whether the option is given, whatever the table's default is.
    pub(crate) fn flag(&self, option: &str) -> bool {
        self.given.iter().any(|(name, _)| *name == option)
    }

    /// The option's value, else the table's default; an error if it is empty.
    pub(crate) fn text(&self, option: &'static str) -> Result<Option<String>, MagicError> {
        if let Some((_, value)) = self.given.iter().find(|(name, _)| *name == option) {
            if value.trim().is_empty() {
                return Err(self.invocation.bad_value(option, value, "give a value that is not blank"));
            }
            return Ok(Some(value.clone()));
        }
        let default =
            self.invocation.magic.options.iter().find(|known| known.name == option).and_then(|known| known.default);
        Ok(default.map(str::to_owned))
    }

    /// As [`Self::text`], for an option that must have a value.
    pub(crate) fn required(&self, option: &'static str) -> Result<String, MagicError> {
        let Invocation { magic, line, .. } = self.invocation;
        let value = magic.options.iter().find(|known| known.name == option).and_then(|known| known.value).unwrap_or("");
        let missing = || MagicError::MissingOption {
            line: *line,
            magic: self.invocation.typed(),
            option,
            value,
            usage: magic.usage,
        };
        self.text(option)?.ok_or_else(missing)
    }

    /// The argument of this name in the table, which must be given.
    pub(crate) fn required_positional(&self, name: &'static str, what: &'static str) -> Result<String, MagicError> {
        let Invocation { magic, line, .. } = self.invocation;
        let place = positional_names(magic).position(|known| known == name);
        let given = place.and_then(|place| self.positional.get(place)).cloned();
        let (magic, usage) = (self.invocation.typed(), magic.usage);
        given.ok_or(MagicError::MissingOption { line: *line, magic, option: name, value: what, usage })
    }

    /// The name of a study, which is a folder's name.
    pub(crate) fn project(&self, option: &'static str) -> Result<Option<String>, MagicError> {
        self.checked_project(option, self.text(option)?)
    }

    /// The one argument, the name of a study.
    pub(crate) fn project_argument(&self, name: &'static str) -> Result<Option<String>, MagicError> {
        self.checked_project(name, self.positional.first().cloned())
    }

    fn checked_project(&self, option: &'static str, project: Option<String>) -> Result<Option<String>, MagicError> {
        if let Some(name) = &project
            && (matches!(name.as_str(), "." | "..") || name.contains(['/', '\\', '\0']))
        {
            let problem = "a project is a name, not a path; the folder above it is --directory";
            return Err(self.invocation.bad_value(option, name, problem));
        }
        Ok(project)
    }

    pub(crate) fn number(&self, option: &'static str) -> Result<Option<u64>, MagicError> {
        self.text(option)?.map(|value| self.whole(option, &value)).transpose()
    }

    /// A whole number of at least 1.
    pub(crate) fn count(&self, option: &'static str) -> Result<Option<u64>, MagicError> {
        match self.number(option)? {
            Some(0) => Err(self.invocation.bad_value(option, "0", "give at least 1")),
            count => Ok(count),
        }
    }

    pub(crate) fn seconds(&self, option: &'static str) -> Result<Option<f64>, MagicError> {
        self.converted(option, quantity::seconds)
    }

    pub(crate) fn bytes(&self, option: &'static str) -> Result<Option<u64>, MagicError> {
        self.converted(option, quantity::bytes)
    }

    /// The one argument, a whole number that the table calls `name`.
    pub(crate) fn positional_number(&self, name: &'static str) -> Result<Option<u64>, MagicError> {
        self.positional().map(|value| self.whole(name, value)).transpose()
    }

    pub(crate) fn positional(&self) -> Option<&str> {
        self.positional.first().map(String::as_str)
    }

    /// What `read` makes of each part of a value with `separator` between the parts; empty where the option is not given.
    pub(crate) fn list<T>(
        &self,
        option: &'static str,
        separator: char,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Vec<T>, MagicError> {
        let Some(value) = self.text(option)? else { return Ok(Vec::new()) };
        let parts: Result<_, _> = value.split(separator).map(|part| read(part.trim())).collect();
        parts.map_err(|problem| self.invocation.bad_value(option, &value, problem))
    }

    fn whole(&self, argument: &'static str, value: &str) -> Result<u64, MagicError> {
        // `+7` parses as an integer, but nobody means it.
        let digits = value.bytes().all(|byte| byte.is_ascii_digit());
        let problem = if digits { "too large" } else { "not a whole number" };
        match value.parse() {
            Ok(number) if digits => Ok(number),
            _ => Err(self.invocation.bad_value(argument, value, problem)),
        }
    }

    fn converted<T>(
        &self,
        option: &'static str,
        convert: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Option<T>, MagicError> {
        let Some(value) = self.text(option)? else {
            return Ok(None);
        };
        convert(&value).map(Some).map_err(|problem| self.invocation.bad_value(option, &value, problem))
    }
}

/// What a magic's arguments without a name are called, in their order.
fn positional_names(magic: &Magic) -> impl Iterator<Item = &'static str> {
    magic.positional.unwrap_or_default().split_whitespace()
}

struct Word {
    text: String,
    /// Whether it began with a quote, and so is a value whatever its first character.
    quoted: bool,
}

impl Word {
    /// `--name`, or `-n`, which no magic has; `-3` is a value.
    fn is_option(&self) -> bool {
        let mut chars = self.text.chars();
        !self.quoted && chars.next() == Some('-') && chars.next().is_some_and(|c| c == '-' || c.is_alphabetic())
    }
}

/// Splits at blanks outside quotes.
fn words(invocation: &Invocation<'_>) -> Result<Vec<Word>, MagicError> {
    let mut words = Vec::new();
    let mut word: Option<Word> = None;
    let mut quote = None;
    for c in invocation.rest.chars() {
        match (quote, c) {
            (Some(open), _) if c == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert(Word { text: String::new(), quoted: true });
            }
            (None, _) if c.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert(Word { text: String::new(), quoted: false }).text.push(c),
        }
    }
    if let Some(quote) = quote {
        return Err(MagicError::UnclosedQuote { line: invocation.line, quote, usage: invocation.magic.usage });
    }
    words.extend(word);
    Ok(words)
}
