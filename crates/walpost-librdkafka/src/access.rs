use rdkafka::{ClientConfig, types::RDKafkaErrorCode as Code};

/// Why brokers let a client in no sooner for being asked again, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoAccess {
    /// What librdkafka said.
    pub problem: String,
    /// Which settings to mend, under librdkafka's names.
    pub remedy: &'static str,
}

impl std::fmt::Display for NoAccess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}; {}", self.problem, self.remedy)
    }
}

impl std::error::Error for NoAccess {}

impl NoAccess {
    /// What an error of librdkafka's says of access, if anything: `None` for a
    /// broker that is down, or that hangs up without a word.
    ///
    /// ```
    /// use rdkafka::types::RDKafkaErrorCode as Code;
    /// use walpost_librdkafka::NoAccess;
    ///
    /// let said = "SASL authentication error: invalid credentials";
    /// let found = NoAccess::of(Code::Authentication, said).unwrap();
    /// assert!(found.remedy.contains("sasl.password"));
    /// assert_eq!(NoAccess::of(Code::BrokerTransportFailure, "Connection refused"), None);
    /// ```
    #[must_use]
    pub fn of(code: Code, reason: &str) -> Option<Self> {
        let remedy = match code {
            Code::Authentication | Code::SaslAuthenticationFailed => of_login(reason)?,
            Code::SSL => of_tls(reason),
            // With TLS 1.3 a broker judges a client's certificate afterwards.
            Code::BrokerTransportFailure if is_alert(reason) => CERTIFICATE,
            _ => return None,
        };
        Some(Self { problem: reason.to_owned(), remedy })
    }

    /// What is missing for the login that the settings ask for, before anybody
    /// is connected to.
    #[must_use]
    pub fn in_settings(config: &ClientConfig) -> Option<Self> {
        let of = |names: &[&str]| {
            let mut values = names.iter().filter_map(|name| config.get(name));
            values.next().unwrap_or_default().trim().to_owned()
        };
        let protocol = of(&["security.protocol"]).to_ascii_uppercase();
        if !protocol.starts_with("SASL_") {
            return None;
        }
        let mechanism = of(&["sasl.mechanism", "sasl.mechanisms"]);
        let missing = |problem: String, remedy| Some(Self { problem, remedy });
        let is_built = |feature: &str| built_in().split(',').any(|built| built == feature);
        match mechanism.as_str() {
            "" => missing(
                format!("security.protocol is {protocol} and sasl.mechanism is not set"),
                "set sasl.mechanism: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER or GSSAPI",
            ),
            "GSSAPI" if !is_built("sasl_gssapi") => missing(
                "sasl.mechanism is GSSAPI, which is Kerberos, and this program is built without it"
                    .to_owned(),
                "build it with --features gssapi, which takes libsasl2-dev, or set another \
                 sasl.mechanism",
            ),
            "OAUTHBEARER" if of(&["sasl.oauthbearer.method"]).eq_ignore_ascii_case("oidc") => {
                (!is_built("oidc")).then(no_oidc)
            }
            "OAUTHBEARER" if of(&["enable.sasl.oauthbearer.unsecure.jwt"]) != "true" => missing(
                "sasl.mechanism is OAUTHBEARER, and nothing says where tokens come from".to_owned(),
                "set sasl.oauthbearer.method = oidc with sasl.oauthbearer.token.endpoint.url, \
                 sasl.oauthbearer.client.id and sasl.oauthbearer.client.secret",
            ),
            "PLAIN" | "SCRAM-SHA-256" | "SCRAM-SHA-512"
                if of(&["sasl.username"]).is_empty() || of(&["sasl.password"]).is_empty() =>
            {
                missing(
                    format!("sasl.mechanism is {mechanism}, and there is no login"),
                    "set sasl.username and sasl.password",
                )
            }
            _ => None,
        }
    }

    /// The same where librdkafka refused the settings: for want of what it was
    /// not built with, or of a file that can be read.
    #[must_use]
    pub fn in_refusal(text: &str) -> Option<Self> {
        match text {
            text if text.contains("OAuth/OIDC depends on") => Some(no_oidc()),
            text if text.contains("ssl.") => Some(Self { problem: text.to_owned(), remedy: FILES }),
            _ => None,
        }
    }
}

const CERTIFICATE: &str = "the listener asks for a certificate of an authority in its trust store: \
                           set ssl.certificate.location and ssl.key.location, or \
                           ssl.keystore.location";
const FILES: &str = "name files that this process may read: PEM in ssl.ca.location, \
                     ssl.certificate.location and ssl.key.location, PKCS #12 in \
                     ssl.keystore.location; and mend ssl.key.password or ssl.keystore.password \
                     where they are encrypted";

fn is_alert(reason: &str) -> bool {
    let of_certificate =
        ["alert bad cert", "alert certificate", "alert unknown ca", "certificate required"];
    of_certificate.iter().any(|alert| reason.contains(alert))
}

