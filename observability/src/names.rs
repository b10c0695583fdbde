//! Names of spans, fields and metrics: one place, so that a dashboard and a log search find what the code writes.
//!
//! Fields are dotted and start with `vance.`; metrics are `vance_<what>_<unit>`, counters end in `_total`.
//! In tracing's macros a constant stands in braces, after a first plain field: `info!(ended = true, { CALL_ID } = %id, "…")`.

/// Span: one run of a task, from its start (or the end of its wait) to its end or its next wait. The next run links it.
pub const SPAN_TASK_RUN: &str = "task.run";
/// Span: one call as its Brain sees it, from its dispatch to its verdict, or until the line to its client is cut. What
/// follows a cut is a span of its own, which links the first.
pub const SPAN_CALL: &str = "call";
/// Span: one tool at work, on a Foot or on the Brain.
pub const SPAN_TOOL_RUN: &str = "tool.run";
/// Span: one `tools/call` to an MCP server.
pub const SPAN_MCP_CALL: &str = "mcp.call";
/// Span: one call of an operation of an HTTP API, with all its attempts.
pub const SPAN_REST_CALL: &str = "rest.call";
/// Span: one HTTP request to the Brain's API.
pub const SPAN_HTTP_REQUEST: &str = "http.request";

/// Field of a log line: the trace that it belongs to.
pub const TRACE_ID: &str = "trace_id";
/// Field: how a span ended: a call's outcome, a task's state, or `suspended`, `never_arrived`, `not_run`, `abandoned`.
pub const OUTCOME: &str = "vance.outcome";
/// Field: the code of the fault, if there is one (OpenTelemetry's name).
pub const ERROR_TYPE: &str = "error.type";
/// Field: id of a call.
pub const CALL_ID: &str = "vance.call.id";
/// Field: counts deliveries of a call, from 1.
pub const CALL_ATTEMPT: &str = "vance.call.attempt";
/// Field: where a call runs (`server`, `client`).
pub const CALL_ROUTE: &str = "vance.call.route";
/// Field: id of a task.
pub const TASK_ID: &str = "vance.task.id";
/// Field: id of a task tree.
pub const TREE_ID: &str = "vance.tree.id";
/// Field: counts runs of a task, from 1.
pub const TASK_RUN: &str = "vance.task.run";
/// Field: id of a session.
pub const SESSION_ID: &str = "vance.session.id";
/// Field: id of a client.
pub const CLIENT_ID: &str = "vance.client.id";
/// Field: fencing number of a client's connection.
pub const CLIENT_EPOCH: &str = "vance.client.epoch";
/// Field: name of the machine of a client.
pub const MACHINE: &str = "vance.machine";
/// Field: full name of a tool.
pub const TOOL: &str = "vance.tool";
/// Field: name of a pack.
pub const PACK: &str = "vance.pack";
/// Field: method of an HTTP request.
pub const HTTP_METHOD: &str = "vance.http.method";
/// Field: host of an HTTP request.
pub const HTTP_HOST: &str = "vance.http.host";
/// Field: path of an HTTP request, without its query; of a call of an API, the path's template.
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
/// Counter: spans that the collector took.
pub const METRIC_SPANS_SENT: &str = "vance_spans_sent_total";
/// Counter by `reason` (`queue_full`, `not_delivered`): spans that are lost.
pub const METRIC_SPANS_LOST: &str = "vance_spans_lost_total";
/// Histogram: one group commit of the store, in seconds.
pub const METRIC_STORE_COMMIT_SECONDS: &str = "vance_store_commit_duration_seconds";
/// Counter: how often the Brain read its files.
pub const METRIC_RELOADS: &str = "vance_reloads_total";
/// Gauge: what is wrong in the Brain's files, by the last reading.
pub const METRIC_FILE_PROBLEMS: &str = "vance_file_problems";
