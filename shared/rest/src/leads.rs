//! The hosts that requests may go to, and where a document leads beyond them.

use std::collections::BTreeSet;

use url::Url;
use vance_shared::call::Fault;
use vance_shared::launch::Origin;
use vance_shared::launch::rest::{RestPlan, Spec};
use vance_shared::show::quoted;

use crate::error::Code;
use crate::operation::{Base, Operation};
use crate::server;

/// Hosts that a warning names.
const MAX_NAMED: usize = 8;

/// The hosts that requests may go to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Hosts {
    /// Every server that the document names: the pack holds the document itself and says nothing against it.
    Documents,
    /// These: `host`, `host:port` or an origin.
    Listed(Vec<String>),
}

impl Hosts {
    /// A document that lies in the pack or beside it is its author's own word; one from elsewhere, or a project's, cannot widen the reach. The base
    /// of a document that a project's pack has fetched is no exception: nobody said yes to that host unless they were asked.
    pub(crate) fn of(plan: &RestPlan, base: Option<&Url>) -> Self {
        let is_own = plan.origin != Origin::Project;
        let mut listed = match (&plan.allowed_hosts, &plan.spec) {
            (Some(hosts), _) => hosts.clone(),
            (None, Spec::File(_) | Spec::Inline(_)) if is_own => return Self::Documents,
            (None, Spec::Url(_) | Spec::File(_) | Spec::Inline(_)) => Vec::new(),
        };
        let origin = |url: &Url| url.origin().ascii_serialization();
        let parsed = |text: &str| Url::parse(text).ok().map(|url| origin(&url));
        listed.extend(plan.base_url.as_deref().and_then(parsed));
        match (&plan.spec, &plan.base_url) {
            (Spec::Url(url), None) if !is_own => listed.extend(parsed(url)),
            (Spec::Url(_), Some(_)) if !is_own => {}
            (Spec::File(_) | Spec::Inline(_), Some(_)) if !is_own => {}
            (Spec::Url(_) | Spec::File(_) | Spec::Inline(_), _) => listed.extend(base.map(origin)),
        }
        listed.extend(plan.leads().into_iter().filter_map(parsed));
        Self::Listed(listed)
    }

    /// Whether a request may go there.
    pub(crate) fn check(&self, url: &Url) -> Result<(), Fault> {
        if self.allow(url) {
            return Ok(());
        }
        let shown = quoted(&url.origin().ascii_serialization(), 200);
        Err(Code::HostNotAllowed
            .fault(format!("the document sends this to {shown}: add the host to `allowedHosts` if that is right")))
    }

    fn allow(&self, url: &Url) -> bool {
        match self {
            Self::Documents => true,
            Self::Listed(listed) => listed.iter().any(|allowed| is_host(allowed, url)),
        }
    }
}

/// `host` (with the usual port), `host:port`, or an origin.
fn is_host(allowed: &str, url: &Url) -> bool {
    match Url::parse(&if allowed.contains("://") {
        allowed.to_owned()
    } else {
        format!("{}://{allowed}", url.scheme())
    }) {
        Ok(allowed) => allowed.origin() == url.origin(),
        Err(_) => false,
    }
}

/// Where a document's servers lead although requests may not go there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Leads {
    /// The document's own base, if that is such a place.
    pub base: Option<Url>,
    /// Origins of servers that single operations or paths have.
    pub hosts: Vec<String>,
    /// How many of the offered operations cannot be called because of that.
    operations: usize,
}

impl Leads {
    /// Looks at the servers of what is offered. A pack with a base of its own goes nowhere else.
    pub(crate) fn of(operations: &[Operation], base: &Result<Url, Fault>, hosts: &Hosts, plan: &RestPlan) -> Self {
        let mut leads = Self::default();
        if plan.base_url.is_some() {
            return leads;
        }
        let elsewhere = |url: &Url| server::is_usable(url, plan.allow_insecure_http) && !hosts.allow(url);
        let base = base.as_ref().ok().filter(|url| elsewhere(url));
        let mut found = BTreeSet::new();
        for operation in operations {
            match &operation.base {
                Base::Document => {
                    leads.operations += usize::from(base.is_some());
                    leads.base = leads.base.or_else(|| base.cloned());
                }
                Base::Own(own) => {
                    if let Some(url) = own.as_ref().as_ref().ok().filter(|url| elsewhere(url)) {
                        leads.operations += 1;
                        found.insert(url.origin().ascii_serialization());
                    }
                }
            }
        }
        leads.hosts = found.into_iter().collect();
        leads
    }

    /// Whether it leads nowhere else.
    pub fn is_empty(&self) -> bool {
        self.operations == 0
    }

    /// What a person should know, and what to write if it is right.
    pub(crate) fn warning(&self, plan: &RestPlan) -> Option<String> {
        if self.is_empty() {
            return None;
        }
        let base = self.base.as_ref().map(|url| url.origin().ascii_serialization());
        let all: BTreeSet<&str> = base.iter().chain(&self.hosts).map(String::as_str).collect();
        let named: Vec<String> =
            all.iter().take(MAX_NAMED).map(|host| format!("\"{}\"", vance_shared::show::plain(host))).collect();
        let more = if all.len() > named.len() { ", …" } else { "" };
        let ask = match (plan.origin, &plan.spec) {
            (Origin::Project, Spec::Url(_)) => ", or load it in a terminal, where it asks",
            (Origin::Project | Origin::Global | Origin::Server, _) => "",
        };
        Some(format!(
            "its document sends {} operation(s) to hosts that the pack does not name, and their calls fail with host_not_allowed: if that is right, write \"allowedHosts\": [{}{more}]{ask}",
            self.operations,
            named.join(", ")
        ))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_host_is_allowed_by_its_name_and_port() {
        let url = |text: &str| Url::parse(text).unwrap_or_else(|e| panic!("{e}"));
        for (allowed, address, want) in [
            ("a.example", "https://a.example/x", true),
            ("a.example", "https://a.example:8443/x", false),
            ("a.example:8443", "https://a.example:8443/x", true),
            ("https://a.example", "https://a.example/", true),
            ("https://a.example", "http://a.example/", false),
            ("a.example", "https://b.a.example/", false),
        ] {
            assert_eq!(is_host(allowed, &url(address)), want, "{allowed} {address}");
        }
    }
}
