//! The sandbox of this run, from the rules and the places they are about.

use std::path::Path;

use vance_foot_core::permissions::{Fence, Policy};
use vance_mcp_host::env;
use vance_mcp_host::sandbox::Sandbox;
use vance_shared::show::plain;

/// What programs may reach: what this machine's programs need, the working directory, the roots for reading, and what the rules add.
pub(super) fn of(fence: &Fence, policy: &Policy, roots: &[std::path::PathBuf]) -> Sandbox {
    let places = policy.places();
    let mut sandbox = Sandbox::of_machine(&env::ambient());
    sandbox.read.extend(roots.iter().cloned());
    sandbox.read.extend(fence.read(places));
    sandbox.write.push(places.working_dir.clone());
    sandbox.write.extend(fence.write(places));
    for folder in places.floor_folders().iter().filter(|folder| is_open(&sandbox, folder, &places.working_dir)) {
        tracing::warn!("the sandbox leaves {} open: a folder around it may be read", plain(&folder.to_string_lossy()));
    }
    sandbox
}

/// The project's own `.vancetope` lies in the project, which has to be open; file tools still refuse it.
fn is_open(sandbox: &Sandbox, folder: &Path, project: &Path) -> bool {
    sandbox.opens(folder) && !folder.starts_with(project)
}
