//! Settings files, read up to a size: what a file says of its own length is not believed, for a device or a pipe says none.

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// All bytes of a file, or why not.
pub fn read(path: &Path, bytes_max: u64) -> Result<Vec<u8>, String> {
    let file = File::open(path).map_err(|error| error.to_string())?;
    let mut bytes = Vec::new();
    file.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if bytes.len() as u64 > bytes_max {
        return Err(format!("it is longer than the {bytes_max} bytes that are read"));
    }
    Ok(bytes)
}

/// The text of a file, or why not.
pub fn read_text(path: &Path, bytes_max: u64) -> Result<String, String> {
    String::from_utf8(read(path, bytes_max)?).map_err(|_| "it is not UTF-8 text; save it as UTF-8".to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_up_to_its_limit_and_no_further() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rules.toml");
        std::fs::write(&path, "abcd").unwrap();
        assert_eq!(read_text(&path, 4).unwrap(), "abcd");
        assert!(read_text(&path, 3).unwrap_err().contains("longer than the 3 bytes"));
        std::fs::write(&path, b"caf\xe9").unwrap();
        assert!(read_text(&path, 9).unwrap_err().contains("UTF-8"));
    }

    #[test]
    #[cfg(unix)]
    fn an_endless_device_is_not_read_to_its_end() {
        assert!(read(Path::new("/dev/zero"), 1 << 16).is_err());
    }
}
