//! What is not installed is fetched by Maven, which knows its registry, its
//! mirrors and its proxies; nothing here names a host.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use crate::{
    KAFKA_VERSION, LocalError, cache,
    checksum::{self, Pinned},
    command,
};

/// The version of Debezium that is fetched.
pub const DEBEZIUM_VERSION: &str = "3.7.0.Final";

/// The version of the schema registry (Apicurio) that is fetched.
pub const REGISTRY_VERSION: &str = "3.3.3";

/// The version of Apicurio's converters for Kafka Connect that is fetched: the last
/// whose settings Debezium's documentation has.
pub const APICURIO_CONVERTER_VERSION: &str = "2.6.13.Final";

/// The version of Debezium's JDBC sink connector that is fetched: the newest
/// there is.
pub const DEBEZIUM_JDBC_VERSION: &str = "3.5.0.Final";

const APICURIO_CONVERTER_SUMS: &str = include_str!("../checksums/apicurio-converter-2.6.13.sha256");
const DEBEZIUM_JDBC_SUMS: &str = include_str!("../checksums/debezium-jdbc-3.5.0.sha256");
const DEBEZIUM_SUMS: &str = include_str!("../checksums/debezium-3.7.0.sha256");
const KAFKA_SUMS: &str = include_str!("../checksums/kafka-4.3.1.sha256");
const POSTGRES_SUMS: &str = include_str!("../checksums/postgres.sha256");
const REGISTRY_SUMS: &str = include_str!("../checksums/apicurio-3.3.3.sha256");
const POSTGRES_GROUP: &str = "io.zonky.test.postgres";
const POSTGRES_ARTIFACT: &str = "embedded-postgres-binaries";

const FETCH_LIMIT: Duration = Duration::from_secs(600);
const UNPACK_LIMIT: Duration = Duration::from_secs(120);

/// The folder with the jars of Kafka [`KAFKA_VERSION`], its command line tools
/// and a logger. Fetched on first use (54 MB).
///
/// # Errors
///
/// When Maven is missing or fails, or a file is not the known one.
pub fn fetch_kafka() -> Result<PathBuf, LocalError> {
    let dependencies = [
        ("org.apache.kafka", "kafka_2.13", KAFKA_VERSION),
        ("org.apache.kafka", "kafka-tools", KAFKA_VERSION),
        ("org.slf4j", "slf4j-simple", "1.7.36"),
    ];
    fetch_jars(&format!("kafka-{KAFKA_VERSION}"), &dependencies, KAFKA_SUMS)
}

/// The folder with the jars of Debezium's PostgreSQL connector
/// [`DEBEZIUM_VERSION`], the Outbox Event Router, Kafka Connect
/// [`KAFKA_VERSION`] to run them in, and a logger. Fetched on first use
/// (39 MB).
///
/// # Errors
///
/// When Maven is missing or fails, or a file is not the known one.
pub fn fetch_debezium() -> Result<PathBuf, LocalError> {
    let dependencies = [
        ("io.debezium", "debezium-connector-postgres", DEBEZIUM_VERSION),
        ("org.apache.kafka", "connect-runtime", KAFKA_VERSION),
        ("org.apache.kafka", "connect-json", KAFKA_VERSION),
        ("org.slf4j", "slf4j-simple", "1.7.36"),
    ];
    fetch_jars(&format!("debezium-{DEBEZIUM_VERSION}"), &dependencies, DEBEZIUM_SUMS)
}

/// The folder with the jars of Debezium's JDBC sink connector
/// [`DEBEZIUM_JDBC_VERSION`], Kafka Connect [`KAFKA_VERSION`] to run it in, and a
/// logger. Fetched on first use.
///
/// # Errors
///
/// When Maven is missing or fails, or a file is not the known one.
pub fn fetch_debezium_jdbc() -> Result<PathBuf, LocalError> {
    let dependencies = [
        ("io.debezium", "debezium-connector-jdbc", DEBEZIUM_JDBC_VERSION),
        ("org.apache.kafka", "connect-runtime", KAFKA_VERSION),
        ("org.apache.kafka", "connect-json", KAFKA_VERSION),
        ("org.slf4j", "slf4j-simple", "1.7.36"),
    ];
    let name = format!("debezium-jdbc-{DEBEZIUM_JDBC_VERSION}");
    fetch_jars(&name, &dependencies, DEBEZIUM_JDBC_SUMS)
}

