use std::{
    fs,
    hash::{BuildHasher, RandomState},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use super::{KIND, Kafka, KafkaTools, NAME};
use crate::{
    Lifetime, LocalError, command, free_port,
    service::{Service, start_on_free_ports},
    workdir::WorkDir,
};

pub(super) const PROPERTIES: &str = "server.properties";
const FORMAT_LIMIT: Duration = Duration::from_secs(60);

/// Kafka's defaults, less replicas and shorter waits: it is alone.
const DEFAULTS: &[(&str, &str)] = &[
    ("auto.create.topics.enable", "false"),
    ("num.network.threads", "2"),
    ("num.io.threads", "4"),
    // A killed broker may register again only when its old session is over.
    ("broker.session.timeout.ms", "2000"),
    ("broker.heartbeat.interval.ms", "250"),
    ("offsets.topic.replication.factor", "1"),
    ("offsets.topic.num.partitions", "4"),
    ("transaction.state.log.replication.factor", "1"),
    ("transaction.state.log.min.isr", "1"),
    ("transaction.state.log.num.partitions", "4"),
    ("share.coordinator.state.topic.replication.factor", "1"),
    ("share.coordinator.state.topic.min.isr", "1"),
    ("share.coordinator.state.topic.num.partitions", "4"),
    ("group.initial.rebalance.delay.ms", "0"),
    ("group.min.session.timeout.ms", "1000"),
    ("group.consumer.min.session.timeout.ms", "1000"),
    ("group.consumer.min.heartbeat.interval.ms", "500"),
    ("group.consumer.session.timeout.ms", "6000"),
    ("group.consumer.heartbeat.interval.ms", "1000"),
];

/// Settings of a private Kafka.
#[derive(Debug, Clone)]
pub struct KafkaBuilder {
    home: Option<PathBuf>,
    port: Option<u16>,
    proxy_port: Option<u16>,
    /// By name, each with its security protocol.
    listeners: Vec<(String, String)>,
    scram_users: Vec<ScramUser>,
    joins: Option<Joins>,
    properties: Vec<(String, String)>,
    jvm_args: Vec<String>,
    lifetime: Lifetime,
}

/// Who logs in by SCRAM, of either strength.
#[derive(Clone)]
struct ScramUser {
    name: String,
    password: String,
}

impl std::fmt::Debug for ScramUser {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ScramUser({})", self.name)
    }
}

/// The cluster that a further broker is of.
#[derive(Debug, Clone)]
struct Joins {
    node: u32,
    controller_port: u16,
    /// The file in which the first one keeps the cluster's id.
    meta: PathBuf,
}

impl Default for KafkaBuilder {
    fn default() -> Self {
        let jvm_args = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"];
        Self {
            home: None,
            port: None,
            proxy_port: None,
            listeners: Vec::new(),
            scram_users: Vec::new(),
            joins: None,
            properties: Vec::new(),
            jvm_args: jvm_args.map(String::from).into(),
            lifetime: Lifetime::Guard,
        }
    }
}

impl KafkaBuilder {
    /// Sets the folder for data and log, which then stays. One that already
    /// has data is used as it is, with the properties of this builder.
    /// Default: a temporary folder that goes with the broker.
    #[must_use]
    pub fn home(mut self, path: impl Into<PathBuf>) -> Self {
        self.home = Some(path.into());
        self
    }

    /// Sets the port of [`Kafka::bootstrap`]. Default: a free one.
    #[must_use]
    pub fn port(mut self, port: u16) -> Self {
        self.port = Some(port);
        self
    }

    /// Opens a second port for a proxy. Clients that come through it are told
    /// `127.0.0.1:<proxy_port>` as the address of the broker, so that they
    /// stay behind the proxy. See [`Kafka::proxied_address`].
    #[must_use]
    pub fn proxied_by(mut self, proxy_port: u16) -> Self {
        self.proxy_port = Some(proxy_port);
        self
    }

