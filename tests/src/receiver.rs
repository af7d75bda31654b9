use std::{
    collections::BTreeMap,
    io,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};
use walpost_testkit::Seeded;

/// Bound on one request.
const REQUEST_BYTES_MAX: usize = 1_000_000;

/// A receiver of webhooks that counts the requests of each key, and now and then
/// takes one and does not say so.
#[derive(Debug)]
pub struct Receiver {
    address: SocketAddr,
    seen: Arc<Mutex<BTreeMap<String, u64>>>,
    _tasks: JoinSet<()>,
}

impl Receiver {
    /// On a port of its own until it is dropped. Of 100 requests `lost_percent`
    /// are taken and get no answer, and as many are answered 503 and not taken.
    ///
    /// # Panics
    /// When there is no port.
    pub async fn start(seed: u64, lost_percent: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::<Mutex<BTreeMap<String, u64>>>::default();
        let whims = Arc::new(Mutex::new((Seeded::new(seed), lost_percent)));
        let noted = seen.clone();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (seen, whims) = (noted.clone(), whims.clone());
                open.spawn(async move {
                    // A sender that is killed breaks off.
                    let _ = serve(stream, &seen, &whims).await;
                });
                while open.try_join_next().is_some() {}
            }
        });
        Self { address, seen, _tasks: tasks }
    }

    /// Where it is.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/hooks", self.address)
    }

    /// How often each key was taken.
    #[must_use]
    pub fn seen(&self) -> BTreeMap<String, u64> {
        self.seen.lock().unwrap().clone()
    }
}

async fn serve(
    mut stream: TcpStream,
    seen: &Mutex<BTreeMap<String, u64>>,
    whims: &Mutex<(Seeded, usize)>,
) -> io::Result<()> {
    let mut bytes = Vec::new();
    loop {
        let Some((key, length)) = request(&bytes) else {
            if stream.read_buf(&mut bytes).await? == 0 || bytes.len() > REQUEST_BYTES_MAX {
                return Ok(());
            }
            continue;
        };
        bytes.drain(..length);
        let (is_refused, is_lost) = {
            let (seeded, percent) = &mut *whims.lock().unwrap();
            (seeded.below(100) < *percent, seeded.below(100) < *percent)
        };
        if is_refused {
            let answer = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n";
            stream.write_all(answer).await?;
            continue;
        }
        *seen.lock().unwrap().entry(key).or_default() += 1;
        if is_lost {
            return Ok(());
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await?;
    }
}

/// Key and length of the first request, once it is whole.
fn request(bytes: &[u8]) -> Option<(String, usize)> {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&bytes[..end]).ok()?;
    let field = |name: &str| {
        let of = |line: &str| {
            let (field, value) = line.split_once(':')?;
            field.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
        };
        head.lines().find_map(of)
    };
    let body: usize = field("content-length").map_or(Some(0), |text| text.parse().ok())?;
    let length = end + 4 + body;
    (bytes.len() >= length).then(|| (field("idempotency-key").unwrap_or_default(), length))
}
