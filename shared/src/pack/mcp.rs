//! `parameters` of an `mcp_server` pack.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Report, command, endpoint, references};
use crate::doc::{Fields, Node, nearest_field, ticked};
use crate::launch::{LaunchPlan, Origin, RestartBudget, Source, Transport};
use crate::names::PackName;
use crate::tool::Replay;

/// One call's default deadline.
const TIMEOUT_SECONDS: u64 = 60;
/// A cold `npx -y` takes 5 to 11 s to answer, a slow line more.
const INIT_TIMEOUT_SECONDS: u64 = 120;
/// A call or a start that takes longer than a day is stuck.
pub(super) const MAX_SECONDS: u64 = 24 * 3600;
/// More restarts than this in one window is a loop whatever the window.
const MAX_RESTARTS: u64 = 1000;

/// What of the envelope the plan carries.
pub(super) struct Envelope {
    pub(super) name: Option<PackName>,
    pub(super) labels: Vec<String>,
    pub(super) disabled_sub_tools: Vec<String>,
    pub(super) source: Source,
}

#[derive(Debug, Clone, Copy)]
enum Word {
    Stdio,
    Http,
    Sse,
}

/// Reads the parameters. `None` if no plan can be made of them; what is wrong is in the report.
pub(super) fn plan(node: &Node, envelope: Envelope, report: &Report<'_>) -> Option<LaunchPlan> {
    let mut fields = Fields::of(node, "`parameters`", report.problems)?;
    fields.require("transport", "stdio or http");
    let word = fields.take_enum(
        "transport",
        &[("stdio", Word::Stdio), ("http", Word::Http), ("streamable-http", Word::Http), ("sse", Word::Sse)],
    );
    let transport = match word {
        Some(Word::Stdio) => {
            for name in ["url", "headers", "auth", "tls"] {
                report.unused(&mut fields, name, "for stdio");
            }
            command::stdio(&mut fields, report)
        }
        Some(Word::Http) => {
            for name in ["command", "args", "cwd", "env"] {
                report.unused(&mut fields, name, "for http");
            }
            endpoint::http(&mut fields, report)
        }
        Some(Word::Sse) => {
            fields.add(
                "transport",
                "the old HTTP+SSE transport is not supported; use `http` (streamable HTTP) with the server's endpoint for it, often /mcp",
            );
            known_by_either(&mut fields)
        }
        None => known_by_either(&mut fields),
    };
    let call_seconds = fields.take_u64("timeoutSeconds", 1..=MAX_SECONDS).unwrap_or(TIMEOUT_SECONDS);
    let init_seconds = fields.take_u64("initTimeoutSeconds", 1..=MAX_SECONDS).unwrap_or(INIT_TIMEOUT_SECONDS);
    if let Some(value) = fields.take("defaultArgs") {
        references::check_value(value, "`defaultArgs`", report);
    }
    let default_args = fields.take_object("defaultArgs").unwrap_or_default();
    let replay = replay(&mut fields, report);
    let restart = restart(&mut fields, report);
    report.finish(&fields);
    let transport = transport?;
    let mut source = envelope.source;
    source.credential_in_query = matches!(&transport, Transport::Http { .. }) && credential_in_query(node);
    Some(LaunchPlan {
        pack: envelope.name?,
        origin: report.origin,
        transport,
        init_timeout: Duration::from_secs(init_seconds),
        call_timeout: Duration::from_secs(call_seconds),
        labels: envelope.labels,
        disabled_sub_tools: envelope.disabled_sub_tools,
        default_args,
        replay,
        restart,
        source,
    })
}

/// Whether `auth` puts its value behind the url's `?`, in either of its forms.
fn credential_in_query(parameters: &Node) -> bool {
    let Some(auth) = parameters.get("auth") else { return false };
    let forms = std::iter::once(auth).chain(auth.as_map().unwrap_or_default().iter().map(|field| &field.value));
    forms.into_iter().any(|form| form.get("queryParamName").is_some())
}

/// Without a transport nobody can say which fields are unused.
fn known_by_either<T>(fields: &mut Fields<'_>) -> Option<T> {
    for name in ["command", "args", "cwd", "env", "url", "headers", "auth", "tls"] {
        fields.take(name);
    }
    None
}

fn replay(fields: &mut Fields<'_>, report: &Report<'_>) -> BTreeMap<String, Replay> {
    let mut classes = BTreeMap::new();
    let entries = fields.take_str_map("replay", "sub-tools and `safe` or `unsafe`").unwrap_or_default();
    for (sub_tool, word, line) in entries {
        let class = match word {
            "safe" => Replay::Safe,
            "unsafe" => Replay::Unsafe,
            other => {
                let shown = crate::show::quoted(other, 40);
                let hint = nearest_field(other, &["safe", "unsafe"]);
                report.problems.add(line, format!("{} in `replay` is {shown}{hint}", ticked(sub_tool)));
                continue;
            }
        };
        if class == Replay::Safe && report.origin == Origin::Project {
            let message = format!(
                "{} stays unsafe: a pack of the working directory cannot call its own tools safe",
                ticked(sub_tool)
            );
            report.warnings.add(line, message);
            continue;
        }
        classes.insert(sub_tool.to_owned(), class);
    }
    classes
}

fn restart(fields: &mut Fields<'_>, report: &Report<'_>) -> RestartBudget {
    let default = RestartBudget::default();
    let Some(mut inner) = fields.take_fields("restart") else { return default };
    let max_restarts = inner.take_u64("maxRestarts", 0..=MAX_RESTARTS).and_then(|n| u32::try_from(n).ok());
    let within = inner.take_u64("windowSeconds", 1..=MAX_SECONDS).map(Duration::from_secs);
    report.finish(&inner);
    RestartBudget {
        max_restarts: max_restarts.unwrap_or(default.max_restarts),
        within: within.unwrap_or(default.within),
    }
}
