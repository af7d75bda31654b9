//! What `walpost serve` needs beside the database of the connectors.

use std::net::SocketAddr;

use walpost_connect::Access;

use super::{Config, ConfigError, build::secret_file};

/// Fewer can be guessed.
const MIN_TOKEN_BYTES: usize = 16;

/// Where to serve, and whom.
#[derive(Clone, Debug)]
pub(crate) struct Serving {
    pub(crate) listen: SocketAddr,
    pub(crate) access: Access,
    pub(crate) worker_id: String,
}

impl Config {
    /// Where to serve Kafka Connect's interface, and whom.
    pub(crate) fn serving(&self) -> Result<Serving, ConfigError> {
        let section = &self.settings.connect;
        let listen: SocketAddr = section.listen.parse().map_err(|_| {
            let problem = format!(
                "connect.listen is {:?}; an address such as 127.0.0.1:8083",
                section.listen
            );
            self.wrong("connect", "listen", &problem)
        })?;
        let access = match self.token()? {
            Some(token) => Access::open().bearer(&token),
            None => Access::open(),
        };
        if access.is_open() && !listen.ip().to_canonical().is_loopback() {
            let problem = format!(
                "connect.listen is {listen}, which others reach, and nobody has to say who they \
                 are; set connect.token_file or connect.token_variable, or listen on 127.0.0.1"
            );
            return Err(self.wrong("connect", "listen", &problem));
        }
        let worker_id = match section.worker_id.trim() {
            "" => listen.to_string(),
            id => id.to_owned(),
        };
        Ok(Serving { listen, access, worker_id })
    }

    fn token(&self) -> Result<Option<String>, ConfigError> {
        let section = &self.settings.connect;
        let (key, token) = match (&*section.token_file, &*section.token_variable) {
            ("", "") => return Ok(None),
            (file, "") => ("token_file", secret_file("connect.token_file", file)?),
            ("", variable) => {
                let token = std::env::var(variable).map_err(|_| {
                    let problem = format!(
                        "connect.token_variable is {variable:?}, and the environment has no text \
                         under that name; set it, or use connect.token_file"
                    );
                    self.wrong("connect", "token_variable", &problem)
                })?;
                ("token_variable", token)
            }
            _ => return Err(ConfigError::Conflict("connect.token_file", "connect.token_variable")),
        };
        if token.len() < MIN_TOKEN_BYTES || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            let problem = format!(
                "what connect.{key} leads to is no token: {MIN_TOKEN_BYTES} or more ASCII \
                 characters without blanks, such as `openssl rand -hex 32` prints"
            );
            return Err(self.wrong("connect", key, &problem));
        }
        Ok(Some(token))
    }
}
