//! Closed sets of values, under Debezium's and Kafka Connect's names of them.

use walpost_encode::connect::{
    BinaryHandling, DecimalFormat, DecimalHandling, EmptyArray, HeaderOperation, HstoreHandling,
    IntervalHandling, NameAdjustment, NullField, TimePrecision,
};

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
            /// Its name in the file.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)+
                }
            }
        }

        names! { $name { $($variant = $text,)+ } }
    )+};
}

/// The names of an enum that is there already.
macro_rules! names {
    ($($name:ident { $($variant:ident = $text:literal,)+ })+) => {$(
        impl Choice for $name {
            const NAMES: &'static [&'static str] = &[$($text),+];

            fn parse(text: &str) -> Option<Self> {
                // Without an arm for whatever else, so that none is forgotten.
                const ALL: &[$name] = &[$($name::$variant),+];
                let name = |choice: &$name| match choice {
                    $($name::$variant => $text,)+
                };
                let is_it = |choice: &&$name| text.trim().eq_ignore_ascii_case(name(choice));
                ALL.iter().find(is_it).copied()
            }
        }
    )+};
}

/// An enum whose variants have names in the file.
pub(crate) trait Choice: Copy {
    /// The names, in the order of the variants.
    const NAMES: &'static [&'static str];

    /// The variant of that name; case and blanks around do not count.
    fn parse(text: &str) -> Option<Self>;
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
        /// TLS, whoever the server is, also with `sslrootcert`, as Java's
        /// driver has it.
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
}

names! {
    TimePrecision {
        Adaptive = "adaptive",
        AdaptiveTimeMicroseconds = "adaptive_time_microseconds",
        Connect = "connect",
        IsoString = "isostring",
        Microseconds = "microseconds",
        Nanoseconds = "nanoseconds",
    }
    DecimalHandling {
        Precise = "precise",
        String = "string",
        Double = "double",
    }
    BinaryHandling {
        Bytes = "bytes",
        Base64 = "base64",
        Base64UrlSafe = "base64-url-safe",
        Hex = "hex",
    }
    IntervalHandling {
        Numeric = "numeric",
        String = "string",
    }
    HstoreHandling {
        Json = "json",
        Map = "map",
    }
    NameAdjustment {
        None = "none",
        Avro = "avro",
        AvroUnicode = "avro_unicode",
    }
    NullField {
        Ignore = "ignore",
        OptionalBytes = "optional_bytes",
    }
    EmptyArray {
        Ignore = "ignore",
        OptionalString = "optional_string",
    }
    DecimalFormat {
        Base64 = "BASE64",
        Numeric = "NUMERIC",
    }
    HeaderOperation {
        Copy = "copy",
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
        assert_eq!(DecimalFormat::parse("numeric"), Some(DecimalFormat::Numeric));
    }
}
