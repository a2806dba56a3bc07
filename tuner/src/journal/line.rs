//! One line of the journal: its JSON object and the checksum over it. Knows nothing of what the object says.

use serde_json::Value;

/// Every line of ours names a worker that begins with this; Optuna's begin with a UUID.
pub(super) const WORKER_PREFIX: &str = "ferrotune-";

/// What comes before the eight hexadecimal digits of the checksum, which is the last key of the object.
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

/// Reads a line without its line end. A line without a checksum is good only if somebody else (Optuna) wrote it.
pub(super) fn decode(line: &[u8]) -> Result<Value, String> {
    let text = std::str::from_utf8(line).map_err(|error| error.to_string())?;
    let object: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let Some((body, crc)) = split_crc(text) else {
        let ours = object["worker_id"].as_str().is_none_or(|worker| worker.starts_with(WORKER_PREFIX));
        return if ours { Err("its checksum is missing".to_owned()) } else { Ok(object) };
    };
    let found = crc32fast::hash(format!("{body}}}").as_bytes());
    if format!("{found:08x}") != crc {
        return Err(format!("its checksum is {crc} but its text has {found:08x}"));
    }
    Ok(object)
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
        assert_eq!(object["nested"], json!({"a": {}}));
        assert_eq!(object["crc"].as_str().map(str::len), Some(8));
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
}
