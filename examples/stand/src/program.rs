use std::{
    env,
    fmt::Display,
    io::{self, IsTerminal},
    net::SocketAddr,
    process::ExitCode,
    str::FromStr,
};

use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
    sync::watch,
    task::JoinSet,
};
use tracing_subscriber::EnvFilter;
use walpost_event::error_chain;

use crate::Failed;

/// Tells the parts of a program to stop.
#[derive(Clone, Debug, Default)]
pub struct Stop(watch::Sender<bool>);

impl Stop {
    /// Ready once the program is told to stop.
    pub fn requested(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut stopped = self.0.subscribe();
        async move {
            let _ = stopped.wait_for(|stop| *stop).await;
        }
    }

    /// Whether the program was told to stop.
    pub fn is_requested(&self) -> bool {
        *self.0.borrow()
    }

    /// Tells the parts to stop, since the work is done.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

/// What every `main` has: a log on stderr by RUST_LOG, Ctrl-C and SIGTERM as a
/// [`Stop`], and the reason where it fails.
pub fn program(name: &str, run: impl AsyncFnOnce(Stop) -> Result<(), Failed>) -> ExitCode {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    log.with_ansi(io::stderr().is_terminal()).init();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("{name}: no threads: {error}");
            return ExitCode::FAILURE;
        }
    };
    let ended = runtime.block_on(async {
        let stop = Stop(watch::Sender::new(false));
        let mut interrupted = signal(SignalKind::interrupt())?;
        let mut terminated = signal(SignalKind::terminate())?;
        let on_signal = stop.clone();
        tokio::spawn(async move {
            tokio::select! {
                _ = interrupted.recv() => {}
                _ = terminated.recv() => {}
            }
            on_signal.stop();
        });
        run(stop).await
    });
    let Err(error) = ended else { return ExitCode::SUCCESS };
    eprintln!("{name}: {}", error_chain(&*error));
    ExitCode::FAILURE
}

/// Serves until the program is told to stop.
///
/// # Errors
/// When the listener fails.
pub async fn serve(listener: TcpListener, router: axum::Router, stop: &Stop) -> Result<(), Failed> {
    // A sender keeps its connections for a while: they are not waited for.
    tokio::select! {
        served = axum::serve(listener, router).into_future() => Ok(served?),
        () = stop.requested() => Ok(()),
    }
}

/// Serves on a port of its own, as a part of this process; where that is.
///
/// # Errors
/// When there is no port.
pub async fn spawn(
    parts: &mut JoinSet<Result<(), Failed>>,
    router: axum::Router,
    stop: &Stop,
) -> Result<SocketAddr, Failed> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let stop = stop.clone();
    parts.spawn(async move { serve(listener, router, &stop).await });
    Ok(address)
}

/// Listens on the address that LISTEN names, or a port of its own, and says where.
///
/// # Errors
/// When LISTEN is no address, or somebody else listens there.
pub async fn listen() -> Result<TcpListener, Failed> {
    let address = env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:0".to_owned());
    let listener = TcpListener::bind(&address).await?;
    println!("listens on {}", listener.local_addr()?);
    Ok(listener)
}

/// The whole number that a variable of the environment has.
///
/// # Errors
/// When it has none.
pub fn number<T: FromStr<Err: Display>>(name: &str, unless_set: T) -> Result<T, Failed> {
    match env::var(name) {
        Ok(text) => text.parse().map_err(|error| format!("{name} is no number: {error}").into()),
        Err(_) => Ok(unless_set),
    }
}
