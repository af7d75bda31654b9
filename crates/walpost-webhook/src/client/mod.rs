//! One attempt over HTTP/1.1: dialled at an address that was checked, within one
//! deadline, never redirected, and never read without a bound.

mod answer;
mod connect;
mod limit;
mod pool;
mod ports;
mod proxy;
mod resolve;
mod tls;

use std::{
    fmt,
    sync::Arc,
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request as HttpRequest, StatusCode, Uri, header};
use http_body_util::Full;
use hyper::{Response, body::Incoming};
use tokio::time::{Instant, timeout_at};

pub use self::{
    ports::Ports,
    proxy::{Proxy, ProxyError},
    resolve::Resolver,
    tls::{CertificateError, Tls},
};

use self::{
    answer::Body,
    connect::{Connection, Dialling},
    limit::Limit,
    pool::Pool,
    resolve::Lookups,
};
use crate::{Endpoint, Failure, Outcome, retry_after};

/// How requests are sent.
#[derive(Clone, Debug)]
pub struct ClientSettings {
    /// From the first look for the address to the last byte of the answer; 15 s.
    pub timeout: Duration,
    /// Of that, until there is a connection; 5 s.
    pub connect_timeout: Duration,
    /// How long a connection is kept that nothing is sent over; 25 s. Shorter than
    /// the receiver's, so that it does not close one that a request is on its way
    /// over. Nothing is kept with 0.
    pub idle_timeout: Duration,
    /// How many such connections are kept for each host; 32.
    pub idle_max: usize,
    /// How much of an answer's body is read; 16 KiB. Behind that the connection
    /// is closed.
    pub body_max_bytes: usize,
    /// How large the head of an answer may be; 64 KiB, at least 8 KiB.
    pub head_max_bytes: usize,
    /// At which ports an endpoint is dialled. Unless set that is for the
    /// [policy](Endpoint::addresses) of the endpoint to say: 80 and 443, or any where
    /// private networks may be dialled, since then nobody but the operator names URLs.
    pub ports: Option<Ports>,
    /// What requests go through; nothing unless set, whatever the environment says.
    pub proxy: Option<Proxy>,
    /// How names become addresses.
    pub resolver: Resolver,
    /// How many names are looked up at a time; 16, at least one. Others wait,
    /// within `connect_timeout`. A look that blocks counts until it has ended, also
    /// where nobody waits for it any more, so a resolver that is dead takes no more
    /// threads from other clients than these: tokio has 512 unless told otherwise.
    pub lookups_max: usize,
    /// Whose certificates are trusted.
    pub tls: Tls,
}

impl Default for ClientSettings {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(15),
            connect_timeout: Duration::from_secs(5),
            idle_timeout: Duration::from_secs(25),
            idle_max: 32,
            body_max_bytes: 16 * 1_024,
            head_max_bytes: 64 * 1_024,
            ports: None,
            proxy: None,
            resolver: Resolver::system(),
            lookups_max: 16,
            tls: Tls::system(),
        }
    }
}

impl ClientSettings {
    fn may_dial(&self, endpoint: &Endpoint) -> bool {
        let port = endpoint.port();
        match &self.ports {
            Some(ports) => ports.allows(port),
            None => endpoint.addresses().private_networks() || Ports::web().allows(port),
        }
    }
}

/// What is sent.
#[derive(Clone)]
pub struct Request {
    /// Where to.
    pub endpoint: Endpoint,
    /// How.
    pub method: Method,
    /// Beside `host` and `content-length`, which are set.
    pub headers: HeaderMap,
    /// As it is signed, byte for byte.
    pub body: Bytes,
}

/// What came of a request.
#[derive(Clone)]
pub struct Attempt {
    /// What it came to.
    pub outcome: Outcome,
    /// What went wrong, without contents; empty where there was an answer.
    pub detail: String,
    /// What was read of the answer's body.
    pub body: Bytes,
    /// Whether there was more of it, or it did not come to its end.
    pub is_cut: bool,
    /// Whether it went over a connection that was there already.
    pub reused: bool,
    /// From its begin to its end.
    pub elapsed: Duration,
}

