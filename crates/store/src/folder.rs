//! The folder that keeps what was read: Parquet tables and a catalogue.
//!
//! ```text
//! DIR/catalog.json             what is in the folder; nothing else counts
//! DIR/tables/<name>/<key>.parquet
//! DIR/lock                     one run at a time
//! ```
//!
//! **STORE-1**: a batch's files are written under temporary names, synced and renamed; the catalogue that names
//! them is replaced last. A run that is interrupted leaves files that no catalogue names: the next one that opens
//! the folder removes them. **STORE-2**: a batch whose id is in the catalogue is not appended again.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{DataType, Field, FieldRef, Schema};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::properties::WriterProperties;
use parquet::schema::types::ColumnPath;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_arrow::schema::{SchemaLike, TracingOptions};
use sha2::{Digest, Sha256};

use crate::content;

/// The catalogue's version; a folder of another is refused.
pub const SCHEMA: &str = "gpuledger.store/1";

/// What can go wrong with the folder.
#[derive(Debug)]
pub enum StoreError {
    /// A file of the folder could not be read or written.
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// Another run holds the folder.
    InUse(PathBuf),
    /// The folder was written by another version, or is no folder of ours.
    Foreign {
        /// The catalogue.
        path: PathBuf,
        /// What it says.
        reason: String,
    },
    /// A table does not hold what it should.
    Damaged {
        /// The table's file, or its name before it has one.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

impl std::fmt::Display for StoreError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StoreError::File { path, error } => write!(f, "use {} of the store ({error})", path.display()),
            StoreError::InUse(path) => write!(f, "open the store {}: another run uses it; wait for its end", path.display()),
            StoreError::Foreign { path, reason } => {
                write!(f, "read {} ({reason}); give another --store folder, or remove this one to read the inputs anew", path.display())
            }
            StoreError::Damaged { path, reason } => {
                write!(f, "read {} of the store ({reason}); remove the store folder to read the inputs anew", path.display())
            }
        }
    }
}

impl std::error::Error for StoreError {}

/// Tables that are appended together.
#[derive(Debug, Default)]
pub struct Batch {
    /// Identity: the hash of what it was made from.
    pub id: String,
    /// Name, key and rows of each table.
    pub tables: Vec<(String, String, Vec<RecordBatch>)>,
}

impl Batch {
    /// An empty one.
    pub fn new(id: &str) -> Batch {
        Batch { id: id.to_string(), tables: Vec::new() }
    }

    /// Adds a table under the batch's id; one without rows is left out.
    pub fn add(&mut self, name: &str, rows: Vec<RecordBatch>) {
        if rows.iter().any(|batch| batch.num_rows() > 0) {
            self.tables.push((name.to_string(), self.id.clone(), rows));
        }
    }

    /// Adds rows of a serialisable type.
    pub fn add_rows<T: Serialize + DeserializeOwned>(&mut self, name: &str, rows: &[T]) -> Result<(), StoreError> {
        self.add(name, vec![rows_to_batch(name, rows)?]);
        Ok(())
    }
}

/// What the catalogue says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Catalog {
    /// [`SCHEMA`].
    pub schema: String,
    /// Rows of each table by name and key.
    pub tables: BTreeMap<String, BTreeMap<String, u64>>,
    /// SHA-256 of each table's file, by name and key: a disk that lies must not change a number.
    pub sha256: BTreeMap<String, BTreeMap<String, String>>,
    /// Batches appended, and their tables.
    pub batches: BTreeMap<String, Vec<(String, String)>>,
    /// What input stands behind which batch.
    pub sources: BTreeMap<String, Source>,
}

/// An input that was read into the folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// Size and time of its files, and how it was to be read: unchanged means that it need not be looked into.
    pub fingerprint: String,
    /// The batch that holds it.
    pub batch: String,
    /// What it is.
    pub kind: String,
    /// The input's line in reports.
    pub path: String,
    /// The cluster of what names none.
    pub cluster: Option<String>,
    /// Rows or samples taken.
    pub rows: u64,
    /// Rows, cells or samples refused.
    pub rejects: u64,
}

/// An open folder.
#[derive(Debug)]
pub struct Folder {
    root: PathBuf,
    catalog: Catalog,
    /// Held until the folder is closed.
    _lock: File,
}

