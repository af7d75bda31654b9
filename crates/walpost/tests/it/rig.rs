//! A private PostgreSQL, and one group of commands on it.

use std::process::Output;

use serde_json::Value;
use walpost_local::Postgres;

use crate::cli::{stdout, walpost};

pub(crate) struct Rig {
    command: &'static [&'static str],
    postgres: Postgres,
    pub(crate) url: String,
}

impl Rig {
    /// Runs `command` with further arguments, such as `inbox`.
    pub(crate) fn of(command: &'static [&'static str]) -> Self {
        let postgres = Postgres::builder().throwaway().start().unwrap();
        let url = postgres.url("postgres");
        Self { command, postgres, url }
    }

    pub(crate) fn sql(&self, sql: &str) -> String {
        self.postgres.psql("postgres", sql).unwrap().trim().to_owned()
    }

    pub(crate) fn run(&self, args: &[&str]) -> Output {
        walpost(&[self.command, args, &["--postgres", &self.url]].concat(), &[])
    }

    pub(crate) fn json(&self, args: &[&str]) -> Vec<Value> {
        let output = self.run(&[args, &["--json"]].concat());
        stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}
