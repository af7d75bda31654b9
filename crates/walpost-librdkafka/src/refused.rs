use rdkafka::error::KafkaError;

/// The text of an error in which no value of a setting is shown: values can be
/// secrets, also under a name with a typing error.
///
/// ```
/// use rdkafka::ClientConfig;
/// use walpost_librdkafka::without_value;
///
/// let mut config = ClientConfig::new();
/// config.set("sasl.pasword", "s3cret");
/// let error = config.create_native_config().err().unwrap();
/// assert_eq!(
///     without_value(&error),
///     "sasl.pasword: No such configuration property: \"sasl.pasword\""
/// );
/// ```
#[must_use]
pub fn without_value(error: &KafkaError) -> String {
    match error {
        // librdkafka repeats the value of some settings.
        KafkaError::ClientConfig(_, description, key, value) if value.is_empty() => {
            format!("{key}: {description}")
        }
        KafkaError::ClientConfig(_, description, key, value) => {
            format!("{key}: {}", description.replace(value.as_str(), "***"))
        }
        error => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use rdkafka::ClientConfig;

    use super::*;

    #[test]
    fn a_value_that_is_refused_is_not_shown() {
        for (key, value) in [
            ("security.protocol", "s3cret"),
            ("statistics.interval.ms", "s3cret"),
            ("sasl.pasword", "s3cret"),
            ("ssl.key.pem", "s3cret"),
        ] {
            let mut config = ClientConfig::new();
            config.set(key, value);
            let Err(error) = config.create_native_config() else { continue };
            let text = without_value(&error);
            assert!(text.contains(key) && !text.contains(value), "{text}");
        }
    }
}