impl Folder {
    /// Opens a folder, or makes it.
    pub fn open(root: &Path) -> Result<Folder, StoreError> {
        fs::create_dir_all(root).map_err(at(root))?;
        let lock_path = root.join("lock");
        let lock = OpenOptions::new().create(true).truncate(false).write(true).open(&lock_path).map_err(at(&lock_path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => return Err(StoreError::InUse(root.to_path_buf())),
            Err(fs::TryLockError::Error(error)) => return Err(at(&lock_path)(error)),
        }
        let path = root.join("catalog.json");
        let catalog = match fs::read(&path) {
            Ok(bytes) => {
                let foreign = |reason: String| StoreError::Foreign { path: path.clone(), reason };
                let catalog: Catalog = serde_json::from_slice(&bytes).map_err(|error| foreign(error.to_string()))?;
                if catalog.schema != SCHEMA {
                    return Err(foreign(format!("it is of {}, this version reads {SCHEMA}", catalog.schema)));
                }
                catalog
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                // Only a folder that a catalogue says is ours may be cleaned up.
                if holds_files(root) {
                    return Err(StoreError::Foreign { path, reason: "it is missing, and the folder holds other files".to_string() });
                }
                Catalog {
                    schema: SCHEMA.to_string(),
                    tables: BTreeMap::new(),
                    sha256: BTreeMap::new(),
                    batches: BTreeMap::new(),
                    sources: BTreeMap::new(),
                }
            }
            Err(error) => return Err(at(&path)(error)),
        };
        let folder = Folder { root: root.to_path_buf(), catalog, _lock: lock };
        if !path.exists() {
            folder.write_catalog(&folder.catalog)?;
        }
        folder.remove_leftovers()?;
        Ok(folder)
    }

    /// What is in it.
    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// Whether a batch was appended.
    pub fn has_batch(&self, id: &str) -> bool {
        self.catalog.batches.contains_key(id)
    }

    /// Appends batches, all of each or none; those known already are left as they are. Sources are set with them.
    pub fn append(&mut self, batches: Vec<Batch>, sources: Vec<(String, Source)>) -> Result<(), StoreError> {
        let mut catalog = self.catalog.clone();
        for batch in batches {
            if catalog.batches.contains_key(&batch.id) {
                continue;
            }
            let mut tables = Vec::new();
            for (name, key, rows) in batch.tables {
                let (count, sha256) = self.write_table(&name, &key, &rows)?;
                catalog.tables.entry(name.clone()).or_default().insert(key.clone(), count);
                catalog.sha256.entry(name.clone()).or_default().insert(key.clone(), sha256);
                tables.push((name, key));
            }
            catalog.batches.insert(batch.id, tables);
        }
        catalog.sources.extend(sources);
        self.replace_catalog(catalog)
    }

    /// Puts one table, replacing what was under its name and key.
    pub fn put_table(&mut self, name: &str, key: &str, rows: Vec<RecordBatch>) -> Result<(), StoreError> {
        let (count, sha256) = self.write_table(name, key, &rows)?;
        let mut catalog = self.catalog.clone();
        catalog.sha256.entry(name.to_string()).or_default().insert(key.to_string(), sha256);
        catalog.tables.entry(name.to_string()).or_default().insert(key.to_string(), count);
        self.replace_catalog(catalog)
    }

    /// Puts rows of a serialisable type.
    pub fn put_rows<T: Serialize + DeserializeOwned>(&mut self, name: &str, key: &str, rows: &[T]) -> Result<(), StoreError> {
        let batch = rows_to_batch(name, rows)?;
        self.put_table(name, key, vec![batch])
    }

    /// Whether there is such a table.
    pub fn has_table(&self, name: &str, key: &str) -> bool {
        self.catalog.tables.get(name).is_some_and(|keys| keys.contains_key(key))
    }

    /// A table's rows; `None` if there is no such table.
    pub fn get_table(&self, name: &str, key: &str) -> Result<Option<Vec<RecordBatch>>, StoreError> {
        if !self.has_table(name, key) {
            return Ok(None);
        }
        let path = self.table_path(name, key);
        let damaged = |error: &dyn std::fmt::Display| StoreError::Damaged { path: path.clone(), reason: error.to_string() };
        let sha256 = content::file_sha256(&path).map_err(|error| damaged(&error))?;
        if self.catalog.sha256.get(name).and_then(|keys| keys.get(key)) != Some(&sha256) {
            return Err(damaged(&"its bytes are not those that were written"));
        }
        let file = File::open(&path).map_err(at(&path))?;
        let reader = ParquetRecordBatchReaderBuilder::try_new(file)
            .map_err(|error| damaged(&error))?
            .with_batch_size(64 << 10)
            .build()
            .map_err(|error| damaged(&error))?;
        reader.map(|batch| batch.map_err(|error| damaged(&error))).collect::<Result<Vec<_>, _>>().map(Some)
    }

    /// Rows of a serialisable type; `None` if there is no such table.
    pub fn get_rows<T: DeserializeOwned>(&self, name: &str, key: &str) -> Result<Option<Vec<T>>, StoreError> {
        let Some(batches) = self.get_table(name, key)? else { return Ok(None) };
        let mut rows = Vec::new();
        for batch in batches.iter().filter(|batch| batch.num_rows() > 0) {
            let part: Vec<T> = serde_arrow::from_record_batch(batch)
                .map_err(|error| StoreError::Damaged { path: self.table_path(name, key), reason: error.to_string() })?;
            rows.extend(part);
        }
        Ok(Some(rows))
    }

    /// Forgets the tables of a name but for these keys, such as windows of inputs that have changed.
    pub fn keep_only(&mut self, name: &str, keys: &[&str]) -> Result<(), StoreError> {
        let mut catalog = self.catalog.clone();
        if let Some(own) = catalog.tables.get_mut(name) {
            own.retain(|key, _| keys.contains(&key.as_str()));
        }
        self.replace_catalog(catalog)
    }

    /// Forgets batches that no source stands behind any more.
    pub fn forget_unused(&mut self) -> Result<(), StoreError> {
        let mut catalog = self.catalog.clone();
        let used: std::collections::BTreeSet<&String> = self.catalog.sources.values().map(|source| &source.batch).collect();
        let unused: Vec<String> = catalog.batches.keys().filter(|id| !used.contains(id)).cloned().collect();
        for id in unused {
            for (name, key) in catalog.batches.remove(&id).unwrap_or_default() {
                if let Some(keys) = catalog.tables.get_mut(&name) {
                    keys.remove(&key);
                }
            }
        }
        self.replace_catalog(catalog)
    }

    fn table_path(&self, name: &str, key: &str) -> PathBuf {
        self.root.join("tables").join(file_name(name)).join(format!("{}.parquet", file_name(key)))
    }

    /// Rows, and the hash of the file.
    fn write_table(&self, name: &str, key: &str, rows: &[RecordBatch]) -> Result<(u64, String), StoreError> {
        let path = self.table_path(name, key);
        let folder = path.parent().unwrap_or(&self.root).to_path_buf();
        fs::create_dir_all(&folder).map_err(at(&folder))?;
        let temporary = path.with_extension("tmp");
        let file = File::create(&temporary).map_err(at(&temporary))?;
        // What goes wrong here is the disk: rows that are in memory can be written.
        let failed = |error: parquet::errors::ParquetError| at(&temporary)(std::io::Error::other(error.to_string()));
        let schema = rows.first().map_or_else(|| Arc::new(Schema::empty()), RecordBatch::schema);
        let file = Hashed { file, hash: Sha256::new() };
        let mut writer = ArrowWriter::try_new(file, schema.clone(), Some(properties(&schema))).map_err(failed)?;
        let mut count = 0;
        for batch in rows {
            count += batch.num_rows() as u64;
            writer.write(batch).map_err(failed)?;
        }
        let Hashed { file, hash } = writer.into_inner().map_err(failed)?;
        file.sync_all().map_err(at(&temporary))?;
        fs::rename(&temporary, &path).map_err(at(&path))?;
        sync_folder(&folder);
        Ok((count, content::hexadecimal(&hash.finalize())))
    }

    /// The moment at which an append happens.
    fn replace_catalog(&mut self, mut catalog: Catalog) -> Result<(), StoreError> {
        for (name, keys) in &mut catalog.sha256 {
            keys.retain(|key, _| catalog.tables.get(name).is_some_and(|own| own.contains_key(key)));
        }
        if catalog == self.catalog {
            return Ok(());
        }
        self.write_catalog(&catalog)?;
        let before = std::mem::replace(&mut self.catalog, catalog);
        for (name, keys) in &before.tables {
            for key in keys.keys().filter(|key| !self.has_table(name, key)) {
                // What fails to go now is a leftover of the next opening.
                let _ = fs::remove_file(self.table_path(name, key));
            }
        }
        Ok(())
    }

    fn write_catalog(&self, catalog: &Catalog) -> Result<(), StoreError> {
        let path = self.root.join("catalog.json");
        let temporary = self.root.join("catalog.json.tmp");
        let text =
            serde_json::to_vec_pretty(catalog).map_err(|error| StoreError::Damaged { path: path.clone(), reason: error.to_string() })?;
        let mut file = File::create(&temporary).map_err(at(&temporary))?;
        file.write_all(&text).and_then(|()| file.sync_all()).map_err(at(&temporary))?;
        fs::rename(&temporary, &path).map_err(at(&path))?;
        sync_folder(&self.root);
        Ok(())
    }

    /// Removes what an interrupted run left: files that the catalogue does not name.
    fn remove_leftovers(&self) -> Result<(), StoreError> {
        let known: std::collections::BTreeSet<PathBuf> =
            self.catalog.tables.iter().flat_map(|(name, keys)| keys.keys().map(|key| self.table_path(name, key))).collect();
        let tables = self.root.join("tables");
        fs::create_dir_all(&tables).map_err(at(&tables))?;
        for folder in fs::read_dir(&tables).map_err(at(&tables))?.flatten() {
            let Ok(files) = fs::read_dir(folder.path()) else { continue };
            for file in files.flatten().map(|file| file.path()) {
                let is_ours = file.extension().is_some_and(|ending| ending == "tmp" || ending == "parquet");
                if is_ours && !known.contains(&file) {
                    fs::remove_file(&file).map_err(at(&file))?;
                }
            }
        }
        Ok(())
    }
}

/// A file whose bytes are hashed on their way.
struct Hashed {
    file: File,
    hash: Sha256,
}

impl Write for Hashed {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let length = self.file.write(bytes)?;
        self.hash.update(bytes.get(..length).unwrap_or_default());
        Ok(length)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.file.flush()
    }
}