    /// Opens a further listener under this name, in capital letters, with this
    /// security protocol: `SSL`, `SASL_PLAINTEXT` or `SASL_SSL`. Clients are told
    /// that its host is `localhost`. What it asks of them are properties that
    /// begin with `listener.name.<name>.`. See [`Kafka::listener`].
    #[must_use]
    pub fn listener(mut self, name: impl Into<String>, protocol: impl Into<String>) -> Self {
        self.listeners.push((name.into(), protocol.into()));
        self
    }

    /// Makes a user who logs in with SCRAM-SHA-256 and SCRAM-SHA-512.
    #[must_use]
    pub fn scram_user(mut self, name: impl Into<String>, password: impl Into<String>) -> Self {
        self.scram_users.push(ScramUser { name: name.into(), password: password.into() });
        self
    }

    /// Makes it a further broker, number `node` (2 or more), of the cluster of
    /// `first`, which is broker 1 and the controller and has to run on. Topics
    /// have the replicas that they are created with.
    #[must_use]
    pub fn joining(mut self, first: &Kafka, node: u32) -> Self {
        let (controller_port, meta) = (first.controller_port, meta(first));
        self.joins = Some(Joins { node, controller_port, meta });
        self
    }

    /// Sets a property of `server.properties`, such as
    /// `auto.create.topics.enable`. The last of a name counts.
    #[must_use]
    pub fn property(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.properties.push((name.into(), value.into()));
        self
    }

    /// Sets the options of Java. Default: quick to start and small, with
    /// `-Xmx512m -XX:+UseSerialGC -XX:TieredStopAtLevel=1`; to measure
    /// throughput, give `["-Xmx1g"]`.
    #[must_use]
    pub fn jvm_args(mut self, args: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.jvm_args = args.into_iter().map(Into::into).collect();
        self
    }

    /// Sets what ends the broker. Default: [`Lifetime::Guard`]; any other needs
    /// [`KafkaBuilder::home`], which [`Lifetime::Process`] removes at the end.
    #[must_use]
    pub fn lifetime(mut self, lifetime: Lifetime) -> Self {
        self.lifetime = lifetime;
        self
    }

    /// Fetches what is missing, formats the data folder, and starts. Returns
    /// when a client is answered.
    ///
    /// # Errors
    ///
    /// When any of that fails; see [`LocalError`].
    pub fn start(self) -> Result<Kafka, LocalError> {
        let home = WorkDir::open(NAME, self.home.as_deref(), self.lifetime)?;
        let mut kafka = Kafka {
            service: Service::new(KIND, NAME, home, self.lifetime),
            tools: KafkaTools::find()?,
            jvm_args: self.jvm_args.clone(),
            client_port: 0,
            controller_port: 0,
            proxied_port: None,
            listeners: Vec::new(),
        };
        let child = start_on_free_ports(self.port.is_none(), || {
            kafka.client_port = self.port.map_or_else(free_port, Ok)?;
            kafka.proxied_port = self.proxy_port.map(|_| free_port()).transpose()?;
            let of_name = |(name, _): &(String, String)| Ok((name.clone(), free_port()?));
            kafka.listeners = self.listeners.iter().map(of_name).collect::<Result<_, _>>()?;
            kafka.controller_port = match &self.joins {
                Some(joins) => joins.controller_port,
                None => free_port()?,
            };
            let properties = self.write_properties(&kafka)?;
            self.format(&kafka, &properties, &self.cluster_id()?)?;
            kafka.start_once()
        })?;
        kafka.service.keep(child);
        Ok(kafka)
    }

    /// That of the cluster which is joined, or a new one.
    fn cluster_id(&self) -> Result<String, LocalError> {
        let Some(Joins { meta, .. }) = &self.joins else { return Ok(new_cluster_id()) };
        let text = fs::read_to_string(meta).map_err(LocalError::io("read", meta.display()))?;
        let id = text.lines().find_map(|line| line.strip_prefix("cluster.id="));
        id.map(|id| id.trim().to_owned()).ok_or_else(|| LocalError::Setting {
            service: NAME,
            reason: format!("{} has no cluster.id to join", meta.display()),
        })
    }

