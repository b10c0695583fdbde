//! Who runs tools: the Foot itself, and the servers of packs.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;
use vance_mcp_host::{CallRequest, McpHandle};
use vance_shared::call::Outcome;
use vance_shared::ids::CallId;
use vance_shared::names::ToolName;

use super::catalogue::{ToolCall, ToolHost};
use crate::native::{NativeCall, NativeTools};

/// The Foot's own tools.
pub(crate) struct Native(pub(crate) Arc<NativeTools>);

impl ToolHost for Native {
    fn call(&self, call: ToolCall) -> BoxFuture<'static, Outcome> {
        let tools = Arc::clone(&self.0);
        let ToolCall { call_id, tool, arguments, timeout, cancel, progress, .. } = call;
        let call = NativeCall { call_id, tool, arguments, timeout, cancel, progress: Some(progress) };
        // Off the actor thread: these tools read files and walk folders.
        let work = tokio::spawn(async move { tools.call(call).await });
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
    fn refusal(
        &self,
        call_id: CallId,
        tool: ToolName,
        timeout: Duration,
        cancel: CancellationToken,
    ) -> BoxFuture<'static, Option<Outcome>>;
}

/// The rules of `permissions.yaml`, and the person.
pub(crate) struct ByRules(pub(crate) Arc<NativeTools>);

impl Permit for ByRules {
    fn refusal(
        &self,
        call_id: CallId,
        tool: ToolName,
        timeout: Duration,
        cancel: CancellationToken,
    ) -> BoxFuture<'static, Option<Outcome>> {
        let tools = Arc::clone(&self.0);
        Box::pin(async move { tools.refusal(&call_id, &tool, timeout, &cancel).await })
    }
}

/// A pack's server.
pub(crate) struct Mcp {
    pub(crate) handle: McpHandle,
    pub(crate) permit: Arc<dyn Permit>,
}

impl ToolHost for Mcp {
    fn call(&self, call: ToolCall) -> BoxFuture<'static, Outcome> {
        let (handle, permit) = (self.handle.clone(), Arc::clone(&self.permit));
        Box::pin(async move {
            let ToolCall { call_id, tool, arguments, timeout, cap, trace, cancel, progress } = call;
            if let Some(refusal) = permit.refusal(call_id.clone(), tool.clone(), timeout, cancel.clone()).await {
                return refusal;
            }
            let progress =
                Some(Arc::new(move |said: vance_mcp_host::Progress| progress(said.fraction, said.message)) as _);
            handle.call(CallRequest { call_id, tool, arguments, timeout, cap, trace, cancel, progress }).await
        })
    }
}
