//! The folder of files: a body is a temporary file until it is whole and on the
//! disk, and has the name of its contents from then on. So a name is a promise:
//! whoever finds a file under one finds all of it.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use axum::body::Body;
use http_body_util::BodyExt;
use sha2::{Digest, Sha256};
use tempfile::{Builder, NamedTempFile, TempPath};
use tokio::io::AsyncWriteExt;

use crate::failpoint::Failpoint;

/// Three folders on one file system: `tmp`, `files` and `thumbnails`.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    folder: Arc<Path>,
}

/// A body that is whole, and on the disk. Its temporary file leaves with this,
/// unless it was placed.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) sha256: String,
    pub(crate) bytes: u64,
    path: Arc<TempPath>,
}

/// Why there is no whole body.
#[derive(Debug)]
pub(crate) enum Incomplete {
    TooLong,
    /// The client is gone, or sent something else than it promised.
    BrokenOff,
    Disk(io::Error),
}

impl Store {
    pub(crate) fn open(folder: &Path) -> io::Result<Self> {
        for name in ["tmp", "files", "thumbnails"] {
            fs::create_dir_all(folder.join(name))?;
        }
        Ok(Self { folder: folder.into() })
    }

    /// Writes a body as it comes, a piece at a time. Where it breaks off, or this
    /// future is dropped, nothing of it stays.
    pub(crate) async fn receive(
        &self,
        mut body: Body,
        max_bytes: u64,
    ) -> Result<Received, Incomplete> {
        let (file, path) = self.temporary().map_err(Incomplete::Disk)?.into_parts();
        let mut file = tokio::fs::File::from_std(file);
        let (mut hash, mut bytes) = (Sha256::new(), 0);
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|_| Incomplete::BrokenOff)?;
            let Ok(piece) = frame.into_data() else { continue };
            bytes += piece.len() as u64;
            if bytes > max_bytes {
                return Err(Incomplete::TooLong);
            }
            hash.update(&piece);
            file.write_all(&piece).await.map_err(Incomplete::Disk)?;
        }
        file.sync_all().await.map_err(Incomplete::Disk)?;
        Failpoint::Received.reached();
        let sha256 = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Received { sha256, bytes, path: Arc::new(path) })
    }

    /// Gives a body the name of its contents, for good once this has returned.
    /// Who has the same contents under that name already loses nothing. To be
    /// called under the lock of the contents: see `sweep.rs`.
    pub(crate) fn place(&self, received: &Received) -> io::Result<()> {
        fs::rename(&*received.path, self.file(&received.sha256))?;
        sync(&self.folder.join("files"))
    }

    /// The contents of this hash.
    pub(crate) fn file(&self, sha256: &str) -> PathBuf {
        self.folder.join("files").join(sha256)
    }

    /// The thumbnail of these contents.
    pub(crate) fn thumbnail(&self, sha256: &str) -> PathBuf {
        self.folder.join("thumbnails").join(format!("{sha256}.png"))
    }

    /// Keeps a thumbnail under its name. Two that do so at once do the same.
    pub(crate) fn keep_thumbnail(&self, sha256: &str, png: &[u8]) -> io::Result<()> {
        let mut file = self.temporary()?;
        io::Write::write_all(&mut file, png)?;
        file.as_file().sync_all()?;
        Failpoint::Drawn.reached();
        file.persist(self.thumbnail(sha256))?;
        sync(&self.folder.join("thumbnails"))?;
        Failpoint::Named.reached();
        Ok(())
    }

    /// Removes temporary files that nobody has written to for `age`, and says how
    /// many. Their processes were killed.
    pub(crate) fn sweep_temporary(&self, age: Duration) -> io::Result<usize> {
        let mut swept = 0;
        for path in old(&self.folder.join("tmp"), age)? {
            swept += usize::from(removed(&path)?);
        }
        Ok(swept)
    }

    /// Hashes whose contents are that old.
    pub(crate) fn old_files(&self, age: Duration) -> io::Result<Vec<String>> {
        let name = |path: PathBuf| Some(path.file_name()?.to_str()?.to_owned());
        Ok(old(&self.folder.join("files"), age)?.into_iter().filter_map(name).collect())
    }

    /// Removes contents and their thumbnail, if they are there.
    pub(crate) fn remove(&self, sha256: &str) -> io::Result<()> {
        removed(&self.thumbnail(sha256))?;
        removed(&self.file(sha256))?;
        Ok(())
    }

    fn temporary(&self) -> io::Result<NamedTempFile> {
        Builder::new().tempfile_in(self.folder.join("tmp"))
    }
}

/// Whether it was there: another sweeper may have been here.
fn removed(path: &Path) -> io::Result<bool> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Names are on the disk once their folder is.
fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

fn old(folder: &Path, age: Duration) -> io::Result<Vec<PathBuf>> {
    let now = SystemTime::now();
    let mut old = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        // Whoever has just removed it, or renamed it, has done no harm.
        let Ok(modified) = entry.metadata().and_then(|metadata| metadata.modified()) else {
            continue;
        };
        if now.duration_since(modified).is_ok_and(|passed| passed >= age) {
            old.push(entry.path());
        }
    }
    Ok(old)
}
