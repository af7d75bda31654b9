use std::{
    ffi::{CStr, CString, c_char},
    ptr, slice,
    time::Duration,
};

use rdkafka::{
    client::{Client, ClientContext},
    error::{KafkaError, KafkaResult, RDKafkaErrorCode},
};
use rdkafka_sys as native;

use crate::admin::{check, milliseconds};

/// A group of consumers whose members assign, as its coordinator describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// As `Stable` or `PreparingRebalance`.
    pub state: String,
    /// In no order.
    pub members: Vec<GroupMember>,
}

/// A member of a [`Group`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupMember {
    /// The id that the coordinator gave it.
    pub id: String,
    /// What it said of itself when it joined, in Kafka's protocol of consumers, its
    /// topics among it. Empty where the group is not stable.
    pub metadata: Vec<u8>,
}

/// Asks for a group; `None` where no broker has it. Blocks until all brokers have
/// answered, or for `timeout`.
///
/// Unlike rust-rdkafka's accessor, a broker that does not answer hides no other's
/// answer.
///
/// # Errors
/// If its coordinator does not answer, or refuses to.
///
/// # Panics
/// If the group's name has a NUL, which none has that a consumer can be made of.
pub fn group<C: ClientContext>(
    client: &Client<C>,
    name: &str,
    timeout: Duration,
) -> KafkaResult<Option<Group>> {
    let name = CString::new(name).expect("a group's name has no NUL");
    let mut list: *const native::rd_kafka_group_list = ptr::null();
    // SAFETY: the client lives as long as the borrow; name and list outlive the call,
    // and librdkafka fills `list` in or leaves it.
    let code = unsafe {
        let (client, limit) = (client.native_ptr(), milliseconds(timeout));
        native::rd_kafka_list_groups(client, name.as_ptr(), &raw mut list, limit)
    };
    let code = RDKafkaErrorCode::from(code);
    if list.is_null() {
        return Err(KafkaError::GroupListFetch(code));
    }
    let list = List(list);
    match (list.groups().first(), code) {
        (Some(group), _) => read(group).map(Some),
        (None, RDKafkaErrorCode::NoError) => Ok(None),
        (None, code) => Err(KafkaError::GroupListFetch(code)),
    }
}

/// What librdkafka allocated for the answers.
struct List(*const native::rd_kafka_group_list);

impl List {
    fn groups(&self) -> &[native::rd_kafka_group_info] {
        // SAFETY: it is not null, and is freed with `self` alone.
        let list = unsafe { &*self.0 };
        // SAFETY: librdkafka keeps so many initialised groups there.
        unsafe { of_raw(list.groups, list.group_cnt) }
    }
}

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: it came from `rd_kafka_list_groups`, and is freed here alone.
        unsafe { native::rd_kafka_group_list_destroy(self.0) }
    }
}

fn read(group: &native::rd_kafka_group_info) -> KafkaResult<Group> {
    check(group.err).map_err(KafkaError::GroupListFetch)?;
    // SAFETY: librdkafka keeps so many initialised members there.
    let members = unsafe { of_raw(group.members, group.member_cnt) };
    let member = |raw: &native::rd_kafka_group_member_info| {
        let (metadata, len) = (raw.member_metadata.cast::<u8>(), raw.member_metadata_size);
        GroupMember {
            // SAFETY: a text of librdkafka's, which the list owns.
            id: unsafe { text(raw.member_id) },
            // SAFETY: librdkafka keeps so many bytes there.
            metadata: unsafe { of_raw(metadata, len) }.to_vec(),
        }
    };
    // SAFETY: a text of librdkafka's, which the list owns.
    let state = unsafe { text(group.state) };
    Ok(Group { state, members: members.iter().map(member).collect() })
}

/// # Safety
/// Behind a pointer that is not null there are `count` initialised elements, which
/// live as long as the result.
unsafe fn of_raw<'a, T>(first: *const T, count: i32) -> &'a [T] {
    match usize::try_from(count) {
        Ok(count) if count > 0 && !first.is_null() => {
            // SAFETY: as the caller promises.
            unsafe { slice::from_raw_parts(first, count) }
        }
        _ => &[],
    }
}

/// # Safety
/// A pointer that is not null leads to a text that ends with a NUL.
unsafe fn text(raw: *const c_char) -> String {
    if raw.is_null() {
        return String::new();
    }
    // SAFETY: as the caller promises.
    unsafe { CStr::from_ptr(raw) }.to_string_lossy().into_owned()
}
