//! Both sides from one command, each as a process of its own. One that is killed
//! is started again.

use std::{env, fs, io, net::SocketAddr, path::PathBuf, process::ExitStatus, time::Duration};

use stand::{Failed, Stand, Stop, folder};
use tokio::{
    task::{block_in_place, spawn_blocking},
    time::{MissedTickBehavior, interval},
};
use walpost_local::{ChildGuard, Launch, Signal, free_port};
use walpost_migrate::Set;

use crate::{finance, logistics, report::Report, settings};

const EXAMPLE: &str = "erp-round-trip";
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// For what is on its way at the end.
const STOP_LIMIT: Duration = Duration::from_secs(20);

pub(crate) async fn run(stop: Stop) -> Result<(), Failed> {
    let wanted = settings::invoices()?;
    let stand = Stand::open(EXAMPLE).await?;
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()?));
    let mut sides = Vec::new();
    for name in [logistics::NAME, finance::NAME] {
        sides.push(Side::start(name, stand.url(), address)?);
    }
    let report = looking(&stand, &sides, wanted).await?;
    report.so_far().await?.figures().tell()?;
    let mut look = interval(LOOK_INTERVAL);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut tick = interval(REPORT_INTERVAL);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    tick.reset();
    loop {
        tokio::select! {
            () = stop.requested() => break,
            _ = look.tick() => {
                for side in &mut sides {
                    side.look_after()?;
                }
            }
            _ = tick.tick() => {
                // Both sides end with their values where something is broken.
                if report.so_far().await?.figures().tell()? {
                    break;
                }
            }
        }
    }
    // Finance first: what it has sent is answered.
    for side in sides.into_iter().rev() {
        spawn_blocking(move || side.stop()).await??;
    }
    report.so_far().await?.figures().tell_the_end()
}

/// Waits until either side has made its tables.
async fn looking(stand: &Stand, sides: &[Side], wanted: i64) -> Result<Report, Failed> {
    let nothing: [Set; 0] = [];
    let finance = stand.database(finance::NAME, nothing, "").await?;
    let logistics = stand.database(logistics::NAME, nothing, "").await?;
    let report = Report::new(&finance, &logistics, wanted).await?;
    let mut look = interval(LOOK_INTERVAL);
    loop {
        look.tick().await;
        if report.so_far().await.is_ok() {
            return Ok(report);
        }
        for side in sides {
            if let Some(status) = side.process.try_wait()? {
                return Err(side.failed(status));
            }
        }
    }
}

/// A program of ours. It ends with this value, and with this process, also when
/// that is killed.
struct Side {
    name: &'static str,
    launch: Box<dyn Fn() -> Launch + Send>,
    process: ChildGuard,
}

impl Side {
    fn start(name: &'static str, url: &str, logistics: SocketAddr) -> Result<Self, Failed> {
        let (program, log, url) = (env::current_exe()?, log(name)?, url.to_owned());
        let launch = move || {
            Launch::new(name, &program, &log)
                .arg(name)
                .env("DATABASE_URL", &url)
                .env("LOGISTICS", logistics.to_string())
        };
        let process = launch().spawn()?;
        println!("{name} is process {}", process.pid());
        Ok(Self { name, launch: Box::new(launch), process })
    }

    /// Starts it again where somebody has killed it.
    fn look_after(&mut self) -> Result<(), Failed> {
        let Some(status) = self.process.try_wait()? else { return Ok(()) };
        if status.code().is_some() {
            return Err(self.failed(status));
        }
        self.process = block_in_place(|| (self.launch)().spawn())?;
        println!("{} was killed; now it is process {}", self.name, self.process.pid());
        Ok(())
    }

    fn stop(self) -> Result<(), Failed> {
        let status = self.process.end(Signal::Terminate, STOP_LIMIT)?;
        if status.success() { Ok(()) } else { Err(self.failed(status)) }
    }

    fn failed(&self, status: ExitStatus) -> Failed {
        let (name, tail) = (self.name, self.process.log_tail());
        format!("{name} ended with {status}; its log ends with:\n{tail}").into()
    }
}

/// Where a side prints to.
fn log(name: &str) -> io::Result<PathBuf> {
    let folder = folder(EXAMPLE);
    fs::create_dir_all(&folder)?;
    Ok(folder.join(format!("{name}.log")))
}
