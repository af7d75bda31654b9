//! Which brokers to believe, and whether a topic exists by the word of all of them.
//!
//! A broker that is cut off from its controller goes on answering by what it knew
//! before: it denies topics that were made since, and names leaders that are none
//! any more. The others have counted it out, and do not name it.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::{CStr, CString, c_char},
    time::{Duration, Instant},
};

use rdkafka::{
    client::{Client, ClientContext},
    error::RDKafkaErrorCode,
};
use rdkafka_sys as native;

use crate::{
    admin::{self, Event, Operation, Options},
    answer::Topic,
    array::array,
    owned::Owned,
    topic_id::{TopicIdError, descriptions},
    topics::brokers,
};

/// What the brokers of a cluster say of each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// By somebody.
    named: BTreeSet<i32>,
    /// Whom each of those that answered has named.
    views: BTreeMap<i32, BTreeSet<i32>>,
    addresses: BTreeMap<i32, String>,
}

/// Whether a topic exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Existence {
    /// A broker that is to be believed knows it; `None` where it tells no id (before
    /// Kafka 2.8).
    There(Option<Topic>),
    /// Every broker says that it does not.
    Gone,
    /// Nobody knows yet, and why.
    Unknown(String),
}

/// What one broker says of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Said {
    There(Option<Topic>),
    Denied,
    Failed(RDKafkaErrorCode),
}

impl Census {
    /// Those that all who answered have named, themselves among them.
    pub fn believed(&self) -> BTreeSet<i32> {
        let is_believed = |broker: &i32| self.views.values().all(|view| view.contains(broker));
        self.views.keys().copied().filter(is_believed).collect()
    }

    /// Those that somebody has named, and none of those to be believed.
    pub fn cut_off(&self) -> BTreeSet<i32> {
        let members = self.members();
        self.named.iter().copied().filter(|broker| !members.contains(broker)).collect()
    }

    /// Members of the cluster that have not answered.
    pub fn silent(&self) -> BTreeSet<i32> {
        let answered = |broker: &i32| self.views.contains_key(broker);
        self.members().into_iter().filter(|broker| !answered(broker)).collect()
    }

    /// Where those to be believed are reached, as `bootstrap.servers` has it.
    pub fn addresses(&self) -> String {
        let believed = self.believed();
        let address = |broker| self.addresses.get(broker).map(String::as_str);
        believed.iter().filter_map(address).collect::<Vec<_>>().join(",")
    }

    /// Why nothing may follow yet from what the brokers say: those to be believed
    /// are not most of the cluster.
    pub fn doubt(&self) -> Option<String> {
        let believed = self.believed().len();
        if believed == 0 {
            let answered = numbers(&self.views.keys().copied().collect());
            return Some(format!(
                "brokers {answered} do not agree which brokers there are; see whether each \
                 reaches the controller"
            ));
        }
        let silent = self.silent();
        (2 * believed <= believed + silent.len()).then(|| {
            format!(
                "brokers {} do not answer, and most of a cluster has to; see whether they run \
                 and can be reached",
                numbers(&silent)
            )
        })
    }

    /// Whom those to be believed have named.
    fn members(&self) -> BTreeSet<i32> {
        let believed = self.believed();
        let views = self.views.iter().filter(|(broker, _)| believed.contains(broker));
        views.flat_map(|(_, view)| view.iter().copied()).collect()
    }

    fn note(&mut self, broker: i32, nodes: Vec<(i32, String)>) {
        self.named.extend(nodes.iter().map(|(id, _)| *id));
        self.views.insert(broker, nodes.iter().map(|(id, _)| *id).collect());
        self.addresses.extend(nodes);
    }

    /// Where nobody names itself, something else answers for the brokers, and names
    /// whom a client is to go to: no list of members.
    fn leave_out_proxies(&mut self) {
        if !self.views.iter().any(|(broker, view)| view.contains(broker)) {
            self.views.values_mut().for_each(|view| view.clone_from(&self.named));
        }
    }

