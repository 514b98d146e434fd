//! The bytes of an input file: opened, unpacked, looked at and named.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use flate2::read::MultiGzDecoder;
use sha2::{Digest, Sha256};

/// How much of a file its kind is told from.
pub const HEAD_BYTES: usize = 64 << 10;
/// Whole documents (JSON dumps, scheduler records) are read up to this size.
pub const DOCUMENT_BYTES: u64 = 1 << 30;

/// Opens a file, unpacked if it is gzip.
pub fn open(path: &Path) -> io::Result<Box<dyn Read + Send>> {
    let mut file = File::open(path)?;
    let mut magic = [0u8; 2];
    let length = read_up_to(&mut file, &mut magic)?;
    let start = io::Cursor::new(magic.get(..length).unwrap_or_default().to_vec());
    let whole = start.chain(file);
    if magic == [0x1f, 0x8b] {
        // Several members in one file are one text, as gzip itself has it.
        Ok(Box::new(MultiGzDecoder::new(BufReader::with_capacity(64 << 10, whole))))
    } else {
        Ok(Box::new(whole))
    }
}

/// The first bytes of a file, unpacked; what can be had of a file that breaks off.
pub fn head(path: &Path) -> io::Result<Vec<u8>> {
    let mut reader = open(path)?.take(HEAD_BYTES as u64);
    let mut bytes = Vec::new();
    match reader.read_to_end(&mut bytes) {
        Err(error) if bytes.is_empty() => Err(error),
        _ => Ok(bytes),
    }
}

/// All bytes of a document, unpacked, up to [`DOCUMENT_BYTES`]; with the error that ended it early, if one did.
pub fn document(path: &Path) -> io::Result<(Vec<u8>, Option<String>)> {
    let mut reader = open(path)?.take(DOCUMENT_BYTES + 1);
    let mut bytes = Vec::new();
    let end = match reader.read_to_end(&mut bytes) {
        Ok(_) if bytes.len() as u64 > DOCUMENT_BYTES => {
            bytes.truncate(usize::try_from(DOCUMENT_BYTES).unwrap_or(usize::MAX));
            Some(format!("document is longer than {DOCUMENT_BYTES} bytes; split it"))
        }
        Ok(_) => None,
        Err(error) if bytes.is_empty() => return Err(error),
        Err(error) => Some(format!("input ends early ({error}); what came before was read, get the file again for the rest")),
    };
    Ok((bytes, end))
}

/// SHA-256 of a file as it lies there, in hexadecimal.
pub fn file_sha256(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0u8; 256 << 10];
    loop {
        let length = match file.read(&mut buffer) {
            Ok(0) => return Ok(hexadecimal(&hash.finalize())),
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        hash.update(buffer.get(..length).unwrap_or_default());
    }
}

/// SHA-256 of bytes, in hexadecimal.
pub fn bytes_sha256(bytes: &[u8]) -> String {
    hexadecimal(&Sha256::digest(bytes))
}

/// Bytes in hexadecimal.
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn read_up_to(file: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.read(rest) {
            Ok(0) => break,
            Ok(length) => filled += length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
