use std::{future::pending, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use tokio::time::timeout;

use super::Reply;
use crate::{
    blocking::Blocking,
    config::{Config, invalid},
    error::ApiError,
    plugin::Plugin,
    runner::Runner,
    state::Target,
};

/// How long a check may take: whoever asked waits a little longer.
const LIMIT: Duration = Duration::from_secs(30);

/// The configuration that a request has for a connector.
pub(super) struct Change {
    pub(super) name: String,
    pub(super) config: Config,
    /// What the connector is to do if it is a new one; `None` for one that is there.
    pub(super) target: Option<Target>,
    pub(super) reply: Reply,
}

/// Whether configurations are a connector's, looked at beside whoever leads: one at a
/// time, so that requests are carried out in their order.
pub(super) struct Checks {
    plugin: Arc<Plugin>,
    runner: Arc<Runner>,
    /// Of its own, so that no validation holds it up.
    blocking: Blocking,
    under_way: Option<(Change, BoxFuture<'static, Result<(), ApiError>>)>,
}

impl Checks {
    pub(super) fn new(plugin: Arc<Plugin>, runner: Arc<Runner>) -> Self {
        Self { plugin, runner, blocking: Blocking::default(), under_way: None }
    }

    /// Whether the next one may begin.
    pub(super) fn is_free(&self) -> bool {
        self.under_way.is_none()
    }

    /// Begins to find out whether a configuration is a connector's, and none of the
    /// `others` has its slot.
    pub(super) fn begin(&mut self, change: Change, others: Vec<(String, Arc<Config>)>) {
        let (plugin, runner) = (self.plugin.clone(), self.runner.clone());
        let (blocking, config) = (self.blocking.clone(), change.config.clone());
        let check = move || {
            let slot = plugin.check(&config, |properties| (runner.check)(properties))?;
            let has_it = |config: &Config| plugin.slot(config).is_some_and(|theirs| theirs == slot);
            match others.iter().find(|(_, config)| has_it(config)) {
                Some((other, _)) => Err(invalid(&[format!(
                    "slot.name: connector {other} has this slot of this database"
                )])),
                None => Ok(()),
            }
        };
        let checked = async move {
            let late = |_| {
                ApiError::internal(format!(
                    "the configuration was not checked within {} s; nothing was changed; try \
                     again, with simpler patterns and with placeholders whose files can be read",
                    LIMIT.as_secs()
                ))
            };
            timeout(LIMIT, blocking.run(check)).await.map_err(late)??
        };
        self.under_way = Some((change, Box::pin(checked)));
    }

    /// What was found out; waits for ever where nothing is under way. Safe to cancel.
    pub(super) async fn next(&mut self) -> (Change, Result<(), ApiError>) {
        let Some((_, check)) = &mut self.under_way else { return pending().await };
        let checked = check.await;
        let (change, _) = self.under_way.take().expect("it was under way");
        (change, checked)
    }

    /// Answers what is under way, and finds nothing out any more.
    pub(super) fn give_up(&mut self, why: ApiError) {
        if let Some((change, _)) = self.under_way.take() {
            // Whoever asked may be gone.
            let _ = change.reply.send(Err(why));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, mpsc};

    use futures_util::FutureExt;
    use tokio::sync::oneshot;
    use walpost_connector::{Allowed, Providers};

    use super::*;
    use crate::{plugin::tests::usable, worker::Done};

    type Answer = oneshot::Receiver<Result<Done, ApiError>>;

    /// Checks that hang until the sender is gone.
    fn hanging() -> (Checks, mpsc::Sender<()>) {
        let (hold, held) = mpsc::channel();
        let held = Mutex::new(held);
        let runner = Runner::new(async |_| Ok(())).checking(move |_| {
            let _ = held.lock().unwrap().recv();
            Vec::new()
        });
        let plugin = Plugin::new(Providers::new(Allowed::nothing()));
        (Checks::new(Arc::new(plugin), Arc::new(runner)), hold)
    }

    fn change(name: &str) -> (Change, Answer) {
        let (reply, answer) = oneshot::channel();
        let (name, target) = (name.to_owned(), Some(Target::Running));
        (Change { name, config: usable(), target, reply }, answer)
    }

    #[tokio::test]
    async fn what_hangs_is_waited_for_by_nobody_once_it_is_given_up() {
        let (mut checks, hold) = hanging();
        let (one, answer) = change("one");
        checks.begin(one, Vec::new());
        assert!(checks.next().now_or_never().is_none() && !checks.is_free());
        checks.give_up(ApiError::internal("given up"));
        assert_eq!(answer.await.unwrap().unwrap_err().message, "given up");
        assert!(checks.is_free());
        let (two, _answer) = change("two");
        checks.begin(two, vec![("other".to_owned(), Arc::new(usable()))]);
        assert!(checks.next().now_or_never().is_none(), "the first one goes on");
        drop(hold);
        let (change, checked) = checks.next().await;
        assert_eq!(change.name, "two");
        let said = checked.unwrap_err().message;
        assert!(said.contains("slot.name: connector other has this slot"), "{said}");
        assert!(checks.is_free());
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_not_found_out_in_time_is_answered() {
        let (mut checks, _hold) = hanging();
        let (one, _answer) = change("one");
        checks.begin(one, Vec::new());
        assert!(checks.next().now_or_never().is_none());
        // By itself the clock waits for what blocks.
        tokio::time::advance(LIMIT).await;
        let (_, checked) = checks.next().await;
        assert!(checked.unwrap_err().message.contains("was not checked within 30 s"));
    }
}
