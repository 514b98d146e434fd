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
    // A link stays one: what it points at is replaced.
    let target = fs::canonicalize(path);
    let path = target.as_deref().unwrap_or(path);
    if fs::metadata(path).is_ok_and(|found| !found.is_file() && !found.is_dir()) {
        // A device or a pipe, such as /dev/null: it is written to, and must never be replaced by a file.
        return fs::OpenOptions::new().write(true).open(path).and_then(|mut device| device.write_all(bytes)).map_err(failed);
    }
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
            for path in files.iter() {
                remove_partial(path, FOLDER_DEPTH_MAX);
            }
        }
        let _ = writeln!(io::stderr(), "interrupted: nothing was left half written");
        std::process::exit(i32::from(Exit::Interrupted.code()));
    });
}

/// Folders within a folder that is being written.
const FOLDER_DEPTH_MAX: usize = 8;

/// Removes a temporary file, or the temporary files in a folder.
fn remove_partial(path: &Path, depth: usize) {
    let is_folder = fs::symlink_metadata(path).is_ok_and(|found| found.is_dir());
    if !is_folder {
        let _ = fs::remove_file(path);
        return;
    }
    for inner in fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path()) {
        let is_partial = inner.file_name().is_some_and(|name| {
            let name = name.as_encoded_bytes();
            name.starts_with(b".") && name.ends_with(b".partial")
        });
        let is_folder = fs::symlink_metadata(&inner).is_ok_and(|found| found.is_dir());
        if is_partial && !is_folder {
            let _ = fs::remove_file(&inner);
        } else if is_folder && depth > 0 {
            remove_partial(&inner, depth - 1);
        }
    }
}

/// Writes many files into a folder, each by way of a temporary one named `.NAME.partial`; Ctrl-C removes those.
pub fn while_writing_folder<T>(folder: &Path, write: impl FnOnce() -> T) -> T {
    let begun = |change: fn(&mut BTreeSet<PathBuf>, PathBuf)| {
        if let Ok(mut files) = PARTIAL_FILES.lock() {
            change(&mut files, folder.to_path_buf());
        }
    };
    begun(|files, path| {
        files.insert(path);
    });
    let result = write();
    begun(|files, path| {
        files.remove(&path);
    });
    result
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
    #[cfg(unix)]
    fn a_link_stays_a_link_and_a_device_a_device() {
        use std::os::unix::fs::FileTypeExt;
        let folder = tempfile::tempdir().unwrap();
        let (file, link, pipe) = (folder.path().join("real.json"), folder.path().join("link.json"), folder.path().join("pipe"));
        fs::write(&file, b"old").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        write_file(&link, b"new").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read(&file).unwrap(), b"new");
        if std::process::Command::new("mkfifo").arg(&pipe).status().is_ok_and(|status| status.success()) {
            let reader = std::thread::spawn({
                let pipe = pipe.clone();
                move || fs::read(pipe).unwrap()
            });
            write_file(&pipe, b"through").unwrap();
            assert_eq!(reader.join().unwrap(), b"through");
            assert!(fs::metadata(&pipe).unwrap().file_type().is_fifo());
        }
    }

    #[test]
    fn what_a_folder_holds_half_written_goes_and_the_rest_stays() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("data/telemetry");
        fs::create_dir_all(&inner).unwrap();
        for name in [".a.parquet.partial", "b.parquet", "c.partial", ".d"] {
            fs::write(inner.join(name), b"x").unwrap();
        }
        remove_partial(folder.path(), FOLDER_DEPTH_MAX);
        let mut left: Vec<_> = fs::read_dir(&inner).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
        left.sort();
        assert_eq!(left, [".d", "b.parquet", "c.partial"]);
    }

    #[test]
    fn an_unwritable_place_is_an_output_failure() {
        let folder = tempfile::tempdir().unwrap();
        let failure = write_file(&folder.path().join("no/such/folder/report.json"), b"x").unwrap_err();
        assert_eq!(failure.exit, Exit::Output);
        assert!(failure.message.contains("report.json"), "{failure}");
    }
}
