//! The local floor with the SDK's types: HTTP, the SDK's client, a child's pipe, and back.

use std::process::Stdio;

use anyhow::Context as _;
use rmcp::ServiceExt as _;
use rmcp::model::CallToolRequestParams;
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio::sync::mpsc;
use tokio::task::spawn_local;

use super::floor::{QUEUE, Sent, Waiting, accept};

/// Serves until it is killed.
pub(crate) async fn local() -> anyhow::Result<()> {
    #[allow(clippy::disallowed_methods)] // it ends with its input
    let mut command = Command::new(std::env::current_exe()?);
    let child = command.arg("echo").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let pipes = (child.stdout.context("stdout")?, child.stdin.context("stdin")?);
    let service = ().serve(pipes).await?;
    let http = TcpListener::bind("127.0.0.1:0").await?;
    let (requests, mut queue) = mpsc::channel::<Sent>(QUEUE);
    let waiting = Waiting::default();
    let (answers, peer) = (waiting.clone(), service.peer().clone());
    spawn_local(async move {
        while let Some((id, body)) = queue.recv().await {
            let (answers, peer) = (answers.clone(), peer.clone());
            spawn_local(async move {
                let params: CallToolRequestParams = serde_json::from_str(&body)?;
                let result = peer.call_tool(params).await?;
                answers.answer(id, serde_json::to_string(&result)?);
                anyhow::Ok(())
            });
        }
    });
    println!("ready {}", http.local_addr()?);
    accept(http, requests, waiting).await
}
