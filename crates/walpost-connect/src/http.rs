//! The routes.

mod access;
mod answers;
mod request;

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header},
    middleware,
    response::{IntoResponse, Response},
    routing::{MethodRouter, get, post, put},
};
use serde_json::{Value, json};

pub use self::access::Access;
use self::request::{Body, Params, Query};
use crate::{
    blocking::Blocking,
    config::{masked, read_config, read_create, read_flat, read_patch},
    error::ApiError,
    plugin,
    runner::Sight,
    state::{Restart, Target},
    worker::{Connectors, Done, Request, View},
};

/// Of the interface that this crate speaks.
const KAFKA_VERSION: &str = "4.3.1";

/// What a route has.
#[derive(Clone, Debug)]
pub(crate) struct App {
    connectors: Connectors,
    worker_id: String,
    validations: Blocking,
    looks: Blocking,
}

type Answer = Result<Response, ApiError>;

/// The routes of Kafka Connect over these connectors. `worker_id` is what status
/// calls this process, `host:port` as in Kafka Connect.
///
/// Who may ask is the affair of `access`; see [`Access`].
pub fn router(connectors: Connectors, worker_id: impl Into<String>, access: Access) -> Router {
    let worker_id = worker_id.into();
    let (validations, looks) = (Blocking::default(), Blocking::default());
    let app = App { connectors, worker_id, validations, looks };
    let of_one = "/connectors/{name}";
    let routes: [(&str, MethodRouter<App>); 21] = [
        ("/", get(root)),
        ("/health", get(health)),
        ("/connectors", get(list).post(create)),
        (of_one, get(info).delete(delete)),
        ("/connectors/{name}/config", get(config).put(put_config).patch(patch_config)),
        ("/connectors/{name}/status", get(status)),
        ("/connectors/{name}/tasks", get(tasks)),
        ("/connectors/{name}/tasks/{task}/status", get(task_status)),
        ("/connectors/{name}/tasks/{task}/restart", post(restart_task)),
        ("/connectors/{name}/topics", get(topics)),
        ("/connectors/{name}/topics/reset", put(reset_topics)),
        ("/connectors/{name}/pause", put(pause)),
        ("/connectors/{name}/resume", put(resume)),
        ("/connectors/{name}/stop", put(stop)),
        ("/connectors/{name}/restart", post(restart)),
        ("/connectors/{name}/offsets", get(offsets).patch(alter_offsets).delete(reset_offsets)),
        ("/connector-plugins", get(plugins)),
        ("/connector-plugins/{plugin}/config", get(plugin_config)),
        ("/connector-plugins/{plugin}/config/validate", put(validate)),
        ("/connector-plugins/", get(plugins)),
        ("/connectors/", get(list).post(create)),
    ];
    let router = routes.into_iter().fold(Router::new(), |all, (path, one)| all.route(path, one));
    router
        .fallback(async || ApiError::of_status(StatusCode::NOT_FOUND))
        .method_not_allowed_fallback(async || ApiError::of_status(StatusCode::METHOD_NOT_ALLOWED))
        .layer(middleware::from_fn_with_state(std::sync::Arc::new(access), access::guard))
        .with_state(app)
}

fn json_of(code: StatusCode, body: &Value) -> Response {
    (code, [(header::CONTENT_TYPE, "application/json")], body.to_string()).into_response()
}

fn ok(body: &Value) -> Answer {
    Ok(json_of(StatusCode::OK, body))
}

impl App {
    fn found(&self, name: &str) -> Result<View, ApiError> {
        self.connectors.find(name)?.ok_or_else(|| ApiError::no_connector(name))
    }

    async fn target(&self, name: String, target: Target, code: StatusCode) -> Answer {
        self.connectors.ask(Request::Target { name, target }).await?;
        Ok(code.into_response())
    }

    async fn sight(&self, view: &View) -> Result<Sight, ApiError> {
        let (plugin, config) = (self.connectors.plugin.clone(), view.config.clone());
        let properties = self.looks.run(move || plugin.resolve(&config)).await??;
        (self.connectors.runner.look)(properties).await
    }

