use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    path::PathBuf,
    thread,
    time::Duration,
};

use crate::{
    ChildGuard, Lifetime, LocalError, Signal, fetch, free_port, java,
    service::{Kind, Service, start_on_free_ports},
    workdir::WorkDir,
};

const NAME: &str = "the schema registry";
const KIND: Kind =
    Kind { start_limit: Duration::from_secs(240), orderly: Signal::Terminate, hasty: Signal::Kill };
const ANSWER_LIMIT: Duration = Duration::from_secs(30);
/// How often a schema is sent that the server fails to take.
const REGISTER_MOST: u32 = 5;
/// Where it has Confluent's API.
const API: &str = "/apis/ccompat/v7";
/// Where it has its own, as its clients of version 2 speak it.
const OWN_API: &str = "/apis/registry/v2";
const OLDEST_JAVA: u32 = 21;

/// A schema registry of our own on 127.0.0.1 (Apicurio), which keeps its
/// schemas in memory. Ends with this value.
#[derive(Debug)]
pub struct Registry {
    service: Service,
    java: PathBuf,
    program: PathBuf,
    port: u16,
}

impl Registry {
    /// Fetches what is missing (159 MB), and starts one. Returns when it
    /// answers.
    ///
    /// # Errors
    ///
    /// When there is no Java 21 or newer, it cannot be fetched, or does not
    /// start.
    pub fn start_new() -> Result<Self, LocalError> {
        let java = java::find(NAME, OLDEST_JAVA)?;
        let program = fetch::fetch_registry()?.join("quarkus-run.jar");
        let home = WorkDir::open(NAME, None, Lifetime::Guard)?;
        let service = Service::new(KIND, NAME, home, Lifetime::Guard);
        let mut registry = Self { service, java, program, port: 0 };
        let child = start_on_free_ports(true, || {
            registry.port = free_port()?;
            registry.start_once()
        })?;
        registry.service.keep(child);
        Ok(registry)
    }

    /// Where it has Confluent's API.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}{API}", self.address())
    }

    /// Where it has the API of Apicurio's own clients of version 2.
    #[must_use]
    pub fn own_url(&self) -> String {
        format!("http://{}{OWN_API}", self.address())
    }

    /// Registers `body`, JSON as Confluent's API has it (`{"schema": "…"}`), and
    /// returns the answer's body.
    ///
    /// # Errors
    ///
    /// When it does not answer, or fails several times.
    pub fn register(&self, subject: &str, body: &str) -> Result<String, LocalError> {
        let path = format!("{API}/subjects/{subject}/versions");
        let mut asked = 0;
        loop {
            let (status, answer) = ask(self.address(), "POST", &path, body).map_err(failed)?;
            asked += 1;
            // Two that are registered at once may get in each other's way.
            if (status == 0 || status >= 500) && asked < REGISTER_MOST {
                thread::sleep(Duration::from_millis(100));
                continue;
            }
            if status == 0 || status >= 500 || answer.is_empty() {
                let said = format!("it answered {status} to a schema: {answer:?}");
                return Err(failed(io::Error::other(said)));
            }
            return Ok(answer);
        }
    }

    /// Freezes it: connections stay open and nothing answers.
    ///
    /// # Errors
    ///
    /// When it is not running.
    pub fn pause(&self) -> Result<(), LocalError> {
        self.service.running("freeze it", ChildGuard::pause)
    }

    /// Lets it run on after [`Registry::pause`].
    ///
    /// # Errors
    ///
    /// When it is not running.
    pub fn resume(&self) -> Result<(), LocalError> {
        self.service.running("let it run on", ChildGuard::resume)
    }

    fn address(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.port).into()
    }

    fn start_once(&self) -> Result<ChildGuard, LocalError> {
        let launch = self
            .service
            .launch(&self.java)
            .env("QUARKUS_HTTP_HOST", "127.0.0.1")
            .env("QUARKUS_HTTP_PORT", self.port.to_string())
            // A second port, that nobody asks: any free one.
            .env("QUARKUS_MANAGEMENT_HOST", "127.0.0.1")
            .env("QUARKUS_MANAGEMENT_PORT", "0")
            .args(["-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"])
            .arg(java::temporary_files(self.service.home()))
            .arg("-jar")
            .arg(&self.program);
        self.service.run(launch, |_| {
            let asked = ask(self.address(), "GET", &format!("{API}/subjects"), "");
            asked.is_ok_and(|(status, _)| status == 200)
        })
    }
}

fn failed(error: io::Error) -> LocalError {
    LocalError::io("ask", NAME)(error)
}

/// Status and body of an answer.
fn ask(address: SocketAddr, method: &str, path: &str, body: &str) -> io::Result<(u16, String)> {
    let mut stream = TcpStream::connect_timeout(&address, ANSWER_LIMIT)?;
    stream.set_read_timeout(Some(ANSWER_LIMIT))?;
    stream.set_write_timeout(Some(ANSWER_LIMIT))?;
    // HTTP/1.0, so that the end of the body is the end of the connection.
    let request = format!(
        "{method} {path} HTTP/1.0\r\nHost: {address}\r\n\
         Content-Type: application/vnd.schemaregistry.v1+json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    Ok((status.unwrap_or_default(), body.to_owned()))
}
