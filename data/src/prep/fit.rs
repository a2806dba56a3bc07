//! The fit of a `Prep`: medians, scales and categories of the part for training.

use super::Prep;
use super::encoder::{Encoder, Scaling, Step};
use super::options::{DatePart, Fill, PrepOptions, Scale};
use super::target::Target;
use crate::tabular::{Column, ColumnKind, NO_DATE, NO_TEXT, Table, Value, Values, date, near, quantile};
use crate::{DataError, Result};

/// Fits all columns of a table other than the target.
pub(super) fn fit(options: &PrepOptions, train: &Table) -> Result<Prep> {
    let what = train.name();
    if train.is_empty() {
        return Err(DataError::table(what, "the part for training has no rows"));
    }
    let names: Vec<&str> = train.columns().iter().map(Column::name).collect();
    if let Some(unknown) = options.named().find(|name| !names.contains(&name.as_str())) {
        return Err(DataError::table(what, format!("there is no column `{unknown}`{}", near(unknown, &names))));
    }
    let target = train.target().map(|column| Target::fit(column, options.scaled_target)).transpose()?;
    let is_feature = |column: &&Column| {
        let is_target = train.target().is_some_and(|target| target.name() == column.name());
        !is_target && !options.skipped.contains(column.name())
    };
    let encoder = |column: &Column| fit_column(options, column);
    let encoders: Vec<Encoder> = train.columns().iter().filter(is_feature).map(encoder).collect::<Result<_>>()?;
    if encoders.is_empty() {
        return Err(DataError::table(
            what,
            "it has no column for features beside the target and those that are skipped",
        ));
    }
    Ok(Prep::of(encoders, target))
}

fn fit_column(options: &PrepOptions, column: &Column) -> Result<Encoder> {
    check(options, column)?;
    let gaps = column.gaps();
    if gaps == column.values.len() {
        let name = column.name();
        return Err(DataError::column(
            name,
            format!("it has only gaps in the part for training; call `.drop(\"{name}\")`"),
        ));
    }
    let fill = options.fills.get(column.name());
    let scale = options.scales.get(column.name()).copied().unwrap_or(options.scale);
    let step = match &column.values {
        Values::Numbers(rows) => {
            let mut known: Vec<f64> = rows.iter().copied().filter(|row| !row.is_nan()).collect();
            let fill = match (fill, options.fill) {
                (Some(Value::Number(fill)), _) => Some(*fill),
                (Some(other), _) => return Err(unfit(column, other)),
                (None, Fill::Median) => Some(median(&mut known)),
                (None, Fill::Mean) => Some(known.iter().sum::<f64>() / known.len() as f64),
                (None, Fill::Refuse) => None,
            };
            refuses(column, fill.is_none())?;
            // As in a pipeline of scikit-learn, the scale counts the filled gaps.
            let filled: Vec<f64> =
                rows.iter().map(|row| if row.is_nan() { fill.unwrap_or_default() } else { *row }).collect();
            Step::Number { fill, scaling: scaling(scale, &filled) }
        }
        Values::YesNo { rows, words } => {
            let count = |bit: u8| rows.iter().filter(|row| **row == bit).count();
            let fill = match (fill, options.fill) {
                (Some(Value::YesNo(fill)), _) => Some(*fill),
                (Some(other), _) => return Err(unfit(column, other)),
                (None, Fill::Refuse) => None,
                (None, Fill::Median | Fill::Mean) => Some(count(1) > count(0)),
            };
            refuses(column, fill.is_none())?;
            Step::YesNo { fill, words: words.clone() }
        }
        Values::Texts { rows, texts, .. } => fit_categories(options, column, rows, texts)?,
        Values::Dates(rows) => fit_dates(options, column, rows, scale)?,
        Values::Empty(_) => unreachable!("a column of gaps is an error"),
    };
    let has_flag = options.flags && gaps > 0;
    Ok(Encoder { column: column.name().to_owned(), step, has_flag })
}

/// Fails if a column is text, or if an option is for another kind of column.
fn check(options: &PrepOptions, column: &Column) -> Result<()> {
    let (name, kind) = (column.name(), column.kind());
    if kind == ColumnKind::Text {
        let different = match &column.values {
            Values::Texts { texts, .. } => texts.len(),
            _ => 0,
        };
        let note = column.note().map(|note| format!(": {note}")).unwrap_or_default();
        return Err(DataError::column(
            name,
            format!(
                "it is text with {different} different values, which Prep does not encode{note}; read the table with `.drop(\"{name}\")` or \
                 `.category(\"{name}\")`, or with `.target(\"{name}\")` if it is to be predicted"
            ),
        ));
    }
    let wrong =
        |option: &str| Err(DataError::column(name, format!("its kind is {kind}, which has no option `{option}`")));
    match kind {
        ColumnKind::Number | ColumnKind::Date => {}
        _ if options.scales.contains_key(name) => return wrong("scale_of"),
        _ => {}
    }
    if options.ordinal.contains_key(name) && kind != ColumnKind::Category {
        return wrong(if options.ordinal[name] { "ordinal" } else { "one_hot" });
    }
    if options.parts.contains_key(name) && kind != ColumnKind::Date {
        return wrong("date_parts");
    }
    Ok(())
}