/// Whether a folder holds anything but what the first opening leaves when it is cut off.
fn holds_files(root: &Path) -> bool {
    let ours = ["lock", "catalog.json.tmp"];
    fs::read_dir(root).is_ok_and(|files| files.flatten().any(|file| !ours.iter().any(|name| file.file_name() == *name)))
}

/// Rows of a serialisable type as one record batch.
pub fn rows_to_batch<T: Serialize + DeserializeOwned>(name: &str, rows: &[T]) -> Result<RecordBatch, StoreError> {
    let failed = |error: serde_arrow::Error| StoreError::Damaged { path: PathBuf::from(name), reason: error.to_string() };
    let options = || TracingOptions::default().allow_null_fields(true).map_as_struct(false).enums_without_data_as_strings(true);
    // The type alone gives the same columns whatever the rows; types that cannot be made of empty texts
    // (decimals) are traced through the rows, and what the rows leave open is text.
    let fields: Vec<FieldRef> = match Vec::<FieldRef>::from_type::<T>(options()) {
        Ok(fields) => fields,
        Err(_) if rows.is_empty() => return Ok(RecordBatch::new_empty(Arc::new(Schema::empty()))),
        Err(_) => Vec::<FieldRef>::from_samples(rows, options()).map_err(failed)?.iter().map(settled).collect(),
    };
    if let Some(field) = fields.iter().find(|field| matches!(field.data_type(), DataType::Union(_, _) | DataType::Null)) {
        let reason = format!("{} has no form in a column", field.name());
        return Err(StoreError::Damaged { path: PathBuf::from(name), reason });
    }
    serde_arrow::to_record_batch(&fields, &rows).map_err(failed)
}