/// The folder with the jars of Apicurio's converters for Kafka Connect
/// [`APICURIO_CONVERTER_VERSION`], Avro's among them. A folder of a worker's
/// `plugin.path`, since they bring other versions of what Debezium has. Fetched on
/// first use (26 MB).
///
/// # Errors
///
/// When Maven is missing or fails, or a file is not the known one.
pub fn fetch_apicurio_converter() -> Result<PathBuf, LocalError> {
    let dependencies =
        [("io.apicurio", "apicurio-registry-utils-converter", APICURIO_CONVERTER_VERSION)];
    let name = format!("apicurio-converter-{APICURIO_CONVERTER_VERSION}");
    fetch_jars(&name, &dependencies, APICURIO_CONVERTER_SUMS)
}

/// The newest major version of PostgreSQL that [`fetch_postgres`] knows for this
/// platform.
///
/// # Errors
///
/// When it knows none.
pub fn newest_postgres() -> Result<u32, LocalError> {
    PostgresPackage::find(None, &platform()).map(|package| package.major)
}

/// The `bin` folder of a PostgreSQL of that major version, with `postgres`,
/// `initdb` and `pg_ctl` and no client programs. Fetched on first use (15 MB).
/// `None` is the newest known.
///
/// # Errors
///
/// When that version is not known for this platform, a tool is missing or
/// fails, or a file is not the known one.
pub fn fetch_postgres(major: Option<u32>) -> Result<PathBuf, LocalError> {
    let package = PostgresPackage::find(major, &platform())?;
    let name = format!("postgresql-{}", package.version);
    let folder = cache::once(&cache::cache_dir(), &name, |folder| {
        let artifact = format!("{POSTGRES_ARTIFACT}-{}", package.platform);
        let dependencies = [(POSTGRES_GROUP, artifact.as_str(), package.version)];
        let (jar, content) = (folder.join("jar"), folder.join("content"));
        create(&jar)?;
        maven_copy(&dependencies, &jar)?;
        checksum::check_file(&jar, package.pinned)?;
        // Out of Maven's own copy of the file that was just checked.
        let unpack = "dependency:unpack-dependencies";
        maven(unpack, &artifact, &jars_of(&dependencies), &content)?;
        unpack_archive(&content, folder)?;
        for used in [jar, content] {
            fs::remove_dir_all(&used).map_err(LocalError::io("remove", used.display()))?;
        }
        Ok(())
    })?;
    Ok(folder.join("bin"))
}

/// The folder with the schema registry Apicurio [`REGISTRY_VERSION`]. Fetched on
/// first use (159 MB).
///
/// # Errors
///
/// When a tool is missing or fails, or the file is not the known one.
pub fn fetch_registry() -> Result<PathBuf, LocalError> {
    // Its archive alone: what it needs is in there.
    let archive = format!(
        "<dependency><groupId>io.apicurio</groupId><artifactId>apicurio-registry-app</artifactId>\
         <version>{REGISTRY_VERSION}</version><classifier>all</classifier><type>tar.gz</type>\
         <exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion>\
         </exclusions></dependency>"
    );
    cache::once(&cache::cache_dir(), &format!("apicurio-{REGISTRY_VERSION}"), |folder| {
        let fetched = folder.join("archive");
        create(&fetched)?;
        maven_copy_all("apicurio-registry-app", &archive, &fetched)?;
        checksum::check_folder(&fetched, REGISTRY_SUMS)?;
        for pinned in checksum::lines(REGISTRY_SUMS) {
            let mut tar = Command::new(tool("tar", "unpack the registry", "tar (Debian: tar)")?);
            tar.args(["-x", "-z", "--no-same-owner", "-f"]).arg(fetched.join(pinned.file));
            command::run("unpacking the registry", tar.arg("-C").arg(folder), UNPACK_LIMIT)?;
        }
        fs::remove_dir_all(&fetched).map_err(LocalError::io("remove", fetched.display()))
    })
}

/// A line of the list of checksums: which PostgreSQL for which platform.
#[derive(Debug, PartialEq, Eq)]
struct PostgresPackage<'a> {
    pinned: Pinned<'a>,
    platform: &'a str,
    version: &'a str,
    major: u32,
}

impl PostgresPackage<'static> {
    fn find(major: Option<u32>, platform: &str) -> Result<Self, LocalError> {
        let known = || Self::all().filter(|package| package.platform == platform);
        known()
            .filter(|package| major.is_none_or(|major| package.major == major))
            .max_by_key(|package| package.major)
            .ok_or_else(|| LocalError::NotPinned {
                major: major.unwrap_or_default(),
                platform: platform.to_owned(),
                known: known()
                    .map(|package| package.major.to_string())
                    .collect::<Vec<_>>()
                    .join(", "),
            })
    }

    fn all() -> impl Iterator<Item = Self> {
        checksum::lines(POSTGRES_SUMS).filter_map(|pinned| {
            let name = pinned.file.strip_prefix(POSTGRES_ARTIFACT)?.strip_suffix(".jar")?;
            let (platform, version) = name.strip_prefix('-')?.rsplit_once('-')?;
            let major = version.split('.').next()?.parse().ok()?;
            Some(Self { pinned, platform, version, major })
        })
    }
}

