//! Results leave whole or not at all: to standard output, or to a file by way of a temporary one.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use crate::exit::{Exit, Failure};

/// Files that are being written; Ctrl-C removes them.
static PARTIAL_FILES: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// Writes the result to the file, or to standard output without one.
pub fn write_result(out: Option<&Path>, text: &str) -> Result<(), Failure> {
    match out {
        Some(path) => write_file(path, text.as_bytes()),
        None => {
            let mut stdout = io::stdout().lock();
            let written = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
            match written {
                Ok(()) => Ok(()),
                // `gpuledger report | head` is no failure of ours.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
                Err(error) => Err(Failure::output(format!("write to standard output: {error}"))),
            }
        }
    }
}

/// Writes a file whole: readers see the old content or the new, never a part.
pub fn write_file(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let failed = |error: io::Error| {
        Failure::output(format!("write {}: {error}", path.display())).with_hint("check that the folder exists and may be written to")
    };
    let name = path
        .file_name()
        .ok_or_else(|| Failure::output(format!("write {}: not a file name", path.display())).with_hint("give a file, not a folder"))?;
    let partial = path.with_file_name(format!(".{}.{}.partial", name.to_string_lossy(), std::process::id()));
    let guard = PartialFile::begin(partial);
    let mut file = fs::File::create(&guard.path).map_err(failed)?;
    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(failed)?;
    drop(file);
    fs::rename(&guard.path, path).map_err(failed)
}

/// On Ctrl-C: removes what is half written and leaves with the documented code.
pub fn leave_cleanly_when_interrupted() {
    // Without a handler Ctrl-C still stops the process; only a hidden temporary file could stay behind.
    let _ = ctrlc::set_handler(|| {
        if let Ok(files) = PARTIAL_FILES.lock() {
            for file in files.iter() {
                let _ = fs::remove_file(file);
            }
        }
        let _ = writeln!(io::stderr(), "interrupted: nothing was left half written");
        std::process::exit(i32::from(Exit::Interrupted.code()));
    });
}

/// A temporary file that is removed unless it was renamed away.
struct PartialFile {
    path: PathBuf,
}

impl PartialFile {
    fn begin(path: PathBuf) -> PartialFile {
        if let Ok(mut files) = PARTIAL_FILES.lock() {
            files.insert(path.clone());
        }
        PartialFile { path }
    }
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
        if let Ok(mut files) = PARTIAL_FILES.lock() {
            files.remove(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_and_nothing_else_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.json");
        write_file(&path, b"old").unwrap();
        write_file(&path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn an_unwritable_place_is_an_output_failure() {
        let folder = tempfile::tempdir().unwrap();
        let failure = write_file(&folder.path().join("no/such/folder/report.json"), b"x").unwrap_err();
        assert_eq!(failure.exit, Exit::Output);
        assert!(failure.message.contains("report.json"), "{failure}");
    }
}
