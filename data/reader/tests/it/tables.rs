//! Tests of columns of tables: their types, and the row that an error names.

use crate::answers::{open, text_of};
use crate::columns::columns;
use ferrotune_reader::{Format, Group, Kind, Reply, Request, Server, Source};
use std::fs;
use std::path::Path;

/// Older writers store only the converted type of a column.
#[test]
fn converted_types_of_parquet_are_no_plain_numbers() {
    use parquet::basic::{ConvertedType, Repetition, Type as Physical};
    use parquet::data_type::Int32Type;
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::types::Type;
    use std::sync::Arc;

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("old.parquet");
    let read = |converted: ConvertedType, kind: Kind| {
        let column = Type::primitive_type_builder("x", Physical::INT32)
            .with_repetition(Repetition::REQUIRED)
            .with_converted_type(converted);
        let column = match converted {
            ConvertedType::DECIMAL => column.with_precision(9).with_scale(2),
            _ => column,
        };
        let schema = Type::group_type_builder("schema").with_fields(vec![Arc::new(column.build().unwrap())]);
        let file = fs::File::create(&path).unwrap();
        let mut writer = SerializedFileWriter::new(file, Arc::new(schema.build().unwrap()), Arc::default()).unwrap();
        let mut group = writer.next_row_group().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<Int32Type>().write_batch(&[125, -1], None, None).unwrap();
        column.close().unwrap();
        group.close().unwrap();
        writer.close().unwrap();
        let groups = vec![Group { columns: Some(vec!["x".to_owned()]), kind }];
        let source = Source::Table { format: Format::Parquet, files: text_of(&path), groups, missing: None };
        open(source).answer(Request::Block(0)).map(|reply| match reply {
            Reply::Block(block) => {
                block[0].bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect::<Vec<f32>>()
            }
            other => panic!("{other:?}"),
        })
    };
    for (converted, expected) in [
        (ConvertedType::NONE, ["125", "-1"]),
        (ConvertedType::DECIMAL, ["1.25", "-0.01"]),
        (ConvertedType::UINT_32, ["125", "4294967295"]),
        (ConvertedType::DATE, ["10800000000000 us", "-86400000000 us"]),
    ] {
        // The call writes the file, which holds what no number can be, too.
        read(converted, Kind::Numbers).ok();
        assert_eq!(columns(Format::Parquet, &path, &[], 0).unwrap(), [expected.join(" ")]);
    }
    read(ConvertedType::TIME_MILLIS, Kind::Numbers).ok();
    assert_eq!(
        columns(Format::Parquet, &path, &[], 0).unwrap_err(),
        "row group 0 of FILE: column `x`: it is neither a number nor a date; call `.drop` with its name: its type TIME_MILLIS is no number; \
         store it as one"
    );
    assert_eq!(read(ConvertedType::NONE, Kind::Numbers).unwrap(), [125., -1.]);
    assert_eq!(read(ConvertedType::DECIMAL, Kind::Numbers).unwrap(), [1.25, -0.01]);
    assert_eq!(read(ConvertedType::UINT_32, Kind::Numbers).unwrap(), [125., u32::MAX as f32]);
    for (converted, kind) in [
        (ConvertedType::DATE, Kind::Numbers),
        (ConvertedType::TIME_MILLIS, Kind::Numbers),
        (ConvertedType::DATE, Kind::Classes(None)),
        (ConvertedType::DECIMAL, Kind::Classes(None)),
    ] {
        let error = format!("{:#}", read(converted, kind).unwrap_err());
        assert!(error.contains("old.parquet: column `x`: its type "), "{error}");
    }
}

/// A Parquet column with two row groups, whose values are `[1, none]` and `[2, none]`, or have no value at all.
fn parquet_with_gaps(path: &Path, has_values: bool) {
    use parquet::basic::{LogicalType, Repetition, Type as Physical};
    use parquet::data_type::Int32Type;
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::types::Type;
    use std::sync::Arc;

    let column = Type::primitive_type_builder("x", Physical::INT32).with_repetition(Repetition::OPTIONAL);
    let column = if has_values { column } else { column.with_logical_type(Some(LogicalType::Unknown)) };
    let schema = Type::group_type_builder("schema").with_fields(vec![Arc::new(column.build().unwrap())]);
    let file = fs::File::create(path).unwrap();
    let mut writer = SerializedFileWriter::new(file, Arc::new(schema.build().unwrap()), Arc::default()).unwrap();
    for number in [1, 2] {
        let (values, levels): (&[i32], &[i16]) = if has_values { (&[number], &[1, 0]) } else { (&[], &[0, 0]) };
        let mut group = writer.next_row_group().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<Int32Type>().write_batch(values, Some(levels), None).unwrap();
        column.close().unwrap();
        group.close().unwrap();
    }
    writer.close().unwrap();
}

fn table(format: Format, path: &Path, kind: Kind, missing: Option<f32>) -> Server {
    let groups = vec![Group { columns: Some(vec!["x".to_owned()]), kind }];
    open(Source::Table { format, files: text_of(path), groups, missing: missing.map(f32::to_bits) })
}

#[test]
fn rows_are_counted_from_0_in_each_file() {
    let folder = tempfile::tempdir().unwrap();
    let parquet = folder.path().join("x.parquet");
    parquet_with_gaps(&parquet, true);
    let fails = |format, path: &Path, kind: Kind, block| {
        let error = table(format, path, kind, None).answer(Request::Block(block)).unwrap_err();
        format!("{error:#}")
    };
    for (kind, block, row) in [(Kind::Numbers, 0, 1), (Kind::Numbers, 1, 3), (Kind::Classes(None), 1, 3)] {
        let error = fails(Format::Parquet, &parquet, kind, block);
        assert_eq!(error, format!("row {row} of {}, column `x`: {NO_VALUE}", parquet.display()));
    }
    let csv = folder.path().join("x.csv");
    for (text, expected) in [
        (
            "x,y\n1,1\n,1\n2,1\n",
            "row 1 of FILE, column `x`: there is no value; of a number, say with `missing` what stands for it",
        ),
        ("x,y\n1,1\n2\n", "row 1 of FILE: it has 1 values, and the header has 2"),
        ("x,y\n1,1\n2,\"3\n4,5\n", "row 1 of FILE: the file ends within a quoted value"),
    ] {
        fs::write(&csv, text).unwrap();
        let error = fails(Format::Csv { delimiter: b',' }, &csv, Kind::Numbers, 0);
        assert_eq!(error, expected.replace("FILE", &text_of(&csv)));
    }
}

const NO_VALUE: &str = "there is no value; of a number, say with `missing` what stands for it";

#[test]
fn a_column_of_parquet_without_a_type_has_missing_values() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("null.parquet");
    parquet_with_gaps(&path, false);
    let reply = table(Format::Parquet, &path, Kind::Numbers, Some(-1.)).answer(Request::Block(1)).unwrap();
    assert!(matches!(&reply, Reply::Block(block) if block[0].bytes == [-1f32; 2].map(f32::to_le_bytes).concat()));
    for kind in [Kind::Numbers, Kind::Classes(None)] {
        let error = table(Format::Parquet, &path, kind, None).answer(Request::Block(1)).unwrap_err();
        assert_eq!(format!("{error:#}"), format!("row 2 of {}, column `x`: {NO_VALUE}", path.display()));
    }
}
