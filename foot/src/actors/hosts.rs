//! Who runs tools: the Foot itself, and the servers of packs.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio_util::task::TaskTracker;
use vance_mcp_host::{CallRequest, McpHandle};
use vance_shared::call::Outcome;

use super::catalogue::{ToolCall, ToolHost};
use crate::native::{NativeCall, NativeTools, UseOfTool};

/// The Foot's own tools.
pub(crate) struct Native(pub(crate) Arc<NativeTools>);

impl ToolHost for Native {
    fn call(&self, call: ToolCall) -> BoxFuture<'static, Outcome> {
        let tools = Arc::clone(&self.0);
        let ToolCall { call_id, tool, arguments, timeout, cancel, progress, .. } = call;
        let call = NativeCall { call_id, tool, arguments, timeout, cancel, progress: Some(progress) };
        // Off the actor thread: these tools read files and walk folders.
        let work = vance_supervise::beside(async move { tools.call(call).await });
        Box::pin(async move {
            match work.await {
                Ok(outcome) => outcome,
                Err(error) => Outcome::Unknown { reason: format!("the tool's task ended early: {error}") },
            }
        })
    }
}

/// Says whether a pack's tool may be used: `None` is yes.
pub(crate) trait Permit: Send + Sync {
    fn refusal(&self, wanted: UseOfTool) -> BoxFuture<'static, Option<Outcome>>;
}

/// The rules of `permissions.yaml`, and the person.
pub(crate) struct ByRules(pub(crate) Arc<NativeTools>);

impl Permit for ByRules {
    fn refusal(&self, wanted: UseOfTool) -> BoxFuture<'static, Option<Outcome>> {
        let tools = Arc::clone(&self.0);
        Box::pin(async move { tools.refusal(wanted).await })
    }
}

/// For a Foot without packs: whatever claims to be one's tool is not run.
pub(crate) struct NoPacks;

impl Permit for NoPacks {
    fn refusal(&self, _: UseOfTool) -> BoxFuture<'static, Option<Outcome>> {
        Box::pin(async { Some(Outcome::failed("unavailable", "this client has no packs; nothing ran")) })
    }
}

/// A pack's server.
pub(crate) struct Mcp {
    pub(crate) handle: McpHandle,
    pub(crate) permit: Arc<dyn Permit>,
    /// Who takes the pack away waits for these.
    pub(crate) calls: TaskTracker,
}

impl ToolHost for Mcp {
    fn call(&self, call: ToolCall) -> BoxFuture<'static, Outcome> {
        let (handle, permit) = (self.handle.clone(), Arc::clone(&self.permit));
        Box::pin(self.calls.track_future(async move {
            let ToolCall { call_id, tool, arguments, timeout, cap, trace, cancel, progress, person } = call;
            let wanted = UseOfTool {
                call_id: call_id.clone(),
                tool: tool.clone(),
                arguments: arguments.clone(),
                timeout,
                cancel: cancel.clone(),
            };
            if let Some(refusal) = permit.refusal(wanted).await {
                return refusal;
            }
            let progress =
                Some(Arc::new(move |said: vance_mcp_host::Progress| progress(said.fraction, said.message)) as _);
            handle.call(CallRequest { call_id, tool, arguments, timeout, cap, trace, cancel, progress, person }).await
        }))
    }
}
