//! `%trials`: selects, sorts and shows trials. Adds a note if some trials are omitted.

mod condition;

use crate::ResultsError;
use crate::bundle::with_note;
use crate::columns::{Cell, Column};
use condition::Condition;
use ferrotune_display::{Bundle, table};
use ferrotune_journal::Study;
use ferrotune_space::record::TrialRecord;
use std::cmp::Ordering;

/// A request for a list of trials: order, conditions and columns.
///
/// ```no_run
/// # fn show(study: &ferrotune_journal::Study) -> Result<(), ferrotune_results::ResultsError> {
/// use ferrotune_results::listing::Listing;
/// let listing = Listing { sort: Some("loss"), filter: Some("state=finished and lr<0.01"), ..Listing::default() };
/// println!("{}", listing.table(study)?.data["text/plain"]);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Listing<'a> {
    /// Column to sort by, as `COLUMN`, `COLUMN:asc` or `COLUMN:desc`; if it is `None`, the trial's number.
    pub sort: Option<&'a str>,
    /// Conditions on the trials: `COLUMN>VALUE` and so on, joined by ` and `.
    pub filter: Option<&'a str>,
    /// Columns to show, separated by commas; the usual columns if it is `None`.
    pub columns: Option<&'a str>,
    /// The largest number of rows to show; if it is `None`, all rows.
    pub limit: Option<usize>,
}

impl Listing<'_> {
    /// The table of the trials. Fails if a column is unknown, or if a condition or a sort order cannot be parsed.
    pub fn table(&self, study: &Study) -> Result<Bundle, ResultsError> {
        let chosen = self.trials(study)?;
        let shown = &chosen[..chosen.len().min(self.limit.unwrap_or(usize::MAX))];
        let columns = match self.columns {
            Some(names) => {
                names.split(',').map(|name| Column::named(study, name.trim())).collect::<Result<Vec<_>, _>>()?
            }
            None => Column::usual(study, shown.iter().copied()),
        };
        let table = tabulated(study, &columns, shown);
        let (shown, chosen, all) = (shown.len(), chosen.len(), study.trials.len());
        Ok(if shown < chosen {
            let of = if chosen < all { " that fit the condition" } else { "" };
            let cure = format!("--limit {chosen} shows all, --sort and --where choose");
            with_note(&table, &format!("{shown} of {chosen} trials{of} are shown; {cure}"))
        } else if chosen < all {
            with_note(&table, &format!("{chosen} of {all} trials fit the condition"))
        } else {
            table
        })
    }

    /// The trials that meet the conditions, in the requested order.
    fn trials<'s>(&self, study: &'s Study) -> Result<Vec<&'s TrialRecord>, ResultsError> {
        let conditions = self.filter.map_or(Ok(Vec::new()), |filter| Condition::read_all(study, filter))?;
        let fits = |trial: &&TrialRecord| conditions.iter().all(|condition| condition.holds(study, trial));
        let mut trials: Vec<&TrialRecord> = study.trials.iter().filter(fits).collect();
        if let Some(sort) = self.sort {
            let (column, descending) = order(study, sort)?;
            let mut keyed: Vec<(Cell, &TrialRecord)> =
                trials.into_iter().map(|trial| (column.cell(study, trial), trial)).collect();
            keyed.sort_by(|(one, _), (other, _)| compare(one, other, descending));
            trials = keyed.into_iter().map(|(_, trial)| trial).collect();
        }
        Ok(trials)
    }
}

/// A table of trials with these columns.
pub(crate) fn tabulated(study: &Study, columns: &[Column], trials: &[&TrialRecord]) -> Bundle {
    let header: Vec<&str> = columns.iter().map(|column| column.name(study)).collect();
    let row = |trial: &&TrialRecord| columns.iter().map(|column| column.cell(study, trial).text).collect();
    table(&header, &trials.iter().map(row).collect::<Vec<_>>())
}

/// The column to sort by, and whether the largest value comes first.
fn order(study: &Study, sort: &str) -> Result<(Column, bool), ResultsError> {
    match sort.rsplit_once(':') {
        None => Ok((Column::named(study, sort)?, false)),
        Some((name, "asc")) => Ok((Column::named(study, name)?, false)),
        Some((name, "desc")) => Ok((Column::named(study, name)?, true)),
        Some((_, order)) => Err(ResultsError::Order { order: order.to_owned() }),
    }
}

/// The order of two cells: numbers before texts; empty cells last in both directions.
fn compare(one: &Cell, other: &Cell, descending: bool) -> Ordering {
    let is_empty = |cell: &Cell| cell.text.is_empty();
    let by_value = match (one.number, other.number) {
        (Some(one), Some(other)) => one.total_cmp(&other),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => one.text.cmp(&other.text),
    };
    let by_value = if descending { by_value.reverse() } else { by_value };
    is_empty(one).cmp(&is_empty(other)).then(by_value)
}
