use std::{
    ffi::{CStr, CString},
    ptr,
    time::Duration,
};

use rdkafka::{
    client::{Client, ClientContext},
    error::RDKafkaErrorCode,
};
use rdkafka_sys as native;

use crate::{
    admin::{self, Event, Operation, Options, check, milliseconds},
    array::array,
    owned::Owned,
};

/// The values of some settings of one topic, `None` where it has none of the name.
pub type SettingValues = Result<Vec<Option<String>>, RDKafkaErrorCode>;

/// The topics that a client uses, as one broker sees them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicsInUse {
    /// A broker that is there: the one that answered, where it is known by its
    /// number.
    pub broker: i32,
    /// Name and number of partitions of each topic that exists.
    pub partitions: Vec<(String, i32)>,
}

/// Asks for all topics that `client` has sent to, in one request. librdkafka
/// itself learns from the answer, too.
///
/// Blocks up to `timeout`.
///
/// # Errors
/// If no broker answers in time.
pub fn topics_in_use<C: ClientContext>(
    client: &Client<C>,
    timeout: Duration,
) -> Result<TopicsInUse, RDKafkaErrorCode> {
    let metadata = in_use(client, timeout)?;
    // SAFETY: the metadata is alive, and nobody else has it.
    let found = unsafe { &*metadata.ptr() };
    // SAFETY: as many brokers as said lie there, owned by the metadata.
    let brokers = unsafe { array(found.brokers, found.broker_cnt) };
    let answered = brokers.iter().find(|broker| broker.id == found.orig_broker_id);
    let broker = answered.or(brokers.first()).ok_or(RDKafkaErrorCode::BrokerNotAvailable)?.id;
    // SAFETY: as many topics as said lie there, owned by the metadata.
    let topics = unsafe { array(found.topics, found.topic_cnt) };
    let mut partitions = Vec::with_capacity(topics.len());
    for topic in topics.iter().filter(|topic| check(topic.err).is_ok() && topic.partition_cnt > 0) {
        // SAFETY: a C string owned by the metadata.
        let name = unsafe { CStr::from_ptr(topic.topic) };
        partitions.push((name.to_string_lossy().into_owned(), topic.partition_cnt));
    }
    Ok(TopicsInUse { broker, partitions })
}

/// Numbers of all brokers, as one of them knows them. Blocks up to `timeout`.
pub(crate) fn brokers<C: ClientContext>(
    client: &Client<C>,
    timeout: Duration,
) -> Result<Vec<i32>, RDKafkaErrorCode> {
    let metadata = in_use(client, timeout)?;
    // SAFETY: the metadata is alive, and nobody else has it.
    let found = unsafe { &*metadata.ptr() };
    // SAFETY: as many brokers as said lie there, owned by the metadata.
    let brokers = unsafe { array(found.brokers, found.broker_cnt) };
    Ok(brokers.iter().map(|broker| broker.id).collect())
}

/// All brokers, and the topics that `client` uses.
fn in_use<C: ClientContext>(
    client: &Client<C>,
    timeout: Duration,
) -> Result<Owned<native::rd_kafka_metadata>, RDKafkaErrorCode> {
    let mut metadata = ptr::null();
    // SAFETY: the client is alive, no topic means those in use, and `metadata`
    // is written on success.
    check(unsafe {
        native::rd_kafka_metadata(
            client.native_ptr(),
            0,
            ptr::null_mut(),
            &raw mut metadata,
            milliseconds(timeout),
        )
    })?;
    Ok(Owned::new(metadata.cast_mut(), destroy_metadata))
}

/// Asks `broker` for one setting of `topics`, all in one request; `None` where
/// the topic has no such setting. Otherwise as [`topics_settings`].
///
/// # Errors
/// Of the whole request; those of single topics are in the answer.
pub fn topic_settings<C: ClientContext>(
    client: &Client<C>,
    topics: &[&str],
    setting: &str,
    broker: i32,
    timeout: Duration,
) -> Result<Vec<Result<Option<String>, RDKafkaErrorCode>>, RDKafkaErrorCode> {
    let asked = topics_settings(client, topics, &[setting], broker, timeout)?;
    Ok(asked.into_iter().map(|of| of.map(|mut values| values.remove(0))).collect())
}

/// Asks `broker` for some settings of `topics`, all in one request; the values come
/// in the order of the settings, `None` where the topic has none of the name.
///
/// Unlike rust-rdkafka's own, an answer that is an error, such as a right that
/// is missing, is one here too. Works with any client of any context, and
/// needs no controller. Blocks up to `timeout`.
///
/// # Errors
/// Of the whole request; those of single topics are in the answer.
pub fn topics_settings<C: ClientContext>(
    client: &Client<C>,
    topics: &[&str],
    settings: &[&str],
    broker: i32,
    timeout: Duration,
) -> Result<Vec<SettingValues>, RDKafkaErrorCode> {
    if topics.is_empty() {
        return Ok(Vec::new());
    }
    let c_strings = |texts: &[&str]| -> Result<Vec<CString>, _> {
        texts.iter().map(|text| c_string(text)).collect()
    };
    let (settings, names) = (c_strings(settings)?, c_strings(topics)?);
    let event = describe_configs(client, &names, &settings, broker, timeout)?;
    let found = resources(&event)?;
    let values_of = |name: &CString| {
        let resource = found
            .iter()
            .find(|resource| resource.name() == name.as_c_str())
            .ok_or(RDKafkaErrorCode::UnknownTopic)?;
        settings.iter().map(|setting| resource.value(setting)).collect()
    };
    Ok(names.iter().map(values_of).collect())
}

