//! `vancetope trust`: what was allowed, and the ways to change that. Nothing here starts a pack or reaches its server.

use super::context::Context;
use super::failure::Failure;

mod allow;
mod args;
mod change;
mod desk;
mod list;
mod log;
mod review;
mod show;

pub(super) use args::{EXAMPLES, TrustCommand};

/// Runs the command.
pub(super) async fn trust(context: &mut Context, command: &TrustCommand) -> Result<u8, Failure> {
    match command {
        TrustCommand::List => list::list(context).await,
        TrustCommand::Show { pack } => show::show(context, pack).await,
        TrustCommand::Review => review::review(context).await,
        TrustCommand::Revoke(args) => change::revoke(context, args).await,
        TrustCommand::Deny { pack } => change::deny(context, pack).await,
        TrustCommand::Undeny { pack } => change::undeny(context, pack),
        TrustCommand::Prune => change::prune(context),
        TrustCommand::Log => log::log(context),
        TrustCommand::Allow { pack, digest } => allow::allow(context, pack, *digest),
    }
}
