//! Lists of SHA-256 sums in the format of `sha256sum`, and how a folder is
//! checked against one.

use std::{
    fs,
    fs::File,
    io::{self, Read},
    path::Path,
};

use sha2::{Digest, Sha256};

use crate::LocalError;

/// One line of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pinned<'a> {
    pub(crate) sum: &'a str,
    pub(crate) file: &'a str,
}

pub(crate) fn lines(list: &str) -> impl Iterator<Item = Pinned<'_>> {
    list.lines().filter_map(|line| line.split_once("  ")).map(|(sum, file)| Pinned { sum, file })
}

/// Checks that `folder` holds exactly the files of `list`.
pub(crate) fn check_folder(folder: &Path, list: &str) -> Result<(), LocalError> {
    for pinned in lines(list) {
        check_file(folder, pinned)?;
    }
    let entries = fs::read_dir(folder).map_err(LocalError::io("list", folder.display()))?;
    for entry in entries {
        let entry = entry.map_err(LocalError::io("list", folder.display()))?;
        if !lines(list).any(|pinned| entry.file_name() == pinned.file) {
            return Err(LocalError::Unexpected { file: entry.path() });
        }
    }
    Ok(())
}

pub(crate) fn check_file(folder: &Path, pinned: Pinned<'_>) -> Result<(), LocalError> {
    let path = folder.join(pinned.file);
    let mut file = match File::open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(LocalError::NotFetched { file: path });
        }
        opened => opened.map_err(LocalError::io("open", path.display()))?,
    };
    let found = sum_of(&mut file).map_err(LocalError::io("read", path.display()))?;
    if found == pinned.sum {
        return Ok(());
    }
    Err(LocalError::Checksum { file: path, expected: pinned.sum.to_owned(), found })
}

fn sum_of(file: &mut File) -> io::Result<String> {
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hex(&hash.finalize())),
            read => hash.update(&buffer[..read]),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  abc.jar\n";

    #[test]
    fn a_folder_that_matches_passes() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("abc.jar"), "abc").unwrap();
        check_folder(folder.path(), ABC).unwrap();
    }

    #[test]
    fn a_changed_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("abc.jar"), "abd").unwrap();
        let error = check_folder(folder.path(), ABC).unwrap_err();
        assert!(
            matches!(error, LocalError::Checksum { ref file, .. } if file.ends_with("abc.jar"))
        );
    }

    #[test]
    fn a_missing_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let error = check_folder(folder.path(), ABC).unwrap_err();
        assert!(matches!(error, LocalError::NotFetched { ref file } if file.ends_with("abc.jar")));
    }

    #[test]
    fn a_file_too_many_is_named() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("abc.jar"), "abc").unwrap();
        fs::write(folder.path().join("more.jar"), "abc").unwrap();
        let error = check_folder(folder.path(), ABC).unwrap_err();
        assert!(matches!(error, LocalError::Unexpected { ref file } if file.ends_with("more.jar")));
    }
}
