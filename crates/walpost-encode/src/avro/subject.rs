use std::sync::Arc;

use crate::error::EncodeErrorKind;

/// `value.subject.name.strategy`: under which name a schema is registered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SubjectName {
    /// `io.confluent.kafka.serializers.subject.TopicNameStrategy`: the topic,
    /// with `-key` or `-value`.
    #[default]
    Topic,
    /// `io.confluent.kafka.serializers.subject.RecordNameStrategy`: the full
    /// name of the schema's record.
    Record,
    /// `io.confluent.kafka.serializers.subject.TopicRecordNameStrategy`: the
    /// topic, `-`, and the full name of the schema's record.
    TopicRecord,
}

impl SubjectName {
    /// The subject; `record` is the full name, if the schema is a record.
    ///
    /// # Errors
    /// [`EncodeErrorKind::NoRecordName`] where the name is needed and there is
    /// none.
    pub(crate) fn of(
        self,
        topic: &str,
        is_key: bool,
        record: Option<&str>,
    ) -> Result<Arc<str>, EncodeErrorKind> {
        let record = || record.ok_or(EncodeErrorKind::NoRecordName);
        Ok(match self {
            Self::Topic => format!("{topic}-{}", if is_key { "key" } else { "value" }),
            Self::Record => record()?.to_owned(),
            Self::TopicRecord => format!("{topic}-{}", record()?),
        }
        .into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_are_named_as_confluent_names_them() {
        let of =
            |name: SubjectName, record| name.of("t", false, record).map(|name| name.to_string());
        assert_eq!(of(SubjectName::Topic, None), Ok("t-value".to_owned()));
        assert_eq!(SubjectName::Topic.of("t", true, None).as_deref(), Ok("t-key"));
        assert_eq!(of(SubjectName::Record, Some("a.B")), Ok("a.B".to_owned()));
        assert_eq!(of(SubjectName::TopicRecord, Some("a.B")), Ok("t-a.B".to_owned()));
        assert_eq!(of(SubjectName::Record, None), Err(EncodeErrorKind::NoRecordName));
        assert_eq!(of(SubjectName::TopicRecord, None), Err(EncodeErrorKind::NoRecordName));
    }
}
