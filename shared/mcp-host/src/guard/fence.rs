//! Puts this process, and so all that it starts, behind the kernel's fence.

use crate::sandbox::Sandbox;

/// Restricts this process for good. An error means that nothing may be started: a fence that was asked for and does not stand is worse than none.
#[cfg(target_os = "linux")]
pub(super) fn enter(sandbox: &Sandbox) -> Result<(), String> {
    use landlock::{
        ABI, Access as _, AccessFs, CompatLevel, Compatible as _, Ruleset, RulesetAttr as _, RulesetCreatedAttr as _,
        RulesetStatus, Scope, path_beneath_rules,
    };
    // The first version's rights are a must, what newer kernels know besides is taken where it is.
    let newest = ABI::V6;
    let read = AccessFs::from_read(newest);
    let fence = || {
        Ruleset::default()
            .set_compatibility(CompatLevel::HardRequirement)
            .handle_access(AccessFs::from_all(ABI::V1))?
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(AccessFs::from_all(newest))?
            .scope(Scope::from_all(newest))?
            .create()?
            .add_rules(path_beneath_rules(&sandbox.read, read))?
            .add_rules(path_beneath_rules(&sandbox.write, AccessFs::from_all(newest)))?
            .restrict_self()
    };
    match fence() {
        Ok(status) if status.ruleset != RulesetStatus::NotEnforced => Ok(()),
        Ok(_) => Err(MISSING.to_owned()),
        Err(error) => Err(format!("{MISSING}: {error}")),
    }
}

/// Where the kernel has no such fence.
#[cfg(not(target_os = "linux"))]
pub(super) fn enter(_: &Sandbox) -> Result<(), String> {
    Err(MISSING.to_owned())
}

const MISSING: &str =
    "`sandbox: on` is set in permissions.yaml, but this system cannot enforce it (Linux 5.13 or newer with Landlock)";
