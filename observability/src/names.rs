//! Names of spans, fields and metrics: one place, so that a dashboard and a log search find what the code writes.
//!
//! Fields are dotted and start with `vance.`; metrics are `vance_<what>_<unit>`, counters end in `_total`.
//! In tracing's macros a constant stands in braces, after a first plain field: `info!(ended = true, { CALL_ID } = %id, "…")`.

/// Span: one task, from its first step to its end or its next wait.
pub const SPAN_TASK: &str = "task";
/// Span: one call as its Brain sees it, from the decision where it runs to its applied result.
pub const SPAN_CALL: &str = "call";
/// Span: the same call on the Foot, from `accepted` to its result.
pub const SPAN_FOOT_CALL: &str = "foot.call";
/// Span: one request to an MCP server.
pub const SPAN_MCP_REQUEST: &str = "mcp.request";
/// Span: one HTTP request to the Brain's API.
pub const SPAN_HTTP_REQUEST: &str = "http.request";

/// Field: id of a call.
pub const CALL_ID: &str = "vance.call.id";
/// Field: counts deliveries of a call, from 1.
pub const CALL_ATTEMPT: &str = "vance.call.attempt";
/// Field: how a call ended (`done`, `failed`, `cancelled`, `unknown`).
pub const CALL_OUTCOME: &str = "vance.call.outcome";
/// Field: where a call runs (`server`, `client`).
pub const CALL_ROUTE: &str = "vance.call.route";
/// Field: id of a task.
pub const TASK_ID: &str = "vance.task.id";
/// Field: id of a task tree.
pub const TREE_ID: &str = "vance.tree.id";
/// Field: state of a task.
pub const TASK_STATE: &str = "vance.task.state";
/// Field: id of a session.
pub const SESSION_ID: &str = "vance.session.id";
/// Field: id of a client.
pub const CLIENT_ID: &str = "vance.client.id";
/// Field: fencing number of a client's connection.
pub const CLIENT_EPOCH: &str = "vance.client.epoch";
/// Field: full name of a tool.
pub const TOOL: &str = "vance.tool";
/// Field: name of a pack.
pub const PACK: &str = "vance.pack";
/// Field: method of an HTTP request.
pub const HTTP_METHOD: &str = "vance.http.method";
/// Field: path of an HTTP request, without its query.
pub const HTTP_PATH: &str = "vance.http.path";
/// Field: status of the answer to an HTTP request.
pub const HTTP_STATUS: &str = "vance.http.status";
/// Field: name of an actor.
pub const ACTOR: &str = "vance.actor";

/// Counter by `actor`: panics that a supervisor caught.
pub const METRIC_ACTOR_PANICS: &str = "vance_actor_panics_total";
/// Counter by `actor`: restarts by a supervisor.
pub const METRIC_ACTOR_RESTARTS: &str = "vance_actor_restarts_total";
/// Counter by `route` and `outcome`: calls that ended.
pub const METRIC_CALLS: &str = "vance_calls_total";
/// Histogram by `route`: a call's time from its decision to its result, in seconds.
pub const METRIC_CALL_SECONDS: &str = "vance_call_duration_seconds";
/// Gauge: calls in flight.
pub const METRIC_CALLS_INFLIGHT: &str = "vance_calls_inflight";
/// Gauge by `state`: tasks that are not ended.
pub const METRIC_TASKS: &str = "vance_tasks";
/// Counter by `state`: transitions into a state.
pub const METRIC_TASK_TRANSITIONS: &str = "vance_task_transitions_total";
/// Gauge by `presence`: clients.
pub const METRIC_CLIENTS: &str = "vance_clients";
/// Counter by `direction`: frames on the wire.
pub const METRIC_FRAMES: &str = "vance_wire_frames_total";
/// Counter: reconnects of a Foot.
pub const METRIC_RECONNECTS: &str = "vance_link_reconnects_total";
/// Counter: events written to the store.
pub const METRIC_STORE_EVENTS: &str = "vance_store_events_total";
/// Histogram: one group commit of the store, in seconds.
pub const METRIC_STORE_COMMIT_SECONDS: &str = "vance_store_commit_duration_seconds";
