//! The tools that the deep tests need beyond those that the README asks for.

use std::{
    fmt::Write,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Result, bail};
use walpost_local::find_java;

/// Whether a tool is there.
enum Check {
    /// A program on `PATH`.
    Program(&'static str),
    /// A module of Debian's Python.
    Module(&'static str),
    /// A file or folder.
    File(&'static str),
    /// A Java of at least this version, installed anywhere.
    Java(u32),
    /// A Rust toolchain, with its arguments for cargo.
    Toolchain(&'static str),
}

/// A tool, what needs it, and the Debian package or command that installs it.
struct Tool {
    check: Check,
    purpose: &'static str,
    install: Install,
}

enum Install {
    Package(&'static str),
    Command(&'static str),
}

use Install::Package;

const TOOLS: [Tool; 16] = [
    tool(Check::Program("openssl"), "keys in every form", Package("openssl")),
    tool(Check::Program("psql"), "SQL from a terminal", Package("postgresql-client")),
    tool(
        Check::File("/usr/lib/postgresql/15/bin/pg_restore"),
        "a restored dump",
        Package("postgresql-client-15"),
    ),
    tool(Check::Java(21), "the schema registry", Package("openjdk-21-jre-headless")),
    tool(Check::Program("javac"), "programs of the oracles", Package("openjdk-17-jdk-headless")),
    tool(Check::Program("redis-server"), "the guard on Redis", Package("redis-server")),
    tool(Check::File("/usr/sbin/pgbouncer"), "a pooler", Package("pgbouncer")),
    tool(Check::Program("prometheus"), "alerts", Package("prometheus")),
    tool(Check::Program("promtool"), "alert rules", Package("prometheus")),
    tool(Check::Program("npm"), "packages that verify webhooks", Package("npm")),
    tool(Check::Module("pip"), "Python packages, by their sums", Package("python3-pip")),
    tool(
        Check::Module("confluent_kafka"),
        "the consumer in Python",
        Package("python3-confluent-kafka"),
    ),
    tool(Check::Module("psycopg2"), "the consumer in Python", Package("python3-psycopg2")),
    tool(Check::Program("cmake"), "the feature oidc", Package("cmake")),
    tool(Check::File("/usr/include/sasl/sasl.h"), "the feature gssapi", Package("libsasl2-dev")),
    Tool {
        check: Check::Toolchain(MSRV),
        purpose: "the item `msrv`",
        install: Install::Command("rustup toolchain install 1.88 --profile minimal"),
    },
];

/// The oldest Rust that the library crates promise.
pub(crate) const MSRV: &str = "1.88";

const fn tool(check: Check, purpose: &'static str, install: Install) -> Tool {
    Tool { check, purpose, install }
}

impl Tool {
    fn is_needed(&self, without: &str) -> bool {
        !matches!(self.check, Check::Toolchain(_)) || without != "msrv"
    }

    fn is_there(&self) -> bool {
        match self.check {
            Check::Program(name) => succeeds("sh", &["-c", "command -v \"$0\"", name]),
            Check::Module(name) => succeeds("/usr/bin/python3", &["-c", &format!("import {name}")]),
            Check::File(path) => Path::new(path).exists(),
            Check::Java(oldest) => find_java("the deep tests", oldest).is_ok(),
            Check::Toolchain(version) => succeeds("cargo", &[&format!("+{version}"), "--version"]),
        }
    }

    fn name(&self) -> String {
        match self.check {
            Check::Program(name) => name.to_owned(),
            Check::Module(name) => format!("Python module {name}"),
            Check::File(path) => path.to_owned(),
            Check::Java(oldest) => format!("Java {oldest} or newer"),
            Check::Toolchain(version) => format!("Rust {version}"),
        }
    }
}

fn succeeds(program: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Checks that all tools are there, but for that of the item `without`.
///
/// # Errors
/// Naming all that are missing, with the commands that install them.
pub(crate) fn check(without: &str) -> Result<()> {
    let missing: Vec<&Tool> =
        TOOLS.iter().filter(|tool| tool.is_needed(without) && !tool.is_there()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    bail!("{}", advice(&missing))
}

fn advice(missing: &[&Tool]) -> String {
    let mut text = "this machine lacks tools that the deep tests need:\n".to_owned();
    let mut packages = Vec::new();
    let mut commands = Vec::new();
    for tool in missing {
        writeln!(text, "  {:<34} for {}", tool.name(), tool.purpose).expect("a String takes all");
        match tool.install {
            Package(name) => packages.push(name),
            Install::Command(command) => commands.push(command.to_owned()),
        }
    }
    packages.dedup();
    if !packages.is_empty() {
        let all = packages.join(" ");
        commands.insert(0, format!("apt-get install --no-install-recommends {all}"));
    }
    format!("{text}install them:\n  {}", commands.join("\n  "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_tools_are_named_at_once_with_the_commands_that_install_them() {
        let all: Vec<&Tool> = TOOLS.iter().collect();
        let text = advice(&all);
        for part in [
            "redis-server                       for the guard on Redis\n",
            "apt-get install --no-install-recommends openssl postgresql-client ",
            " redis-server pgbouncer prometheus npm ",
            "\n  rustup toolchain install 1.88",
        ] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
    }

    #[test]
    fn a_tool_that_is_missing_is_noticed() {
        let there = |check| tool(check, "", Package("")).is_there();
        assert!(there(Check::Program("sh")) && !there(Check::Program("no-such-tool")));
        assert!(there(Check::File("/")) && !there(Check::File("/no/such/file")));
        assert!(!there(Check::Module("no_such_module")) && !there(Check::Toolchain("0.1")));
    }

    #[test]
    fn the_toolchain_is_not_needed_without_its_item() {
        let toolchain = TOOLS.iter().find(|tool| matches!(tool.check, Check::Toolchain(_)));
        assert!(toolchain.is_some_and(|tool| tool.is_needed("") && !tool.is_needed("msrv")));
    }
}
