use walpost_connector::{Action, Condition, Test, Transform, Transforms};
use walpost_encode::connect;

/// The transforms beside the router, and the router's own condition.
pub(super) fn transforms(transforms: &Transforms) -> connect::Transforms {
    connect::Transforms {
        before: transforms.before.iter().filter_map(transform).collect(),
        router: transforms.router.condition.as_ref().map(condition),
        after: transforms.after.iter().filter_map(transform).collect(),
    }
}

/// The properties of transforms that cannot be read, with why and what to write.
pub(super) fn unreadable(transforms: &Transforms) -> impl Iterator<Item = (String, String)> {
    let all = transforms.before.iter().chain(&transforms.after);
    all.filter(|transform| action(&transform.action).is_none()).map(|transform| {
        let note = "it is an array or a map whose elements have no type in common; write those of \
                    one type, or a text";
        (format!("transforms.{}.value.literal", transform.alias), note.to_owned())
    })
}

fn transform(transform: &Transform) -> Option<connect::Transform> {
    let condition = transform.condition.as_ref().map(condition);
    Some(connect::Transform { action: action(&transform.action)?, condition })
}

/// `None` for a literal that is not read: see [`unreadable`].
fn action(action: &Action) -> Option<connect::Action> {
    Some(match action {
        Action::DecodeMessages { .. } => connect::Action::DecodeMessages,
        Action::RenameTopic(rewrite) => connect::Action::RenameTopic(rewrite.clone()),
        Action::InsertHeader { name, literal } => connect::Action::InsertHeader {
            name: name.as_str().into(),
            value: connect::literal(literal)?,
        },
        Action::DropHeaders(names) => {
            connect::Action::DropHeaders(names.iter().map(|name| name.as_str().into()).collect())
        }
        Action::HeaderFromValue { fields, operation, replace_null_with_default } => {
            let pair = |(field, header): &(String, String)| {
                (field.as_str().into(), header.as_str().into())
            };
            connect::Action::HeaderFromValue {
                fields: fields.iter().map(pair).collect(),
                operation: *operation,
                replace_null_with_default: *replace_null_with_default,
            }
        }
        Action::InsertFields { fields, replace_null_with_default } => {
            connect::Action::InsertFields {
                fields: fields.clone(),
                replace_null_with_default: *replace_null_with_default,
            }
        }
        Action::Drop => connect::Action::Drop,
    })
}

fn condition(condition: &Condition) -> connect::Condition {
    connect::Condition {
        test: match &condition.test {
            Test::TopicMatches(pattern) => connect::Test::TopicMatches(pattern.clone()),
            Test::HasHeader(name) => connect::Test::HasHeader(name.as_str().into()),
            Test::IsTombstone => connect::Test::IsTombstone,
        },
        negate: condition.negate,
    }
}
