//! Calls without a task around them, as programs make them over the API: some are given up half-way, some are out when the Brain
//! dies. Nothing of them is stored, so what counts is the answer: what it says must be what the ledger says.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{sleep, timeout};
use vance_brain::api::direct::{DirectRequest, call};
use vance_brain::hub::Brain;
use vance_brain_core::spec::ExecutionTarget;
use vance_shared::json::Raw;
use vance_shared::trace::TraceContext;

use super::{OWNER, Shared};

/// Between two calls, at most.
const PAUSE_MS: u64 = 4_000;

/// One call, and what its caller was told.
#[derive(Debug, Clone)]
pub struct Direct {
    /// As the ledger knows it.
    pub step: String,
    /// It must not run twice.
    pub is_unsafe: bool,
    /// `done`, `failed`, …, or the code of a refusal; `None`: there was no answer.
    pub told: Option<String>,
    /// The step that the result came from.
    pub result_of: Option<String>,
    /// What is wrong with it.
    pub wrong: Option<String>,
}

/// Calls now and then, as long as there is trouble.
pub(super) async fn live(brain: Brain, shared: Shared) {
    loop {
        sleep(Duration::from_millis(fastrand::u64(500..PAUSE_MS))).await;
        let wanted = !super::lock(&shared.person).is_calm;
        if wanted {
            tokio::task::spawn_local(one(brain.clone(), shared.clone()));
        }
    }
}

async fn one(brain: Brain, shared: Shared) {
    let is_unsafe = fastrand::u32(0..3) > 0;
    let at = {
        let direct = &mut super::lock(&shared.person).direct;
        let step = format!("direct.{}", direct.len());
        direct.push(Direct { step, is_unsafe, told: None, result_of: None, wrong: None });
        direct.len() - 1
    };
    let step = format!("direct.{at}");
    let request = DirectRequest {
        owner: OWNER.to_owned(),
        tool: if is_unsafe { "unsafe_tool" } else { "safe_tool" }.to_owned(),
        arguments: Raw::from(json!({ "step": step })),
        session: None,
        client: None,
        target: ExecutionTarget::Auto,
        timeout: Some(Duration::from_secs(fastrand::u64(3..60))),
        durable: false,
        asks: false,
        idempotency_key: None,
        trace: TraceContext::root(),
    };
    // Callers hang up.
    let patience = Duration::from_millis(if fastrand::u32(0..4) == 0 { fastrand::u64(1..3_000) } else { 600_000 });
    let answer = timeout(patience, call(&brain, request)).await;
    let mut wrong = None;
    let (told, result_of) = match answer {
        Err(_) => ("hung up".to_owned(), None),
        Ok(Err(error)) => (error.fault.code, None),
        Ok(Ok(answer)) => {
            let body: Value = serde_json::from_str(&answer.body).unwrap_or_default();
            let result_of = body["result"]["structured"]["step"].as_str().map(str::to_owned);
            if result_of.is_some() {
                wrong = super::large::look(&mut super::lock(&shared.large), &body["result"]).err();
            }
            (body["call"]["outcome"].as_str().unwrap_or("?").to_owned(), result_of)
        }
    };
    shared.story.note(format!("the caller of {step}: {told}"));
    let direct = &mut super::lock(&shared.person).direct[at];
    (direct.told, direct.result_of, direct.wrong) = (Some(told), result_of, wrong);
}
