//! Where the fetched document of a project's pack leads: looked at after the consent that lets it be fetched, and before anything goes there.

use vance_rest::api::Api;
use vance_shared::launch::rest::Spec;
use vance_shared::launch::{LaunchPlan, Origin, Transport, TrustedLaunch};

use super::document;
use crate::handle::HostEnv;

/// The plan together with the hosts that its document leads to and the pack does not name: consent to that is another one. `None`: there are none, or
/// the document cannot be had; whoever starts the pack says why, and requests go nowhere else in any case.
pub async fn leads(launch: &TrustedLaunch, host: &HostEnv) -> Option<LaunchPlan> {
    let Transport::Rest(rest) = &launch.plan().transport else { return None };
    if launch.plan().origin != Origin::Project || rest.base_url.is_some() || !matches!(rest.spec, Spec::Url(_)) {
        return None;
    }
    let read = document::read(rest, Some(launch), host).await.ok()?;
    let of = rest.clone();
    let found = tokio::task::spawn_blocking(move || {
        let api = Api::load(read.document, &of);
        let leads = api.leads();
        (!leads.is_empty()).then(|| (leads.base.clone().map(String::from), leads.hosts.clone()))
    });
    let (base, hosts) = found.await.ok()??;
    let mut plan = launch.plan().clone();
    if let Transport::Rest(rest) = &mut plan.transport {
        (rest.document_base, rest.document_hosts) = (base, hosts);
    }
    Some(plan)
}
