//! The offsets file of a standalone worker. Blocks.

use std::{
    fs,
    io::{self, Read, Write},
    os::unix::fs::{MetadataExt, PermissionsExt, chown},
    path::{Path, PathBuf},
};

use tempfile::NamedTempFile;
use walpost_takeover::java_map;

use super::offsets::Stored;

/// Offsets are small, and few.
const BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Where the file is.
#[derive(Clone, Debug)]
pub(super) struct OffsetsFile {
    pub(super) path: PathBuf,
}

impl OffsetsFile {
    /// Every offset. A file that is not there, or empty, has none.
    pub(super) fn read(&self) -> Result<Vec<Stored>, String> {
        let place = format!("file {}", self.path.display());
        let stored = |(key, value)| Stored { key, value, place: place.clone(), partition: None };
        Ok(self.entries()?.into_iter().map(stored).collect())
    }

    fn entries(&self) -> Result<Vec<java_map::Entry>, String> {
        let name = self.path.display();
        let failed = |error: io::Error| format!("reading file {name}: {error}");
        let file = match fs::File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed(error)),
        };
        let mut bytes = Vec::new();
        file.take(BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
        if bytes.len() as u64 > BYTES_MAX {
            return Err(format!(
                "file {name} has more than {BYTES_MAX} bytes: no offsets file has"
            ));
        }
        if bytes.is_empty() {
            return Ok(Vec::new());
        }
        java_map::read(&bytes)
            .map_err(|error| format!("file {name} is no offsets file of Kafka Connect: {error}"))
    }

    /// Writes one offset beside the others, in one step.
    pub(super) fn write(&self, key: &[u8], value: &[u8]) -> Result<(), String> {
        let mut entries = self.entries()?;
        entries.retain(|(other, _)| other != key);
        entries.push((key.to_vec(), Some(value.to_vec())));
        let failed = |error: io::Error| format!("writing file {}: {error}", self.path.display());
        self.replace(&java_map::write(&entries)).map_err(failed)
    }

    fn replace(&self, bytes: &[u8]) -> io::Result<()> {
        let folder = match self.path.parent() {
            Some(folder) if folder != Path::new("") => folder,
            _ => Path::new("."),
        };
        let mut file = NamedTempFile::new_in(folder)?;
        file.write_all(bytes)?;
        // The worker, which may be another user's, is to read and write it as before.
        match fs::metadata(&self.path) {
            Ok(before) => {
                fs::set_permissions(file.path(), before.permissions())?;
                let now = file.as_file().metadata()?;
                if (before.uid(), before.gid()) != (now.uid(), now.gid()) {
                    chown(file.path(), Some(before.uid()), Some(before.gid()))?;
                }
            }
            Err(_) => fs::set_permissions(file.path(), fs::Permissions::from_mode(0o644))?,
        }
        file.as_file().sync_all()?;
        file.persist(&self.path)?;
        fs::File::open(folder)?.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_offset_is_written_beside_the_others() {
        let folder = tempfile::tempdir().unwrap();
        let file = OffsetsFile { path: folder.path().join("offsets") };
        assert!(file.read().unwrap().is_empty());
        file.write(b"a", b"1").unwrap();
        fs::set_permissions(&file.path, fs::Permissions::from_mode(0o640)).unwrap();
        file.write(b"b", b"2").unwrap();
        file.write(b"a", b"3").unwrap();
        let mut stored: Vec<_> =
            file.read().unwrap().into_iter().map(|one| (one.key, one.value.unwrap())).collect();
        stored.sort();
        assert_eq!(stored, [(b"a".to_vec(), b"3".to_vec()), (b"b".to_vec(), b"2".to_vec())]);
        assert_eq!(fs::metadata(&file.path).unwrap().permissions().mode() & 0o777, 0o640);
    }

    #[test]
    fn another_file_is_refused_and_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let file = OffsetsFile { path: folder.path().join("offsets") };
        fs::write(&file.path, "offsets").unwrap();
        assert!(file.read().unwrap_err().contains("is no offsets file"));
        assert!(file.write(b"a", b"1").is_err());
        assert_eq!(fs::read(&file.path).unwrap(), b"offsets");
    }
}
