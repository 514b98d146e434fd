//! Bills as comma-separated text.

use std::io::{self, BufRead, BufReader, Read};

use super::cell::Cell;
use super::column::REQUIRED;
use super::parse::{Assume, BillFile, BillParser};
use super::record::{Next, RECORD_BYTES_MAX, RECORD_CELLS_MAX, Records};

/// Reads one CSV file. Never fails: what cannot be read is in `rejects` and `refused`.
pub fn read_csv(file: &str, input: impl Read, assume: &Assume) -> BillFile {
    let mut records = match open(input) {
        Ok(records) => records,
        Err(reason) => return BillFile::unreadable(file, reason),
    };
    let header = match header(&mut records) {
        Ok(header) => header,
        Err(reason) => return BillFile::unreadable(file, reason),
    };
    let mut parser = BillParser::new(file, &header, assume);
    loop {
        match records.read() {
            Ok(Next::End) => return parser.finish(),
            Ok(Next::Record) => {
                let cells: Vec<Cell<'_>> = records.cells().map(Cell::from_bytes).collect();
                parser.push(records.line(), &cells);
            }
            Ok(Next::TooLong) => {
                let reason = format!("the row is longer than {RECORD_BYTES_MAX} bytes or {RECORD_CELLS_MAX} cells");
                parser.push_unreadable(records.line(), &reason);
            }
            Err(error) => {
                parser.fail(records.line(), cut_reason(&error));
                return parser.finish();
            }
        }
    }
}

/// The header cells of a CSV file, or why there are none.
pub fn read_header(input: impl Read) -> Result<Vec<String>, String> {
    header(&mut open(input)?)
}

fn open<R: Read>(input: R) -> Result<Records<BufReader<R>>, String> {
    let mut reader = BufReader::with_capacity(64 << 10, input);
    let start = reader.fill_buf().map_err(|error| cut_reason(&error))?;
    match start {
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => return Err("is UTF-16 text: save it as UTF-8".to_owned()),
        _ if start.iter().take(1024).any(|byte| *byte == 0) => {
            return Err("is no UTF-8 text (it holds zero bytes): save it as UTF-8, or give CSV, CSV.gz or Parquet".to_owned());
        }
        _ => {}
    }
    Ok(Records::new(reader))
}

fn header<R: BufRead>(records: &mut Records<R>) -> Result<Vec<String>, String> {
    match records.read() {
        Ok(Next::Record) => {}
        Ok(Next::TooLong) => return Err("its first line is too long for a header".to_owned()),
        Ok(Next::End) => return Err("is empty".to_owned()),
        Err(error) => return Err(cut_reason(&error)),
    }
    let mut names = Vec::new();
    for cell in records.cells() {
        match std::str::from_utf8(cell) {
            Ok(name) => names.push(name.trim_start_matches('\u{feff}').to_owned()),
            Err(_) => return Err("its header is not UTF-8 text: save it as UTF-8".to_owned()),
        }
    }
    if let [only] = names.as_slice() {
        for separator in [';', '\t', '|'] {
            if only.split(separator).count() >= REQUIRED.len() {
                return Err(format!("its cells are separated by {separator:?}: save it with commas"));
            }
        }
    }
    Ok(names)
}

fn cut_reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => {
            "the file is cut: its compressed stream ends early, so no scope of it can close; fetch it again".to_owned()
        }
        io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput => {
            format!("the file is damaged ({error}), so no scope of it can close; fetch it again")
        }
        _ => format!("reading stopped ({error}), so no scope of the file can close"),
    }
}