    /// The connector as it is now, behind what was created or changed.
    fn changed(&self, name: &str, done: Done) -> Answer {
        let body = answers::info(name, &self.found(name)?);
        if done != Done::Created {
            return ok(&body);
        }
        let path: String = url::form_urlencoded::byte_serialize(name.as_bytes()).collect();
        let location = format!("/connectors/{}", path.replace('+', "%20"));
        let mut response = json_of(StatusCode::CREATED, &body);
        let location = location.parse().expect("it is encoded");
        response.headers_mut().insert(header::LOCATION, location);
        Ok(response)
    }

    /// Whether what a connector has stored may be changed now.
    fn is_stopped(&self, name: &str) -> Result<(), ApiError> {
        let view = self.found(name)?;
        match view.target == Target::Stopped && view.is_idle {
            true => Ok(()),
            false => Err(ApiError::bad_request(format!(
                "Connectors must be in the STOPPED state before their offsets can be modified. \
                 This can be done for the specified connector by issuing a 'PUT' request to the \
                 '/connectors/{name}/stop' endpoint"
            ))),
        }
    }
}

async fn root() -> Answer {
    let version = env!("CARGO_PKG_VERSION");
    ok(&json!({
        "version": format!("{KAFKA_VERSION}-walpost-{version}"),
        "commit": format!("walpost-{version}"),
        "kafka_cluster_id": "",
    }))
}

async fn health(State(app): State<App>) -> Answer {
    let (code, body) = answers::health(&app.connectors.role());
    Ok(json_of(code, &body))
}

async fn list(State(app): State<App>, query: Query) -> Answer {
    let all = app.connectors.all()?;
    let expansions: Vec<&str> = query.all("expand").collect();
    if expansions.is_empty() {
        return ok(&all.keys().cloned().collect());
    }
    let expanded = all.iter().map(|(name, view)| {
        let mut one = serde_json::Map::new();
        if expansions.contains(&"status") {
            one.insert("status".to_owned(), answers::status(name, view, &app.worker_id));
        }
        if expansions.contains(&"info") {
            one.insert("info".to_owned(), answers::info(name, view));
        }
        (name.clone(), Value::Object(one))
    });
    ok(&Value::Object(expanded.collect()))
}

async fn create(State(app): State<App>, body: Body) -> Answer {
    let create = read_create(&body.0)?;
    let name = create.name.clone();
    let (config, target) = (create.config, create.target);
    let request = Request::Create { name: create.name, config, target };
    let done = app.connectors.ask(request).await?;
    app.changed(&name, done)
}

async fn info(State(app): State<App>, params: Params) -> Answer {
    let name = params.name();
    ok(&answers::info(name, &app.found(name)?))
}

