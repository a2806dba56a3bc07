//! One line of the journal: its JSON object, and the checksum of that object. Knows nothing about the meaning of the
//! object.

use ferrotune_space::Distribution;
use ferrotune_space::record::Runner;
use serde::de::{Error as _, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

/// The prefix of the worker id in every line of ours; Optuna's worker ids begin with a UUID.
pub(super) const WORKER_PREFIX: &str = "ferrotune-";

/// The text before the eight hexadecimal digits of the checksum, which is the last key of the object.
const CRC_KEY: &str = ",\"crc\":\"";

/// Length of `,"crc":"01234567"}`.
const SUFFIX: usize = CRC_KEY.len() + 8 + 2;

/// The object with its checksum, and a line end. The object must not be empty.
pub(super) fn encode(object: &Value) -> String {
    let body = object.to_string();
    let crc = crc32fast::hash(body.as_bytes());
    let open = body.strip_suffix('}').unwrap_or(&body);
    format!("{open}{CRC_KEY}{crc:08x}\"}}\n")
}

/// All fields that a line can have, of all op codes. Names and texts are borrowed from the line if they contain no escapes:
/// a journal of a hundred thousand trials has millions of lines.
#[derive(Debug, Deserialize)]
pub(super) struct Line<'a> {
    pub(super) op_code: Option<u64>,
    #[serde(borrow)]
    worker_id: Option<Text<'a>>,
    pub(super) trial_id: Option<u64>,
    #[serde(borrow)]
    pub(super) user_attr: Option<Attribute<'a>>,
    #[serde(borrow)]
    pub(super) param_name: Option<Text<'a>>,
    pub(super) param_value_internal: Option<Value>,
    #[serde(borrow)]
    pub(super) distribution: Option<Text<'a>>,
    #[serde(rename = "ferrotune:range")]
    pub(super) range: Option<Distribution>,
    pub(super) step: Option<u64>,
    pub(super) intermediate_value: Option<Value>,
    pub(super) state: Option<u64>,
    pub(super) values: Option<Vec<Value>>,
    #[serde(borrow)]
    pub(super) datetime_start: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) datetime_complete: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) study_name: Option<Text<'a>>,
    pub(super) directions: Option<Vec<Value>>,
    /// The value of a trial. With the next four fields, one line has a whole trial, as Optuna's `add_trial` writes it.
    pub(super) value: Option<Value>,
    pub(super) params: Option<BTreeMap<String, Value>>,
    pub(super) distributions: Option<BTreeMap<String, String>>,
    pub(super) intermediate_values: Option<BTreeMap<String, Value>>,
    pub(super) system_attrs: Option<BTreeMap<String, Value>>,
}

/// A text of a line.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(super) struct Text<'a>(#[serde(borrow)] pub(super) Cow<'a, str>);

/// The one attribute that a line sets.
#[derive(Debug)]
pub(super) struct Attribute<'a> {
    pub(super) name: Text<'a>,
    pub(super) value: Value,
}

impl<'de: 'a, 'a> Deserialize<'de> for Attribute<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct One;
        impl<'de> Visitor<'de> for One {
            type Value = Attribute<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("one attribute")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Attribute<'de>, A::Error> {
                let (name, value) = map.next_entry()?.ok_or_else(|| A::Error::custom("it has no attribute"))?;
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Attribute { name, value })
            }
        }
        deserializer.deserialize_map(One)
    }
}

impl Line<'_> {
    /// The kind of program that wrote the line.
    pub(super) fn writer(&self) -> Runner {
        let is_ours = self.worker_id.as_ref().is_none_or(|worker| worker.0.starts_with(WORKER_PREFIX));
        if is_ours { Runner::Search } else { Runner::Other }
    }
}

/// Whether these bytes of a journal, which may be damaged, contain the worker prefix of ours.
pub(super) fn is_ours(bytes: &[u8]) -> bool {
    bytes.windows(WORKER_PREFIX.len()).any(|window| window == WORKER_PREFIX.as_bytes())
}

