use std::{
    ffi::{CStr, CString, c_char},
    ptr,
    time::{Duration, Instant},
};

use rdkafka::{
    client::{Client, ClientContext},
    error::RDKafkaErrorCode,
};
use rdkafka_sys as native;

use crate::{
    admin::{self, Event, Operation, Options, check, milliseconds},
    array::array,
    topics::brokers,
};

/// A group of consumers whose members assign, as its coordinator describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// What it is doing.
    pub state: GroupState,
    /// In no order.
    pub members: Vec<GroupMember>,
}

/// What a [`Group`] is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupState {
    /// Every member has its partitions.
    Stable,
    /// A rebalance waits for the members.
    PreparingRebalance,
    /// Partitions are being handed out, or nobody is there.
    Other,
}

/// A member of a [`Group`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupMember {
    /// The id that the coordinator gave it.
    pub id: String,
    /// Its `group.instance.id`, where it has one and the brokers tell it (Kafka 2.4).
    pub instance: Option<String>,
}

/// Asks for a group; `None` where nobody is in it, its brokers assign, or it is none of
/// consumers.
///
/// Every broker is asked, and waited for: all but the coordinator answer that they are
/// not it, so that a coordinator that is away is not taken for a group that is not
/// there. librdkafka's own way to the coordinator is not taken, as a question that is
/// given up there is answered from freed memory.
///
/// Blocks up to four times `timeout`.
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
) -> Result<Option<Group>, RDKafkaErrorCode> {
    let name = c_string(name);
    let operation = Operation::RD_KAFKA_ADMIN_OP_DESCRIBECONSUMERGROUPS;
    let options: Vec<Options> = brokers(client, timeout)?
        .into_iter()
        .map(|broker| Options::new(client, operation, timeout)?.broker(broker))
        .collect::<Result<_, _>>()?;
    let queue = admin::queue(client);
    for options in &options {
        let mut names = [name.as_ptr()];
        // SAFETY: the client lives as long as its borrow, one C string lies at `names`,
        // and the others are alive; librdkafka copies name and options, and keeps a
        // reference to the queue of its own.
        unsafe {
            native::rd_kafka_DescribeConsumerGroups(
                client.native_ptr(),
                names.as_mut_ptr(),
                names.len(),
                options.ptr(),
                queue.ptr(),
            );
        }
    }
    // A broker is asked by the new group protocol first, and by the other one then. All
    // are waited for: librdkafka may abort where a client goes with a question open.
    let deadline = Instant::now() + timeout * 3;
    of_coordinator(options.iter().map(|_| {
        let left = deadline.saturating_duration_since(Instant::now());
        let event = admin::next(&queue, left).map_err(|refusal| refusal.code)?;
        described(&event)
    }))
}

/// Takes all answers. Of errors a broker's word outweighs that another said none.
fn of_coordinator<T>(
    answers: impl Iterator<Item = Result<T, RDKafkaErrorCode>>,
) -> Result<T, RDKafkaErrorCode> {
    let mut told = Err(RDKafkaErrorCode::NotCoordinator);
    for answer in answers {
        let outweighs = match (&told, &answer) {
            (Ok(_), _) | (_, Err(RDKafkaErrorCode::NotCoordinator)) => false,
            (Err(RDKafkaErrorCode::NotCoordinator), _) | (_, Ok(_)) => true,
            (Err(_), Err(code)) => *code as i32 >= 0,
        };
        if outweighs {
            told = answer;
        }
    }
    told
}

fn described(event: &Event) -> Result<Option<Group>, RDKafkaErrorCode> {
    // SAFETY: the event is alive; another type of event gives a null.
    let result = unsafe { native::rd_kafka_event_DescribeConsumerGroups_result(event.ptr()) };
    if result.is_null() {
        return Err(RDKafkaErrorCode::Fail);
    }
    let mut count = 0;
    // SAFETY: the result lives as long as the event, `count` is written.
    let first =
        unsafe { native::rd_kafka_DescribeConsumerGroups_result_groups(result, &raw mut count) };
    // SAFETY: `count` pointers lie at `first`, owned by the event.
    let groups = unsafe { array(first, count) };
    let group = *groups.first().ok_or(RDKafkaErrorCode::Fail)?;
    // SAFETY: the group lives as long as the event; a null means no error.
    let error = unsafe { native::rd_kafka_ConsumerGroupDescription_error(group) };
    // SAFETY: the error is alive, and a null is code 0.
    match check(unsafe { native::rd_kafka_error_code(error) }) {
        // Of no such group, and of a group of others than consumers. Older brokers
        // describe the former as one without members.
        Err(RDKafkaErrorCode::GroupIdNotFound | RDKafkaErrorCode::InvalidArgument) => {
            return Ok(None);
        }
        answer => answer?,
    }
    // SAFETY: the group is alive.
    let kind = unsafe { native::rd_kafka_ConsumerGroupDescription_type(group) };
    if kind == native::rd_kafka_consumer_group_type_t::RD_KAFKA_CONSUMER_GROUP_TYPE_CONSUMER {
        return Ok(None);
    }
    // SAFETY: as above.
    let count = unsafe { native::rd_kafka_ConsumerGroupDescription_member_count(group) };
    // SAFETY: as above.
    let state = state(unsafe { native::rd_kafka_ConsumerGroupDescription_state(group) });
    // SAFETY: as above; each index is below the count.
    let members = (0..count).map(|index| unsafe { member(group, index) });
    let members: Vec<GroupMember> = members.collect();
    Ok((!members.is_empty()).then_some(Group { state, members }))
}