fn no_oidc() -> NoAccess {
    NoAccess {
        problem: "sasl.oauthbearer.method is oidc, and this program is built without it".to_owned(),
        remedy: "build it with --features oidc, which takes cmake, or set another sasl.mechanism",
    }
}

/// What librdkafka was built with, separated by commas.
fn built_in() -> String {
    let native = ClientConfig::new().create_native_config();
    native.and_then(|native| native.get("builtin.features")).unwrap_or_default()
}

/// `None` where it was the connection that ended, or a token that did not come:
/// librdkafka calls both a failed login.
fn of_login(reason: &str) -> Option<&'static str> {
    let says = |part: &str| reason.contains(part);
    if says("hung up") || (says("handshake failed") && !says("Unsupported SASL mechanism")) {
        None
    } else if says("handshake failed") {
        Some("set sasl.mechanism to one of those that the listener has, or enable this one there")
    } else if says("OAUTHBEARER") || says("token") {
        // RFC 6749, 5.2 and 4.1.2.1, and the broker's own.
        let refusals = ["invalid_", "unauthorized", "access_denied", "Authentication failed"];
        refusals.iter().any(|part| says(part)).then_some(
            "mend what begins with sasl.oauthbearer., or see why the brokers take no such token",
        )
    } else if says("GSSAPI") {
        Some(
            "mend what begins with sasl.kerberos., and see whether the key table has the principal",
        )
    } else {
        Some("mend sasl.username and sasl.password, and see whether sasl.mechanism is the user's")
    }
}

fn of_tls(reason: &str) -> &'static str {
    if reason.contains("could not be verified") || reason.contains("verify broker certificate") {
        "set ssl.ca.location to the PEM file of the authority that signed the brokers' \
         certificate; it has to name the host that is connected to, as bootstrap.servers and \
         advertised.listeners have it, and must not have expired"
    } else if is_alert(reason) || reason.contains("client SSL authentication") {
        CERTIFICATE
    } else if reason.contains("wrong version number") || reason.contains("PLAINTEXT") {
        "the listener speaks no TLS: mend security.protocol, or the port in bootstrap.servers"
    } else {
        "mend security.protocol and what begins with ssl."
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(pairs: &[(&str, &str)]) -> Option<String> {
        let mut config = ClientConfig::new();
        for (name, value) in pairs {
            config.set(*name, *value);
        }
        NoAccess::in_settings(&config).map(|missing| missing.to_string())
    }

    #[test]
    fn a_login_that_lacks_nothing_is_not_complained_of() {
        let sasl = ("security.protocol", "sasl_ssl");
        let user = [("sasl.username", "u"), ("sasl.password", "p")];
        for mechanism in ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] {
            for name in ["sasl.mechanism", "sasl.mechanisms"] {
                assert_eq!(missing(&[sasl, (name, mechanism), user[0], user[1]]), None);
                let told = missing(&[sasl, (name, mechanism), user[0]]).unwrap();
                assert!(told.contains("set sasl.username and sasl.password"), "{told}");
            }
        }
        let token = ("enable.sasl.oauthbearer.unsecure.jwt", "true");
        assert_eq!(missing(&[sasl, ("sasl.mechanism", "OAUTHBEARER"), token]), None);
        let told = missing(&[sasl, ("sasl.mechanism", "OAUTHBEARER")]).unwrap();
        assert!(told.contains("sasl.oauthbearer.method = oidc"), "{told}");
        assert_eq!(missing(&[("sasl.mechanism", "PLAIN")]), None, "nobody logs in");
        assert_eq!(missing(&[]), None);
    }

    #[test]
    fn a_broker_that_is_down_or_hangs_up_says_nothing_of_access() {
        for reason in ["Connection refused", "Disconnected", "Receive failed: Connection reset"] {
            assert_eq!(NoAccess::of(Code::BrokerTransportFailure, reason), None);
        }
        for reason in [
            "SASL PLAIN mechanism handshake failed: Local: Broker transport failure",
            "Disconnected: hung up from peer in state AUTH_LEGACY",
            "Failed to acquire SASL OAUTHBEARER token: Couldn't connect to server",
        ] {
            assert_eq!(NoAccess::of(Code::Authentication, reason), None, "{reason}");
        }
        let of_endpoint =
            "Failed to acquire SASL OAUTHBEARER token: {\"error\": \"invalid_client\"}";
        let found = NoAccess::of(Code::Authentication, of_endpoint).unwrap();
        assert!(found.remedy.contains("sasl.oauthbearer."), "{found}");
        let alert = "Receive failed: error:0A000412:SSL routines::ssl/tls alert bad certificate";
        let found = NoAccess::of(Code::BrokerTransportFailure, alert).unwrap();
        assert!(found.remedy.contains("ssl.certificate.location"), "{found}");
    }
}
