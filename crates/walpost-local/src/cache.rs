use std::{
    env, fs,
    fs::File,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use rustix::fs::{FlockOperation, flock};

use crate::LocalError;

const LOCK_LIMIT: Duration = Duration::from_secs(900);
const LOCK_POLL: Duration = Duration::from_millis(50);

/// Where fetched files are kept: `WALPOST_CACHE`; as root `/var/cache/walpost`,
/// because PostgreSQL runs as another user and must be able to read it; else
/// `$XDG_CACHE_HOME/walpost` or `~/.cache/walpost`.
#[must_use]
pub fn cache_dir() -> PathBuf {
    let set = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(path) = set("WALPOST_CACHE") {
        return path;
    }
    if rustix::process::geteuid().is_root() {
        return PathBuf::from("/var/cache/walpost");
    }
    set("XDG_CACHE_HOME")
        .or_else(|| set("HOME").map(|home| home.join(".cache")))
        .unwrap_or_else(env::temp_dir)
        .join("walpost")
}

/// Returns `<cache>/<name>`, filled by `fill` if it is not there yet.
///
/// `fill` gets an empty folder that takes its place only when it succeeds.
/// Only one process fills at a time.
pub(crate) fn once(
    cache: &Path,
    name: &str,
    fill: impl FnOnce(&Path) -> Result<(), LocalError>,
) -> Result<PathBuf, LocalError> {
    let target = cache.join(name);
    if target.is_dir() {
        return Ok(target);
    }
    fs::create_dir_all(cache).map_err(LocalError::io("create", cache.display()))?;
    let _lock = lock(&cache.join(format!("{name}.lock")))?;
    if target.is_dir() {
        return Ok(target);
    }
    let partial = cache.join(format!("{name}.partial"));
    if partial.exists() {
        fs::remove_dir_all(&partial).map_err(LocalError::io("remove", partial.display()))?;
    }
    fs::create_dir(&partial).map_err(LocalError::io("create", partial.display()))?;
    fill(&partial)?;
    fs::rename(&partial, &target).map_err(LocalError::io("rename", partial.display()))?;
    Ok(target)
}

/// The lock ends when the file is closed.
pub(crate) fn lock(path: &Path) -> Result<File, LocalError> {
    let file = File::create(path).map_err(LocalError::io("create", path.display()))?;
    let start = Instant::now();
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(rustix::io::Errno::WOULDBLOCK) if start.elapsed() < LOCK_LIMIT => {
                thread::sleep(LOCK_POLL);
            }
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(LocalError::Timeout {
                    what: format!("another process that holds {}", path.display()),
                    limit: LOCK_LIMIT,
                    tail: "end it and try again".into(),
                });
            }
            Err(error) => return Err(LocalError::io("lock", path.display())(error.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn many_at_once_fill_a_folder_only_once() {
        let cache = tempfile::tempdir().unwrap();
        let fills = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let path = once(cache.path(), "thing", |folder| {
                        fills.fetch_add(1, Ordering::SeqCst);
                        fs::write(folder.join("file"), "x").unwrap();
                        Ok(())
                    });
                    assert!(path.unwrap().join("file").is_file());
                });
            }
        });
        assert_eq!(fills.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn a_failed_fill_leaves_nothing_behind_that_would_be_used() {
        let cache = tempfile::tempdir().unwrap();
        let failed = once(cache.path(), "thing", |folder| {
            fs::write(folder.join("half"), "x").unwrap();
            Err(LocalError::NotFetched { file: folder.join("other") })
        });
        assert!(failed.is_err());
        let path = once(cache.path(), "thing", |_| Ok(())).unwrap();
        assert!(!path.join("half").exists());
    }
}
