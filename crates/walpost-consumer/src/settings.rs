use std::{collections::BTreeMap, fmt, time::Duration};

use walpost_event::RetrySchedule;

use crate::{Error, FirstStart, Guard, OnReset, Park, Retention};

/// Everything that a consumer was told, checked.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) consumer: String,
    pub(crate) group_id: Option<String>,
    pub(crate) topics: Vec<String>,
    pub(crate) kafka: BTreeMap<String, String>,
    pub(crate) schema: String,
    pub(crate) on_reset: OnReset,
    pub(crate) first_start: FirstStart,
    pub(crate) guard: Guard,
    pub(crate) lanes: usize,
    pub(crate) max_connections: usize,
    pub(crate) max_batch_events: usize,
    pub(crate) max_batch_bytes: usize,
    pub(crate) max_batch_wait_ms: u64,
    pub(crate) max_attempts: u32,
    pub(crate) retry_schedule: RetrySchedule,
    pub(crate) park: Park,
    pub(crate) halt_after_parked: u32,
    /// `None`: parked events are rows alone.
    pub(crate) dead_letter_topic: Option<String>,
    pub(crate) handler_timeout_ms: u64,
    pub(crate) lock_timeout_ms: u64,
    pub(crate) claim_timeout_ms: u64,
    pub(crate) stop_timeout_ms: u64,
    pub(crate) session_timeout_ms: u64,
    pub(crate) commit_interval_ms: u64,
    /// `None`: effects are remembered for ever.
    pub(crate) retention: Option<Retention>,
}

impl Settings {
    pub(crate) fn new(consumer: String) -> Self {
        Self {
            consumer,
            group_id: None,
            topics: Vec::new(),
            kafka: BTreeMap::new(),
            schema: "walpost".to_owned(),
            on_reset: OnReset::default(),
            first_start: FirstStart::default(),
            guard: Guard::default(),
            lanes: 1,
            max_connections: 20,
            max_batch_events: 500,
            max_batch_bytes: 4 << 20,
            max_batch_wait_ms: 0,
            max_attempts: 5,
            retry_schedule: RetrySchedule::new(
                [100, 500, 2_000, 10_000].map(Duration::from_millis),
            )
            .repeating_last(),
            park: Park::default(),
            halt_after_parked: 100,
            dead_letter_topic: None,
            handler_timeout_ms: 30_000,
            lock_timeout_ms: 10_000,
            claim_timeout_ms: 2_000,
            stop_timeout_ms: 20_000,
            session_timeout_ms: 10_000,
            commit_interval_ms: 100,
            retention: None,
        }
    }

    pub(crate) fn group_id(&self) -> &str {
        self.group_id.as_deref().unwrap_or(&self.consumer)
    }

    /// As they were given.
    pub(crate) fn brokers(&self) -> &str {
        self.kafka.get("bootstrap.servers").map_or("", String::as_str)
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        let text = |setting: &str, value: &str, max: usize| {
            let sane = (1..=max).contains(&value.len()) && !value.contains('\0');
            require(sane, setting, format!("needs 1 to {max} bytes of text without NUL"))
        };
        text("consumer name", &self.consumer, 255)?;
        text("group_id", self.group_id(), 255)?;
        text("schema", &self.schema, 63)?;
        let topics = "name at least one, such as outbox.event.order";
        require(!self.topics.is_empty(), "topics", topics.into())?;
        for topic in &self.topics {
            text("topics", topic, 249)?;
            require(
                !topic.starts_with('^'),
                "topics",
                format!("{topic} is a pattern, name each topic"),
            )?;
        }
        self.check_dead_letters()?;
        self.check_bounds()?;
        self.retention.map_or(Ok(()), Retention::check_bounds)?;
        if let Some(problem) = self.guard.problem_with_lanes(self.lanes) {
            require(false, "lanes", problem)?;
        }
        if let Some(problem) = self.guard.problem_with_park(self.park) {
            require(false, "park", problem)?;
        }
        if let Some(problem) = self.guard.problem(self.on_reset, self.handler_timeout_ms) {
            require(false, "guard", problem)?;
        }
        self.check_kafka()?;
        self.check_membership()
    }

    fn check_dead_letters(&self) -> Result<(), Error> {
        let Some(topic) = &self.dead_letter_topic else { return Ok(()) };
        let setting = "dead_letter_topic";
        let problem = "needs 1 to 249 bytes of text without NUL".to_owned();
        require((1..=249).contains(&topic.len()) && !topic.contains('\0'), setting, problem)?;
        let problem = format!("{topic} is one of the topics that are read; name another one");
        require(!self.topics.contains(topic), setting, problem)
    }

