//! Looking at a pack without starting it: its tools, and the request that a call would send.

use std::collections::BTreeMap;

use serde_json::Value;
use vance_rest::api::{Api, Skipped};
use vance_rest::error::Code;
use vance_rest::exposure::{self, Called};
use vance_rest::request::{self, Context, Files};
use vance_rest::settings::Settings;
use vance_shared::call::Fault;
use vance_shared::launch::rest::{RestPlan, Spec};
use vance_shared::launch::{LaunchPlan, Origin, Transport, TrustedLaunch};
use vance_shared::names::SUBTOOL_SEPARATOR;
use vance_shared::tool::ToolSpec;

use super::NO_TOOLS;
use super::document::{self, Read};
use super::outgoing::outgoing;
use crate::env;
use crate::handle::HostEnv;

/// What stands in the place of a token that nobody has asked for.
const NO_TOKEN: &str = "(a token)";

/// What a pack's document gives.
#[derive(Debug, Default)]
pub struct Looked {
    /// Its tools.
    pub tools: Vec<ToolSpec>,
    /// Operations that are no tools, with the reason.
    pub skipped: Vec<Skipped>,
    /// What is odd.
    pub warnings: Vec<String>,
    /// Why the pack does not load although its document was read.
    pub problem: Option<String>,
}

/// Reads the document of a `rest_api` pack and lists what comes of it. The document of the user's own pack is fetched; that of a project's pack is
/// read if it lies here, and not fetched, as nobody has consented to that. `None`: it is no such pack.
pub async fn look(plan: &LaunchPlan, host: &HostEnv) -> Option<Result<Looked, String>> {
    let Transport::Rest(rest) = &plan.transport else { return None };
    if let (Origin::Project, Spec::Url(_)) = (plan.origin, &rest.spec) {
        let note = "its document is not fetched before somebody consents to the pack, so its tools are not known";
        return Some(Ok(Looked { warnings: vec![note.to_owned()], ..Looked::default() }));
    }
    Some(match document::read(rest, None, host).await {
        Ok(read) => Ok(looked(read, rest)),
        Err(failed) => Err(failed.why),
    })
}

fn looked(read: Read, plan: &RestPlan) -> Looked {
    let api = Api::load(read.document, plan);
    let mut warnings: Vec<String> = read.warning.into_iter().collect();
    warnings.extend(api.warnings().iter().cloned());
    let tools = exposure::tools(&api);
    let problem = tools.is_empty().then(|| NO_TOOLS.to_owned());
    Looked { tools, skipped: api.skipped().to_vec(), warnings, problem }
}

/// The request that a call would send, as `{"method", "url", "headers", "body"}`. Nothing is sent, and no token is asked for. `None`: the pack is no
/// `rest_api` pack.
pub async fn dry_run(
    launch: &TrustedLaunch,
    host: &HostEnv,
    tool: &str,
    arguments: &Value,
) -> Option<Result<Value, Fault>> {
    let Transport::Rest(plan) = &launch.plan().transport else { return None };
    Some(built(plan, launch, host, tool, arguments).await)
}

async fn built(
    plan: &RestPlan,
    launch: &TrustedLaunch,
    host: &HostEnv,
    tool: &str,
    arguments: &Value,
) -> Result<Value, Fault> {
    let read =
        document::read(plan, Some(launch), host).await.map_err(|failed| Fault::new("unavailable", failed.why))?;
    let api = Api::load(read.document, plan);
    let ambient = env::ambient();
    let place = format!("pack {}", plan.pack);
    let settings =
        Settings::of(plan, &|text| env::expand(text, &place, host.words(&ambient)).map_err(|error| error.to_string()));
    let sub_tool = tool.split_once(SUBTOOL_SEPARATOR).map_or(tool, |(_, sub)| sub);
    match exposure::called(&api, sub_tool, arguments)? {
        Called::Answer(_) => {
            Err(Code::InvalidArgument.fault(format!("{sub_tool} sends no request: it is answered from the document")))
        }
        Called::Operation(operation, arguments) => {
            let needs = request::tokens(&api, operation, &settings)?;
            let tokens: BTreeMap<String, String> =
                needs.into_iter().map(|need| (need.key, NO_TOKEN.to_owned())).collect();
            let context = Context { settings: &settings, tokens: &tokens, files: Files::Planned, call_id: None };
            let request = request::build(&api, operation, &arguments, context)?;
            let shown = request.to_json();
            // As for a call: whether the files may be read, and are there.
            if host.read_file.is_some() {
                outgoing(request, host.read_file.as_ref()).await?;
            }
            Ok(shown)
        }
    }
}
