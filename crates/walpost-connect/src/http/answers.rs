use axum::http::StatusCode;
use serde_json::{Map, Value, json};

use crate::{
    config::masked,
    plugin::VERSION,
    state::State,
    worker::{Role, View},
};

/// What the task's class is called in Debezium.
const TASK_CLASS: &str = "io.debezium.connector.postgresql.PostgresConnectorTask";

pub(super) fn info(name: &str, view: &View) -> Value {
    let tasks: Vec<Value> = ids(name, view).collect();
    json!({ "name": name, "config": masked(&view.config), "tasks": tasks, "type": "source" })
}

pub(super) fn tasks(name: &str, view: &View) -> Value {
    let mut config = masked(&view.config);
    config.insert("task.class".to_owned(), TASK_CLASS.to_owned());
    ids(name, view).map(|id| json!({ "id": id, "config": config })).collect()
}

/// Of the one task, or none.
fn ids(name: &str, view: &View) -> impl Iterator<Item = Value> {
    view.shown.task.map(|_| json!({ "connector": name, "task": 0 })).into_iter()
}

pub(super) fn status(name: &str, view: &View, worker_id: &str) -> Value {
    let states = [Some(view.shown.connector), view.shown.task];
    whole(name, states, view.shown.trace.as_deref(), worker_id)
}

/// What a restart is answered with: the status before, with what begins anew.
pub(super) fn restarting(
    name: &str,
    view: &View,
    worker_id: &str,
    [connector, task]: [bool; 2],
) -> Value {
    let mut states = [Some(view.shown.connector), view.shown.task];
    if connector {
        states[0] = Some(State::Restarting);
    }
    if task {
        states[1] = states[1].map(|_| State::Restarting);
    }
    let trace = view.shown.trace.as_deref().filter(|_| !connector && !task);
    whole(name, states, trace, worker_id)
}

fn whole(name: &str, states: [Option<State>; 2], trace: Option<&str>, worker_id: &str) -> Value {
    let [connector, task] = states;
    // What there is to say is of the task, where there is one.
    let [of_connector, of_task] = if task.is_some() { [None, trace] } else { [trace, None] };
    let connector = part(connector.unwrap_or(State::Unassigned), of_connector, worker_id);
    let task = task.map(|state| of_id(part(state, of_task, worker_id)));
    let tasks: Vec<Value> = task.map(Value::Object).into_iter().collect();
    json!({ "name": name, "connector": connector, "tasks": tasks, "type": "source" })
}

pub(super) fn task(view: &View, worker_id: &str) -> Option<Value> {
    let part = part(view.shown.task?, view.shown.trace.as_deref(), worker_id);
    Some(Value::Object(of_id(part)))
}

fn of_id(mut part: Map<String, Value>) -> Map<String, Value> {
    part.insert("id".to_owned(), 0.into());
    part
}

fn part(state: State, trace: Option<&str>, worker_id: &str) -> Map<String, Value> {
    let mut part = Map::new();
    part.insert("state".to_owned(), state.as_str().into());
    part.insert("worker_id".to_owned(), worker_id.into());
    part.insert("version".to_owned(), VERSION.into());
    if let Some(trace) = trace {
        part.insert("trace".to_owned(), trace.into());
    }
    part
}

pub(super) fn health(role: &Role) -> (StatusCode, Value) {
    let (code, status, message) = match role {
        Role::Leads => (
            StatusCode::OK,
            "healthy",
            "Worker has completed startup and is ready to handle requests.".to_owned(),
        ),
        Role::Starting => {
            (StatusCode::SERVICE_UNAVAILABLE, "starting", "Worker is still starting up.".to_owned())
        }
        Role::StandsBy => (
            StatusCode::SERVICE_UNAVAILABLE,
            "starting",
            "Worker stands by: another process runs the connectors.".to_owned(),
        ),
        Role::Waits(error) => (
            StatusCode::INTERNAL_SERVER_ERROR,
            "unhealthy",
            format!(
                "Worker was unable to handle this request and may be unable to handle other \
                 requests. The database of the connectors does not answer: {error}"
            ),
        ),
    };
    (code, json!({ "status": status, "message": message }))
}
