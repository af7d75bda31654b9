//! Closed sets of values, under Debezium's and Kafka Connect's names of them.

/// An enum whose variants have names in the file. Case and blanks around do not
/// count, as in Debezium.
macro_rules! choices {
    ($(
        $(#[$doc:meta])*
        $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal,)+ }
    )+) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)+
        }

        impl $name {
            pub(crate) const NAMES: &'static [&'static str] = &[$($text),+];

            pub(crate) fn parse(text: &str) -> Option<Self> {
                let text = text.trim();
                $(if text.eq_ignore_ascii_case($text) {
                    return Some(Self::$variant);
                })+
                None
            }

            /// Its name in the file.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)+
                }
            }
        }
    )+};
}

choices! {
    /// `database.sslmode`, as of libpq.
    SslMode {
        /// Never TLS.
        Disable = "disable",
        /// Plain, and TLS where the server refuses plain.
        Allow = "allow",
        /// TLS, and plain where the server has none.
        Prefer = "prefer",
        /// TLS, whoever the server is; with `sslrootcert` as
        /// [`VerifyCa`](Self::VerifyCa).
        Require = "require",
        /// TLS with a certificate of a known authority.
        VerifyCa = "verify-ca",
        /// The same, and the certificate names the host.
        VerifyFull = "verify-full",
    }

    /// `publication.autocreate.mode`: who makes the publication, of what.
    AutoCreate {
        /// `FOR ALL TABLES` where there is none.
        AllTables = "all_tables",
        /// Of the tables that the filters let through, also where there is one.
        Filtered = "filtered",
        /// Nobody: it has to be there.
        Disabled = "disabled",
        /// Of no table: logical messages alone.
        NoTables = "no_tables",
    }

    /// `snapshot.mode`: when rows that are in the tables are published.
    SnapshotMode {
        /// At each start.
        Always = "always",
        /// At a start without a stored position.
        Initial = "initial",
        /// The same, and then it ends.
        InitialOnly = "initial_only",
        /// Never.
        NoData = "no_data",
        /// Without a stored position, or where it is no longer in the WAL.
        WhenNeeded = "when_needed",
        /// As `snapshot.mode.configuration.based.*` say.
        ConfigurationBased = "configuration_based",
    }

    /// `lsn.flush.mode`: what the slot is told.
    LsnFlushMode {
        /// Positions that are processed.
        Connector = "connector",
        /// The same, and those of keep-alives where nothing is under way.
        ConnectorAndDriver = "connector_and_driver",
        /// Nothing.
        Manual = "manual",
    }

    /// `offset.mismatch.strategy`: what holds where slot and stored position
    /// differ.
    OffsetMismatch {
        /// The stored position, unchecked.
        NoValidation = "no_validation",
        /// The stored position; a slot beyond it is an error.
        TrustOffset = "trust_offset",
        /// The slot.
        TrustSlot = "trust_slot",
        /// Whichever is greater.
        TrustGreaterLsn = "trust_greater_lsn",
    }

    /// `time.precision.mode`: the types of times.
    TimePrecision {
        /// By the column's precision.
        Adaptive = "adaptive",
        /// The same, with `time` in microseconds.
        AdaptiveTimeMicroseconds = "adaptive_time_microseconds",
        /// Kafka Connect's own types, in milliseconds.
        Connect = "connect",
        /// Texts in ISO 8601.
        IsoString = "isostring",
        /// Microseconds.
        Microseconds = "microseconds",
        /// Nanoseconds.
        Nanoseconds = "nanoseconds",
    }

    /// `decimal.handling.mode`: the type of `numeric` and `money`.
    DecimalHandling {
        /// Connect's `Decimal`, or a structure of scale and value.
        Precise = "precise",
        /// A text.
        String = "string",
        /// A double.
        Double = "double",
    }

    /// `binary.handling.mode`: the type of `bytea`.
    BinaryHandling {
        /// Bytes.
        Bytes = "bytes",
        /// A text in base64.
        Base64 = "base64",
        /// A text in base64 for URLs.
        Base64UrlSafe = "base64-url-safe",
        /// A text in hexadecimal digits.
        Hex = "hex",
    }

    /// `interval.handling.mode`: the type of `interval`.
    IntervalHandling {
        /// Microseconds.
        Numeric = "numeric",
        /// A text in ISO 8601.
        String = "string",
    }

    /// `hstore.handling.mode`: the type of `hstore`.
    HstoreHandling {
        /// A text in JSON.
        Json = "json",
        /// A map.
        Map = "map",
    }

    /// `field.name.adjustment.mode` and `schema.name.adjustment.mode`: names
    /// that Avro does not allow.
    NameAdjustment {
        /// Stay.
        None = "none",
        /// Have `_` for each character that Avro has not.
        Avro = "avro",
        /// The same with `_uxxxx`.
        AvroUnicode = "avro_unicode",
    }

    /// `table.json.payload.null.behavior`: a member of the payload that is null.
    JsonNull {
        /// Is left out.
        Ignore = "ignore",
        /// Is of type optional bytes.
        OptionalBytes = "optional_bytes",
    }

    /// `table.json.payload.empty.array.behavior`: a member that is `[]`.
    JsonEmptyArray {
        /// Is left out.
        Ignore = "ignore",
        /// Is an array of optional text.
        OptionalString = "optional_string",
    }

    /// `event.processing.failure.handling.mode`: an event that cannot be
    /// processed.
    FailureHandling {
        /// Ends the connector.
        Fail = "fail",
        /// Is skipped, with a line in the log.
        Warn = "warn",
        /// Is skipped.
        Skip = "skip",
        /// The former name of `skip`.
        Ignore = "ignore",
    }

    /// `errors.tolerance`: an event that a transform or a converter fails on.
    Tolerance {
        /// Ends the connector.
        None = "none",
        /// Is skipped.
        All = "all",
    }

    /// `exactly.once.support`.
    ExactlyOnce {
        /// Where the worker has it.
        Requested = "requested",
        /// Or no start.
        Required = "required",
    }

    /// `transaction.boundary`: what is in a transaction of Kafka.
    TransactionBoundary {
        /// A batch.
        Poll = "poll",
        /// What comes in `transaction.boundary.interval.ms`.
        Interval = "interval",
        /// What the connector says; Debezium's says nothing.
        Connector = "connector",
    }

    /// `decimal.format` of JSON.
    DecimalFormat {
        /// The bytes of the unscaled value, in base64.
        Base64 = "BASE64",
        /// A number.
        Numeric = "NUMERIC",
    }

    /// `operation` of `HeaderFrom`.
    HeaderOperation {
        /// The field stays.
        Copy = "copy",
        /// The field goes.
        Move = "move",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_is_read_under_its_name_and_shown_by_it() {
        for name in SnapshotMode::NAMES {
            assert_eq!(SnapshotMode::parse(name).map(SnapshotMode::name), Some(*name));
        }
        assert_eq!(SslMode::parse(" Verify-CA "), Some(SslMode::VerifyCa));
        assert_eq!(SslMode::parse("verify"), None);
    }
}