async fn delete(State(app): State<App>, params: Params) -> Answer {
    app.connectors.ask(Request::Delete { name: params.name().to_owned() }).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn config(State(app): State<App>, params: Params) -> Answer {
    ok(&json!(masked(&app.found(params.name())?.config)))
}

async fn put_config(State(app): State<App>, params: Params, body: Body) -> Answer {
    let name = params.name();
    let config = read_config(&body.0, name)?;
    let done = app.connectors.ask(Request::Put { name: name.to_owned(), config }).await?;
    app.changed(name, done)
}

async fn patch_config(State(app): State<App>, params: Params, body: Body) -> Answer {
    let name = params.name();
    let patch = read_patch(&body.0)?;
    let done = app.connectors.ask(Request::Patch { name: name.to_owned(), patch }).await?;
    app.changed(name, done)
}

async fn status(State(app): State<App>, params: Params) -> Answer {
    let name = params.name();
    let none = || ApiError::not_found(format!("No status found for connector {name}"));
    let view = app.connectors.find(name)?.ok_or_else(none)?;
    ok(&answers::status(name, &view, &app.worker_id))
}

async fn tasks(State(app): State<App>, params: Params) -> Answer {
    let name = params.name();
    ok(&answers::tasks(name, &app.found(name)?))
}

async fn task_status(State(app): State<App>, params: Params) -> Answer {
    let (name, task) = (params.name(), params.task()?);
    let none = || ApiError::not_found(format!("No status found for task {name}-{task}"));
    let view = app.connectors.find(name)?.filter(|_| task == 0).ok_or_else(none)?;
    ok(&answers::task(&view, &app.worker_id).ok_or_else(none)?)
}

async fn restart_task(State(app): State<App>, params: Params) -> Answer {
    let (name, task) = (params.name().to_owned(), params.task()?);
    let view = app.found(&name)?;
    if task != 0 || view.shown.task.is_none() {
        return Err(ApiError::not_found(format!("Task {name}-{task} not found")));
    }
    app.connectors.ask(Request::RestartTask { name }).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn topics(State(app): State<App>, params: Params) -> Answer {
    let name = params.name();
    // Kafka Connect knows no topics of a connector that it does not know.
    let topics = match app.connectors.find(name)? {
        Some(view) => app.sight(&view).await?.topics,
        None => Vec::new(),
    };
    ok(&json!({ name: { "topics": topics } }))
}

async fn reset_topics(State(app): State<App>, params: Params) -> Answer {
    let name = params.name();
    if app.connectors.find(name)?.is_none() {
        return Ok(StatusCode::ACCEPTED.into_response());
    }
    // Where records lie is what a start after a kill rests on.
    Err(ApiError { code: 403, message: "Topic tracking reset is disabled.".to_owned() })
}

async fn pause(State(app): State<App>, params: Params) -> Answer {
    app.target(params.name().to_owned(), Target::Paused, StatusCode::ACCEPTED).await
}

async fn resume(State(app): State<App>, params: Params) -> Answer {
    app.target(params.name().to_owned(), Target::Running, StatusCode::ACCEPTED).await
}

async fn stop(State(app): State<App>, params: Params) -> Answer {
    app.target(params.name().to_owned(), Target::Stopped, StatusCode::NO_CONTENT).await
}

async fn restart(State(app): State<App>, params: Params, query: Query) -> Answer {
    let name = params.name();
    let restart =
        Restart { include_tasks: query.is("includeTasks"), only_failed: query.is("onlyFailed") };
    let before = app.connectors.find(name)?;
    let done = app.connectors.ask(Request::Restart { name: name.to_owned(), restart }).await?;
    let (Some(view), Done::Restarting(restarted)) = (before, done) else {
        return Err(ApiError::no_connector(name));
    };
    if restart == Restart::default() {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let body = answers::restarting(name, &view, &app.worker_id, restarted);
    Ok(json_of(StatusCode::ACCEPTED, &body))
}

async fn offsets(State(app): State<App>, params: Params) -> Answer {
    let view = app.found(params.name())?;
    let offset = app.sight(&view).await?.offset;
    let offsets =
        offset.map(|(partition, offset)| json!({ "partition": partition, "offset": offset }));
    ok(&json!({ "offsets": offsets.into_iter().collect::<Vec<_>>() }))
}

async fn alter_offsets(State(app): State<App>, params: Params, body: Body) -> Answer {
    request::check_offsets(&body.0)?;
    app.is_stopped(params.name())?;
    Err(fixed(params.name()))
}

async fn reset_offsets(State(app): State<App>, params: Params) -> Answer {
    app.is_stopped(params.name())?;
    Err(fixed(params.name()))
}

/// What Kafka Connect says of connectors that keep their position themselves,
/// and what to do instead.
fn fixed(name: &str) -> ApiError {
    ApiError::bad_request(format!(
        "Failed to modify offsets for connector {name} because it doesn't support external \
         modification of offsets: its position is that of its replication slot, and what is \
         published is told by its checkpoint. `walpost replay` publishes events again, `walpost \
         take-over` begins where Debezium has stopped, and a connector of another name with a \
         slot of its own begins anew"
    ))
}

async fn plugins() -> Answer {
    ok(&plugin::plugins())
}

async fn plugin_config(params: Params) -> Answer {
    let name = params.name();
    match plugin::is_known(name) {
        true => ok(&plugin::definitions()),
        false => Err(ApiError::not_found(format!("Unknown plugin {name}."))),
    }
}

async fn validate(State(app): State<App>, params: Params, body: Body) -> Answer {
    let config = read_flat(&body.0)?;
    plugin::check_path(params.name(), &config)?;
    let (plugin, runner) = (app.connectors.plugin.clone(), app.connectors.runner.clone());
    let validate = move || plugin.validate(&config, |properties| (runner.check)(properties));
    ok(&app.validations.run(validate).await??)
}
