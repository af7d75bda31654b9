use std::{
    fs::{File, OpenOptions},
    io::{Read, Write},
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use anyhow::{Context, Result, anyhow};
use rdkafka::{Message, consumer::BaseConsumer};

use super::{find_marks, now_micros};

const POLL: Duration = Duration::from_millis(100);
const BUFFER_BYTES: usize = 256 * 1024;

/// A thread that notes how long each event took to arrive.
pub(super) struct Reader {
    micros: Arc<Mutex<Vec<u64>>>,
    stop: Arc<AtomicBool>,
    /// Wakes a reader of a pipe.
    pipe: Option<File>,
    thread: JoinHandle<Result<()>>,
}

impl Reader {
    /// Reads the values of records.
    pub(super) fn of_topic(consumer: BaseConsumer) -> Self {
        Self::spawn(None, move |reader| {
            while !reader.is_stopped() {
                match consumer.poll(POLL) {
                    Some(record) => reader.note(record?.payload().unwrap_or_default()),
                    None => continue,
                };
            }
            Ok(())
        })
    }

    /// Reads a named pipe. It is open for writing here too, so that neither
    /// side waits for the other, and it has no end.
    pub(super) fn of_pipe(path: &Path) -> Result<Self> {
        let open = OpenOptions::new().read(true).write(true).open(path);
        let mut pipe = open.with_context(|| format!("opening {}", path.display()))?;
        let other_end = pipe.try_clone()?;
        Ok(Self::spawn(Some(other_end), move |reader| {
            let mut buffer = vec![0; BUFFER_BYTES];
            let mut filled = 0;
            while !reader.is_stopped() {
                filled += pipe.read(&mut buffer[filled..])?;
                let done = reader.note(&buffer[..filled]);
                buffer.copy_within(done..filled, 0);
                filled -= done;
            }
            Ok(())
        }))
    }

    fn spawn(
        pipe: Option<File>,
        read: impl FnOnce(Notebook) -> Result<()> + Send + 'static,
    ) -> Self {
        let micros = Arc::new(Mutex::new(Vec::new()));
        let stop = Arc::new(AtomicBool::new(false));
        let notebook = Notebook { micros: micros.clone(), stop: stop.clone() };
        Self { micros, stop, pipe, thread: thread::spawn(move || read(notebook)) }
    }

    /// Events since the last [`take`](Self::take).
    pub(super) fn seen(&self) -> u64 {
        self.micros.lock().unwrap_or_else(PoisonError::into_inner).len() as u64
    }

    /// Without having been stopped: it failed.
    pub(super) fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// The latency of each of them in microseconds.
    pub(super) fn take(&self) -> Vec<u64> {
        std::mem::take(&mut self.micros.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn stop(self) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(mut pipe) = self.pipe {
            pipe.write_all(b"\n")?;
        }
        self.thread.join().map_err(|_| anyhow!("the reader panicked"))?
    }
}

struct Notebook {
    micros: Arc<Mutex<Vec<u64>>>,
    stop: Arc<AtomicBool>,
}

impl Notebook {
    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn note(&self, bytes: &[u8]) -> usize {
        let now = now_micros();
        let mut micros = self.micros.lock().unwrap_or_else(PoisonError::into_inner);
        find_marks(bytes, |sent| micros.push(now.saturating_sub(sent)))
    }
}
