use std::{future::pending, time::Duration};

use tokio::{
    task::{JoinHandle, JoinSet},
    time::{MissedTickBehavior, interval},
};

use crate::{Failed, Figures, Sending, Stop};

const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// What runs in one process while somebody looks on.
#[derive(Debug, Default)]
pub struct Running {
    /// Those who ask for something, until all of it is asked for.
    pub clients: Option<JoinHandle<Result<(), Failed>>>,
    /// What goes on until the program is told to stop.
    pub parts: JoinSet<Result<(), Failed>>,
    /// Who sends webhooks.
    pub sending: Option<Sending>,
}

impl Running {
    /// Prints every second what there is, until it is all there or the program is told
    /// to stop; then ends what runs, in order, and prints the last line.
    ///
    /// # Errors
    /// When a part has ended by itself, a client was told what it must not be, something
    /// is broken, or the figures cannot be had.
    pub async fn watch(
        mut self,
        figures: impl AsyncFn() -> Result<Figures, Failed>,
        stop: &Stop,
    ) -> Result<(), Failed> {
        let watched = self.look_on(&figures, stop).await;
        stop.stop();
        watched?;
        self.end().await?;
        figures().await?.tell_the_end()
    }

    async fn look_on(
        &mut self,
        figures: impl AsyncFn() -> Result<Figures, Failed>,
        stop: &Stop,
    ) -> Result<(), Failed> {
        let mut tick = interval(REPORT_INTERVAL);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                () = stop.requested() => return Ok(()),
                failed = sending_ended(&mut self.sending) => return Err(failed),
                Some(ended) = self.parts.join_next() => return part_ended(ended?, stop),
                ended = clients_ended(&mut self.clients) => ended?,
                _ = tick.tick() => {
                    if figures().await?.tell()? && self.clients.is_none() {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Waits for the end of all, which have been told to stop.
    ///
    /// # Errors
    /// When one of them has failed.
    pub async fn end(mut self) -> Result<(), Failed> {
        if let Some(clients) = self.clients {
            clients.await??;
        }
        if let Some(sending) = self.sending {
            sending.stop().await?;
        }
        while let Some(ended) = self.parts.join_next().await {
            ended??;
        }
        Ok(())
    }
}

/// A part may hear of the stop before whoever looks on does.
fn part_ended(ended: Result<(), Failed>, stop: &Stop) -> Result<(), Failed> {
    ended?;
    if stop.is_requested() { Ok(()) } else { Err("a part ended by itself".into()) }
}

async fn sending_ended(sending: &mut Option<Sending>) -> Failed {
    match sending {
        Some(sending) => sending.ended().await,
        None => pending().await,
    }
}

/// Ready once, with the last of them.
async fn clients_ended(clients: &mut Option<JoinHandle<Result<(), Failed>>>) -> Result<(), Failed> {
    let Some(all) = clients else { return pending().await };
    let ended = all.await;
    *clients = None;
    ended?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::End;

    fn figures(end: End) -> Figures {
        Figures { now: "now".to_owned(), last: "last".to_owned(), end }
    }

    fn clients(ended: Result<(), Failed>) -> Option<JoinHandle<Result<(), Failed>>> {
        Some(tokio::spawn(async { ended }))
    }

    #[tokio::test]
    async fn it_ends_when_all_is_there_and_the_clients_are_gone() {
        let stop = Stop::default();
        let running = Running { clients: clients(Ok(())), ..Running::default() };
        running.watch(async || Ok(figures(End::Done)), &stop).await.unwrap();
        stop.requested().await;
    }

    #[tokio::test]
    async fn it_goes_on_until_it_is_told_to_stop() {
        let stop = Stop::default();
        let told = stop.clone();
        let running = Running::default();
        let look = async || {
            told.stop();
            Ok(figures(End::GoesOn))
        };
        running.watch(look, &stop).await.unwrap();
    }

    #[test]
    fn a_part_that_hears_of_the_stop_first_has_not_ended_by_itself() {
        let stop = Stop::default();
        assert!(part_ended(Ok(()), &stop).is_err());
        stop.stop();
        assert!(part_ended(Ok(()), &stop).is_ok());
        assert!(part_ended(Err("no port".into()), &stop).is_err());
    }

    #[tokio::test]
    async fn whatever_is_broken_or_fails_ends_it_with_the_reason() {
        let fails = async |running: Running, end| {
            let watched = running.watch(async || Ok(figures(end)), &Stop::default()).await;
            watched.unwrap_err().to_string()
        };
        assert_eq!(fails(Running::default(), End::Broken).await, "last");
        let lied_to = Running { clients: clients(Err("two answers".into())), ..Running::default() };
        assert_eq!(fails(lied_to, End::GoesOn).await, "two answers");
        let mut gone = Running::default();
        gone.parts.spawn(async { Ok(()) });
        assert_eq!(fails(gone, End::GoesOn).await, "a part ended by itself");
        let mut failed = Running::default();
        failed.parts.spawn(async { Err("no port".into()) });
        assert_eq!(fails(failed, End::GoesOn).await, "no port");
    }
}
