//! The requests, in their order, and what is known to be answered otherwise.

use serde_json::{Value, json};

/// What a request brings.
#[derive(Clone, Copy)]
pub(crate) enum Body {
    None,
    Raw(&'static str),
    /// All properties of a connector, with these changed.
    Config(Changes),
    /// The same, to create one of this name.
    Create(&'static str, Changes),
    /// The same, which begins in this state.
    CreateIn(&'static str, &'static str),
}

/// Properties; null takes one away.
pub(crate) type Changes = &'static [(&'static str, Option<&'static str>)];

/// A request, and what its connector shows before the next one is sent.
pub(crate) type Step = (&'static str, &'static str, Body, Option<&'static str>);

use Body::{Config, Create, CreateIn, None as Nothing, Raw};

const NO_USER: Changes = &[("database.user", None)];
const NO_CLASS: Changes = &[("connector.class", Some("no.Such"))];
const NAMED: Changes = &[("name", Some("z"))];
const NO_SLOT: Changes = &[("slot.name", Some("B-D"))];
/// Nobody listens there.
const AWAY: Changes = &[("database.port", Some("1"))];
const FASTER: Changes = &[("poll.interval.ms", Some("100"))];
const OF_V: Changes = &[("name", Some("v"))];
const NO_SLOT_OF_V: Changes = &[("name", Some("v")), ("slot.name", Some("B-D"))];
const OFFSETS: &str = r#"{"offsets": [{"partition": {"server": "s"}, "offset": {"lsn": 1}}]}"#;

/// Of connectors that are not there, and bodies that are none.
pub(crate) const WITHOUT_A_CONNECTOR: &[Step] = &[
    ("GET", "/", Nothing, None),
    ("GET", "/health", Nothing, None),
    ("GET", "/connectors", Nothing, None),
    ("GET", "/connectors/?expand=status", Nothing, None),
    ("GET", "/nothing", Nothing, None),
    ("POST", "/health", Nothing, None),
    ("DELETE", "/connectors", Nothing, None),
    ("GET", "/connectors/none", Nothing, None),
    ("GET", "/connectors/none/config", Nothing, None),
    ("GET", "/connectors/none/status", Nothing, None),
    ("GET", "/connectors/none/tasks", Nothing, None),
    ("GET", "/connectors/none/tasks/0/status", Nothing, None),
    ("GET", "/connectors/none/topics", Nothing, None),
    ("GET", "/connectors/none/offsets", Nothing, None),
    ("GET", "/connectors/none/tasks-config", Nothing, None),
    ("PUT", "/connectors/none/pause", Nothing, None),
    ("PUT", "/connectors/none/resume", Nothing, None),
    ("PUT", "/connectors/none/stop", Nothing, None),
    ("POST", "/connectors/none/restart", Nothing, None),
    ("POST", "/connectors/none/restart?includeTasks=true", Nothing, None),
    ("POST", "/connectors/none/tasks/0/restart", Nothing, None),
    ("DELETE", "/connectors/none", Nothing, None),
    ("PUT", "/connectors/none/topics/reset", Nothing, None),
    ("DELETE", "/connectors/none/offsets", Nothing, None),
    ("PATCH", "/connectors/none/offsets", Raw(r#"{"offsets": []}"#), None),
    ("PATCH", "/connectors/none/offsets", Raw(OFFSETS), None),
    ("PATCH", "/connectors/none/config", Raw(r#"{"a": "b"}"#), None),
    ("POST", "/connectors", Raw("{"), None),
    ("POST", "/connectors", Raw(""), None),
    ("POST", "/connectors", Raw("[]"), None),
    ("POST", "/connectors", Raw(r#"{"name": "x"}"#), None),
    ("POST", "/connectors", Raw(r#"{"name": "x", "config": {}, "extra": 1}"#), None),
    ("POST", "/connectors", Raw(r#"{"name": "x", "config": {}}"#), None),
    ("POST", "/connectors", Create("", &[]), None),
    ("POST", "/connectors", Create("x", NAMED), None),
    ("POST", "/connectors", Create("x", NO_CLASS), None),
    ("POST", "/connectors", Create("x", NO_USER), None),
    ("POST", "/connectors", Create("x", NO_SLOT), None),
    ("POST", "/connectors", Create("away", AWAY), None),
    ("DELETE", "/connectors/away", Nothing, None),
    ("GET", "/connectors", Nothing, None),
];

/// Of one that begins without a task.
pub(crate) const STOPPED: &[Step] = &[
    ("POST", "/connectors", CreateIn("s", "STOPPED"), Some("STOPPED")),
    ("GET", "/connectors/s", Nothing, None),
    ("GET", "/connectors/s/status", Nothing, None),
    ("GET", "/connectors/s/tasks", Nothing, None),
    ("GET", "/connectors/s/offsets", Nothing, None),
    ("GET", "/connectors/s/topics", Nothing, None),
    ("POST", "/connectors/s/restart?includeTasks=true", Nothing, Some("STOPPED")),
    ("POST", "/connectors/s/restart", Nothing, Some("STOPPED")),
    ("DELETE", "/connectors/s/offsets", Nothing, None),
    ("PATCH", "/connectors/s/offsets", Raw(OFFSETS), None),
    ("DELETE", "/connectors/s", Nothing, None),
];

/// Of one that publishes.
pub(crate) const RUNNING: &[Step] = &[
    ("POST", "/connectors", Create("r", &[]), Some("RUNNING")),
    ("POST", "/connectors", Create("r", &[]), None),
    ("GET", "/connectors", Nothing, None),
    ("GET", "/connectors?expand=status&expand=info&expand=x", Nothing, None),
    ("GET", "/connectors/r", Nothing, None),
    ("GET", "/connectors/r/config", Nothing, None),
    ("GET", "/connectors/r/status", Nothing, None),
    ("GET", "/connectors/r/tasks", Nothing, None),
    ("GET", "/connectors/r/tasks/0/status", Nothing, None),
    ("GET", "/connectors/r/tasks/1/status", Nothing, None),
    ("GET", "/connectors/r/tasks/x/status", Nothing, None),
    ("GET", "/connectors/r/topics", Nothing, None),
    ("DELETE", "/connectors/r/offsets", Nothing, None),
    ("PATCH", "/connectors/r/offsets", Raw(r#"{"offsets": []}"#), None),
    ("PUT", "/connectors/r/config", Config(FASTER), Some("RUNNING")),
    ("PUT", "/connectors/r/config", Config(NAMED), None),
    ("PUT", "/connectors/r/config", Config(NO_SLOT), None),
    ("PUT", "/connectors/r/config", Raw(""), None),
    ("PUT", "/connectors/r/config", Raw(r#"{"a": {"b": 1}}"#), None),
    (
        "PATCH",
        "/connectors/r/config",
        Raw(r#"{"poll.interval.ms": null, "tasks.max": "1"}"#),
        Some("RUNNING"),
    ),
    ("PUT", "/connectors/r/pause", Nothing, Some("PAUSED")),
    ("GET", "/connectors/r/status", Nothing, None),
    ("POST", "/connectors/r/restart?includeTasks=true", Nothing, Some("PAUSED")),
    ("PUT", "/connectors/r/resume", Nothing, Some("RUNNING")),
    ("POST", "/connectors/r/restart", Nothing, Some("RUNNING")),
    ("POST", "/connectors/r/restart?includeTasks=true&onlyFailed=true", Nothing, None),
    ("POST", "/connectors/r/restart?includeTasks=false&onlyFailed=true", Nothing, None),
    ("POST", "/connectors/r/restart?includeTasks=zz", Nothing, Some("RUNNING")),
    ("POST", "/connectors/r/restart?includeTasks=true", Nothing, Some("RUNNING")),
    ("GET", "/connectors/r/status", Nothing, None),
    ("POST", "/connectors/r/tasks/0/restart", Nothing, Some("RUNNING")),
    // The worker shows a second task from here on, which has failed.
    ("POST", "/connectors/r/tasks/1/restart", Nothing, None),
    ("PUT", "/connectors/r/topics/reset", Nothing, None),
    ("PUT", "/connectors/r/stop", Nothing, Some("STOPPED")),
    ("GET", "/connectors/r", Nothing, None),
    ("GET", "/connectors/r/tasks", Nothing, None),
    ("DELETE", "/connectors/r", Nothing, None),
    ("GET", "/connectors/r/status", Nothing, None),
];

/// Of the plug-in.
pub(crate) const PLUGINS: &[Step] = &[
    ("GET", "/connector-plugins", Nothing, None),
    ("GET", "/connector-plugins/PostgresConnector/config", Nothing, None),
    ("GET", "/connector-plugins/none/config", Nothing, None),
    ("PUT", "/connector-plugins/PostgresConnector/config/validate", Config(OF_V), None),
    ("PUT", "/connector-plugins/Postgres/config/validate", Config(NO_SLOT_OF_V), None),
    ("PUT", "/connector-plugins/none/config/validate", Config(OF_V), None),
    ("PUT", "/connector-plugins/PostgresConnector/config/validate", Raw("{}"), None),
    ("PUT", "/connector-plugins/PostgresConnector/config/validate", Raw(""), None),
    ("GET", "/admin/loggers", Nothing, None),
];

/// What differs, by requests (the beginning of method, path and body) and the
/// beginning of what is said of it, and how docs/connect-api.md says so.
pub(crate) const KNOWN: &[(&str, &str, &str)] = &[
    ("PUT /connectors/none/stop", "404 and not 500", UNKNOWN),
    ("POST /connectors/none/restart", "404 and not 500", UNKNOWN),
    ("POST /connectors/none/tasks/0/restart", "404 and not 500", UNKNOWN),
    ("POST /connectors \"", "400 and not 500", NO_BODY),
    ("PUT /connectors/r/config \"", "400 and not 500", NO_BODY),
    ("PUT /connector-plugins/PostgresConnector/config/validate \"", "400 and not 500", NO_BODY),
    ("POST /connectors of \"away\"", "201 and not 400", DATABASE_AWAY),
    ("DELETE /connectors/away", "204 and not 404", DATABASE_AWAY),
    ("POST /connectors of", "its location is a path", "`Location` of a new connector"),
    ("GET /connectors/s/status", "body.connector has trace", TRACE),
    ("GET /connectors/r/status", "body.tasks[] has trace", TRACE),
    ("DELETE /connectors/s/offsets", "400 and not 200", OFFSETS_STAY),
    ("PATCH /connectors/s/offsets", "400 and not 200", OFFSETS_STAY),
    ("PUT /connectors/r/topics/reset", "403 and not 202", "topic.tracking.allow.reset=false"),
    ("GET /connector-plugins/PostgresConnector/config", "body[].name is", PROPERTIES),
    ("GET /connector-plugins/PostgresConnector/config", "body[].dependents is empty", PROPERTIES),
    ("PUT /connector-plugins/Postgres", "body.configs[].definition.name is", PROPERTIES),
    ("PUT /connector-plugins/Postgres", "body.configs[].definition.dependents is", PROPERTIES),
    ("PUT /connector-plugins/Postgres", "body.configs[].value.name is", PROPERTIES),
    ("PUT /connector-plugins/Postgres", "body.configs[].value.recommended_values", PROPERTIES),
    ("GET /admin/loggers", "404 and not 200", "There is no `/admin/loggers`"),
];
const UNKNOWN: &str = "`stop`, `restart` or a task's restart of an unknown connector";
const NO_BODY: &str = "a body that is no JSON, none, or not what belongs there";
const DATABASE_AWAY: &str = "a connector whose database does not answer";
const TRACE: &str = "`trace` says that its slot keeps WAL";
const OFFSETS_STAY: &str = "Both requests are refused";
const PROPERTIES: &str = "what a plug-in lists of its properties";

impl Body {
    /// As it is sent; `None` for no body.
    pub(crate) fn text(self, config: &Value) -> Option<String> {
        let changed = |changes: Changes| {
            let mut config = config.clone();
            for (name, value) in changes {
                match value {
                    Some(value) => config[*name] = (*value).into(),
                    None => drop(config.as_object_mut().unwrap().remove(*name)),
                }
            }
            config
        };
        Some(match self {
            Self::None => return None,
            Self::Raw(text) => text.to_owned(),
            Self::Config(changes) => changed(changes).to_string(),
            Self::Create(name, changes) => {
                json!({ "name": name, "config": changed(changes) }).to_string()
            }
            Self::CreateIn(name, state) => {
                json!({ "name": name, "config": config, "initial_state": state }).to_string()
            }
        })
    }

    /// For people.
    pub(crate) fn told(self) -> String {
        match self {
            Self::None => String::new(),
            Self::Raw(text) => format!(" {text:?}"),
            Self::Config(changes) => format!(" with {changes:?}"),
            Self::Create(name, changes) => format!(" of {name:?} with {changes:?}"),
            Self::CreateIn(name, state) => format!(" of {name:?} in {state}"),
        }
    }
}
