use std::{
    io::{self, IsTerminal, Write},
    time::{Duration, Instant},
};

use crate::{output, table::thousands};

/// Between two lines where there is no terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(1);
const REDRAW_INTERVAL: Duration = Duration::from_millis(100);
/// Over which the speed is taken.
const SPEED_WINDOW: Duration = Duration::from_millis(1_500);
/// To the beginning of the line, and what is on it away.
const CLEAR: &str = "\r\x1b[K";

/// How far the run is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) written: u64,
    pub(super) published: u64,
    pub(super) applied: u64,
}

/// A live line on a terminal, else a line now and then. To stderr.
#[derive(Debug)]
pub(super) struct Progress {
    total: u64,
    is_live: bool,
    is_drawn: bool,
    drawn: Option<Instant>,
    history: Vec<(Instant, u64)>,
}

impl Progress {
    pub(super) fn new(total: u64) -> Self {
        let can_redraw = std::env::var_os("TERM").is_none_or(|term| term != "dumb");
        let is_live = io::stderr().is_terminal() && can_redraw;
        Self { total, is_live, is_drawn: false, drawn: None, history: Vec::new() }
    }

    /// Shows the counts, if it is time.
    pub(super) fn show(&mut self, counts: Counts) {
        let Some(now) = self.is_time() else { return };
        self.history.push((now, counts.applied));
        self.history.retain(|(at, _)| now - *at <= SPEED_WINDOW);
        self.draw(&line(counts, self.total, self.speed()));
    }

    /// Shows how much of the topic was applied again, if it is time.
    pub(super) fn show_replay(&mut self, reached: u64, end: u64) {
        if self.is_time().is_some() {
            self.draw(&format!("  replayed {} of {} records", thousands(reached), thousands(end)));
        }
    }

    fn is_time(&mut self) -> Option<Instant> {
        let now = Instant::now();
        let interval = if self.is_live { REDRAW_INTERVAL } else { LINE_INTERVAL };
        if self.drawn.is_some_and(|drawn| now - drawn < interval) {
            return None;
        }
        self.drawn = Some(now);
        Some(now)
    }

    fn draw(&mut self, line: &str) {
        let mut stderr = io::stderr().lock();
        // A closed stderr is no reason to stop.
        let _ = match self.is_live {
            true => write!(stderr, "{}", redrawn(line)).and_then(|()| stderr.flush()),
            false => writeln!(stderr, "{line}"),
        };
        self.is_drawn = self.is_live;
    }

    /// Something that happened, on a line of its own.
    pub(super) fn note(&mut self, text: &str) {
        let clear = if self.is_drawn { CLEAR } else { "" };
        output::note(format_args!("{clear}{text}"));
        self.is_drawn = false;
    }

    fn speed(&self) -> u64 {
        let (Some(first), Some(last)) = (self.history.first(), self.history.last()) else {
            return 0;
        };
        let seconds = (last.0 - first.0).as_secs_f64();
        if seconds < 0.05 { 0 } else { (last.1.saturating_sub(first.1) as f64 / seconds) as u64 }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.is_drawn {
            output::note("");
        }
    }
}

/// Without line breaks of the terminal's own: on a narrow one the rest of the
/// line is left out, so that the next one falls on the same place.
fn redrawn(line: &str) -> String {
    format!("{CLEAR}\x1b[?7l{line}\x1b[?7h")
}

fn line(counts: Counts, total: u64, speed: u64) -> String {
    format!(
        "  written {}  published {}  applied {} of {}  {}/s",
        thousands(counts.written),
        thousands(counts.published),
        thousands(counts.applied),
        thousands(total),
        thousands(speed)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_redrawn_leaves_the_terminal_as_it_was() {
        let text = redrawn("x");
        assert!(text.starts_with(CLEAR) && text.ends_with("\x1b[?7h"), "{text:?}");
    }

    #[test]
    fn the_line_names_every_count() {
        let counts = Counts { written: 5_000, published: 400, applied: 30 };
        assert_eq!(
            line(counts, 20_000, 1_200),
            "  written 5,000  published 400  applied 30 of 20,000  1,200/s"
        );
    }
}
