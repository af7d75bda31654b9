//! One mail to one mail server, so that it is known how far it came.
//!
//! Until the contents go out nothing can have been accepted. From then on only
//! the server's reply says whether it was, and where that is lost nobody knows.

use std::{future::Future, time::Duration};

use lettre::{
    address::Envelope,
    transport::smtp::{
        Error,
        client::AsyncSmtpConnection,
        commands::{Data, Mail, Rcpt},
        extension::ClientId,
    },
};
use tokio::time::timeout;

/// Until the server has taken sender and recipient. Servers of others may take
/// minutes (RFC 5321, 4.5.3.2); then the sender of the webhooks has to as well.
const OPEN_LIMIT: Duration = Duration::from_secs(4);
/// Between the first byte of the contents and the reply.
const HAND_OVER_LIMIT: Duration = Duration::from_secs(4);
const CLOSE_LIMIT: Duration = Duration::from_secs(1);
/// For the word that the contents may come.
const DATA_LIMIT: Duration = Duration::from_secs(3);

/// A conversation in which the server has taken sender and recipient.
pub(crate) struct Session {
    connection: AsyncSmtpConnection,
}

/// Why a mail was not accepted. It was not, for certain.
#[derive(Debug)]
pub(crate) enum Refused {
    /// The server is away, or has said 4xx.
    ForNow(String),
    /// The server has said 5xx.
    ForGood(String),
}

/// What became of the contents.
#[derive(Debug)]
pub(crate) enum NotAccepted {
    Refused(Refused),
    /// The server's reply was lost.
    Unknown(String),
}

impl Session {
    /// As far as anybody can go without sending a mail.
    pub(crate) async fn open(server: &str, envelope: &Envelope) -> Result<Self, Refused> {
        let opened = async {
            let hello = ClientId::default();
            let connected =
                AsyncSmtpConnection::connect_tokio1(server, Some(OPEN_LIMIT), &hello, None, None);
            let mut connection = connected.await?;
            connection.command(Mail::new(envelope.from().cloned(), Vec::new())).await?;
            for recipient in envelope.to() {
                connection.command(Rcpt::new(recipient.clone(), Vec::new())).await?;
            }
            Ok(Self { connection })
        };
        in_time(OPEN_LIMIT, opened).await.map_err(|error| match error {
            Lost::Replied(refused) => refused,
            Lost::NoReply(detail) => Refused::ForNow(detail),
        })
    }

    /// The contents, up to the server's reply that it has them.
    pub(crate) async fn hand_over(&mut self, mail: &[u8]) -> Result<(), NotAccepted> {
        let refused = |error| match error {
            Lost::Replied(refused) => NotAccepted::Refused(refused),
            Lost::NoReply(detail) => NotAccepted::Refused(Refused::ForNow(detail)),
        };
        in_time(DATA_LIMIT, self.connection.command(Data)).await.map_err(refused)?;
        match in_time(HAND_OVER_LIMIT, self.connection.message(mail)).await {
            Ok(_) => Ok(()),
            Err(Lost::Replied(refused)) => Err(NotAccepted::Refused(refused)),
            Err(Lost::NoReply(detail)) => Err(NotAccepted::Unknown(detail)),
        }
    }

    /// Takes leave.
    pub(crate) async fn close(mut self) {
        // The mail is with the server, whatever becomes of this.
        let _ = timeout(CLOSE_LIMIT, self.connection.quit()).await;
    }
}

/// How a command failed.
enum Lost {
    Replied(Refused),
    NoReply(String),
}

async fn in_time<T>(
    limit: Duration,
    attempt: impl Future<Output = Result<T, Error>>,
) -> Result<T, Lost> {
    match timeout(limit, attempt).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(error)) if error.is_permanent() => {
            Err(Lost::Replied(Refused::ForGood(error.to_string())))
        }
        Ok(Err(error)) if error.is_transient() => {
            Err(Lost::Replied(Refused::ForNow(error.to_string())))
        }
        Ok(Err(error)) => Err(Lost::NoReply(error.to_string())),
        Err(_) => Err(Lost::NoReply(format!("no reply in {limit:?}"))),
    }
}
