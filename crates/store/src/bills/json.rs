//! Maps, lists and structs of Parquet as the JSON text that the same column holds in CSV.

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, StructArray};
use arrow_schema::DataType;
use gpuledger_ingest::focus::Cell;
use gpuledger_ingest::focus::cell::typed_text;
use serde_json::{Map, Value};

use super::columns::cell;

/// The JSON text of a nested value; `None` for types that have none.
pub(super) fn json_text(array: &ArrayRef, row: usize) -> Option<String> {
    serde_json::to_string(&value(array, row)?).ok()
}

fn value(array: &ArrayRef, row: usize) -> Option<Value> {
    if row >= array.len() || array.is_null(row) {
        return Some(Value::Null);
    }
    match array.data_type() {
        DataType::Struct(_) => Some(Value::Object(object(array.as_struct_opt()?, row)?)),
        DataType::Map(_, _) => {
            let entries = array.as_map_opt()?.value(row);
            pairs(&entries).map(Value::Object)
        }
        DataType::List(_) => list(array.as_list_opt::<i32>()?.value(row)),
        DataType::LargeList(_) => list(array.as_list_opt::<i64>()?.value(row)),
        DataType::FixedSizeList(_, _) => list(array.as_fixed_size_list_opt()?.value(row)),
        _ => match cell(array, row) {
            Cell::Null => Some(Value::Null),
            Cell::Unreadable(_) => None,
            Cell::Bool(flag) => Some(Value::Bool(flag)),
            // Small whole numbers stay numbers; others are texts, so that no digit is lost.
            Cell::Number(number) if number.scale == 0 => Some(match i64::try_from(number.mantissa) {
                Ok(integer) => Value::from(integer),
                Err(_) => Value::String(number.to_string()),
            }),
            Cell::Float(float) => Some(Value::from(float)),
            other => Some(Value::String(typed_text(&other))),
        },
    }
}

fn object(fields: &StructArray, row: usize) -> Option<Map<String, Value>> {
    let mut out = Map::new();
    for (name, column) in fields.column_names().into_iter().zip(fields.columns()) {
        out.insert(name.to_owned(), value(column, row)?);
    }
    Some(out)
}

/// A list; one of `{key, value}` structs is how some exports write an object.
fn list(items: ArrayRef) -> Option<Value> {
    if let Some(entries) = items.as_struct_opt()
        && entries.num_columns() == 2
        && entries.column_by_name("key").is_some()
        && entries.column_by_name("value").is_some()
    {
        return pairs(entries).map(Value::Object);
    }
    (0..items.len()).map(|row| value(&items, row)).collect::<Option<Vec<Value>>>().map(Value::Array)
}

/// The object that rows of a key column and a value column are.
fn pairs(entries: &StructArray) -> Option<Map<String, Value>> {
    let [keys, values] = entries.columns() else { return None };
    let mut out = Map::new();
    for row in 0..entries.len() {
        out.insert(typed_text(&cell(keys, row)), value(values, row)?);
    }
    Some(out)
}