/// A line with `null` in place of `NaN` and infinities, which Python writes and JSON lacks. `None` if the line has no such
/// value outside its texts.
pub(super) fn with_nulls(line: &[u8]) -> Option<Vec<u8>> {
    let (mut plain, mut rest) = (Vec::with_capacity(line.len()), line);
    let (mut is_in_text, mut is_escaped, mut is_changed) = (false, false, false);
    while let Some((&byte, behind)) = rest.split_first() {
        let constant = [&b"NaN"[..], b"-Infinity", b"Infinity"].into_iter().find(|constant| rest.starts_with(constant));
        if let Some(constant) = constant.filter(|_| !is_in_text) {
            plain.extend(b"null");
            (rest, is_changed) = (&rest[constant.len()..], true);
            continue;
        }
        is_in_text ^= byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        plain.push(byte);
        rest = behind;
    }
    is_changed.then_some(plain)
}

/// Reads a line without its line end. A line without a checksum is valid only if another program (Optuna) wrote it.
pub(super) fn decode(line: &[u8]) -> Result<Line<'_>, String> {
    let text = std::str::from_utf8(line).map_err(|error| error.to_string())?;
    let object: Line<'_> = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let Some((body, crc)) = split_crc(text) else {
        let is_ours = object.writer() == Runner::Search;
        return if is_ours { Err("its checksum is missing".to_owned()) } else { Ok(object) };
    };
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(body.as_bytes());
    hasher.update(b"}");
    let found = hasher.finalize();
    // The digits are compared one by one, because our checksums have no capital digits.
    let digits = (0..8).rev().map(|place| b"0123456789abcdef"[(found >> (4 * place) & 15) as usize]);
    if digits.eq(crc.bytes()) { Ok(object) } else { Err(format!("its checksum is {crc} but its text has {found:08x}")) }
}

/// The object's text up to its checksum, and the checksum's digits.
fn split_crc(text: &str) -> Option<(&str, &str)> {
    let (body, suffix) = text.split_at_checked(text.len().checked_sub(SUFFIX)?)?;
    let crc = suffix.strip_prefix(CRC_KEY)?.strip_suffix("\"}")?;
    Some((body, crc))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn checksum_is_the_last_key() {
        let line = encode(&json!({"op_code": 4, "worker_id": "ferrotune-1", "nested": {"a": {}}}));
        assert!(line.ends_with("\"}\n"), "{line}");
        let object = decode(line.trim_end().as_bytes()).expect("just written");
        assert_eq!(object.op_code, Some(4));
        assert_eq!(split_crc(line.trim_end()).map(|(_, crc)| crc.len()), Some(8));
    }

    #[test]
    fn any_flipped_bit_is_seen() {
        let line = encode(&json!({"op_code": 4, "worker_id": "ferrotune-1", "study_id": 0}));
        let line = line.trim_end().as_bytes();
        for position in 0..line.len() {
            for bit in 0..8 {
                let mut flipped = line.to_vec();
                flipped[position] ^= 1 << bit;
                assert!(decode(&flipped).is_err(), "byte {position}, bit {bit}");
            }
        }
    }

    #[test]
    fn a_line_of_optuna_needs_no_checksum() {
        let line = br#"{"op_code":4,"worker_id":"30dbac2d-140631563500416","study_id":0}"#;
        assert!(decode(line).is_ok());
        assert!(decode(br#"{"op_code":4,"worker_id":"ferrotune-9","study_id":0}"#).is_err());
    }

    #[test]
    fn constants_that_json_has_not_are_null_outside_of_texts() {
        let plain = |line: &str| with_nulls(line.as_bytes()).map(|line| String::from_utf8(line).expect("a text"));
        assert_eq!(plain(r#"{"v":NaN,"w":[-Infinity,Infinity]}"#).as_deref(), Some(r#"{"v":null,"w":[null,null]}"#));
        assert_eq!(
            plain(r#"{"a \"NaN":"Infinity\\","b":NaN}"#).as_deref(),
            Some(r#"{"a \"NaN":"Infinity\\","b":null}"#)
        );
        assert_eq!(plain(r#"{"v":"NaN"}"#), None);
    }
}