/// Sends requests, and keeps connections between them. A clone shares them.
///
/// Neither environment variables for proxies nor cookies are looked at, and
/// redirects are answers like others.
///
/// ```no_run
/// use http::{HeaderMap, Method};
/// use walpost_webhook::{AddressPolicy, Client, ClientSettings, Endpoint, Request};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let client = Client::new(ClientSettings::default());
/// let endpoint = Endpoint::parse("https://example.com/hook", AddressPolicy::public())?;
/// let body = br#"{"type":"invoice.paid"}"#.as_slice().into();
/// let request = Request { endpoint, method: Method::POST, headers: HeaderMap::new(), body };
/// println!("{}", client.send(&request).await.outcome);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Client {
    settings: Arc<ClientSettings>,
    pool: Arc<Pool>,
    lookups: Arc<Lookups>,
}

/// Why there is no head of an answer.
#[derive(Debug)]
struct Trouble {
    failure: Failure,
    sent: bool,
    detail: String,
}

impl Trouble {
    fn unsent(failure: Failure, detail: impl fmt::Display) -> Self {
        Self { failure, sent: false, detail: detail.to_string() }
    }
}

/// How far an attempt is.
#[derive(Debug, Default)]
struct Progress {
    /// Of the connection that has the request.
    limit: Option<Limit>,
    reused: bool,
}

impl Progress {
    /// The request is given to a connection.
    fn begin(&mut self, connection: &Connection, deadline: Instant, reused: bool) {
        connection.limit.begin(deadline);
        *self = Self { limit: Some(connection.limit.clone()), reused };
    }
}

impl Client {
    /// No connection is made before the first request.
    pub fn new(settings: ClientSettings) -> Self {
        let pool = Pool::new(settings.idle_timeout, settings.idle_max);
        let lookups = Lookups::new(settings.lookups_max);
        Self { settings: Arc::new(settings), pool: Arc::new(pool), lookups: Arc::new(lookups) }
    }

    /// Sends a request and reads the answer, within the settings' time. Dropped,
    /// it closes its connection.
    pub async fn send(&self, request: &Request) -> Attempt {
        self.send_until(request, Instant::now() + self.settings.timeout).await
    }

    /// The same, until `deadline`. No byte of the request goes out behind it,
    /// also where this process was paused meanwhile.
    pub(crate) async fn send_until(&self, request: &Request, deadline: Instant) -> Attempt {
        let begun = Instant::now();
        let mut progress = Progress::default();
        let head = timeout_at(deadline, self.head(request, deadline, &mut progress)).await;
        let answered = head.unwrap_or_else(|_| {
            // Behind this it stays so.
            let sent = progress.limit.as_ref().is_some_and(Limit::close);
            let detail = format!("no answer in {:?}", self.settings.timeout);
            Err(Trouble { failure: Failure::Timeout, sent, detail })
        });
        let (outcome, detail, body) = match answered {
            Ok((response, connection)) => {
                let outcome = answered_with(&response);
                let body = self.finish(response, connection, request, deadline).await;
                (outcome, String::new(), body)
            }
            Err(Trouble { failure, sent, detail }) => {
                (Outcome::Unanswered { failure, sent }, detail, Body::default())
            }
        };
        Attempt {
            outcome,
            detail,
            body: body.kept,
            is_cut: body.is_cut,
            reused: progress.reused,
            elapsed: begun.elapsed(),
        }
    }

    /// Connections that wait for a request.
    pub fn idle(&self) -> usize {
        self.pool.len()
    }

    async fn head(
        &self,
        request: &Request,
        deadline: Instant,
        progress: &mut Progress,
    ) -> Result<(Response<Incoming>, Connection), Trouble> {
        let is_proxied = self.settings.proxy.is_some() && !request.endpoint.is_tls();
        let mut message = http_request(request, is_proxied)?;
        // One that was kept may end as a request is given to it, which then comes
        // back untouched; one that is new is the last try.
        while let Some(mut connection) = self.pool.take(&request.endpoint).await {
            progress.begin(&connection, deadline, true);
            match connection.sender.try_send_request(message).await {
                Ok(response) => return Ok((response, connection)),
                Err(mut error) => match error.take_message() {
                    Some(untouched) => message = untouched,
                    None => return Err(trouble_on(&connection, &error.into_error())),
                },
            }
            *progress = Progress::default();
        }
        let (settings, lookups) = (&self.settings, &self.lookups);
        let dialling = Dialling { settings, lookups, endpoint: &request.endpoint, deadline };
        let mut connection = dialling.connect().await?;
        progress.begin(&connection, deadline, false);
        match connection.sender.try_send_request(message).await {
            Ok(response) => Ok((response, connection)),
            Err(mut error) => {
                let is_untouched = error.take_message().is_some();
                let trouble = trouble_on(&connection, &error.into_error());
                Err(Trouble { sent: trouble.sent && !is_untouched, ..trouble })
            }
        }
    }