    fn judge(&self, said: &BTreeMap<i32, Said>) -> Existence {
        let believed = self.believed();
        let mut said = said.iter().filter(|(broker, _)| believed.contains(broker));
        let mut failed = None;
        let mut denied = 0;
        for (broker, said) in &mut said {
            match said {
                Said::There(topic) => return Existence::There(topic.clone()),
                Said::Denied => denied += 1,
                Said::Failed(code) => failed = Some((broker, code)),
            }
        }
        let silent = self.silent();
        match (self.doubt(), failed) {
            (Some(doubt), _) => Existence::Unknown(doubt),
            (None, Some((broker, code))) => Existence::Unknown(format!("broker {broker}: {code}")),
            (None, None) if !silent.is_empty() || denied < believed.len() => {
                let silent = if silent.is_empty() { believed } else { silent };
                let silent = numbers(&silent);
                Existence::Unknown(format!(
                    "brokers {silent} do not answer, and one of them may know it; see whether \
                     they run and can be reached"
                ))
            }
            (None, None) => Existence::Gone,
        }
    }
}

/// Asks every broker which brokers there are, those that others name as well. Works
/// with any client of any context, and needs no right. Blocks up to a few times
/// `timeout`, and no longer than an answer takes where all answer.
///
/// # Errors
/// If no broker answers in time.
pub fn census<C: ClientContext>(
    client: &Client<C>,
    timeout: Duration,
) -> Result<Census, RDKafkaErrorCode> {
    // A client that was just made has to find one first.
    let named = brokers(client, timeout * 3)?.into_iter().collect();
    let mut census = Census { named, ..Census::default() };
    let mut asked = BTreeSet::new();
    loop {
        let next: Vec<i32> = census.named.difference(&asked).copied().collect();
        if next.is_empty() {
            census.leave_out_proxies();
            return Ok(census);
        }
        asked.extend(&next);
        let operation = Operation::RD_KAFKA_ADMIN_OP_DESCRIBECLUSTER;
        // SAFETY: `from_each` gives what is alive; the options are copied, and the
        // request keeps a reference to the queue of its own.
        let ask = |client, options, queue| unsafe {
            native::rd_kafka_DescribeCluster(client, options, queue);
        };
        for (broker, event) in from_each(client, &next, operation, timeout, ask)? {
            let nodes = nodes(&event);
            if !nodes.is_empty() {
                census.note(broker, nodes);
            }
        }
    }
}

/// Asks every broker for `topics`; the answers come in their order. Blocks as
/// [`census`], and as long again.
///
/// # Errors
/// If no broker answers in time, or a name contains a NUL.
pub fn existence<C: ClientContext>(
    client: &Client<C>,
    topics: &[&str],
    timeout: Duration,
) -> Result<Vec<Existence>, RDKafkaErrorCode> {
    if topics.is_empty() {
        return Ok(Vec::new());
    }
    let names = topics.iter().map(|topic| CString::new(*topic));
    let names: Vec<CString> =
        names.collect::<Result<_, _>>().map_err(|_| RDKafkaErrorCode::InvalidArgument)?;
    let census = census(client, timeout)?;
    let believed: Vec<i32> = census.believed().into_iter().collect();
    let mut pointers: Vec<*const c_char> = names.iter().map(|name| name.as_ptr()).collect();
    // SAFETY: `pointers` holds as many C strings as said; they are copied.
    let collection = unsafe {
        native::rd_kafka_TopicCollection_of_topic_names(pointers.as_mut_ptr(), pointers.len())
    };
    let collection = Owned::new(collection, native::rd_kafka_TopicCollection_destroy);
    let operation = Operation::RD_KAFKA_ADMIN_OP_DESCRIBETOPICS;
    // SAFETY: as in `census`; the topics are alive, and copied.
    let ask = |client, options, queue| unsafe {
        native::rd_kafka_DescribeTopics(client, collection.ptr(), options, queue);
    };
    let mut said: Vec<BTreeMap<i32, Said>> = vec![BTreeMap::new(); names.len()];
    for (broker, event) in from_each(client, &believed, operation, timeout, ask)? {
        for (name, said) in names.iter().zip(&mut said) {
            said.insert(broker, said_of(&event, name));
        }
    }
    Ok(said.iter().map(|said| census.judge(said)).collect())
}

