//! Exposition files and folders of scrapes, read into an intake.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use gpuledger_ingest::prometheus::{Counts, Intake, Rejects, Scrape, read_exposition};

use crate::content;
use crate::discover::FoundFile;

/// Files up to this size are read in one go.
const SMALL_BYTES: u64 = 1 << 20;

/// Reads exposition files; remembers a buffer between them.
#[derive(Debug, Default)]
pub struct ExpositionReader {
    buffer: Vec<u8>,
}

impl ExpositionReader {
    /// Reads one file: a scrape named `<target>/<unix seconds>.prom[.gz]`, or a text whose lines carry their
    /// times; `assumed_time_ms` is for samples that have neither.
    pub fn read(&mut self, file: &FoundFile, assumed_time_ms: Option<i64>, intake: &mut Intake, rejects: &mut Rejects) -> Counts {
        let (target, time_ms) = match file.scrape_name() {
            Some((target, time_ms)) => (target, Some(time_ms)),
            None => (plain_name(&file.path), assumed_time_ms),
        };
        let scrape = Scrape { target: &target, time_ms };
        if file.size <= SMALL_BYTES {
            self.buffer.clear();
            if let Err(error) = File::open(&file.path).and_then(|mut f| f.read_to_end(&mut self.buffer)) {
                rejects.add_text(0, "", &format!("cannot be read ({error})"));
                return Counts::default();
            }
            if !self.buffer.starts_with(&[0x1f, 0x8b]) {
                return read_exposition(self.buffer.as_slice(), scrape, intake, rejects);
            }
        }
        match content::open(&file.path) {
            Ok(reader) => read_exposition(BufReader::with_capacity(128 << 10, reader), scrape, intake, rejects),
            Err(error) => {
                rejects.add_text(0, "", &format!("cannot be read ({error})"));
                Counts::default()
            }
        }
    }
}

/// The target of a file that is not a scrape in its target's folder: its name without endings.
fn plain_name(path: &Path) -> String {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let name = name.strip_suffix(".gz").unwrap_or(name);
    let stem = ["prom", "txt", "metrics", "om", "openmetrics"].iter().find_map(|ending| name.strip_suffix(ending)?.strip_suffix('.'));
    stem.unwrap_or(name).to_string()
}
