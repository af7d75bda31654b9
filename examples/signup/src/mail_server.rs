//! A mail server for the demonstration: it has a mail as a file, on the disk,
//! before it says that it has it. Elsewhere there is one already.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::{Duration, UNIX_EPOCH},
};

use mailin::{Action, Handler, Response, SessionBuilder, response};

const LINE_MAX_BYTES: u64 = 64 * 1_024;
const SILENCE: Duration = Duration::from_secs(60);
const MAIL: &str = "eml";

/// The folder of a mail server: a file for each mail that it has accepted.
#[derive(Clone, Debug)]
pub(crate) struct Spool {
    folder: PathBuf,
}

impl Spool {
    pub(crate) fn open(folder: &Path) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        Ok(Self { folder: folder.to_owned() })
    }

    /// How many mails there are of each Message-ID.
    pub(crate) fn message_ids(&self) -> io::Result<BTreeMap<String, usize>> {
        let mut ids = BTreeMap::new();
        for entry in fs::read_dir(&self.folder)? {
            let path = entry?.path();
            if path.extension().is_none_or(|extension| extension != MAIL) {
                continue;
            }
            let mail = fs::read(&path)?;
            let head = String::from_utf8_lossy(&mail);
            let id = head.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                name.eq_ignore_ascii_case("message-id").then(|| value.trim().to_owned())
            });
            *ids.entry(id.unwrap_or_default()).or_default() += 1;
        }
        Ok(ids)
    }

    fn keep(&self, mail: &[u8]) -> io::Result<()> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let nanos = UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos();
        let path = self.folder.join(format!("{nanos}-{}-{count}", process::id()));
        let mut file = File::create_new(&path)?;
        file.write_all(mail)?;
        file.sync_all()?;
        fs::rename(&path, path.with_extension(MAIL))?;
        File::open(&self.folder)?.sync_all()
    }
}

/// Serves on a port of this machine, on threads that end with the process.
pub(crate) fn start(spool: Spool) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let spool = spool.clone();
            // Whoever breaks off has handed nothing over, or does not know it.
            thread::spawn(move || converse(&stream, spool));
        }
    });
    Ok(address)
}

fn converse(stream: &TcpStream, spool: Spool) -> io::Result<()> {
    stream.set_read_timeout(Some(SILENCE))?;
    let sessions = SessionBuilder::new("localhost");
    let mut session = sessions.build(stream.peer_addr()?.ip(), Keeper { spool, mail: Vec::new() });
    session.greeting().write_to(&mut &*stream)?;
    let mut lines = BufReader::new(stream);
    let mut line = Vec::new();
    loop {
        line.clear();
        if (&mut lines).take(LINE_MAX_BYTES).read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        let reply = session.process(&line);
        if reply.action == Action::NoReply {
            continue;
        }
        reply.write_to(&mut &*stream)?;
        if reply.action != Action::Reply {
            return Ok(());
        }
    }
}

/// What of a conversation is kept.
struct Keeper {
    spool: Spool,
    mail: Vec<u8>,
}

impl Handler for Keeper {
    fn data_start(&mut self, _: &str, _: &str, _: bool, _: &[String]) -> Response {
        self.mail.clear();
        response::OK
    }

    fn data(&mut self, line: &[u8]) -> io::Result<()> {
        self.mail.extend_from_slice(line);
        Ok(())
    }

    fn data_end(&mut self) -> Response {
        match self.spool.keep(&self.mail) {
            Ok(()) => response::OK,
            Err(_) => response::INTERNAL_ERROR,
        }
    }
}
