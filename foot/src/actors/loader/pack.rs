//! A pack that is loaded.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::task::TaskTracker;
use vance_shared::launch::TrustedLaunch;
use vance_shared::show::plain;
use vance_shared::tool::ToolSpec;
use vance_shared::wire::{WireTool, encode};

use crate::actors::announce::TOOL_BYTES;
use crate::actors::catalogue::{Tool, ToolHost};

/// How long the calls of a pack that is replaced or taken away may go on. Longer ones end with their server.
const FINISH_WITHIN: Duration = Duration::from_secs(30);

pub(super) struct Pack {
    pub(super) launch: TrustedLaunch,
    /// Which start of this loader's it is.
    pub(super) start: u64,
    pub(super) host: Arc<dyn ToolHost>,
    /// Its calls that run.
    pub(super) calls: TaskTracker,
    pub(super) tools: Vec<Arc<Tool>>,
    pub(super) state: State,
    /// What a person should know of it although it is up.
    pub(super) note: Option<String>,
    /// The load does not wait for it any more.
    pub(super) is_settled: bool,
}

pub(super) enum State {
    /// Starting, or starting again.
    Loading(Option<String>),
    Up,
    Failed(String),
}

/// The name of a pack's supervisor among the servers.
pub(super) fn supervisor(pack: &str) -> String {
    format!("pack:{pack}")
}

impl Pack {
    pub(super) fn is_failed(&self) -> bool {
        matches!(self.state, State::Failed(_))
    }

    pub(super) fn offer(&mut self, tools: Vec<ToolSpec>) {
        self.state = State::Up;
        self.is_settled = true;
        self.tools = tools
            .into_iter()
            .filter(|spec| {
                let bytes = encode(&WireTool::from(spec)).len();
                if bytes > TOOL_BYTES {
                    tracing::warn!(
                        "tool {} is not offered: its description has {bytes} bytes, at most {TOOL_BYTES} travel",
                        spec.name
                    );
                }
                bytes <= TOOL_BYTES
            })
            .map(|spec| Arc::new(Tool { spec, host: Arc::clone(&self.host) }))
            .collect();
    }

    pub(super) fn fail(&mut self, name: &str, reason: &str) {
        let reason = plain(reason);
        tracing::warn!(target: super::TOLD, "pack '{name}' has failed: {reason}");
        self.tools.clear();
        self.state = State::Failed(reason);
        self.is_settled = true;
    }

    /// Waits until its calls have ended, for a while.
    pub(super) async fn finish(&self, name: &str) {
        self.calls.close();
        if tokio::time::timeout(FINISH_WITHIN, self.calls.wait()).await.is_err() {
            let (calls, seconds) = (self.calls.len(), FINISH_WITHIN.as_secs());
            tracing::warn!("{calls} call(s) of pack '{name}' still run after {seconds} s; they end with its server");
        }
    }
}
