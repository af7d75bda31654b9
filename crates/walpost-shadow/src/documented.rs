use crate::{
    difference::{Difference, Member, Part},
    json_order,
    record::Observed,
};

/// What Java prints of an array of bytes, before a number that is drawn.
const ARRAY: &[u8] = b"[B@";
const BUFFER: &[u8] = b"java.nio.HeapByteBuffer[";

/// A difference that `docs/from-debezium.md` documents, and that can be told from
/// others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Documented {
    /// Walpost parks an event of which Debezium has written nothing: its task has
    /// failed, or `errors.tolerance` has it passed over.
    TaskFails,
    /// Debezium has written the name of a Java object where Walpost parks the event.
    JavaObject,
    /// Members of objects of an array come in the order of a hash set in Debezium.
    MemberOrder,
}

impl Documented {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::TaskFails, Self::JavaObject, Self::MemberOrder];

    /// The section that documents it.
    pub fn section(self) -> &'static str {
        match self {
            Self::TaskFails => "Where Debezium's task fails",
            Self::JavaObject => "Bytes as text",
            Self::MemberOrder => "The order of members in arrays of objects",
        }
    }
}

/// Whether the only difference is another order of members in arrays.
pub(crate) fn is_member_order(differences: &[Difference]) -> bool {
    let [Difference { member: Member::Value, debezium, walpost }] = differences else {
        return false;
    };
    match (debezium, walpost) {
        (Part::Contents(Some(one)), Part::Contents(Some(other))) => {
            json_order::differ_in_arrays_alone(one, other)
        }
        _ => false,
    }
}

/// Whether key or value is what Java prints of an object that holds bytes.
pub(crate) fn names_java_object(observed: &Observed) -> bool {
    let parts = [&observed.message.key, &observed.message.value];
    parts.into_iter().flatten().any(|part| {
        [ARRAY, BUFFER].iter().any(|name| part.windows(name.len()).any(|found| found == *name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::testing::{message, observed};

    const PAGE: &str = include_str!("../../../docs/from-debezium.md");

    #[test]
    fn every_difference_has_its_section() {
        for documented in Documented::ALL {
            let is_there = PAGE.lines().any(|line| {
                line.starts_with('#') && line.trim_start_matches('#').trim() == documented.section()
            });
            assert!(is_there, "no section {:?}", documented.section());
        }
    }

    #[test]
    fn names_of_java_objects_are_known() {
        let names = |value: &str| names_java_object(&observed(0, message("t", "1", value)));
        assert!(names("Struct{a=[B@7fa1bc67}"));
        assert!(names("java.nio.HeapByteBuffer[pos=0 lim=4 cap=4]"));
        assert!(!names("[b@1"));
    }
}
