//! Lists as Kafka's `ConfigDef` and Debezium split them.

/// Texts between commas, without the blanks around them; empty ones count not.
pub(crate) fn split(list: &str) -> Vec<String> {
    let parts = list.split(',').map(str::trim).filter(|part| !part.is_empty());
    parts.map(str::to_owned).collect()
}

/// The same where a backslash takes its meaning from a comma, as in Debezium's
/// lists of regular expressions: `\,` becomes `,`, and whatever else has a
/// backslash before it keeps it.
pub(crate) fn split_escaped(list: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut chars = list.chars();
    while let Some(c) = chars.next() {
        let part = parts.last_mut().expect("it begins with one");
        match c {
            ',' => parts.push(String::new()),
            '\\' => match chars.next() {
                Some(',') => part.push(','),
                escaped => part.extend([Some(c), escaped].into_iter().flatten()),
            },
            c => part.push(c),
        }
    }
    let trimmed = parts.iter().map(|part| part.trim()).filter(|part| !part.is_empty());
    trimmed.map(str::to_owned).collect()
}

/// SQL statements between semicolons; `;;` is a semicolon in one.
pub(crate) fn split_statements(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let part = parts.last_mut().expect("it begins with one");
        match c {
            ';' if chars.next_if_eq(&';').is_some() => part.push(';'),
            ';' => parts.push(String::new()),
            c => part.push(c),
        }
    }
    let trimmed = parts.iter().map(|part| part.trim()).filter(|part| !part.is_empty());
    trimmed.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_split_as_there() {
        assert_eq!(split(" a , b,,c ,"), ["a", "b", "c"]);
        assert_eq!(split(""), Vec::<String>::new());
        assert_eq!(split_escaped(r"a\.b, c{1\,2} ,,\\,d\"), [r"a\.b", "c{1,2}", r"\\", r"d\"]);
        assert_eq!(split_statements("set a = 'x;;y'; set b = 1 ;"), ["set a = 'x;y'", "set b = 1"]);
    }
}
