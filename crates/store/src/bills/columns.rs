//! Cells of Arrow columns as bills need them: decimals exactly, times in UTC, nested values as JSON text.

use std::borrow::Cow;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Date64Type, Decimal32Type, Decimal64Type, Decimal128Type, Decimal256Type, Float16Type, Float32Type,
    Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef};
use arrow_schema::{DataType, TimeUnit};
use gpuledger_ingest::focus::Cell;
use gpuledger_model::money::Decimal;

use super::json::json_text;

const DAY_MS: i64 = 86_400_000;

/// The cell of one row. Types that no bill can mean are unreadable, with the type named.
pub(super) fn cell(array: &ArrayRef, row: usize) -> Cell<'_> {
    if row >= array.len() || array.is_null(row) {
        return Cell::Null;
    }
    let read = match array.data_type() {
        DataType::Null => Some(Cell::Null),
        DataType::Utf8 => array.as_string_opt::<i32>().map(|texts| text(texts.value(row))),
        DataType::LargeUtf8 => array.as_string_opt::<i64>().map(|texts| text(texts.value(row))),
        DataType::Utf8View => array.as_string_view_opt().map(|texts| text(texts.value(row))),
        DataType::Binary => array.as_binary_opt::<i32>().map(|bytes| Cell::from_bytes(bytes.value(row))),
        DataType::LargeBinary => array.as_binary_opt::<i64>().map(|bytes| Cell::from_bytes(bytes.value(row))),
        DataType::BinaryView => array.as_binary_view_opt().map(|bytes| Cell::from_bytes(bytes.value(row))),
        DataType::Boolean => array.as_boolean_opt().map(|flags| Cell::Bool(flags.value(row))),
        DataType::Int8 => integer::<Int8Type>(array, row),
        DataType::Int16 => integer::<Int16Type>(array, row),
        DataType::Int32 => integer::<Int32Type>(array, row),
        DataType::Int64 => integer::<Int64Type>(array, row),
        DataType::UInt8 => integer::<UInt8Type>(array, row),
        DataType::UInt16 => integer::<UInt16Type>(array, row),
        DataType::UInt32 => integer::<UInt32Type>(array, row),
        DataType::UInt64 => integer::<UInt64Type>(array, row),
        DataType::Float16 => value::<Float16Type>(array, row).map(|float| short_float(float.to_f32())),
        DataType::Float32 => value::<Float32Type>(array, row).map(short_float),
        DataType::Float64 => value::<Float64Type>(array, row).map(Cell::Float),
        DataType::Decimal32(_, scale) => value::<Decimal32Type>(array, row).map(|n| decimal(Some(i128::from(n)), *scale)),
        DataType::Decimal64(_, scale) => value::<Decimal64Type>(array, row).map(|n| decimal(Some(i128::from(n)), *scale)),
        DataType::Decimal128(_, scale) => value::<Decimal128Type>(array, row).map(|n| decimal(Some(n), *scale)),
        DataType::Decimal256(_, scale) => value::<Decimal256Type>(array, row).map(|n| decimal(n.to_i128(), *scale)),
        DataType::Date32 => value::<Date32Type>(array, row).map(|days| Cell::Time(i64::from(days) * DAY_MS)),
        DataType::Date64 => value::<Date64Type>(array, row).map(Cell::Time),
        DataType::Timestamp(unit, _) => timestamp(array, row, *unit),
        DataType::Dictionary(_, _) => array.as_any_dictionary_opt().map(|dictionary| match key(dictionary.keys(), row) {
            Some(key) => cell(dictionary.values(), key),
            None => Cell::Unreadable("has a broken dictionary".to_owned()),
        }),
        DataType::Map(_, _) | DataType::Struct(_) | DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(_, _) => {
            json_text(array, row).map(|text| Cell::Text(Cow::Owned(text)))
        }
        _ => None,
    };
    read.unwrap_or_else(|| Cell::Unreadable(format!("has the type {}, which no bill column has", array.data_type())))
}

fn text(text: &str) -> Cell<'_> {
    Cell::from_bytes(text.as_bytes())
}

fn value<T: ArrowPrimitiveType>(array: &ArrayRef, row: usize) -> Option<T::Native> {
    array.as_primitive_opt::<T>().map(|values| values.value(row))
}

fn integer<'a, T: ArrowPrimitiveType>(array: &ArrayRef, row: usize) -> Option<Cell<'a>>
where
    T::Native: Into<i128>,
{
    value::<T>(array, row).map(|number| Cell::Number(Decimal::from_integer(number.into())))
}

/// A 32-bit float means the shortest decimal that reads back as the same 32-bit float.
fn short_float<'a>(float: f32) -> Cell<'a> {
    match float.to_string().parse::<Decimal>() {
        Ok(number) => Cell::Number(number),
        Err(_) => Cell::Float(f64::from(float)),
    }
}

fn decimal<'a>(mantissa: Option<i128>, scale: i8) -> Cell<'a> {
    let too_long = || Cell::Unreadable("needs more than 38 digits".to_owned());
    let Some(mantissa) = mantissa else { return too_long() };
    match u8::try_from(scale) {
        Ok(scale) if scale <= 38 => Cell::Number(Decimal { mantissa, scale }),
        Ok(_) => too_long(),
        // A negative scale counts zeros before the point.
        Err(_) => {
            let factor = 10i128.checked_pow(u32::from(scale.unsigned_abs()));
            match factor.and_then(|factor| mantissa.checked_mul(factor)) {
                Some(mantissa) => Cell::Number(Decimal { mantissa, scale: 0 }),
                None => too_long(),
            }
        }
    }
}

/// With or without a zone, the number counts from the epoch in UTC.
fn timestamp<'a>(array: &ArrayRef, row: usize, unit: TimeUnit) -> Option<Cell<'a>> {
    let time_ms = match unit {
        TimeUnit::Second => value::<TimestampSecondType>(array, row)?.checked_mul(1000),
        TimeUnit::Millisecond => Some(value::<TimestampMillisecondType>(array, row)?),
        TimeUnit::Microsecond => Some(value::<TimestampMicrosecondType>(array, row)?.div_euclid(1000)),
        TimeUnit::Nanosecond => Some(value::<TimestampNanosecondType>(array, row)?.div_euclid(1_000_000)),
    };
    Some(time_ms.map_or_else(|| Cell::Unreadable("is beyond the calendar".to_owned()), Cell::Time))
}

fn key(keys: &dyn Array, row: usize) -> Option<usize> {
    fn of<T: ArrowPrimitiveType>(keys: &dyn Array, row: usize) -> Option<usize>
    where
        T::Native: TryInto<usize>,
    {
        keys.as_primitive_opt::<T>()?.value(row).try_into().ok()
    }
    match keys.data_type() {
        DataType::Int8 => of::<Int8Type>(keys, row),
        DataType::Int16 => of::<Int16Type>(keys, row),
        DataType::Int32 => of::<Int32Type>(keys, row),
        DataType::Int64 => of::<Int64Type>(keys, row),
        DataType::UInt8 => of::<UInt8Type>(keys, row),
        DataType::UInt16 => of::<UInt16Type>(keys, row),
        DataType::UInt32 => of::<UInt32Type>(keys, row),
        DataType::UInt64 => of::<UInt64Type>(keys, row),
        _ => None,
    }
}
