//! Task trees that are followed above the prompt.

use std::rc::Rc;

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::cli::args::RunArgs;
use crate::cli::context::Context;
use crate::cli::failure::Failure;
use crate::cli::foot::LocalFoot;
use crate::cli::interrupt::Interrupt;
use crate::cli::run;

/// Trees followed at once: more lines than these give nobody reads.
const MAX_FOLLOWED: usize = 8;

/// All of them.
#[derive(Default)]
pub(super) struct Runs {
    all: Vec<Followed>,
    tasks: JoinSet<(u64, Context, Result<u8, Failure>)>,
    next: u64,
}

struct Followed {
    number: u64,
    file: String,
    wishes: mpsc::Sender<Interrupt>,
    cancelled: bool,
}

/// How following one has ended.
pub(super) struct Ended {
    pub(super) result: Result<u8, Failure>,
    /// What it was followed with.
    pub(super) context: Context,
}

impl Runs {
    /// Submits a file and follows it. `wishes` are what `context` hears as interrupts.
    pub(super) fn start(
        &mut self,
        args: RunArgs,
        mut context: Context,
        wishes: mpsc::Sender<Interrupt>,
        foot: Rc<LocalFoot>,
    ) -> Result<(), Failure> {
        if self.all.len() >= MAX_FOLLOWED {
            let why =
                format!("{MAX_FOLLOWED} task trees are followed already; wait for one, or cancel one with Ctrl-C");
            return Err(Failure::Usage(why));
        }
        let (number, file) = (self.next, args.file.to_string_lossy().into_owned());
        self.next += 1;
        self.all.push(Followed { number, file, wishes, cancelled: false });
        self.tasks.spawn_local(async move {
            let result = run::run_on(&mut context, &args, &foot).await;
            drop(foot);
            (number, context, result)
        });
        Ok(())
    }

    /// The next one that ends. Waits for ever if none is followed. Safe to drop and call again.
    pub(super) async fn next(&mut self) -> Ended {
        loop {
            match self.tasks.join_next().await {
                Some(Ok((number, context, result))) => {
                    self.all.retain(|run| run.number != number);
                    return Ended { result, context };
                }
                Some(Err(error)) => tracing::error!("a task tree is not followed any more: {error}"),
                None => std::future::pending().await,
            }
        }
    }

    /// Cancels the tree that was started last and is not cancelled yet; false if there is none.
    pub(super) fn cancel(&mut self) -> bool {
        let Some(run) = self.all.iter_mut().rev().find(|run| !run.cancelled) else { return false };
        run.cancelled = true;
        run.wishes.try_send(Interrupt::CtrlC).is_ok()
    }

    /// How many are followed.
    pub(super) fn count(&self) -> usize {
        self.all.len()
    }

    /// Leaves all of them with the Brain.
    pub(super) async fn leave(&mut self) {
        for run in &self.all {
            if run.wishes.try_send(Interrupt::Terminate).is_err() {
                tracing::debug!("{} ends already", run.file);
            }
        }
        while !self.all.is_empty() {
            if self.tasks.is_empty() {
                return self.all.clear();
            }
            drop(self.next().await);
        }
    }
}
