//! Records of comma-separated text in bounded memory: each with the line that it starts on.
//!
//! The state machine is `csv-core`'s; the bounds and the line numbers are ours. A record beyond the bounds is
//! read past and reported, so that what follows it is still read.

use std::io::{self, BufRead};

use csv_core::ReadRecordResult;

/// The longest record; a longer one is read past.
pub(crate) const RECORD_BYTES_MAX: usize = 16 << 20;
/// The most cells of a record. FOCUS has 65 columns, and providers add some dozens.
pub(crate) const RECORD_CELLS_MAX: usize = 4096;

/// What was read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// A record, now in the reader.
    Record,
    /// A record beyond the bounds; its content is gone.
    TooLong,
    /// The end of the input.
    End,
}

/// Reads records one at a time into buffers that it keeps.
pub(crate) struct Records<R> {
    input: R,
    machine: csv_core::Reader,
    cells: Vec<u8>,
    ends: Vec<usize>,
    cell_count: usize,
    line: u64,
    newlines: u64,
}

impl<R: BufRead> Records<R> {
    pub(crate) fn new(input: R) -> Records<R> {
        Records {
            input,
            machine: csv_core::Reader::new(),
            cells: vec![0; 16 << 10],
            ends: vec![0; 128],
            cell_count: 0,
            line: 0,
            newlines: 0,
        }
    }

    /// The line on which the record starts, from 1.
    pub(crate) fn line(&self) -> u64 {
        self.line
    }

    /// The cells of the record.
    pub(crate) fn cells(&self) -> impl Iterator<Item = &[u8]> {
        let mut from = 0;
        self.ends.iter().take(self.cell_count).map(move |&end| {
            let cell = self.cells.get(from..end).unwrap_or_default();
            from = end;
            cell
        })
    }

    /// Reads the next record that is not an empty line.
    pub(crate) fn read(&mut self) -> io::Result<Next> {
        self.cell_count = 0;
        self.skip_line_ends()?;
        self.line = self.newlines + 1;
        let (mut cell_bytes, mut ends, mut total_bytes) = (0, 0, 0usize);
        let mut is_too_long = false;
        loop {
            let input = self.input.fill_buf()?;
            let output = self.cells.get_mut(cell_bytes..).unwrap_or_default();
            let end_slots = self.ends.get_mut(ends..).unwrap_or_default();
            let (result, read, written, ended) = self.machine.read_record(input, output, end_slots);
            self.newlines += memchr::memchr_iter(b'\n', input.get(..read).unwrap_or_default()).count() as u64;
            self.input.consume(read);
            cell_bytes += written;
            ends += ended;
            total_bytes = total_bytes.saturating_add(read);
            is_too_long |= total_bytes > RECORD_BYTES_MAX;
            match result {
                ReadRecordResult::InputEmpty => {}
                ReadRecordResult::OutputFull if is_too_long || self.cells.len() >= RECORD_BYTES_MAX => {
                    is_too_long = true;
                    cell_bytes = 0;
                }
                ReadRecordResult::OutputFull => self.cells.resize((self.cells.len() * 2).min(RECORD_BYTES_MAX), 0),
                ReadRecordResult::OutputEndsFull if is_too_long || self.ends.len() >= RECORD_CELLS_MAX => {
                    is_too_long = true;
                    ends = 0;
                }
                ReadRecordResult::OutputEndsFull => self.ends.resize((self.ends.len() * 2).min(RECORD_CELLS_MAX), 0),
                ReadRecordResult::Record if is_too_long => return Ok(Next::TooLong),
                ReadRecordResult::Record => {
                    self.cell_count = ends;
                    return Ok(Next::Record);
                }
                ReadRecordResult::End => return Ok(Next::End),
            }
        }
    }

    /// Empty lines are passed over here, not in the machine, so that a record's own line is known.
    fn skip_line_ends(&mut self) -> io::Result<()> {
        loop {
            let input = self.input.fill_buf()?;
            let skipped = input.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
            self.newlines += memchr::memchr_iter(b'\n', input.get(..skipped).unwrap_or_default()).count() as u64;
            let is_all = skipped == input.len() && skipped > 0;
            self.input.consume(skipped);
            if !is_all {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::BufReader;

    fn all(text: &[u8], buffer: usize) -> Vec<(u64, Option<Vec<String>>)> {
        let mut records = Records::new(BufReader::with_capacity(buffer, text));
        let mut out = Vec::new();
        loop {
            match records.read().unwrap() {
                Next::End => return out,
                Next::TooLong => out.push((records.line(), None)),
                Next::Record => {
                    let cells = records.cells().map(|c| String::from_utf8_lossy(c).into_owned()).collect();
                    out.push((records.line(), Some(cells)));
                }
            }
        }
    }

    #[test]
    fn records_know_the_line_they_start_on() {
        let text = b"a,b\r\n\r\n1,\"two\r\nlines\"\r\n\r\n3,4";
        for buffer in [1, 2, 3, 7, 64] {
            let rows = all(text, buffer);
            let lines: Vec<u64> = rows.iter().map(|r| r.0).collect();
            assert_eq!(lines, [1, 3, 6], "buffer of {buffer}");
            assert_eq!(rows[1].1, Some(vec!["1".to_owned(), "two\r\nlines".to_owned()]));
        }
    }

    #[test]
    fn a_record_beyond_the_bounds_is_read_past() {
        let mut text = b"a,b\n".to_vec();
        text.extend(vec![b'x'; RECORD_BYTES_MAX + 10]);
        text.extend(b"\n1,2\n");
        text.extend(vec![b','; RECORD_CELLS_MAX + 10]);
        text.extend(b"\n3,4\n");
        let rows = all(&text, 1 << 16);
        assert_eq!(rows[1], (2, None));
        assert_eq!(rows[2], (3, Some(vec!["1".to_owned(), "2".to_owned()])));
        assert_eq!(rows[3], (4, None));
        assert_eq!(rows[4], (5, Some(vec!["3".to_owned(), "4".to_owned()])));
    }
}
