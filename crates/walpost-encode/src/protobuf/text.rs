//! A schema as the registry gets it.

use super::known::{WRAPPER_MESSAGES, WRAPPERS};

/// A message with those that are declared in it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) name: String,
    pub(super) fields: Vec<Field>,
    pub(super) nested: Vec<Self>,
}

/// A field, whose number is its place.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Field {
    pub(super) label: Option<&'static str>,
    pub(super) type_name: String,
    pub(super) name: String,
    /// What Kafka Connect knows more of it, by name.
    pub(super) parameters: Vec<(&'static str, String)>,
}

/// The file of a message.
pub(super) fn file(package: Option<&str>, imports: &[&str], message: &Message) -> String {
    let mut out = "syntax = \"proto3\";\n".to_owned();
    if let Some(package) = package {
        out.push_str(&format!("package {package};\n"));
    }
    out.push('\n');
    for import in imports {
        out.push_str(&format!("import \"{import}\";\n"));
    }
    if !imports.is_empty() {
        out.push('\n');
    }
    message.write("", &mut out);
    out
}

/// The file of the wrappers, of which one is the schema of a bare value.
pub(super) fn wrappers() -> String {
    debug_assert_eq!(WRAPPERS, "google/protobuf/wrappers.proto");
    let mut out = "syntax = \"proto3\";\npackage google.protobuf;\n\n".to_owned();
    for (option, value) in [
        ("java_package", "\"com.google.protobuf\""),
        ("java_outer_classname", "\"WrappersProto\""),
        ("java_multiple_files", "true"),
        ("go_package", "\"google.golang.org/protobuf/types/known/wrapperspb\""),
        ("cc_enable_arenas", "true"),
        ("objc_class_prefix", "\"GPB\""),
        ("csharp_namespace", "\"Google.Protobuf.WellKnownTypes\""),
    ] {
        out.push_str(&format!("option {option} = {value};\n"));
    }
    out.push('\n');
    for (message, wrapped) in WRAPPER_MESSAGES {
        out.push_str(&format!(
            "message {message} {{\n  {wrapped} value = 1 [json_name = \"value\"];\n}}\n"
        ));
    }
    out
}

impl Message {
    fn write(&self, indent: &str, out: &mut String) {
        let Self { name, fields, nested } = self;
        if fields.is_empty() && nested.is_empty() {
            out.push_str(&format!("{indent}message {name} {{}}\n"));
            return;
        }
        out.push_str(&format!("{indent}message {name} {{\n"));
        let within = format!("{indent}  ");
        for (field, number) in fields.iter().zip(1..) {
            field.write(number, &within, out);
        }
        if !nested.is_empty() {
            // Blanks and nothing else, where it is within another one.
            out.push_str(&format!("{indent}\n"));
        }
        for message in nested {
            message.write(&within, out);
        }
        out.push_str(&format!("{indent}}}\n"));
    }
}

impl Field {
    fn write(&self, number: usize, indent: &str, out: &mut String) {
        let Self { label, type_name, name, parameters } = self;
        let label = label.map(|label| format!("{label} ")).unwrap_or_default();
        out.push_str(&format!("{indent}{label}{type_name} {name} = {number}"));
        if !parameters.is_empty() {
            out.push_str(&format!(" [(confluent.field_meta) = {{\n{indent}  params: [\n"));
            for (index, (key, value)) in parameters.iter().enumerate() {
                let comma = if index + 1 < parameters.len() { "," } else { "" };
                let mut pair = [("key", *key), ("value", value.as_str())];
                // In the order of their texts.
                pair.sort_by_key(|(_, text)| *text);
                let [(one, first), (other, second)] = pair;
                out.push_str(&format!(
                    "{indent}    {{\n{indent}      {one}: \"{first}\",\n{indent}      {other}: \
                     \"{second}\"\n{indent}    }}{comma}\n"
                ));
            }
            out.push_str(&format!("{indent}  ]\n{indent}}}]"));
        }
        out.push_str(";\n");
    }
}
