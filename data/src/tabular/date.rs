//! Dates of ISO 8601, as microseconds since 1970 in UTC. Reads no other order of day, month and year, because 1/5 is two dates.

const DAY: i64 = 86_400_000_000;
const HOUR: i64 = 3_600_000_000;
const MINUTE: i64 = 60_000_000;

/// A date in a text, and whether the text names its zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parsed {
    pub(crate) micros: i64,
    pub(crate) has_zone: bool,
}

/// Reads `2024-05-31`, `20240531`, `2024-05-31T14:30`, `2024-05-31 14:30:15.25` and the same with `Z` or `+02:00` at the end. `None` for
/// all other texts, also for the 30th of February.
pub(crate) fn parse(text: &str) -> Option<Parsed> {
    let (date, time) = match text.find(['T', 't', ' ']) {
        Some(at) => (&text[..at], Some(text[at + 1..].trim_start())),
        None => (text, None),
    };
    let days = parse_day(date)?;
    let Some(time) = time else { return Some(Parsed { micros: days.checked_mul(DAY)?, has_zone: false }) };
    let (time, offset) = split_zone(time)?;
    let micros = days.checked_mul(DAY)?.checked_add(parse_time(time)?)?;
    Some(Parsed { micros: micros.checked_sub(offset.unwrap_or(0))?, has_zone: offset.is_some() })
}

/// Reads the same texts other than `20240531`, which may be a number or a code.
pub(super) fn parse_unasked(text: &str) -> Option<Parsed> {
    if text.as_bytes().get(4) == Some(&b'-') { parse(text) } else { None }
}

fn digits(text: &str, count: usize) -> Option<i64> {
    let is_number = text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { text.parse().ok() } else { None }
}

fn parse_day(text: &str) -> Option<i64> {
    let (year, month, day) = match text.as_bytes() {
        [_, _, _, _, b'-', _, _, b'-', _, _] => (text.get(..4)?, text.get(5..7)?, text.get(8..)?),
        [_, _, _, _, _, _, _, _] => (text.get(..4)?, text.get(4..6)?, text.get(6..)?),
        _ => return None,
    };
    let (year, month, day) = (digits(year, 4)?, digits(month, 2)?, digits(day, 2)?);
    let days = day_of(year, month, day);
    // A day that the month does not have is a day of the next month.
    ((1..=12).contains(&month) && civil(days) == (year, month, day)).then_some(days)
}

fn parse_time(text: &str) -> Option<i64> {
    let mut parts = text.split(':');
    let (hours, minutes) = (digits(parts.next()?, 2)?, digits(parts.next()?, 2)?);
    let (seconds, fraction) = match parts.next() {
        Some(seconds) => seconds.split_once('.').map_or((seconds, ""), |(seconds, fraction)| (seconds, fraction)),
        None => ("00", ""),
    };
    let seconds = digits(seconds, 2)?;
    let has_ended = parts.next().is_none() && fraction.bytes().all(|byte| byte.is_ascii_digit());
    let fraction: String = fraction.chars().chain("000000".chars()).take(6).collect();
    let is_time = has_ended && hours < 24 && minutes < 60 && seconds < 60;
    is_time.then_some(hours * HOUR + minutes * MINUTE + seconds * 1_000_000 + digits(&fraction, 6)?)
}

/// The time before a zone, and the zone's offset in microseconds. `None` if the zone is damaged.
fn split_zone(text: &str) -> Option<(&str, Option<i64>)> {
    if let Some(time) = text.strip_suffix(['Z', 'z']) {
        return Some((time, Some(0)));
    }
    let Some(at) = text.find(['+', '-']) else { return Some((text, None)) };
    let sign = if text[at..].starts_with('-') { -1 } else { 1 };
    let zone = text[at + 1..].replace(':', "");
    let hours = digits(zone.get(..2)?, 2)?;
    let minutes = if zone.len() == 2 { 0 } else { digits(&zone[2..], 2)? };
    let is_zone = hours <= 18 && minutes < 60;
    is_zone.then_some((text[..at].trim_end(), Some(sign * (hours * HOUR + minutes * MINUTE))))
}

