//! The kind of a column of texts. Every row counts, not only the first ones, and what is unclear becomes text with a note, never a
//! number.

use super::column::{Column, NO_BIT, NO_DATE, NO_TEXT, Values};
use super::date;
use super::number::{Number, number, numbers_of};
use crate::DataError;
use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

/// The texts of a CSV file that mean a gap.
pub(super) const GAPS: [&str; 14] =
    ["", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "-nan", "NULL", "null", "None", "?", "-NaN"];

/// The number of different texts up to which a column is a category in any case.
const FEW: usize = 20;
/// The largest number of different texts of a category, each of which has ten rows on average.
const MANY: usize = 1000;

/// The largest number of characters of a text in a message.
const SHOWN_CHARS: usize = 40;

/// The words for no and yes.
const WORDS: [[&str; 2]; 5] = [["false", "true"], ["no", "yes"], ["n", "y"], ["f", "t"], ["off", "on"]];

/// What the user has said about a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    Number,
    Category,
    Date,
}

/// The texts of a column.
pub(super) struct Texts<'a> {
    pub(super) name: &'a str,
    /// The place of each row's text; `NO_TEXT` for a gap.
    pub(super) rows: Vec<u32>,
    pub(super) texts: Vec<String>,
    /// Whether the file has numbers of its own, so that a text is none.
    pub(super) is_typed: bool,
    /// The name of a row in messages.
    pub(super) row_name: &'a dyn Fn(usize) -> String,
}

/// What the different texts of a column are.
struct Counts {
    /// The numbers of rows with plain numbers, codes, infinite numbers, numbers with commas, and other texts.
    plain: usize,
    code: usize,
    infinite: usize,
    comma: usize,
    other: usize,
}

