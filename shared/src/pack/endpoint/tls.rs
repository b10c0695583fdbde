//! `tls`: certificates beyond the system's.

use super::super::{Report, references};
use crate::doc::Fields;
use crate::launch::{Origin, Tls};

/// Reads `tls`; what is absent is the system's way.
pub(in super::super) fn read(fields: &mut Fields<'_>, report: &Report<'_>) -> Tls {
    if fields.take("tls").is_none_or(|node| node.is_null()) {
        return Tls::default();
    }
    let Some(mut inner) = fields.take_fields("tls") else { return Tls::default() };
    let tls = Tls {
        ca_file: path(&mut inner, "caFile", report),
        client_cert_file: path(&mut inner, "clientCertFile", report),
        client_key_file: path(&mut inner, "clientKeyFile", report),
        insecure: inner.take_bool("insecure").unwrap_or(false),
    };
    if tls.client_key_file.is_some() {
        inner.require("clientCertFile", "the certificate that the key belongs to");
    }
    if tls.insecure {
        let line = inner.line_of("insecure");
        match report.origin {
            Origin::Project => report.problems.add(
                line,
                "`insecure` is not for a pack of the working directory; use `caFile` with the server's certificate",
            ),
            Origin::Global | Origin::Server => report.warnings.add(
                line,
                "`insecure`: the server's certificate is not verified, whoever is on the way can read and change everything",
            ),
        }
    }
    report.finish(&inner);
    tls
}

fn path(fields: &mut Fields<'_>, name: &'static str, report: &Report<'_>) -> Option<String> {
    let text = fields.take_str(name)?;
    references::check_literal(text, &format!("`{name}`"), fields.line_of(name), report);
    let whole = text.starts_with('/') || text.strip_prefix("~/").is_some_and(|rest| !rest.is_empty());
    if text.contains('\0') || text.is_empty() || (!whole && report.origin != Origin::Project) {
        fields.add(name, format!("`{name}` is no whole path, expected one such as /etc/ssl/acme.pem or ~/acme.pem"));
        return None;
    }
    Some(text.to_owned())
}