/// The number of days since 1970, by Howard Hinnant's `days_from_civil` (<https://howardhinnant.github.io/date_algorithms.html>).
fn day_of(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year - era * 400;
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// The year, month and day of a number of days since 1970, by Howard Hinnant's `civil_from_days`.
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days - era * 146_097;
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + i64::from(month <= 2), month, day)
}

/// The parts of a date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parts {
    pub(crate) year: i64,
    /// From 1 to 12.
    pub(crate) month: i64,
    pub(crate) day: i64,
    /// From 0 for Monday to 6 for Sunday.
    pub(crate) weekday: i64,
    pub(crate) hour: i64,
}

pub(crate) fn parts(micros: i64) -> Parts {
    let days = micros.div_euclid(DAY);
    let (year, month, day) = civil(days);
    // The first of January 1970 was a Thursday.
    Parts { year, month, day, weekday: (days + 3).rem_euclid(7), hour: micros.rem_euclid(DAY) / HOUR }
}

/// The number of days since 1970, with a fraction for the time of the day.
pub(crate) fn days(micros: i64) -> f64 {
    micros as f64 / DAY as f64
}

/// Whether a date is not midnight.
pub(crate) fn has_time(micros: i64) -> bool {
    micros.rem_euclid(DAY) != 0
}

/// The text of a date, with its time unless it is midnight.
pub(crate) fn text(micros: i64) -> String {
    let Parts { year, month, day, hour, .. } = parts(micros);
    let date = format!("{year:04}-{month:02}-{day:02}");
    if !has_time(micros) {
        return date;
    }
    let seconds = micros.rem_euclid(HOUR) / 1_000_000;
    format!("{date} {hour:02}:{:02}:{:02}", seconds / 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_of_iso_8601() {
        let table = [
            ("1970-01-01", "1970-01-01"),
            ("2024-02-29", "2024-02-29"),
            ("20240531", "2024-05-31"),
            ("0001-01-01", "0001-01-01"),
            ("9999-12-31", "9999-12-31"),
            ("2024-05-31T14:30", "2024-05-31 14:30:00"),
            ("2024-05-31 14:30:15.25", "2024-05-31 14:30:15"),
            ("2024-05-31T14:30Z", "2024-05-31 14:30:00"),
            ("2024-05-31T01:30:00+02:00", "2024-05-30 23:30:00"),
            ("2024-12-31T20:00:00-0530", "2025-01-01 01:30:00"),
            ("2024-12-31T20:00:00+01", "2024-12-31 19:00:00"),
        ];
        for (given, expected) in table {
            assert_eq!(parse(given).map(|parsed| text(parsed.micros)).as_deref(), Some(expected), "{given}");
        }
        for none in [
            "2023-02-29",
            "2024-13-01",
            "2024-00-10",
            "2024-01-00",
            "31.05.2024",
            "5/31/2024",
            "2024-5-31",
            "2024-05",
            "2024",
            "",
            "2024-05-31T24:00",
            "2024-05-31T12:60",
            "2024-05-31T",
            "2024-05-31T12",
            "2024-05-31T12:00+",
            "2024-05-31T12:00+2",
            "2024-05-31T12:00+0é",
            "é024-05-31",
            "２０２４0",
        ] {
            assert_eq!(parse(none), None, "{none}");
        }
    }

    #[test]
    fn every_day_of_800_years_comes_back() {
        for days in -146_097..146_097 {
            let (year, month, day) = civil(days);
            assert_eq!(day_of(year, month, day), days);
        }
        // `datetime.date(2024, 5, 31).weekday()` in Python.
        assert_eq!(parts(day_of(2024, 5, 31) * DAY).weekday, 4);
        assert_eq!(parts(day_of(1969, 12, 31) * DAY).weekday, 2);
    }
}
