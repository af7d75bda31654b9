use toml::Value;

/// A value of a variable or a flag, as the key's default is one. What cannot be read
/// stays a text, which is refused with what was expected.
pub(super) fn read(text: &str, default: Option<&Value>) -> Result<Value, String> {
    let as_text = || Value::String(text.to_owned());
    Ok(match default {
        Some(Value::Integer(_)) => {
            text.replace('_', "").parse().map_or_else(|_| as_text(), Value::Integer)
        }
        Some(Value::Boolean(_)) => text.parse().map_or_else(|_| as_text(), Value::Boolean),
        Some(Value::Array(_)) => Value::Array(list(text)?),
        _ => as_text(),
    })
}

/// A list as the file has it, else what commas separate.
fn list(text: &str) -> Result<Vec<Value>, String> {
    let text = text.trim();
    if text.starts_with('[') && text.ends_with(']') {
        let read = format!("list = {text}").parse::<toml::Table>();
        return match read.ok().and_then(|mut read| read.remove("list")) {
            Some(Value::Array(list)) => Ok(list),
            _ => Err("a list in brackets has its parts in quotes, and all of it in quotes for a \
                      shell, as '[\"a\", \"b\"]'; or leave the brackets out, as a,b"
                .to_owned()),
        };
    }
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    Ok(parts.map(|part| Value::String(part.to_owned())).collect())
}
