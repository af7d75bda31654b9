//! Kafka Connect's schema as a message of Protobuf, with the names that
//! Confluent's converter gives.

use super::{
    ProtobufOptions,
    known::{Logical, WRAPPERS, scalar},
    names::{legal, scrubbed, split},
    text::{Field, Message, file, wrappers},
};
use crate::{
    connect::{Kind, Schema, SchemaField},
    error::EncodeErrorKind,
    schema_ids::SchemaText,
};

/// The schema as the registry gets it; its name is that of the message.
pub(super) fn derive(
    schema: &Schema,
    options: ProtobufOptions,
) -> Result<SchemaText, EncodeErrorKind> {
    if let Some(scalar) = scalar(&schema.kind) {
        let name = format!("google.protobuf.{}", scalar.wrapper.0);
        return Ok(SchemaText { text: wrappers().into(), name: Some(name) });
    }
    let Kind::Struct(fields) = &schema.kind else {
        return Err(EncodeErrorKind::InvalidProtobuf);
    };
    let mut deriver = Deriver { options, defaults: 0, imports: Vec::new(), around: Vec::new() };
    let whole = deriver.name_or_default(schema.name());
    let (package, name) = split(&whole, options)?;
    let message = deriver.message(name, fields)?;
    let text = file(package.as_deref(), &deriver.imports, &message);
    let name = match package {
        Some(package) => format!("{package}.{}", message.name),
        None => message.name,
    };
    Ok(SchemaText { text: text.into(), name: Some(name) })
}

/// That it is a schema in Protobuf, as Confluent's converter asks of NULL as well.
pub(super) fn check(schema: &Schema, options: ProtobufOptions) -> Result<(), EncodeErrorKind> {
    match scalar(&schema.kind) {
        Some(_) => Ok(()),
        None => derive(schema, options).map(drop),
    }
}

struct Deriver {
    options: ProtobufOptions,
    /// Names that were made up.
    defaults: u32,
    imports: Vec<&'static str>,
    /// Names of the messages around.
    around: Vec<String>,
}

impl Deriver {
    fn name_or_default(&mut self, name: Option<&str>) -> String {
        match name {
            Some(name) if !name.is_empty() => name.to_owned(),
            _ => {
                self.defaults += 1;
                format!("ConnectDefault{}", self.defaults)
            }
        }
    }

    fn unqualified(&mut self, name: Option<&str>) -> Result<String, EncodeErrorKind> {
        let whole = self.name_or_default(name);
        let last = whole.rsplit('.').next().unwrap_or_default();
        legal(scrubbed(last, self.options))
    }

    fn import(&mut self, path: &'static str) {
        if !self.imports.contains(&path) {
            self.imports.push(path);
        }
    }

    fn message(
        &mut self,
        name: String,
        fields: &[SchemaField],
    ) -> Result<Message, EncodeErrorKind> {
        let mut message = Message { name, fields: Vec::new(), nested: Vec::new() };
        self.around.push(message.name.clone());
        for field in fields {
            let name = legal(scrubbed(&field.name, self.options))?;
            let made = self.field(&field.schema, name, &mut message.nested)?;
            message.fields.push(made);
        }
        self.around.pop();
        self.check(&message)?;
        Ok(message)
    }

    /// No name stands for two things.
    fn check(&self, message: &Message) -> Result<(), EncodeErrorKind> {
        let fields = message.fields.iter().map(|field| &field.name);
        let nested = message.nested.iter().map(|nested| &nested.name);
        let around = nested.clone().any(|name| *name == message.name || self.around.contains(name));
        let mut names: Vec<&String> = fields.chain(nested).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        match around || names.len() < count {
            true => Err(EncodeErrorKind::InvalidProtobuf),
            false => Ok(()),
        }
    }

