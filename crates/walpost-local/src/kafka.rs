mod builder;
mod probe;
mod tools;

use std::{
    ffi::{OsStr, OsString},
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

pub use self::{builder::KafkaBuilder, tools::KafkaTools};
use crate::{
    ChildGuard, LocalError, Signal, java,
    service::{Kind, Service},
};

/// The version of Kafka that is fetched and started.
pub const KAFKA_VERSION: &str = "4.3.1";

const NAME: &str = "Kafka";
const KIND: Kind =
    Kind { start_limit: Duration::from_secs(90), orderly: Signal::Terminate, hasty: Signal::Kill };

/// An Apache Kafka of our own: one process, broker and controller, or with
/// [`KafkaBuilder::joining`] a further broker of one. Ends with this value; its
/// files go with it unless [`KafkaBuilder::home`] named a place for them.
///
/// Topics are not created by use; see [`KafkaBuilder::property`].
#[derive(Debug)]
pub struct Kafka {
    service: Service,
    tools: KafkaTools,
    jvm_args: Vec<String>,
    client_port: u16,
    /// Of the controller that this one is, or that it asks.
    controller_port: u16,
    proxied_port: Option<u16>,
    /// Those of [`KafkaBuilder::listener`], with their ports.
    listeners: Vec<(String, u16)>,
}

impl Kafka {
    /// The settings to start one with.
    #[must_use]
    pub fn builder() -> KafkaBuilder {
        KafkaBuilder::default()
    }

    /// `127.0.0.1:<port>`. Stays the same over stop and start.
    #[must_use]
    pub fn bootstrap(&self) -> String {
        self.address().to_string()
    }

    /// The address of [`Kafka::bootstrap`].
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.client_port).into()
    }

    /// Where a proxy in front of this broker has to connect to, when
    /// [`KafkaBuilder::proxied_by`] was used. Clients that come this way are
    /// told the proxy's address.
    #[must_use]
    pub fn proxied_address(&self) -> Option<SocketAddr> {
        self.proxied_port.map(|port| ([127, 0, 0, 1], port).into())
    }

    /// The port of its controller, on 127.0.0.1: for a proxy through which a further
    /// broker reaches it, which then has the property `controller.quorum.voters`.
    #[must_use]
    pub fn controller_port(&self) -> u16 {
        self.controller_port
    }

    /// `localhost:<port>` of the listener that [`KafkaBuilder::listener`] made
    /// under this name.
    #[must_use]
    pub fn listener(&self, name: &str) -> Option<String> {
        let found = self.listeners.iter().find(|(known, _)| known == name);
        found.map(|(_, port)| format!("localhost:{port}"))
    }

    /// Its log, over all its starts.
    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.service.log()
    }

    /// Its process id, or `None` when it is stopped.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.service.pid()
    }

    /// The programs of its version.
    #[must_use]
    pub fn tools(&self) -> &KafkaTools {
        &self.tools
    }

    /// What Java needs as `-cp` to find Kafka and its tools.
    #[must_use]
    pub fn classpath(&self) -> OsString {
        self.tools.classpath()
    }

    /// The Java that runs it.
    #[must_use]
    pub fn java(&self) -> &Path {
        self.tools.java()
    }

    /// Runs one of Kafka's own Java programs: see [`KafkaTools::run`].
    ///
    /// # Errors
    ///
    /// When it fails, or still runs after 2 minutes.
    pub fn run_tool(
        &self,
        class: &str,
        args: impl IntoIterator<Item = impl AsRef<OsStr>>,
    ) -> Result<String, LocalError> {
        self.tools.run(class, args)
    }

    /// Starts it again, on the same data and ports. Returns when it answers a
    /// client. Does nothing while it runs.
    ///
    /// # Errors
    ///
    /// When it ends before it is ready, or is not ready within 90 s.
    pub fn start(&self) -> Result<(), LocalError> {
        self.service.start(|| self.start_once())
    }

    /// Stops it with SIGTERM, which closes its logs in order. Does nothing
    /// when it is stopped.
    ///
    /// # Errors
    ///
    /// When it still runs after 60 s.
    pub fn stop(&self) -> Result<(), LocalError> {
        self.service.end(Signal::Terminate)
    }

    /// Ends it with SIGKILL. Does nothing when it is stopped.
    ///
    /// # Errors
    ///
    /// When the system refuses.
    pub fn kill(&self) -> Result<(), LocalError> {
        self.service.end(Signal::Kill)
    }

    /// Freezes it: connections stay open and nothing answers.
    ///
    /// # Errors
    ///
    /// When it is not running.
    pub fn pause(&self) -> Result<(), LocalError> {
        self.service.running("freeze it", ChildGuard::pause)
    }

    /// Lets it run on after [`Kafka::pause`].
    ///
    /// # Errors
    ///
    /// When it is not running.
    pub fn resume(&self) -> Result<(), LocalError> {
        self.service.running("let it run on", ChildGuard::resume)
    }

    fn start_once(&self) -> Result<ChildGuard, LocalError> {
        let launch = self
            .service
            .launch(self.java())
            .args(&self.jvm_args)
            .arg(java::temporary_files(self.service.home()))
            .arg("-cp")
            .arg(self.classpath())
            .arg("kafka.Kafka")
            .arg(self.service.home().join(builder::PROPERTIES));
        self.service.run(launch, |_| probe::knows_a_broker(self.address()))
    }
}