fn state(raw: native::rd_kafka_consumer_group_state_t) -> GroupState {
    use native::rd_kafka_consumer_group_state_t as State;
    match raw {
        State::RD_KAFKA_CONSUMER_GROUP_STATE_STABLE => GroupState::Stable,
        State::RD_KAFKA_CONSUMER_GROUP_STATE_PREPARING_REBALANCE => GroupState::PreparingRebalance,
        _ => GroupState::Other,
    }
}

/// # Safety
/// The group is alive, and has a member with this index.
unsafe fn member(
    group: *const native::rd_kafka_ConsumerGroupDescription_t,
    index: usize,
) -> GroupMember {
    // SAFETY: by the contract of this function.
    let member = unsafe { native::rd_kafka_ConsumerGroupDescription_member(group, index) };
    // SAFETY: the member lives as long as its group.
    let id = unsafe { native::rd_kafka_MemberDescription_consumer_id(member) };
    // SAFETY: as above.
    let instance = unsafe { native::rd_kafka_MemberDescription_group_instance_id(member) };
    // SAFETY: a null, or a C string of the member's.
    let id = unsafe { text(id) }.unwrap_or_default();
    // SAFETY: as above.
    let instance = unsafe { text(instance) };
    GroupMember { id, instance }
}

/// Asks what a member of a group said of itself when it joined, in Kafka's protocol of
/// consumers, its topics among it; `None` where that is not told, as while the group is
/// not stable.
///
/// librdkafka asks all brokers, and has no word of those that did not answer in time: of
/// a member that is not found nothing follows. Blocks up to `timeout`.
///
/// # Errors
/// If no answer has the member, and the last broker to answer refused.
///
/// # Panics
/// As [`group`].
pub fn member_metadata<C: ClientContext>(
    client: &Client<C>,
    group: &str,
    member: &str,
    timeout: Duration,
) -> Result<Option<Vec<u8>>, RDKafkaErrorCode> {
    let name = c_string(group);
    let mut list: *const native::rd_kafka_group_list = ptr::null();
    // SAFETY: the client lives as long as the borrow; name and list outlive the call,
    // and librdkafka fills `list` in or leaves it.
    let answer = check(unsafe {
        let (client, limit) = (client.native_ptr(), milliseconds(timeout));
        native::rd_kafka_list_groups(client, name.as_ptr(), &raw mut list, limit)
    });
    let list = (!list.is_null()).then_some(List(list));
    match list.and_then(|list| list.metadata(member)) {
        Some(found) => Ok(Some(found)),
        None => answer.map(|()| None),
    }
}

/// What librdkafka allocated for the answers.
struct List(*const native::rd_kafka_group_list);

impl List {
    fn metadata(&self, member: &str) -> Option<Vec<u8>> {
        // SAFETY: it is not null, and is freed with `self` alone.
        let list = unsafe { &*self.0 };
        // SAFETY: librdkafka keeps so many initialised groups there.
        let groups = unsafe { array(list.groups, list.group_cnt) };
        let members = groups.iter().flat_map(|group| {
            // SAFETY: librdkafka keeps so many initialised members there.
            unsafe { array(group.members, group.member_cnt) }
        });
        let is_meant = |raw: &&native::rd_kafka_group_member_info| {
            // SAFETY: a null, or a C string of the list's.
            unsafe { text(raw.member_id) }.as_deref() == Some(member)
        };
        let found = members.into_iter().find(is_meant)?;
        let (first, size) = (found.member_metadata.cast::<u8>(), found.member_metadata_size);
        // SAFETY: librdkafka keeps so many bytes there.
        let metadata = unsafe { array(first, size) };
        (!metadata.is_empty()).then(|| metadata.to_vec())
    }
}

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: it came from `rd_kafka_list_groups`, and is freed here alone.
        unsafe { native::rd_kafka_group_list_destroy(self.0) }
    }
}

fn c_string(group: &str) -> CString {
    CString::new(group).expect("a group's name has no NUL")
}

/// # Safety
/// A pointer that is not null leads to a text that ends with a NUL.
unsafe fn text(raw: *const c_char) -> Option<String> {
    // SAFETY: as the caller promises.
    (!raw.is_null()).then(|| unsafe { CStr::from_ptr(raw) }.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use RDKafkaErrorCode as Code;

    use super::*;

    fn told(answers: &[Result<char, Code>]) -> Result<char, Code> {
        let mut answers = answers.iter().copied();
        let told = of_coordinator(answers.by_ref());
        assert_eq!(answers.next(), None, "all are waited for");
        told
    }

    #[test]
    fn the_coordinators_answer_counts_whoever_else_says_something() {
        let (not, dead) = (Err(Code::NotCoordinator), Err(Code::OperationTimedOut));
        let starts = Err(Code::CoordinatorNotAvailable);
        for answers in [[Ok('a'), not, dead, starts], [starts, dead, not, Ok('a')]] {
            assert_eq!(told(&answers), Ok('a'));
        }
    }

    #[test]
    fn a_group_whose_coordinator_is_away_is_not_told_as_absent() {
        let (not, dead) = (Err(Code::NotCoordinator), Err(Code::OperationTimedOut));
        for answers in [[not, dead], [dead, not]] {
            assert_eq!(told(&answers), dead);
        }
        assert_eq!(told(&[not, not]), not);
        assert_eq!(told(&[]), not);
        let refuses = Err(Code::GroupAuthorizationFailed);
        for answers in [[refuses, dead, not], [dead, not, refuses]] {
            assert_eq!(told(&answers), refuses);
        }
    }
}
