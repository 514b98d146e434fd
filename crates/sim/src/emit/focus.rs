//! FOCUS files.

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::bill::Bill;

/// Writes a bill's file, compressed if its name says so.
pub fn write_file(bill: &Bill, out: &mut impl Write) -> io::Result<()> {
    if !bill.file.ends_with(".gz") {
        return write(bill, out);
    }
    let mut encoder = GzEncoder::new(out, Compression::new(6));
    write(bill, &mut encoder)?;
    encoder.finish().map(|_| ())
}

/// Writes a bill as CSV; null is an empty cell.
pub fn write(bill: &Bill, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{}", bill.columns.join(","))?;
    let mut line = String::new();
    for row in &bill.rows {
        line.clear();
        for (at, column) in bill.columns.iter().enumerate() {
            if at > 0 {
                line.push(',');
            }
            let Some(cell) = row.cells.get(column) else { continue };
            if cell.contains(['"', ',', '\n']) {
                line.push('"');
                line.push_str(&cell.replace('"', "\"\""));
                line.push('"');
            } else {
                line.push_str(cell);
            }
        }
        writeln!(out, "{line}")?;
    }
    Ok(())
}
