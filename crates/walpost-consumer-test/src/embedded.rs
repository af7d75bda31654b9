//! The server that the tests of a process share.

use walpost_local::Postgres;

use tokio::sync::OnceCell;

use crate::Error;

/// Ends with the process, even when that is killed.
static SERVER: OnceCell<(Postgres, String)> = OnceCell::const_new();

pub(crate) async fn server_url() -> Result<&'static str, Error> {
    let started = SERVER.get_or_try_init(|| async {
        let starting = tokio::task::spawn_blocking(|| Postgres::builder().throwaway().start());
        match starting.await {
            Ok(Ok(server)) => {
                let url = server.url("postgres");
                Ok((server, url))
            }
            Ok(Err(error)) => Err(Error::Embedded(error.into())),
            Err(error) => Err(Error::Embedded(error.into())),
        }
    });
    Ok(&started.await?.1)
}
