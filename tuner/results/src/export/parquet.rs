//! A study as Parquet: one row group, every column optional. Uncompressed, because a study is small and every reader supports
//! uncompressed files.

use super::fields::{Values, fields};
use crate::ResultsError;
use ferrotune_journal::Study;
use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;
use std::sync::Arc;

pub(super) fn bytes(study: &Study) -> Result<Vec<u8>, ResultsError> {
    let fields = fields(study);
    let columns: Result<Vec<Arc<Type>>, ParquetError> =
        fields.iter().map(|field| column(&field.name, &field.values).map(Arc::new)).collect();
    let schema = Arc::new(Type::group_type_builder("trials").with_fields(columns?).build()?);
    let mut bytes = Vec::new();
    let mut file = SerializedFileWriter::new(&mut bytes, schema, Arc::default())?;
    let mut group = file.next_row_group()?;
    for field in fields {
        // The schema has one column for each field.
        let Some(mut column) = group.next_column()? else { break };
        write(column.untyped(), field.values)?;
        column.close()?;
    }
    group.close()?;
    file.close()?;
    Ok(bytes)
}

fn column(name: &str, values: &Values) -> Result<Type, ParquetError> {
    let (physical, logical) = match values {
        Values::Whole(_) => (Physical::INT64, None),
        Values::Number(_) => (Physical::DOUBLE, None),
        Values::Truth(_) => (Physical::BOOLEAN, None),
        Values::Text(_) => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
    };
    let column = Type::primitive_type_builder(name, physical).with_repetition(Repetition::OPTIONAL);
    column.with_logical_type(logical).build()
}

fn write(column: &mut ColumnWriter<'_>, values: Values) -> Result<(), ParquetError> {
    match (column, values) {
        (ColumnWriter::Int64ColumnWriter(column), Values::Whole(values)) => {
            let levels = levels(&values);
            column.write_batch(&values.into_iter().flatten().collect::<Vec<_>>(), Some(&levels), None)?;
        }
        (ColumnWriter::DoubleColumnWriter(column), Values::Number(values)) => {
            let levels = levels(&values);
            column.write_batch(&values.into_iter().flatten().collect::<Vec<_>>(), Some(&levels), None)?;
        }
        (ColumnWriter::BoolColumnWriter(column), Values::Truth(values)) => {
            let levels = levels(&values);
            column.write_batch(&values.into_iter().flatten().collect::<Vec<_>>(), Some(&levels), None)?;
        }
        (ColumnWriter::ByteArrayColumnWriter(column), Values::Text(values)) => {
            let levels = levels(&values);
            let texts: Vec<ByteArray> = values.into_iter().flatten().map(|text| text.into_bytes().into()).collect();
            column.write_batch(&texts, Some(&levels), None)?;
        }
        _ => return Err(ParquetError::General("a column has another type than its values".to_owned())),
    }
    Ok(())
}

/// The definition levels of a column: 1 for a value, 0 for a missing value.
fn levels<T>(values: &[Option<T>]) -> Vec<i16> {
    values.iter().map(|value| i16::from(value.is_some())).collect()
}