impl Texts<'_> {
    /// The column, with the kind that was asked for or is found.
    ///
    /// Fails if a text is not of the kind that was asked for, or if a number is infinite.
    pub(super) fn column(mut self, ask: Option<Ask>, gaps: &[String]) -> Result<Column, DataError> {
        self.remove_gaps(gaps);
        let name = self.name.to_owned();
        let (values, note) = match ask {
            _ if self.rows.iter().all(|place| *place == NO_TEXT) => (Values::Empty(self.rows.len()), None),
            Some(Ask::Number) => (self.numbers()?, None),
            Some(Ask::Date) => (self.dates()?, None),
            Some(Ask::Category) => (self.categories(true), None),
            None => self.found()?,
        };
        Ok(Column { name, values, note })
    }

    /// Makes gaps of the rows whose text means one.
    fn remove_gaps(&mut self, gaps: &[String]) {
        let numbers = numbers_of(gaps);
        let is_number = |text: &str| matches!(number(text), Number::Plain(number) if numbers.contains(&number));
        let is_gap =
            |text: &String| gaps.contains(text) || !self.is_typed && (GAPS.contains(&text.as_str()) || is_number(text));
        let gap: Vec<bool> = self.texts.iter().map(is_gap).collect();
        for place in &mut self.rows {
            if *place != NO_TEXT && gap[*place as usize] {
                *place = NO_TEXT;
            }
        }
    }

    /// Whether each text is in a row.
    fn used(&self) -> Vec<usize> {
        let mut used = vec![0; self.texts.len()];
        self.rows.iter().filter(|place| **place != NO_TEXT).for_each(|place| used[*place as usize] += 1);
        used
    }

    fn found(self) -> Result<(Values, Option<String>), DataError> {
        let counts = self.counts();
        let numbers = counts.plain + counts.code;
        if counts.other + counts.comma + counts.infinite == 0 && !self.is_typed {
            return Ok(match self.first(|text| matches!(number(text), Number::Code(_))) {
                None => (self.numbers()?, None),
                Some((text, row)) => {
                    let name = self.name;
                    let note = format!(
                        "`{text}` in {row} is a code and no number; `.number(\"{name}\")` makes numbers of all"
                    );
                    (self.categories(self.has_few()), Some(note))
                }
            });
        }
        if counts.other + counts.comma == 0 && numbers > 0 && !self.is_typed {
            let (text, row) = self.first(|text| number(text) == Number::Infinite).unwrap_or_default();
            let reason = format!(
                "`{text}` in {row} is infinite; make it a gap with `.gaps([\"{text}\"])`, or call `.drop(\"{}\")`",
                self.name
            );
            return Err(self.failed(reason));
        }
        if let Some(values) = self.yes_no() {
            return Ok((values, None));
        }
        if self.is_dates() {
            return Ok((self.dates()?, None));
        }
        let is_whole = self.is_typed && numbers > 0 && counts.other + counts.comma + counts.infinite == 0;
        if is_whole && let Some((text, row)) = self.first(|text| matches!(number(text), Number::Code(_))) {
            let name = self.name;
            let note = format!("`{text}` in {row} is no number that an f64 keeps; `.number(\"{name}\")` rounds it");
            return Ok((self.categories(self.has_few()), Some(note)));
        }
        match self.mixture(&counts) {
            Some(note) => Ok((self.categories(false), Some(note))),
            None => Ok((self.categories(self.has_few()), None)),
        }
    }

    fn counts(&self) -> Counts {
        let mut counts = Counts { plain: 0, code: 0, infinite: 0, comma: 0, other: 0 };
        for (text, rows) in self.texts.iter().zip(self.used()) {
            *match number(text) {
                Number::Plain(_) => &mut counts.plain,
                Number::Code(_) => &mut counts.code,
                Number::Infinite => &mut counts.infinite,
                Number::Comma => &mut counts.comma,
                Number::No => &mut counts.other,
            } += rows;
        }
        counts
    }

    /// The first row whose text is so: the text, as messages write it, and the row's name.
    fn first(&self, is_so: impl Fn(&str) -> bool) -> Option<(String, String)> {
        let so: Vec<bool> = self.texts.iter().map(|text| is_so(text)).collect();
        let row = self.rows.iter().position(|place| *place != NO_TEXT && so[*place as usize])?;
        Some((shown(&self.texts[self.rows[row] as usize]), (self.row_name)(row)))
    }

    /// The note on a column that has numbers, or dates, and other texts.
    fn mixture(&self, counts: &Counts) -> Option<String> {
        let name = self.name;
        if counts.comma > 0 && !self.is_typed {
            let (text, row) = self.first(|text| number(text) == Number::Comma)?;
            return Some(format!("`{text}` in {row} has a comma; write numbers as 1234.5"));
        }
        let is_date = |text: &str| date::parse_unasked(text).is_some();
        let dates: usize =
            self.texts.iter().zip(self.used()).filter(|(text, _)| is_date(text)).map(|(_, rows)| rows).sum();
        let all = counts.plain + counts.code + counts.infinite + counts.comma + counts.other;
        if dates * 2 > all && dates > counts.plain {
            let zones = self.zones();
            let (text, row) =
                self.first(|text| date::parse_unasked(text).map(|parsed| parsed.has_zone) != Some(zones[0]))?;
            let reason = if dates == all { "names a zone and others do not" } else { "is no date of ISO 8601" };
            return Some(format!("`{text}` in {row} {reason}; write all as 2024-05-31"));
        }
        if self.is_typed || counts.plain + counts.code == 0 {
            return None;
        }
        let has_more_numbers = counts.plain + counts.code >= counts.other + counts.infinite;
        let is_number = |text: &str| matches!(number(text), Number::Plain(_) | Number::Code(_));
        let (text, row) = self.first(|text| is_number(text) != has_more_numbers)?;
        Some(match has_more_numbers {
            true => format!(
                "`{text}` in {row} is no number; `.gaps([\"{text}\"])` makes it a gap, and `.category(\"{name}\")` takes all as texts"
            ),
            false => {
                format!("`{text}` in {row} is a number, and others are not; `.category(\"{name}\")` takes all as texts")
            }
        })
    }

    /// Whether there are few enough different texts for a category.
    fn has_few(&self) -> bool {
        let used = self.used();
        let (different, rows): (usize, usize) = (used.iter().filter(|rows| **rows > 0).count(), used.iter().sum());
        different <= FEW || different <= MANY && different * 10 <= rows
    }

    /// The values as numbers. Fails at the first text that is none.
    fn numbers(&self) -> Result<Values, DataError> {
        let value = |text: &String| match number(text) {
            Number::Plain(number) | Number::Code(number) => Some(number),
            Number::Infinite | Number::Comma | Number::No => None,
        };
        let numbers: Vec<Option<f64>> = self.texts.iter().map(value).collect();
        let row = |(row, place): (usize, &u32)| match place {
            &NO_TEXT => Ok(f64::NAN),
            place => numbers[*place as usize].ok_or_else(|| self.unfit(row, "number")),
        };
        self.rows.iter().enumerate().map(row).collect::<Result<_, _>>().map(Values::Numbers)
    }

    /// Whether the texts that are dates have zones.
    fn zones(&self) -> Vec<bool> {
        let used = self.used();
        let parsed = self.texts.iter().zip(used).filter(|(_, rows)| *rows > 0);
        parsed.filter_map(|(text, _)| date::parse_unasked(text)).map(|parsed| parsed.has_zone).collect()
    }

    /// Whether all texts are dates, all with a zone or all without one.
    fn is_dates(&self) -> bool {
        let zones = self.zones();
        zones.len() == self.used().iter().filter(|rows| **rows > 0).count()
            && zones.iter().all(|zone| *zone == zones[0])
    }

    /// The values as dates. Fails at the first text that is none.
    fn dates(&self) -> Result<Values, DataError> {
        let dates: Vec<Option<i64>> = self.texts.iter().map(|text| date::parse(text).map(|date| date.micros)).collect();
        let row = |(row, place): (usize, &u32)| match place {
            &NO_TEXT => Ok(NO_DATE),
            place => dates[*place as usize].ok_or_else(|| self.unfit(row, "date of ISO 8601, such as 2024-05-31")),
        };
        self.rows.iter().enumerate().map(row).collect::<Result<_, _>>().map(Values::Dates)
    }

    /// The values as yes and no, if the texts are both words of a pair, in any case.
    fn yes_no(&self) -> Option<Values> {
        let used = self.used();
        let texts: Vec<(usize, &String)> = self.texts.iter().enumerate().filter(|(at, _)| used[*at] > 0).collect();
        let place = |pair: &[&str; 2], text: &str| pair.iter().position(|word| text.eq_ignore_ascii_case(word));
        let pair = WORDS.iter().find(|pair| {
            let found: Vec<Option<usize>> = texts.iter().map(|(_, text)| place(pair, text)).collect();
            found.iter().all(Option::is_some) && found.contains(&Some(0)) && found.contains(&Some(1))
        })?;
        let bits: Vec<u8> = self.texts.iter().map(|text| place(pair, text).map_or(NO_BIT, |bit| bit as u8)).collect();
        let word =
            |bit: usize| texts.iter().find(|(_, text)| place(pair, text) == Some(bit)).map(|(_, text)| (*text).clone());
        let bit = |place: &u32| if *place == NO_TEXT { NO_BIT } else { bits[*place as usize] };
        Some(Values::YesNo { rows: self.rows.iter().map(bit).collect(), words: [word(0)?, word(1)?] })
    }

    fn categories(&self, is_category: bool) -> Values {
        let used = self.used();
        let present = self.texts.iter().zip(used).enumerate().filter(|(_, (_, rows))| *rows > 0);
        let mut present: Vec<(usize, &String)> = present.map(|(place, (text, _))| (place, text)).collect();
        sort(&mut present);
        let places: HashMap<usize, u32> = present.iter().map(|(place, _)| *place).zip(0..).collect();
        let row = |place: &u32| places.get(&(*place as usize)).copied().unwrap_or(NO_TEXT);
        let texts: Arc<[String]> = present.iter().map(|(_, text)| (*text).clone()).collect();
        Values::Texts { rows: self.rows.iter().map(row).collect(), texts, is_category }
    }

    fn unfit(&self, row: usize, kind: &str) -> DataError {
        let (text, row) = (shown(&self.texts[self.rows[row] as usize]), (self.row_name)(row));
        let reason = format!("`{text}` in {row} is no {kind}; correct it, or make it a gap with `.gaps([\"{text}\"])`");
        self.failed(reason)
    }

    fn failed(&self, reason: String) -> DataError {
        DataError::Column { column: self.name.to_owned(), reason }
    }
}

/// The beginning of a text as messages write it.
fn shown(text: &str) -> String {
    let beginning: String = text.chars().take(SHOWN_CHARS).collect();
    let more = if beginning.len() < text.len() { "…" } else { "" };
    format!("{}{more}", beginning.escape_debug())
}

/// Sorts texts: by their numbers if all are numbers, and otherwise by their characters.
fn sort(texts: &mut [(usize, &String)]) {
    let value = |text: &str| match number(text) {
        Number::Plain(number) | Number::Code(number) => Some(number),
        Number::Infinite | Number::Comma | Number::No => None,
    };
    let are_numbers = texts.iter().all(|(_, text)| value(text).is_some());
    texts.sort_by(|(_, a), (_, b)| {
        let by_number =
            if are_numbers { value(a).partial_cmp(&value(b)).unwrap_or(Ordering::Equal) } else { Ordering::Equal };
        by_number.then_with(|| a.cmp(b))
    });
}
