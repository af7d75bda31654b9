//! One destination of webhooks, checked.

use std::{path::PathBuf, time::Duration};

use axum::http::{HeaderName, HeaderValue};
use walpost_webhook::{
    AddressPolicy, Breaker, ClientSettings, Destination, Endpoint, EndpointError, OnHeadFailure,
    OnUnknownOutcome, Order, Pace, Ports, ProcessorSettings, Proxy, Rate, RetryPolicy, Schedule,
    Secret,
    sink::{BodyForm, KeyOf, Subscription},
};

use super::{
    Config, ConfigError, Origin,
    build::{fitting, one_of},
    duration::duration,
    settings::DestinationSection,
};

/// What the configuration says of one destination.
pub(super) struct NamedSection<'a> {
    pub(super) config: &'a Config,
    pub(super) name: &'a String,
    pub(super) section: &'a DestinationSection,
}

impl NamedSection<'_> {
    /// A problem with a key, told where it was set: in the table of the name, or
    /// for all.
    fn wrong(&self, key: &str, problem: &str) -> ConfigError {
        let own = format!("destination.{}", self.name);
        let problem = format!("{own}.{key} {problem}");
        match self.config.layers.origin(&own, key) {
            Origin::Default => self.config.wrong("destination", key, &problem),
            origin => ConfigError::Value { origin, problem },
        }
    }

    fn choice<T: Copy>(
        &self,
        (key, value): (&str, &str),
        choices: &[(&str, T)],
    ) -> Result<T, ConfigError> {
        one_of(value, choices).map_err(|problem| self.wrong(key, &problem))
    }

    fn number<T: TryFrom<u64>>(&self, key: &str, value: u64) -> Result<T, ConfigError> {
        fitting(value).map_err(|problem| self.wrong(key, &problem))
    }

    /// What its processor sends.
    pub(super) fn subscription(
        &self,
        processor: &ProcessorSettings,
    ) -> Result<Subscription, ConfigError> {
        let mut subscription = Subscription::of(processor);
        subscription.events.clone_from(&self.section.events);
        subscription.key = self.choice(
            ("key", &self.section.key),
            &[("event", KeyOf::Event), ("delivery", KeyOf::Delivery)],
        )?;
        subscription.body = self.choice(
            ("body", &self.section.body),
            &[("raw", BodyForm::Raw), ("standard", BodyForm::Standard)],
        )?;
        Ok(subscription)
    }

    pub(super) fn processor(&self) -> Result<ProcessorSettings, ConfigError> {
        let section = self.section;
        let mut settings = ProcessorSettings::new(self.name, self.destination()?);
        settings.client = self.client(settings.destination.endpoint.port())?;
        settings.policy = self.policy()?;
        settings.pace = Pace {
            poll: Duration::from_millis(section.poll_interval_ms),
            concurrency: self.number("concurrency", section.concurrency)?,
            ..Pace::default()
        };
        settings.retry_share_percent =
            self.number("retry_share_percent", section.retry_share_percent)?;
        settings.order = self.choice(
            ("order", &section.order),
            &[("none", Order::None), ("key", Order::Key), ("all", Order::All)],
        )?;
        settings.on_head_failure = self.choice(
            ("on_head_failure", &section.on_head_failure),
            &[("block", OnHeadFailure::Block), ("skip", OnHeadFailure::Skip)],
        )?;
        settings.lease = Duration::from_millis(section.lease_ms);
        settings.rate = self.rate()?;
        settings.breaker = self.breaker()?;
        settings.in_flight_max_bytes =
            self.number("in_flight_max_bytes", section.in_flight_max_bytes)?;
        settings.deliveries = self.config.deliveries()?;
        settings.alerts = self.config.alerts()?;
        settings.claimed_by = format!("walpost {}", std::process::id());
        settings.check().map_err(|error| {
            let of = match &error {
                walpost_webhook::StoreError::Setting { setting, .. } => *setting,
                _ => "",
            };
            let key = match of {
                "poll" => "poll_interval_ms",
                "lease" => "lease_ms",
                "rate" => "rate_per_second",
                "breaker" => "breaker_wait_s",
                other => other,
            };
            self.wrong(key, &format!("cannot be used: {error}"))
        })?;
        Ok(settings)
    }

    fn rate(&self) -> Result<Option<Rate>, ConfigError> {
        let section = self.section;
        if section.rate_per_second == 0 {
            return match section.rate_burst {
                0 => Ok(None),
                _ => Err(self.wrong("rate_burst", "is set and rate_per_second is 0")),
            };
        }
        let per_second: u32 = self.number("rate_per_second", section.rate_per_second)?;
        let mut rate = Rate::per_second(per_second.into());
        if section.rate_burst > 0 {
            rate.burst = self.number("rate_burst", section.rate_burst)?;
        }
        Ok(Some(rate))
    }

    fn breaker(&self) -> Result<Option<Breaker>, ConfigError> {
        let section = self.section;
        let breaker = Breaker {
            failures: self.number("breaker_failures", section.breaker_failures)?,
            wait: Duration::from_secs(section.breaker_wait_s),
            wait_max: Duration::from_secs(section.breaker_wait_max_s),
        };
        Ok(Some(breaker).filter(|breaker| breaker.failures > 0))
    }

    fn addresses(&self) -> AddressPolicy {
        match self.section.allow_private_networks {
            true => AddressPolicy::with_private_networks(),
            false => AddressPolicy::public(),
        }
    }

    /// Which ports may be dialled, beside that of the url where none are named.
    fn ports(&self, of_url: u16) -> Result<Ports, ConfigError> {
        let port = |text: &String| {
            let problem = format!("has {text:?}, which is no port, such as \"8443\"");
            text.parse().map_err(|_| self.wrong("allow_ports", &problem))
        };
        let mut ports: Vec<u16> =
            self.section.allow_ports.iter().map(port).collect::<Result<_, _>>()?;
        if ports.is_empty() {
            ports = vec![80, 443, of_url];
        }
        if !ports.contains(&of_url) {
            let problem = format!("has not the port of the url, {of_url}; name it as well");
            return Err(self.wrong("allow_ports", &problem));
        }
        Ok(Ports::only(ports))
    }

    fn proxy(&self) -> Result<Option<Proxy>, ConfigError> {
        let text = &*self.section.proxy;
        let proxy = Some(text).filter(|text| !text.is_empty()).map(Proxy::parse).transpose();
        proxy.map_err(|error| self.wrong("proxy", &format!("cannot be used: {error}")))
    }

    fn client(&self, port: u16) -> Result<ClientSettings, ConfigError> {
        let millis = Duration::from_millis;
        Ok(ClientSettings {
            timeout: millis(self.section.timeout_ms),
            connect_timeout: millis(self.section.connect_timeout_ms),
            idle_timeout: millis(self.section.idle_timeout_ms),
            ports: Some(self.ports(port)?),
            proxy: self.proxy()?,
            ..ClientSettings::default()
        })
    }

    fn policy(&self) -> Result<RetryPolicy, ConfigError> {
        let section = self.section;
        let wait = |text: &String| {
            duration(text).ok_or_else(|| {
                let problem = format!(
                    "has {text:?}; a wait is a whole number with ms, s, m or h, such as 30s"
                );
                self.wrong("retry_waits", &problem)
            })
        };
        let waits: Vec<Duration> =
            section.retry_waits.iter().map(wait).collect::<Result<_, _>>()?;
        if waits.is_empty() && section.retry_limit > 0 {
            let problem = "is [] and retry_limit is not 0; name a wait, or make it 0";
            return Err(self.wrong("retry_waits", problem));
        }
        if section.retry_jitter_percent > 100 {
            let problem = format!("is {}; at most 100", section.retry_jitter_percent);
            return Err(self.wrong("retry_jitter_percent", &problem));
        }
        let limit = self.number("retry_limit", section.retry_limit)?;
        let jitter = section.retry_jitter_percent as f64 / 100.0;
        let mut policy = RetryPolicy::new(Schedule::new(waits).retry_limit(limit).jitter(jitter));
        policy.retry_after_cap = Duration::from_secs(section.retry_after_max_s);
        policy.on_unknown_outcome = self.choice(
            ("on_unknown_outcome", &section.on_unknown_outcome),
            &[("resend", OnUnknownOutcome::Resend), ("hold", OnUnknownOutcome::Hold)],
        )?;
        Ok(policy)
    }

    fn destination(&self) -> Result<Destination, ConfigError> {
        let section = self.section;
        let url = section.url.trim();
        if url.is_empty() {
            return Err(self.wrong("url", "is not set; where do its webhooks go to?"));
        }
        if url.starts_with("http://") && !section.allow_http {
            let problem = "is http://, which anybody on the way reads and changes; make it https://, \
                           or set allow_http = true";
            return Err(self.wrong("url", problem));
        }
        let endpoint = Endpoint::parse(url, self.addresses()).map_err(|error| {
            self.wrong("url", &format!("cannot be used: {error}{}", key(&error)))
        })?;
        let mut destination = Destination::new(endpoint);
        let method = section.method.parse();
        destination.method =
            method.map_err(|_| self.wrong("method", "is no method, such as POST"))?;
        for header in &section.headers {
            let (name, value) = header
                .split_once(':')
                .ok_or_else(|| self.wrong("headers", "has one without a colon: name: value"))?;
            let name: HeaderName = name
                .trim()
                .parse()
                .map_err(|_| self.wrong("headers", "has one whose name is none"))?;
            let mut value: HeaderValue = value.trim().parse().map_err(|_| {
                self.wrong("headers", &format!("has a value for {name} that no header can have"))
            })?;
            value.set_sensitive(true);
            destination.headers.append(name, value);
        }
        let key_header = |name: &String| {
            let problem = format!("has {name:?}, which is no name of a header");
            name.parse().map_err(|_| self.wrong("key_headers", &problem))
        };
        destination.key_headers =
            section.key_headers.iter().map(key_header).collect::<Result<_, _>>()?;
        destination.token = match (&*section.token_file, &*section.token_variable) {
            ("", "") => None,
            (file, "") => Some(Secret::File(PathBuf::from(file))),
            ("", variable) => Some(Secret::Env(variable.to_owned())),
            _ => return Err(self.wrong("token_file", "and token_variable are both set")),
        };
        let files = section.signing_key_files.iter().map(|file| Secret::File(file.into()));
        let variables = section.signing_key_variables.iter().cloned().map(Secret::Env);
        destination.signing_keys = files.chain(variables).collect();
        Ok(destination)
    }
}

/// What permits a url that is refused, if anything does.
fn key(error: &EndpointError) -> &'static str {
    match error {
        EndpointError::Address { why, .. } if why.is_private() => {
            "; allow_private_networks = true permits it for this destination"
        }
        _ => "",
    }
}
