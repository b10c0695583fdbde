//! The tools that this Foot offers now, and how each is run.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;
use vance_mcp_host::Person;
use vance_shared::call::{Fault, Outcome};
use vance_shared::ids::CallId;
use vance_shared::json::Raw;
use vance_shared::names::ToolName;
use vance_shared::show::quoted;
use vance_shared::tool::ToolSpec;
use vance_shared::trace::TraceContext;

/// Hears how far a call is: a fraction of the whole if known, and a message.
pub type Progress = Arc<dyn Fn(Option<f64>, Option<String>) + Send + Sync>;

/// One call of one tool.
pub struct ToolCall {
    /// The call: the idempotency key.
    pub call_id: CallId,
    /// The tool.
    pub tool: ToolName,
    /// A JSON object.
    pub arguments: Raw,
    /// Without progress for this long it has failed…
    pub timeout: Duration,
    /// …and after this long in any case.
    pub cap: Duration,
    /// Where the call belongs in its trace.
    pub trace: TraceContext,
    /// Ends it before that.
    pub cancel: CancellationToken,
    /// Hears its progress.
    pub progress: Progress,
    /// Who is asked what its server wants to know in the middle of it.
    pub person: Person,
}

/// Whatever runs a tool: the native tools, an MCP server.
pub trait ToolHost: Send + Sync {
    /// Runs a call to its end. Dropping the future may or may not stop the work; the token does.
    fn call(&self, call: ToolCall) -> BoxFuture<'static, Outcome>;
}

/// A tool and who runs it.
pub struct Tool {
    /// What is known of it.
    pub spec: ToolSpec,
    /// Who runs it.
    pub host: Arc<dyn ToolHost>,
}

/// All tools at one moment.
#[derive(Default)]
pub(crate) struct Catalogue {
    tools: HashMap<ToolName, Arc<Tool>>,
    loading: Vec<String>,
}

impl Catalogue {
    /// The tools, and the packs that are still starting. Of two tools with one name the first stays.
    pub(crate) fn new(tools: impl IntoIterator<Item = Arc<Tool>>, loading: Vec<String>) -> Self {
        let mut by_name = HashMap::new();
        for tool in tools {
            by_name.entry(tool.spec.name.clone()).or_insert(tool);
        }
        Self { tools: by_name, loading }
    }

    /// The tool of a name, or what to answer.
    pub(crate) fn find(&self, name: &str) -> Result<&Arc<Tool>, Fault> {
        self.tools.get(name).ok_or_else(|| {
            let shown = quoted(name, 80);
            let starting = name.split_once(vance_shared::names::SUBTOOL_SEPARATOR).map(|(pack, _)| pack);
            match starting.filter(|pack| self.loading.iter().any(|l| l == pack)) {
                Some(pack) => {
                    Fault::new("unavailable", format!("pack '{pack}' of tool {shown} is not up; nothing ran"))
                }
                None => Fault::new("unknown_tool", format!("this client has no tool {shown} now; nothing ran")),
            }
        })
    }

    /// All tools by name.
    pub(crate) fn tools(&self) -> &HashMap<ToolName, Arc<Tool>> {
        &self.tools
    }

    /// Packs that are starting, or starting again.
    pub(crate) fn loading(&self) -> &[String] {
        &self.loading
    }

    /// What is known of each tool: the Foot's own first, then by name.
    pub(crate) fn specs(&self) -> Vec<ToolSpec> {
        self.in_order().into_iter().map(|tool| tool.spec.clone()).collect()
    }

    /// The Foot's own tools first, then by name.
    pub(crate) fn in_order(&self) -> Vec<&Arc<Tool>> {
        let mut tools: Vec<&Arc<Tool>> = self.tools.values().collect();
        tools.sort_by_key(|tool| (tool.spec.pack.is_some(), &tool.spec.name));
        tools
    }
}