    fn field(
        &mut self,
        schema: &Schema,
        name: String,
        nested: &mut Vec<Message>,
    ) -> Result<Field, EncodeErrorKind> {
        let label = match schema.kind {
            Kind::Array(_) | Kind::Map(..) => Some("repeated"),
            _ if self.options.optional_for_nullables && schema.optional => Some("optional"),
            _ => None,
        };
        let schema = match &schema.kind {
            Kind::Array(element) => match element.kind {
                Kind::Array(_) | Kind::Map(..) => return Err(EncodeErrorKind::InvalidProtobuf),
                _ => element,
            },
            _ => schema,
        };
        let (type_name, parameters) = match (Logical::of(schema), &schema.kind) {
            (Some(logical), _) => {
                let (message, path) = logical.message();
                self.import(path);
                (message.to_owned(), parameters(logical, schema))
            }
            (None, Kind::Struct(fields)) => {
                (self.structure(schema, fields, &name, nested)?, Vec::new())
            }
            (None, Kind::Map(key, value)) => (self.map(schema, key, value, nested)?, Vec::new()),
            (None, kind) => {
                let is_plain = !self.is_wrapped(schema);
                if label == Some("repeated") && is_plain && schema.default.is_some() {
                    // What is repeated has no default in Protobuf.
                    return Err(EncodeErrorKind::InvalidProtobuf);
                }
                (self.scalar(schema)?, connect_type(kind))
            }
        };
        Ok(Field { label, type_name, name, parameters })
    }

    fn is_wrapped(&self, schema: &Schema) -> bool {
        self.options.wrapper_for_nullables && schema.optional
    }

    fn scalar(&mut self, schema: &Schema) -> Result<String, EncodeErrorKind> {
        let scalar = scalar(&schema.kind).ok_or(EncodeErrorKind::InvalidProtobuf)?;
        if !self.is_wrapped(schema) {
            return Ok(scalar.name.to_owned());
        }
        self.import(WRAPPERS);
        Ok(format!("google.protobuf.{}", scalar.wrapper.0))
    }

    /// The name of the message; one of that name that is there has to be the
    /// same.
    fn structure(
        &mut self,
        schema: &Schema,
        fields: &[SchemaField],
        field: &str,
        nested: &mut Vec<Message>,
    ) -> Result<String, EncodeErrorKind> {
        let mut name = self.unqualified(schema.name())?;
        if name == field {
            name.push_str("Message");
        }
        let (defaults, imports) = (self.defaults, self.imports.len());
        let message = self.message(name.clone(), fields)?;
        match nested.iter().find(|known| known.name == name) {
            None => nested.push(message),
            Some(known) if *known == message => {
                // It is declared once, and names are made up once.
                self.defaults = defaults;
                self.imports.truncate(imports);
            }
            Some(_) => return Err(EncodeErrorKind::InvalidProtobuf),
        }
        Ok(name)
    }

    fn map(
        &mut self,
        schema: &Schema,
        key: &Schema,
        value: &Schema,
        nested: &mut Vec<Message>,
    ) -> Result<String, EncodeErrorKind> {
        let name = self.unqualified(schema.name())?;
        if name.contains('_') {
            return Err(EncodeErrorKind::InvalidProtobuf);
        }
        let mut entry =
            Message { name: format!("{name}Entry"), fields: Vec::new(), nested: Vec::new() };
        self.around.push(entry.name.clone());
        for (name, schema) in [("key", key), ("value", value)] {
            let mut field = self.field(schema, name.to_owned(), &mut entry.nested)?;
            // Of an entry none is.
            field.label = field.label.filter(|label| *label != "optional");
            entry.fields.push(field);
        }
        self.around.pop();
        self.check(&entry)?;
        let name = entry.name.clone();
        nested.push(entry);
        Ok(name)
    }
}

/// By name.
fn parameters(logical: Logical, schema: &Schema) -> Vec<(&'static str, String)> {
    if logical != Logical::Decimal {
        return Vec::new();
    }
    let named = [("precision", "connect.decimal.precision"), ("scale", "scale")];
    let found = named.into_iter().filter_map(|(name, parameter)| {
        let mut all = schema.parameters.iter();
        let (_, value) = all.find(|(known, _)| **known == *parameter)?;
        Some((name, value.to_string()))
    });
    found.collect()
}

fn connect_type(kind: &Kind) -> Vec<(&'static str, String)> {
    match kind {
        Kind::Int8 => vec![("connect.type", "int8".to_owned())],
        Kind::Int16 => vec![("connect.type", "int16".to_owned())],
        _ => Vec::new(),
    }
}