fn said_of(event: &Event, name: &CStr) -> Said {
    use RDKafkaErrorCode as Code;
    let found = match descriptions(event) {
        Ok(found) => found,
        Err(error) => return Said::Failed(code(&error)),
    };
    let Some(description) = found.iter().find(|found| found.name() == name) else {
        return Said::Failed(Code::Fail);
    };
    match description.id() {
        Ok(id) => Said::There(Some(Topic { id, partitions: description.partitions() })),
        Err(TopicIdError::NotSupported) => Said::There(None),
        Err(error) => match code(&error) {
            Code::UnknownTopic | Code::UnknownTopicOrPartition => Said::Denied,
            code => Said::Failed(code),
        },
    }
}

fn code(error: &TopicIdError) -> RDKafkaErrorCode {
    match error {
        TopicIdError::Kafka(code) => *code,
        _ => RDKafkaErrorCode::Fail,
    }
}

/// The answers of `brokers`, of those that gave one. All are waited for: librdkafka
/// may abort where a client goes with a question open.
fn from_each<C: ClientContext>(
    client: &Client<C>,
    brokers: &[i32],
    operation: Operation,
    timeout: Duration,
    ask: impl Fn(
        *mut native::rd_kafka_t,
        *const native::rd_kafka_AdminOptions_t,
        *mut native::rd_kafka_queue_t,
    ),
) -> Result<Vec<(i32, Event)>, RDKafkaErrorCode> {
    let queue = admin::queue(client);
    for broker in brokers {
        let number = usize::try_from(*broker).unwrap_or_default();
        let options = Options::new(client, operation, timeout)?.broker(*broker)?.number(number);
        ask(client.native_ptr(), options.ptr(), queue.ptr());
    }
    let deadline = Instant::now() + timeout * 3;
    let mut answers = Vec::with_capacity(brokers.len());
    for _ in brokers {
        let left = deadline.saturating_duration_since(Instant::now());
        let Some(event) = admin::poll(&queue, left) else { break };
        // SAFETY: the event is alive. The number was set as an address and is never
        // followed.
        let number = unsafe { native::rd_kafka_event_opaque(event.ptr()) }.addr();
        if admin::answered(&event).is_ok() {
            answers.push((i32::try_from(number).unwrap_or_default(), event));
        }
    }
    Ok(answers)
}

/// Numbers and addresses of the brokers of an answer.
fn nodes(event: &Event) -> Vec<(i32, String)> {
    // SAFETY: the event is alive; another type of event gives a null.
    let result = unsafe { native::rd_kafka_event_DescribeCluster_result(event.ptr()) };
    if result.is_null() {
        return Vec::new();
    }
    let mut count = 0;
    // SAFETY: the result lives as long as the event, `count` is written.
    let first = unsafe { native::rd_kafka_DescribeCluster_result_nodes(result, &raw mut count) };
    // SAFETY: `count` pointers lie at `first`, owned by the event.
    let nodes = unsafe { array(first, count) };
    let node = |node: &*const native::rd_kafka_Node_t| {
        // SAFETY: the node is owned by the event.
        let id = unsafe { native::rd_kafka_Node_id(*node) };
        // SAFETY: as above.
        let port = unsafe { native::rd_kafka_Node_port(*node) };
        // SAFETY: as above.
        let host = unsafe { native::rd_kafka_Node_host(*node) };
        // SAFETY: a C string owned by the event.
        let host = unsafe { CStr::from_ptr(host) }.to_string_lossy();
        let host = if host.contains(':') { format!("[{host}]") } else { host.into_owned() };
        (id, format!("{host}:{port}"))
    };
    nodes.iter().map(node).collect()
}