/// As the packages name it.
fn platform() -> String {
    let processor = match env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64v8",
        other => other,
    };
    format!("{}-{processor}", env::consts::OS)
}

/// The cached folder `name` with these artifacts, what they need, and nothing
/// else.
fn fetch_jars(
    name: &str,
    dependencies: &[(&str, &str, &str)],
    sums: &str,
) -> Result<PathBuf, LocalError> {
    cache::once(&cache::cache_dir(), name, |folder| {
        maven_copy(dependencies, folder)?;
        checksum::check_folder(folder, sums)
    })
}

fn maven_copy(dependencies: &[(&str, &str, &str)], target: &Path) -> Result<(), LocalError> {
    maven_copy_all(dependencies[0].1, &jars_of(dependencies), target)
}

/// `dependencies` are elements of a project file.
fn maven_copy_all(what: &str, dependencies: &str, target: &Path) -> Result<(), LocalError> {
    maven("dependency:copy-dependencies", what, dependencies, target)
}

/// Runs a goal whose result is files in `target`.
fn maven(goal: &str, what: &str, dependencies: &str, target: &Path) -> Result<(), LocalError> {
    let maven = tool("mvn", "fetch files", "Maven (Debian: maven)")?;
    let project = tempfile::tempdir().map_err(LocalError::io("create", "a temporary folder"))?;
    let pom = project.path().join("pom.xml");
    fs::write(&pom, pom_of(dependencies)).map_err(LocalError::io("write", pom.display()))?;
    let mut command = Command::new(maven);
    command
        .args(["--quiet", "--batch-mode", "--file"])
        .arg(&pom)
        .arg(goal)
        .arg("-DincludeScope=runtime")
        .arg(format!("-DoutputDirectory={}", target.display()))
        .current_dir(project.path());
    let what = format!("fetching {what} with mvn");
    command::run(&what, &mut command, FETCH_LIMIT).map(drop)
}

fn jars_of(dependencies: &[(&str, &str, &str)]) -> String {
    dependencies
        .iter()
        .map(|(group, artifact, version)| {
            format!(
                "<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>\
                 <version>{version}</version></dependency>"
            )
        })
        .collect()
}

fn pom_of(dependencies: &str) -> String {
    format!(
        "<project><modelVersion>4.0.0</modelVersion><groupId>walpost</groupId>\
         <artifactId>fetch</artifactId><version>1</version><packaging>pom</packaging>\
         <dependencies>{dependencies}</dependencies></project>"
    )
}

/// The jar holds one archive `*.txz` and its manifest.
fn unpack_archive(content: &Path, target: &Path) -> Result<(), LocalError> {
    let archive = fs::read_dir(content)
        .map_err(LocalError::io("list", content.display()))?
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|extension| extension == "txz"))
        .ok_or_else(|| LocalError::NotFetched { file: content.join("*.txz") })?;
    tool("xz", "unpack PostgreSQL", "xz (Debian: xz-utils)")?;
    let mut tar = Command::new(tool("tar", "unpack PostgreSQL", "tar (Debian: tar)")?);
    tar.args(["-x", "-J", "--no-same-owner", "-f"]).arg(archive).arg("-C").arg(target);
    command::run("unpacking PostgreSQL", &mut tar, UNPACK_LIMIT).map(drop)
}

fn create(folder: &Path) -> Result<(), LocalError> {
    fs::create_dir(folder).map_err(LocalError::io("create", folder.display()))
}

fn tool(name: &str, purpose: &'static str, install: &'static str) -> Result<PathBuf, LocalError> {
    command::on_path(name).ok_or_else(|| LocalError::ToolMissing {
        tool: name.to_owned(),
        purpose,
        install,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_list_is_a_package() {
        assert_eq!(PostgresPackage::all().count(), POSTGRES_SUMS.lines().count());
        assert!(PostgresPackage::all().all(|package| package.pinned.sum.len() == 64));
    }

    #[test]
    fn the_newest_is_the_default() {
        let newest = PostgresPackage::find(None, "linux-amd64").unwrap();
        assert_eq!(newest.major, 18);
        assert_eq!(PostgresPackage::find(Some(14), "linux-amd64").unwrap().major, 14);
    }

    #[test]
    fn a_version_that_is_not_known_says_which_are() {
        let error = PostgresPackage::find(Some(9), "linux-amd64").unwrap_err().to_string();
        assert!(error.contains("14, 15, 16, 17, 18"), "{error}");
    }
}
