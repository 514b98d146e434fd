//! Bills from disk: CSV, CSV.gz and Parquet, told apart by their first bytes and never by their names.

mod columns;
mod json;

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use flate2::read::MultiGzDecoder;
use gpuledger_ingest::focus::{Assume, BillFile, BillParser, Cell, read_csv};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use crate::content::file_sha256;

/// Rows of a Parquet file that are held as columns at one time.
const BATCH_ROWS: usize = 4096;

/// Reads one bill. Never fails: what cannot be read is refused in the file, with the reason.
pub fn read_bill(path: &Path, display_name: &str, assume: &Assume) -> BillFile {
    let mut bill = match open(path) {
        Ok(Opened::Csv(file)) => read_csv(display_name, file, assume),
        Ok(Opened::Gzip(file)) => read_csv(display_name, MultiGzDecoder::new(file), assume),
        Ok(Opened::Parquet(file)) => match read_parquet(file, display_name, assume) {
            Ok(bill) => bill,
            Err(reason) => BillFile::unreadable(display_name, reason),
        },
        Err(reason) => return BillFile::unreadable(display_name, reason),
    };
    // A file whose bytes cannot be named is still read; it only cannot be recognised as given twice.
    bill.content_id = file_sha256(path).unwrap_or_default();
    bill
}

enum Opened {
    Csv(BufReader<File>),
    Gzip(BufReader<File>),
    Parquet(File),
}

fn open(path: &Path) -> Result<Opened, String> {
    let failed = |error: io::Error| format!("cannot be opened: {error}");
    let mut file = File::open(path).map_err(failed)?;
    if file.metadata().map_err(failed)?.is_dir() {
        return Err("is a folder".to_owned());
    }
    let mut start = Vec::with_capacity(4);
    file.by_ref().take(4).read_to_end(&mut start).map_err(failed)?;
    file.seek(SeekFrom::Start(0)).map_err(failed)?;
    match start.as_slice() {
        [0x1f, 0x8b, ..] => Ok(Opened::Gzip(BufReader::new(file))),
        b"PAR1" => Ok(Opened::Parquet(file)),
        b"PARE" => Err("is an encrypted Parquet file: decrypt it first".to_owned()),
        [b'P', b'K', 3, 4] => Err("is a ZIP archive: unpack it first".to_owned()),
        [0x28, 0xb5, 0x2f, 0xfd] => Err("is compressed with zstd: unpack it, or compress it with gzip".to_owned()),
        [b'B', b'Z', b'h', ..] => Err("is compressed with bzip2: unpack it, or compress it with gzip".to_owned()),
        _ => Ok(Opened::Csv(BufReader::new(file))),
    }
}

fn read_parquet(file: File, display_name: &str, assume: &Assume) -> Result<BillFile, String> {
    let builder = unless_panicked(|| ParquetRecordBatchReaderBuilder::try_new(file)).map_err(damaged)?;
    let header: Vec<String> = builder.schema().fields().iter().map(|field| field.name().clone()).collect();
    let mut reader = unless_panicked(|| builder.with_batch_size(BATCH_ROWS).build()).map_err(damaged)?;
    let mut parser = BillParser::new(display_name, &header, assume);
    // Line 1 is the header, as in text, so that the same table has the same lines in both forms.
    let mut line = 1;
    loop {
        match unless_panicked(|| reader.next().transpose()) {
            Ok(None) => break,
            Ok(Some(batch)) => {
                for row in 0..batch.num_rows() {
                    line += 1;
                    let cells: Vec<Cell<'_>> = batch.columns().iter().map(|column| columns::cell(column, row)).collect();
                    parser.push(line, &cells);
                }
            }
            Err(error) => {
                parser.fail(line + 1, format!("{}; no scope of the file can close", damaged(error)));
                break;
            }
        }
    }
    Ok(parser.finish())
}

/// Damaged bytes make the Parquet reader panic in places (a map whose keys and values differ in length is one):
/// the input's fault, so it is an error here. The reader is not used again afterwards.
fn unless_panicked<T, E: std::fmt::Display>(read: impl FnOnce() -> Result<T, E>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(read)) {
        Ok(result) => result.map_err(|error| error.to_string()),
        Err(_) => Err("its pages contradict each other".to_owned()),
    }
}

fn damaged(error: String) -> String {
    format!("is a damaged or cut Parquet file ({error}): fetch it again")
}