fn fit_categories(options: &PrepOptions, column: &Column, rows: &[u32], texts: &[String]) -> Result<Step> {
    let mut counts = vec![0_usize; texts.len()];
    rows.iter().filter(|place| **place != NO_TEXT).for_each(|place| counts[*place as usize] += 1);
    let present = || texts.iter().zip(&counts).filter(|(_, count)| **count > 0);
    let mut categories: Vec<String> = present().map(|(text, _)| text.clone()).collect();
    let fill = match (options.fills.get(column.name()), options.fill) {
        (Some(Value::Text(fill)), _) => Some(fill.clone()),
        (Some(other), _) => return Err(unfit(column, other)),
        // Of equally frequent categories, the first one, as in scikit-learn.
        (None, Fill::Median | Fill::Mean) => {
            let most = present().map(|(_, count)| *count).max();
            present().find(|(_, count)| Some(**count) == most).map(|(text, _)| text.clone())
        }
        (None, Fill::Refuse) => None,
    };
    refuses(column, fill.is_none())?;
    // A filled gap is a category of its own if no row has the given text.
    if let Some(fill) = &fill
        && column.gaps() > 0
        && !categories.contains(fill)
    {
        categories.push(fill.clone());
    }
    let is_ordinal = options.ordinal.get(column.name()).copied().unwrap_or(categories.len() > options.one_hot_up_to);
    Ok(if is_ordinal { Step::Ordinal { fill, categories } } else { Step::OneHot { fill, categories } })
}

fn fit_dates(options: &PrepOptions, column: &Column, rows: &[i64], scale: Scale) -> Result<Step> {
    let mut known: Vec<i64> = rows.iter().copied().filter(|row| *row != NO_DATE).collect();
    known.sort_unstable();
    let fill = match (options.fills.get(column.name()), options.fill) {
        (Some(Value::Text(text)), _) => match date::parse(text) {
            Some(date) => Some(date.micros),
            None => return Err(unfit(column, &Value::Text(text.clone()))),
        },
        (Some(other), _) => return Err(unfit(column, other)),
        (None, Fill::Median | Fill::Mean) => Some(known[(known.len() - 1) / 2]),
        (None, Fill::Refuse) => None,
    };
    refuses(column, fill.is_none())?;
    let filled: Vec<i64> =
        rows.iter().map(|row| if *row == NO_DATE { fill.unwrap_or_default() } else { *row }).collect();
    let mut parts = vec![DatePart::Days, DatePart::Month, DatePart::Weekday];
    if known.iter().any(|date| date::has_time(*date)) {
        parts.push(DatePart::Hour);
    }
    let parts = options.parts.get(column.name()).unwrap_or(&parts);
    if parts.is_empty() {
        let name = column.name();
        return Err(DataError::column(
            name,
            format!("`date_parts` names no part; name one, or call `.skip(\"{name}\")`"),
        ));
    }
    let scaled = |part: &DatePart| {
        let numbers: Vec<f64> = filled.iter().filter_map(|date| part.number(*date)).collect();
        (*part, if numbers.is_empty() { Scaling::NONE } else { scaling(scale, &numbers) })
    };
    Ok(Step::Date { fill, parts: parts.iter().map(scaled).collect() })
}

/// Fails if nothing fills the gaps of the part for training.
fn refuses(column: &Column, has_no_fill: bool) -> Result<()> {
    if !has_no_fill || column.gaps() == 0 {
        return Ok(());
    }
    let (name, gaps) = (column.name(), column.gaps());
    Err(DataError::column(
        name,
        format!("{gaps} rows have no value, and `Fill::Refuse` fills none; call `.fill_with(\"{name}\", …)`"),
    ))
}

fn unfit(column: &Column, value: &Value) -> DataError {
    let reason = format!("its kind is {}, and `fill_with` gives {}", column.kind(), value.shown());
    DataError::column(column.name(), reason)
}

/// The median, as NumPy computes it.
fn median(numbers: &mut [f64]) -> f64 {
    numbers.sort_by(f64::total_cmp);
    quantile(numbers, 0.5)
}

/// The scaling that numbers get. Equal numbers become 0.
pub(super) fn scaling(scale: Scale, numbers: &[f64]) -> Scaling {
    let smallest = numbers.iter().copied().fold(f64::INFINITY, f64::min);
    let largest = numbers.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    match scale {
        Scale::Unscaled => Scaling::NONE,
        // A mean of equal numbers may differ from them in its last digits.
        Scale::Standard | Scale::MinMax if smallest == largest => Scaling { shift: smallest, by: 1. },
        Scale::MinMax => Scaling { shift: smallest, by: largest - smallest },
        Scale::Standard => {
            let count = numbers.len() as f64;
            // Divided before they are added, because a sum of the largest numbers would be infinite.
            let mean: f64 = numbers.iter().map(|number| number / count).sum();
            let by = numbers.iter().map(|number| (number - mean).powi(2) / count).sum::<f64>().sqrt();
            Scaling {
                shift: mean,
                by: if by.is_finite() && by > 0. { by } else { (largest - smallest).max(f64::MIN_POSITIVE) },
            }
        }
    }
}