/// A field whose type the rows did not settle: only nulls, or only some words of an enumeration.
fn settled(field: &FieldRef) -> FieldRef {
    let kind = match field.data_type() {
        DataType::Null => DataType::LargeUtf8,
        DataType::Union(variants, _) if variants.iter().all(|(_, variant)| *variant.data_type() == DataType::Null) => {
            DataType::Dictionary(Box::new(DataType::UInt32), Box::new(DataType::LargeUtf8))
        }
        DataType::Struct(inner) => DataType::Struct(inner.iter().map(settled).collect()),
        _ => return Arc::clone(field),
    };
    let is_nullable = field.is_nullable() || *field.data_type() == DataType::Null;
    Arc::new(Field::new(field.name(), kind, is_nullable))
}

/// Times and values lie in runs: differences pack better than dictionaries.
fn properties(schema: &Schema) -> WriterProperties {
    let mut builder = WriterProperties::builder().set_created_by("gpuledger".to_string());
    if let Ok(level) = ZstdLevel::try_new(1) {
        builder = builder.set_compression(Compression::ZSTD(level));
    }
    for field in schema.fields().iter().filter(|field| *field.data_type() == DataType::Int64) {
        let column = ColumnPath::from(field.name().as_str());
        builder = builder.set_column_dictionary_enabled(column.clone(), false).set_column_encoding(column, Encoding::DELTA_BINARY_PACKED);
    }
    builder.build()
}

/// Keys are hashes; anything else is made safe as a file's name.
fn file_name(text: &str) -> String {
    let is_safe = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let safe: String = text.chars().take(100).map(|c| if is_safe(c) { c } else { '_' }).collect();
    if safe == text && !safe.starts_with('.') {
        safe
    } else {
        format!("{}-{}", safe.trim_start_matches('.'), &crate::content::bytes_sha256(text.as_bytes()))
    }
}

fn at(path: &Path) -> impl FnOnce(std::io::Error) -> StoreError + use<> {
    let path = path.to_path_buf();
    move |error| StoreError::File { path, error }
}

/// Makes a rename durable where the system lets folders be synced.
fn sync_folder(folder: &Path) {
    if let Ok(folder) = File::open(folder) {
        let _ = folder.sync_all();
    }
}