    fn write_properties(&self, kafka: &Kafka) -> Result<PathBuf, LocalError> {
        let path = kafka.service.home().join(PROPERTIES);
        let text = self.server_properties(kafka);
        fs::write(&path, text).map_err(LocalError::io("write", path.display()))?;
        Ok(path)
    }

    fn server_properties(&self, kafka: &Kafka) -> String {
        let controller_port = kafka.controller_port;
        let local = |name: &str, port: u16| format!("{name}://127.0.0.1:{port}");
        let mut listeners = vec![local("CLIENT", kafka.client_port)];
        let (node, roles) = match &self.joins {
            Some(joins) => (joins.node, "broker"),
            None => {
                listeners.push(local("CONTROLLER", controller_port));
                (1, "broker,controller")
            }
        };
        let mut advertised = vec![local("CLIENT", kafka.client_port)];
        if let (Some(behind), Some(front)) = (kafka.proxied_port, self.proxy_port) {
            listeners.push(local("PROXIED", behind));
            advertised.push(local("PROXIED", front));
        }
        for (name, port) in &kafka.listeners {
            listeners.push(local(name, *port));
            advertised.push(format!("{name}://localhost:{port}"));
        }
        let plain = ["CLIENT", "CONTROLLER", "PROXIED"].map(|name| format!("{name}:PLAINTEXT"));
        let given = self.listeners.iter().map(|(name, protocol)| format!("{name}:{protocol}"));
        let protocols: Vec<String> = plain.into_iter().chain(given).collect();
        let data = kafka.service.home().join("data");
        let own = [
            ("process.roles", roles.to_owned()),
            ("node.id", node.to_string()),
            ("controller.quorum.voters", format!("1@127.0.0.1:{controller_port}")),
            ("controller.listener.names", "CONTROLLER".to_owned()),
            ("listeners", listeners.join(",")),
            ("advertised.listeners", advertised.join(",")),
            ("listener.security.protocol.map", protocols.join(",")),
            ("inter.broker.listener.name", "CLIENT".to_owned()),
            ("log.dirs", data.to_string_lossy().into_owned()),
        ];
        let own = own.iter().map(|(name, value)| (*name, value.as_str()));
        let given = self.properties.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        own.chain(DEFAULTS.iter().copied())
            .chain(given)
            .map(|(name, value)| format!("{name}={}\n", value.replace('\\', "\\\\")))
            .collect()
    }

    fn format(&self, kafka: &Kafka, properties: &Path, id: &str) -> Result<(), LocalError> {
        if meta(kafka).is_file() {
            return Ok(());
        }
        let mut command = Command::new(kafka.java());
        command
            .args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx128m", "-cp"])
            .arg(kafka.classpath())
            .args(["kafka.tools.StorageTool", "format", "-t", id, "-c"])
            .arg(properties);
        for ScramUser { name, password } in &self.scram_users {
            for mechanism in ["SCRAM-SHA-256", "SCRAM-SHA-512"] {
                let user = format!("{mechanism}=[name={name},password={password}]");
                command.arg("--add-scram").arg(user);
            }
        }
        command::run("formatting Kafka's data folder", &mut command, FORMAT_LIMIT).map(drop)
    }
}

/// What formatting leaves in the data folder.
fn meta(kafka: &Kafka) -> PathBuf {
    kafka.service.home().join("data/meta.properties")
}

/// 22 letters of base64 for URLs, as Kafka writes it. The first is fixed: a
/// leading `-` would be taken for an option.
fn new_cluster_id() -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let random = || u128::from(RandomState::new().hash_one(0));
    let bits = (random() << 64) | random();
    let letters = (0..21).map(|digit| {
        let index = usize::try_from((bits >> (6 * digit)) & 63).expect("six bits fit in a usize");
        char::from(LETTERS[index])
    });
    std::iter::once('W').chain(letters).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cluster_ids_differ_and_do_not_look_like_an_option() {
        let (one, other) = (new_cluster_id(), new_cluster_id());
        assert!(one.len() == 22 && one.starts_with('W'));
        assert_ne!(one, other);
    }
}
