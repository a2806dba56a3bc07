//! Tests of columns as they are, from all formats.

use crate::answers::{open, text_of};
use arrow_array::types::Int8Type;
use arrow_array::{
    ArrayRef, BooleanArray, Decimal128Array, DictionaryArray, Float32Array, Int64Array, NullArray, RecordBatch,
    StringArray, TimestampNanosecondArray,
};
use ferrotune_reader::{Array, Block, Format, NO_DATE, NO_TEXT, Reply, Request, Source};
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

/// The values of a column as text, with `-` for a gap.
fn column(arrays: &[Array]) -> String {
    let [values, bytes, ends] = arrays else { panic!("a column has three arrays") };
    let ends: Vec<usize> = ends.bytes.as_chunks().0.iter().map(|end| i64::from_le_bytes(*end) as usize).collect();
    let text = |place: u32| {
        let begin = if place == 0 { 0 } else { ends[place as usize - 1] };
        String::from_utf8(bytes.bytes[begin..ends[place as usize]].to_vec()).unwrap()
    };
    let gap = || "-".to_owned();
    let values: Vec<String> = match values.shape.dtype.as_str() {
        "f64" => {
            let numbers = values.bytes.as_chunks().0.iter().map(|bytes| f64::from_le_bytes(*bytes));
            numbers.map(|number| if number.is_nan() { gap() } else { number.to_string() }).collect()
        }
        "i64" => {
            let dates = values.bytes.as_chunks().0.iter().map(|bytes| i64::from_le_bytes(*bytes));
            dates.map(|date| if date == NO_DATE { gap() } else { format!("{date} us") }).collect()
        }
        "u8" => values.bytes.iter().map(|bit| ["no", "yes", "-"][usize::from(*bit)].to_owned()).collect(),
        "u32" => {
            let places = values.bytes.as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes));
            places.map(|place| if place == NO_TEXT { gap() } else { format!("`{}`", text(place)) }).collect()
        }
        other => panic!("{other}"),
    };
    values.join(" ")
}

pub(crate) fn columns(format: Format, path: &Path, without: &[&str], number: u64) -> Result<Vec<String>, String> {
    let without = without.iter().map(|name| (*name).to_owned()).collect();
    let mut server = open(Source::Columns { format, files: text_of(path), without });
    match server.answer(Request::Block(number)) {
        Ok(Reply::Block(block)) => Ok(Block::as_slice(&block).chunks(3).map(column).collect()),
        Ok(other) => panic!("{other:?}"),
        Err(error) => Err(format!("{error:#}").replace(&text_of(path), "FILE")),
    }
}

#[test]
fn columns_of_arrow_keep_their_types() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.arrow");
    let words: DictionaryArray<Int8Type> = [Some("p"), None, Some("p")].into_iter().collect();
    let decimals = Decimal128Array::from(vec![Some(125), None, Some(-310)]).with_precision_and_scale(9, 2).unwrap();
    let arrays: [(&str, ArrayRef, &str); 8] = [
        ("whole", Arc::new(Int64Array::from(vec![Some(1), None, Some(-3)])), "1 - -3"),
        ("large", Arc::new(Int64Array::from(vec![Some(1), None, Some((1 << 53) + 1)])), "`1` - `9007199254740993`"),
        ("float", Arc::new(Float32Array::from(vec![Some(0.5), Some(f32::NAN), None])), "0.5 - -"),
        ("decimal", Arc::new(decimals), "1.25 - -3.1"),
        ("bit", Arc::new(BooleanArray::from(vec![Some(true), None, Some(false)])), "yes - no"),
        ("text", Arc::new(StringArray::from(vec![Some("NA"), None, Some("é")])), "`NA` - `é`"),
        ("word", Arc::new(words), "`p` - `p`"),
        ("time", Arc::new(TimestampNanosecondArray::from(vec![Some(1500), None, Some(-1)])), "1 us - -1 us"),
    ];
    let nothing: ArrayRef = Arc::new(NullArray::new(3));
    let named = arrays.iter().map(|(name, array, _)| (*name, Arc::clone(array))).chain([("nothing", nothing)]);
    let batch = RecordBatch::try_from_iter(named).unwrap();
    let mut writer = arrow_ipc::writer::FileWriter::try_new(File::create(&path).unwrap(), &batch.schema()).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
    let expected: Vec<&str> = arrays.iter().map(|(_, _, expected)| *expected).chain(["- - -"]).collect();
    assert_eq!(columns(Format::Arrow, &path, &[], 0).unwrap(), expected);
    let without: Vec<&str> = arrays[1..].iter().map(|(name, ..)| *name).collect();
    assert_eq!(columns(Format::Arrow, &path, &without, 0).unwrap(), ["1 - -3", "- - -"]);
}

#[test]
fn columns_of_text_and_json_keep_their_texts() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    let csv = Format::Csv { delimiter: b';' };
    std::fs::write(&path, "a;b\n 1 ;\"x;\n\"\n;1\n").unwrap();
    assert_eq!(columns(csv, &path, &[], 0).unwrap(), ["`1` ``", "`x;` `1`"]);
    assert_eq!(columns(csv, &path, &["a"], 0).unwrap(), ["`x;` `1`"]);
    std::fs::write(&path, "{\"a\": 1, \"b\": true}\n{\"c\": \"x\"}\n").unwrap();
    assert_eq!(columns(Format::JsonLines, &path, &[], 0).unwrap(), ["1 -", "yes -", "- `x`"]);
}
