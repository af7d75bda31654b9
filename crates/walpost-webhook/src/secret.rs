use std::{
    env, fmt,
    fs::File,
    io::{self, Read},
    path::PathBuf,
};

/// More is no secret but a mistake.
const BYTES_MAX: u64 = 64 * 1_024;

/// Where a token or a key is read from, again for each attempt, so that it can
/// be replaced while the sender runs.
#[derive(Clone, PartialEq, Eq)]
pub enum Secret {
    /// The secret itself.
    Text(String),
    /// An environment variable.
    Env(String),
    /// A file, without the white space at its end.
    File(PathBuf),
}

/// A secret cannot be read. No text of this has any of it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SecretError {
    /// The variable is not set, or holds no text.
    #[error("environment variable {name} is not set, or is no UTF-8")]
    Env {
        /// Its name.
        name: String,
    },
    /// The file cannot be read, or holds no text.
    #[error("file {path} cannot be read as text of at most {BYTES_MAX} bytes")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// There is nothing in it.
    #[error("{place} is empty")]
    Empty {
        /// What was read.
        place: String,
    },
}

impl Secret {
    /// Reads it as it is now.
    ///
    /// # Errors
    /// When it is not there, or empty.
    pub async fn read(&self) -> Result<String, SecretError> {
        let text = match self {
            Self::Text(text) => text.clone(),
            Self::Env(name) => {
                env::var(name).map_err(|_| SecretError::Env { name: name.clone() })?
            }
            Self::File(path) => {
                let (own, of_task) = (path.clone(), path.clone());
                // A file may lie on a disk that does not answer.
                let reading = tokio::task::spawn_blocking(move || read_file(&of_task));
                let read = reading.await.unwrap_or_else(|error| Err(io::Error::other(error)));
                read.map_err(|source| SecretError::File { path: own, source })?
            }
        };
        if text.is_empty() { Err(SecretError::Empty { place: self.place() }) } else { Ok(text) }
    }

    fn place(&self) -> String {
        match self {
            Self::Text(_) => "the secret".to_owned(),
            Self::Env(name) => format!("environment variable {name}"),
            Self::File(path) => format!("file {}", path.display()),
        }
    }
}

fn read_file(path: &PathBuf) -> io::Result<String> {
    let mut text = String::new();
    let read = File::open(path)?.take(BYTES_MAX + 1).read_to_string(&mut text)?;
    if read as u64 > BYTES_MAX {
        return Err(io::Error::other("it is too large"));
    }
    text.truncate(text.trim_end().len());
    Ok(text)
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(_) => f.write_str("Text(***)"),
            Self::Env(name) => write!(f, "Env({name})"),
            Self::File(path) => write!(f, "File({})", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_file_is_read_again_each_time_without_its_last_line_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let secret = Secret::File(path.clone());
        std::fs::write(&path, "one\n").unwrap();
        assert_eq!(secret.read().await.unwrap(), "one");
        std::fs::write(&path, " two \r\n\n").unwrap();
        assert_eq!(secret.read().await.unwrap(), " two");
        std::fs::write(&path, "\n").unwrap();
        let empty = format!("file {} is empty", path.display());
        assert_eq!(secret.read().await.unwrap_err().to_string(), empty);
        std::fs::write(&path, "x".repeat(65_537)).unwrap();
        assert!(matches!(secret.read().await, Err(SecretError::File { .. })));
        std::fs::write(&path, b"\xff").unwrap();
        assert!(matches!(secret.read().await, Err(SecretError::File { .. })));
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(secret.read().await, Err(SecretError::File { .. })));
    }

    #[tokio::test]
    async fn a_variable_is_read_and_a_missing_one_named() {
        let path = Secret::Env("PATH".to_owned()).read().await.unwrap();
        assert_eq!(Some(path.into()), env::var_os("PATH"));
        let missing = Secret::Env("WALPOST_NO_SUCH_VARIABLE".to_owned()).read().await;
        assert!(missing.unwrap_err().to_string().contains("WALPOST_NO_SUCH_VARIABLE"));
        assert!(Secret::Text(String::new()).read().await.is_err());
    }

    #[test]
    fn no_secret_is_printed() {
        assert_eq!(format!("{:?}", Secret::Text("hush".to_owned())), "Text(***)");
    }
}