fn numbers(brokers: &BTreeSet<i32>) -> String {
    brokers.iter().map(i32::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TopicId;

    /// Of brokers that somebody named, and what those that answered named.
    fn census(named: &[i32], views: &[(i32, &[i32])]) -> Census {
        let mut census = Census { named: named.iter().copied().collect(), ..Census::default() };
        for (broker, view) in views {
            census.note(*broker, view.iter().map(|id| (*id, format!("h:{id}"))).collect());
        }
        census
    }

    fn set<const N: usize>(brokers: [i32; N]) -> BTreeSet<i32> {
        brokers.into()
    }

    fn there() -> Said {
        Said::There(Some(Topic { id: TopicId::from(1), partitions: vec![0] }))
    }

    fn is_gone(census: &Census, said: &[(i32, Said)]) -> bool {
        census.judge(&said.iter().cloned().collect()) == Existence::Gone
    }

    #[test]
    fn brokers_that_agree_are_believed() {
        let census = census(&[1, 2], &[(1, &[1, 2]), (2, &[1, 2])]);
        assert_eq!((census.believed(), census.cut_off()), (set([1, 2]), set([])));
        assert_eq!((census.doubt(), census.addresses()), (None, "h:1,h:2".to_owned()));
    }

    #[test]
    fn one_that_the_others_have_counted_out_is_not_believed() {
        let census = census(&[1, 2], &[(1, &[1]), (2, &[1, 2])]);
        assert_eq!((census.believed(), census.cut_off()), (set([1]), set([2])));
        assert_eq!((census.doubt(), census.addresses()), (None, "h:1".to_owned()));
        assert!(is_gone(&census, &[(1, Said::Denied), (2, there())]), "it knows the past");
        assert!(!is_gone(&census, &[(1, there()), (2, Said::Denied)]));
    }

    #[test]
    fn one_that_has_joined_since_is_believed_and_who_does_not_know_it_is_not() {
        let census = census(&[2], &[(1, &[1, 3]), (2, &[1, 2]), (3, &[1, 3])]);
        assert_eq!((census.believed(), census.cut_off()), (set([1]), set([2])));
        assert!(census.silent().is_empty() && census.doubt().is_none());
    }

    #[test]
    fn the_word_of_one_that_is_alone_counts_only_where_there_is_no_other() {
        let alone = census(&[1], &[(1, &[1])]);
        assert!(alone.doubt().is_none() && is_gone(&alone, &[(1, Said::Denied)]));
        let cut_off = census(&[1, 2], &[(2, &[1, 2])]);
        assert!(cut_off.doubt().unwrap().contains("brokers 1 do not answer"));
        assert!(!is_gone(&cut_off, &[(2, Said::Denied)]));
        let strangers = census(&[1, 2], &[(1, &[1]), (2, &[2])]);
        assert!(strangers.doubt().unwrap().contains("do not agree"));
        assert!(!is_gone(&strangers, &[(1, Said::Denied), (2, Said::Denied)]));
    }

    #[test]
    fn what_answers_for_brokers_and_does_not_name_itself_tells_no_members() {
        let mut proxied = census(&[7], &[(7, &[9]), (9, &[3]), (3, &[7])]);
        assert!(proxied.doubt().is_some());
        proxied.leave_out_proxies();
        assert_eq!((proxied.doubt(), proxied.cut_off()), (None, set([])));
        let mut named = census(&[1, 2], &[(1, &[1]), (2, &[1, 2])]);
        named.leave_out_proxies();
        assert_eq!(named.cut_off(), set([2]));
    }

    #[test]
    fn most_may_go_on_and_only_all_may_say_that_a_topic_is_gone() {
        let most = census(&[1, 2, 3], &[(1, &[1, 2, 3]), (2, &[1, 2, 3])]);
        assert_eq!((most.doubt(), most.silent()), (None, set([3])));
        let both = [(1, Said::Denied), (2, Said::Denied)];
        assert!(!is_gone(&most, &both));
        let all = census(&[1, 2, 3], &[(1, &[1, 2]), (2, &[1, 2])]);
        assert!(is_gone(&all, &both), "the third has left");
        assert!(!is_gone(&all, &both[..1]), "the second has not said");
        let failed = [(1, Said::Denied), (2, Said::Failed(RDKafkaErrorCode::Fail))];
        assert!(!is_gone(&all, &failed));
    }
}