    /// Reads the body as far as it is read, and keeps the connection if it can be
    /// used again.
    async fn finish(
        &self,
        response: Response<Incoming>,
        connection: Connection,
        request: &Request,
        deadline: Instant,
    ) -> Body {
        let switched = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        let body = Body::read(response.into_body(), self.settings.body_max_bytes, deadline).await;
        if !body.is_cut && !switched {
            self.pool.keep(&request.endpoint, connection);
        }
        body
    }
}

/// Origin form, or for a proxy absolute form, `host` first (RFC 9112, 3.2).
fn http_request(request: &Request, is_proxied: bool) -> Result<HttpRequest<Full<Bytes>>, Trouble> {
    let unfit = |what: &str| Trouble::unsent(Failure::Request, format!("{what} cannot be sent"));
    let endpoint = &request.endpoint;
    let path = endpoint.uri().path_and_query().map_or("/", |path| path.as_str());
    let host = HeaderValue::from_str(endpoint.authority()).map_err(|_| unfit("the host"))?;
    let mut message = HttpRequest::new(Full::new(request.body.clone()));
    *message.method_mut() = request.method.clone();
    *message.uri_mut() = match is_proxied {
        true => endpoint.uri().clone(),
        false => path.parse::<Uri>().map_err(|_| unfit("the path"))?,
    };
    let headers = message.headers_mut();
    headers.insert(header::HOST, host);
    for (name, value) in &request.headers {
        if !SET_BY_US.contains(&name.as_str()) {
            headers.append(name, value.clone());
        }
    }
    Ok(message)
}

/// Headers by which the message is framed, and where it goes.
const SET_BY_US: [&str; 6] =
    ["host", "content-length", "transfer-encoding", "connection", "upgrade", "te"];

fn answered_with(response: &Response<Incoming>) -> Outcome {
    // The longest of several, if somebody sends several.
    let hints = response.headers().get_all(header::RETRY_AFTER).iter();
    let now = SystemTime::now();
    let retry_after =
        hints.filter_map(|value| value.to_str().ok().and_then(|text| retry_after(text, now))).max();
    Outcome::Answered { status: response.status(), retry_after }
}

/// What is wrong with a connection that has a request.
fn trouble_on(connection: &Connection, error: &hyper::Error) -> Trouble {
    let limit = &connection.limit;
    if limit.has_refused() {
        let detail = "there was no time left to send it".to_owned();
        return Trouble { failure: Failure::Timeout, sent: limit.close(), detail };
    }
    trouble_of(error)
}

fn trouble_of(error: &hyper::Error) -> Trouble {
    let failure = match error {
        error if error.is_parse_too_large() => Failure::TooLarge,
        error if error.is_parse() => Failure::Malformed,
        error if error.is_user() => Failure::Request,
        _ => Failure::Broken,
    };
    // What hyper says of itself has no contents.
    Trouble { failure, sent: true, detail: error.to_string() }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A path and its query may be secret, as those of Slack's webhooks are.
        f.debug_struct("Request")
            .field("method", &self.method)
            .field("host", &self.endpoint.host())
            .field("headers", &self.headers.len())
            .field("body_bytes", &self.body.len())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attempt")
            .field("outcome", &self.outcome)
            .field("detail", &self.detail)
            .field("body_bytes", &self.body.len())
            .field("is_cut", &self.is_cut)
            .field("reused", &self.reused)
            .field("elapsed", &self.elapsed)
            .finish()
    }
}