    fn check_bounds(&self) -> Result<(), Error> {
        let bounds: [(&str, u64, u64, u64); 13] = [
            ("lanes", self.lanes as u64, 1, 256),
            ("max_connections", self.max_connections as u64, 2, 10_000),
            ("max_batch_events", self.max_batch_events as u64, 1, 100_000),
            ("max_batch_bytes", self.max_batch_bytes as u64, 1024, 256 << 20),
            ("max_batch_wait_ms", self.max_batch_wait_ms, 0, 60_000),
            ("max_attempts", self.max_attempts.into(), 1, 1_000_000),
            ("halt_after_parked", self.halt_after_parked.into(), 1, u32::MAX.into()),
            ("handler_timeout_ms", self.handler_timeout_ms, 100, 3_600_000),
            ("lock_timeout_ms", self.lock_timeout_ms, 100, 600_000),
            ("claim_timeout_ms", self.claim_timeout_ms, 100, 60_000),
            ("stop_timeout_ms", self.stop_timeout_ms, 100, 240_000),
            ("session_timeout_ms", self.session_timeout_ms, 3_000, 300_000),
            ("commit_interval_ms", self.commit_interval_ms, 10, 60_000),
        ];
        for (setting, value, min, max) in bounds {
            let problem = format!("{value} is out of bounds, use {min} to {max}");
            require((min..=max).contains(&value), setting, problem)?;
        }
        Ok(())
    }

    fn check_kafka(&self) -> Result<(), Error> {
        const OWNED: [(&str, &str); 9] = [
            ("group.id", "use group_id()"),
            ("session.timeout.ms", "use session_timeout_ms()"),
            ("heartbeat.interval.ms", "it follows session_timeout_ms()"),
            ("enable.auto.commit", "offsets are committed after the database has them"),
            ("enable.auto.offset.store", "offsets are committed after the database has them"),
            ("auto.offset.reset", "use first_start() and on_reset()"),
            ("enable.partition.eof", "the lag is known by it"),
            ("allow.auto.create.topics", "a consumer creates no topics"),
            ("max.poll.interval.ms", "a handler's time is bounded by handler_timeout_ms()"),
        ];
        for (setting, instead) in OWNED {
            require(
                !self.kafka.contains_key(setting),
                setting,
                format!("not to be set, {instead}"),
            )?;
        }
        let bootstrap = "is missing, name at least one broker as host:port".to_owned();
        require(!self.brokers().trim().is_empty(), "bootstrap.servers", bootstrap)
    }

    /// What contradicts the group protocol, with the setting that is meant.
    fn check_membership(&self) -> Result<(), Error> {
        const PROTOCOL: &str = "group.protocol";
        const STRATEGY: &str = "partition.assignment.strategy";
        const ASSIGNOR: &str = "group.remote.assignor";
        let kafka = |setting: &str| self.kafka.get(setting).map(String::as_str);
        let refused = |setting: &str, is: bool, problem: String| require(!is, setting, problem);
        let protocol = kafka(PROTOCOL).unwrap_or("classic");
        let known = ["classic", "consumer"].contains(&protocol);
        refused(PROTOCOL, !known, format!("{protocol:?} is unknown, use classic or consumer"))?;
        let of_classic = format!("belongs to {PROTOCOL} = classic");
        if protocol == "consumer" {
            let instead = format!("{of_classic}; brokers assign by {ASSIGNOR}");
            refused(STRATEGY, kafka(STRATEGY).is_some(), instead)?;
            let setting = "group.protocol.type";
            refused(setting, kafka(setting).is_some(), of_classic)?;
        } else {
            let instead = format!("needs {PROTOCOL} = consumer; members assign by {STRATEGY}");
            refused(ASSIGNOR, kafka(ASSIGNOR).is_some(), instead)?;
        }
        let cooperative = |name: &str| name.trim() == "cooperative-sticky";
        let strategies = || kafka(STRATEGY).unwrap_or_default().split(',');
        let mixed = strategies().any(cooperative) && !strategies().all(cooperative);
        let alone = "cooperative-sticky does not go with others; stop all members to change it";
        refused(STRATEGY, mixed, alone.to_owned())?;
        let (setting, instance) = ("group.instance.id", kafka("group.instance.id"));
        let stranded = format!(
            "cooperative-sticky does not go with {setting}: one that is started again amid a \
             rebalance leaves partitions to nobody; use roundrobin or range, or {PROTOCOL} = \
             consumer"
        );
        refused(STRATEGY, instance.is_some() && strategies().any(cooperative), stranded)?;
        let empty = instance.is_some_and(|instance| instance.trim().is_empty());
        refused(setting, empty, "is empty; name each process, or leave it out".to_owned())
    }
}