fn describe_configs<C: ClientContext>(
    client: &Client<C>,
    topics: &[CString],
    settings: &[CString],
    broker: i32,
    timeout: Duration,
) -> Result<Event, RDKafkaErrorCode> {
    let asked: Vec<_> =
        topics.iter().map(|topic| question(topic, settings)).collect::<Result<_, _>>()?;
    let mut pointers: Vec<_> = asked.iter().map(Owned::ptr).collect();
    let options = Options::new(client, Operation::RD_KAFKA_ADMIN_OP_DESCRIBECONFIGS, timeout)?
        .broker(broker)?;
    // SAFETY: as many resources as said lie at `pointers`, and all four are
    // alive; resources and options are copied, and the request keeps a
    // reference to the queue of its own.
    let event = admin::answer(client, timeout, |client, queue| unsafe {
        native::rd_kafka_DescribeConfigs(
            client,
            pointers.as_mut_ptr(),
            pointers.len(),
            options.ptr(),
            queue,
        );
    });
    event.map_err(|refusal| refusal.code)
}

/// A question for some settings of one topic.
fn question(
    topic: &CStr,
    settings: &[CString],
) -> Result<Owned<native::rd_kafka_ConfigResource_t>, RDKafkaErrorCode> {
    let kind = native::rd_kafka_ResourceType_t::RD_KAFKA_RESOURCE_TOPIC;
    // SAFETY: the name is a C string, and is copied.
    let resource = unsafe { native::rd_kafka_ConfigResource_new(kind, topic.as_ptr()) };
    let resource = Owned::new(resource, native::rd_kafka_ConfigResource_destroy);
    for setting in settings {
        // SAFETY: the resource is alive, both are C strings, and are copied.
        check(unsafe {
            native::rd_kafka_ConfigResource_set_config(
                resource.ptr(),
                setting.as_ptr(),
                c"".as_ptr(),
            )
        })?;
    }
    Ok(resource)
}

fn resources(event: &Event) -> Result<Vec<Resource<'_>>, RDKafkaErrorCode> {
    // SAFETY: the event is alive; another type of event gives a null.
    let result = unsafe { native::rd_kafka_event_DescribeConfigs_result(event.ptr()) };
    if result.is_null() {
        return Err(RDKafkaErrorCode::Fail);
    }
    let mut count = 0;
    // SAFETY: the result lives as long as the event, `count` is written.
    let first =
        unsafe { native::rd_kafka_DescribeConfigs_result_resources(result, &raw mut count) };
    // SAFETY: `count` pointers lie at `first`, owned by the event.
    let pointers = unsafe { array(first, count) };
    // SAFETY: each points to a resource that lives as long as the event.
    Ok(pointers.iter().map(|pointer| Resource(unsafe { &**pointer })).collect())
}

/// The settings of one topic, alive as long as its event.
struct Resource<'event>(&'event native::rd_kafka_ConfigResource_t);

impl Resource<'_> {
    fn name(&self) -> &CStr {
        // SAFETY: the resource is alive.
        let name = unsafe { native::rd_kafka_ConfigResource_name(self.0) };
        // SAFETY: a C string owned by the resource.
        unsafe { CStr::from_ptr(name) }
    }

    fn value(&self, setting: &CStr) -> Result<Option<String>, RDKafkaErrorCode> {
        // SAFETY: the resource is alive.
        check(unsafe { native::rd_kafka_ConfigResource_error(self.0) })?;
        let mut count = 0;
        // SAFETY: the resource is alive, `count` is written.
        let first = unsafe { native::rd_kafka_ConfigResource_configs(self.0, &raw mut count) };
        // SAFETY: `count` pointers lie at `first`, owned by the resource.
        let entries = unsafe { array(first, count) };
        for entry in entries {
            // SAFETY: the entry lives as long as the resource.
            let name = unsafe { native::rd_kafka_ConfigEntry_name(*entry) };
            // SAFETY: a C string owned by the entry.
            if unsafe { CStr::from_ptr(name) } == setting {
                // SAFETY: the entry is alive.
                let value = unsafe { native::rd_kafka_ConfigEntry_value(*entry) };
                // SAFETY: not null, so a C string owned by the entry.
                let text = (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) });
                return Ok(text.map(|text| text.to_string_lossy().into_owned()));
            }
        }
        Ok(None)
    }
}

/// rd_kafka_metadata_destroy takes a pointer to what is constant.
unsafe extern "C" fn destroy_metadata(metadata: *mut native::rd_kafka_metadata) {
    // SAFETY: `Owned` gives what `rd_kafka_metadata` wrote, once.
    unsafe { native::rd_kafka_metadata_destroy(metadata) };
}

fn c_string(text: &str) -> Result<CString, RDKafkaErrorCode> {
    CString::new(text).map_err(|_| RDKafkaErrorCode::InvalidArgument)
}