/// Without the values of Kafka's settings, some of which are secrets.
impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("consumer", &self.consumer)
            .field("group_id", &self.group_id())
            .field("topics", &self.topics)
            .field("brokers", &self.brokers())
            .field("kafka", &self.kafka.keys())
            .finish_non_exhaustive()
    }
}

fn require(holds: bool, setting: &str, problem: String) -> Result<(), Error> {
    if holds { Ok(()) } else { Err(Error::Setting { setting: setting.to_owned(), problem }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sane() -> Settings {
        let mut settings = Settings::new("shipping".into());
        settings.topics = vec!["orders".into()];
        settings.kafka.insert("bootstrap.servers".into(), "localhost:9092".into());
        settings
    }

    fn refused(change: impl FnOnce(&mut Settings)) -> String {
        let mut settings = sane();
        change(&mut settings);
        settings.check().unwrap_err().to_string()
    }

    #[test]
    fn the_defaults_are_within_their_bounds() {
        sane().check().unwrap();
    }

    #[test]
    fn debug_shows_no_secret() {
        let mut settings = sane();
        settings.kafka.insert("sasl.password".into(), "s3cr3t".into());
        let text = format!("{settings:?}");
        assert!(text.contains("localhost:9092") && text.contains("sasl.password"), "{text}");
        assert!(!text.contains("s3cr3t"), "{text}");
    }

    #[test]
    fn what_cannot_work_is_refused_by_name() {
        assert!(refused(|s| s.topics.clear()).starts_with("setting topics:"));
        assert!(refused(|s| s.topics = vec!["^a".into()]).contains("pattern"));
        let dead = |topic: &str| {
            let topic = topic.to_owned();
            refused(move |s| s.dead_letter_topic = Some(topic))
        };
        assert!(dead("").starts_with("setting dead_letter_topic: needs"));
        assert!(dead("orders").contains("orders is one of the topics that are read"));
        assert!(refused(|s| s.max_batch_events = 0).contains("use 1 to 100000"));
        assert!(refused(|s| s.max_connections = 1).contains("use 2 to 10000"));
        assert!(refused(|s| s.schema = String::new()).starts_with("setting schema:"));
        assert!(refused(|s| s.kafka.clear()).starts_with("setting bootstrap.servers:"));
        let nobody = |s: &mut Settings| {
            s.kafka.insert("bootstrap.servers".into(), " ".into());
        };
        assert!(refused(nobody).contains("as host:port"));
        let auto = |s: &mut Settings| {
            s.kafka.insert("auto.offset.reset".into(), "latest".into());
        };
        assert!(refused(auto).contains("first_start()"));
    }

    #[test]
    fn what_contradicts_the_group_protocol_is_refused_with_what_is_meant() {
        let with = |settings: &[(&str, &str)]| {
            let mut sane = sane();
            let settings = settings.iter().map(|(name, value)| ((*name).into(), (*value).into()));
            sane.kafka.extend(settings);
            sane.check().map_err(|error| error.to_string())
        };
        let new = ("group.protocol", "consumer");
        for fine in [
            &[new][..],
            &[new, ("group.remote.assignor", "range"), ("group.instance.id", "pod-0")],
            &[("group.protocol", "classic"), ("partition.assignment.strategy", "range,roundrobin")],
            &[("partition.assignment.strategy", "cooperative-sticky")],
        ] {
            assert_eq!(with(fine), Ok(()), "{fine:?}");
        }
        for (settings, part) in [
            (&[("group.protocol", "share")][..], "use classic or consumer"),
            (&[new, ("partition.assignment.strategy", "range")], "group.remote.assignor"),
            (&[new, ("group.protocol.type", "consumer")], "belongs to group.protocol = classic"),
            (&[("group.remote.assignor", "uniform")], "needs group.protocol = consumer"),
            (&[("partition.assignment.strategy", "range,cooperative-sticky")], "stop all members"),
            (&[("group.instance.id", "")], "name each process"),
            (
                &[
                    ("group.instance.id", "pod-0"),
                    ("partition.assignment.strategy", "cooperative-sticky"),
                ],
                "leaves partitions to nobody; use roundrobin",
            ),
        ] {
            let error = with(settings).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
