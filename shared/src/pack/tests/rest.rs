//! `rest_api` packs: what is read, what is refused, all at once.

use std::time::Duration;

use crate::launch::rest::{Credential, Deprecated, Exposure, Refs, RestAuth, RestOAuth, RestPlan, Retry, Spec};
use crate::launch::{LaunchPlan, Origin, Transport};
use crate::pack::{PackBody, parse_pack};

fn pack(parameters: &str) -> String {
    format!("{{\"name\": \"p\", \"type\": \"rest_api\",\n\"parameters\": {{{parameters}}}}}")
}

fn plan(parameters: &str) -> RestPlan {
    let parsed = parse_pack("f", &pack(parameters), Origin::Global);
    assert_eq!(parsed.warnings, [], "{parameters}");
    match parsed.pack.unwrap_or_else(|| panic!("{:?}", parsed.problems)).body {
        PackBody::Launch(LaunchPlan { transport: Transport::Rest(plan), .. }) => *plan,
        PackBody::Launch(_) | PackBody::Nothing => panic!("not a rest_api pack"),
    }
}

#[test]
fn a_document_is_all_that_a_pack_must_name() {
    let read = plan("\"specUrl\": \"https://example.com/openapi.json\"");
    let mut want =
        RestPlan::new(read.pack.clone(), Origin::Global, Spec::Url("https://example.com/openapi.json".to_owned()));
    want.source = read.source.clone();
    assert_eq!(read, want);
}

#[test]
fn every_field_is_read() {
    let read = plan(
        r#""specFile": "./x.yaml", "specSha256": "0000000000000000000000000000000000000000000000000000000000000aAa",
        "baseUrl": "https://api.example.com/${env:TENANT}", "serverVariables": {"region": "us"}, "allowedHosts": ["Up.example.com"],
        "headers": {"Accept": "application/vnd.github+json"}, "include": ["tag:issues"], "exclude": ["DELETE *"], "idempotencyKey": ["POST *"],
        "methodLabels": {"post": ["write"]}, "labelOverrides": {"x": ["read-only"]}, "deferredOverrides": {"x": true}, "nameOverrides": {"x/y": "z"},
        "deprecated": "skip", "exposure": "search", "maxSchemaBytes": 2048, "refs": "inline", "timeoutSeconds": 5, "connectTimeoutSeconds": 2,
        "retry": {"max": 0, "maxWaitSeconds": 3}, "rate": {"concurrency": 9}, "maxResponseBytes": 4096, "maxResultBytes": 1024,
        "allowInsecureHttp": true, "allowPrivateNetwork": false,
        "auth": {"schemes": {"K": {"value": "${env:K}"}, "T": {"token": "t"}, "B": {"user": "u", "password": "p"}, "O": {"clientId": "i", "clientSecret": "s", "scopes": ["a"], "tokenUrl": "https://a.example/t"}}}"#,
    );
    assert_eq!(read.spec, Spec::File("./x.yaml".to_owned()));
    assert!(read.spec_sha256.is_some_and(|sum| sum.ends_with("aaa")));
    assert_eq!(read.base_url.as_deref(), Some("https://api.example.com/${env:TENANT}"));
    assert_eq!(read.server_variables["region"], "us");
    assert_eq!(read.allowed_hosts, Some(vec!["up.example.com".to_owned()]));
    assert_eq!(read.headers["Accept"], "application/vnd.github+json");
    assert_eq!((read.include, read.exclude), (vec!["tag:issues".to_owned()], vec!["DELETE *".to_owned()]));
    assert_eq!(read.idempotency_key, ["POST *"]);
    assert_eq!(read.method_labels["POST"], ["write"]);
    assert_eq!(read.label_overrides["x"], ["read-only"]);
    assert!(read.deferred_overrides["x"]);
    assert_eq!(read.name_overrides["x/y"], "z");
    assert_eq!((read.deprecated, read.exposure, read.refs), (Deprecated::Skip, Exposure::Search, Refs::Inline));
    assert_eq!((read.max_schema_bytes, read.max_response_bytes, read.max_result_bytes), (2048, 4096, 1024));
    assert_eq!((read.timeout, read.connect_timeout), (Duration::from_secs(5), Duration::from_secs(2)));
    assert_eq!((read.retry, read.concurrency), (Retry { max: 0, max_wait: Duration::from_secs(3) }, 9));
    assert_eq!((read.allow_insecure_http, read.allow_private_network), (true, false));
    let oauth = RestOAuth {
        client_id: "i".to_owned(),
        client_secret: Some("s".to_owned()),
        scopes: vec!["a".to_owned()],
        token_url: Some("https://a.example/t".to_owned()),
        refresh_token: None,
    };
    let schemes = [
        ("B", Credential::Basic { user: "u".to_owned(), password: "p".to_owned() }),
        ("K", Credential::Value("${env:K}".to_owned())),
        ("O", Credential::OAuth(oauth)),
        ("T", Credential::Token("t".to_owned())),
    ];
    assert_eq!(read.auth, RestAuth::Schemes(schemes.map(|(name, c)| (name.to_owned(), c)).into_iter().collect()));
}

#[test]
fn the_short_forms_of_auth_are_read() {
    let key = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    for (auth, want) in [
        ("\"none\"", RestAuth::None),
        (
            "{\"type\": \"bearer\", \"token\": \"t\"}",
            RestAuth::Header { name: "Authorization".to_owned(), value: "Bearer t".to_owned() },
        ),
        (
            "{\"basic\": {\"user\": \"u\", \"password\": \"p\"}}",
            RestAuth::Basic { user: "u".to_owned(), password: "p".to_owned() },
        ),
        ("{\"type\": \"apiKey\", \"headerName\": \"X-K\", \"value\": \"v\"}", {
            let (name, value) = key("X-K", "v");
            RestAuth::Header { name, value }
        }),
        ("{\"type\": \"apiKey\", \"in\": \"query\", \"name\": \"k\", \"value\": \"v\"}", {
            let (name, value) = key("k", "v");
            RestAuth::Query { name, value }
        }),
        (
            "{\"type\": \"oauth2\", \"clientId\": \"i\", \"clientSecret\": \"s\"}",
            RestAuth::OAuth(RestOAuth {
                client_id: "i".to_owned(),
                client_secret: Some("s".to_owned()),
                ..RestOAuth::default()
            }),
        ),
    ] {
        assert_eq!(plan(&format!("\"specInline\": {{}}, \"auth\": {auth}")).auth, want, "{auth}");
    }
}

#[test]
fn everything_that_is_wrong_is_said_at_once() {
    for (parameters, origin, want) in [
        (
            "",
            Origin::Global,
            &["2: `parameters` has no document, expected one of `specUrl`, `specFile`, `specInline`"][..],
        ),
        (
            "\"specUrl\": \"https://a.example/x\",\n\"specFile\": \"x\"",
            Origin::Global,
            &["3: `specUrl`, `specFile` are all there, expected one of them"],
        ),
        (
            "\"specUrl\": \"http://a.example/x\", \"baseUrl\": \"http://b.example\",\n\"exposure\": \"tool\", \"rate\": {\"concurrency\": 0}",
            Origin::Global,
            &[
                "2: `specUrl` is http: whoever is on the way could put in tools of their own; use https",
                "2: `baseUrl` is http: use https, or say \"allowInsecureHttp\": true",
                "3: `exposure` is 'tool', did you mean `tools`?",
                "3: `concurrency` is the number 0, expected a whole number from 1 to 64",
            ],
        ),
        (
            "\"specFile\": \"../x\", \"baseUrl\": \"https://${env:H}/x\"",
            Origin::Project,
            &[
                "2: `specFile` leaves the pack's folder; a pack of the working directory cannot do that",
                "2: `baseUrl` has ${env:NAME} in its host; a pack of the working directory cannot do that",
            ],
        ),
        (
            "\"specInline\": {}, \"specSha256\": \"0000000000000000000000000000000000000000000000000000000000000000\"",
            Origin::Project,
            &["2: `specSha256` has no meaning for `specInline`, remove it"],
        ),
        (
            "\"specInline\": [], \"specSha256\": \"x\", \"allowedHosts\": [\"a/b\"], \"include\": [\"\"],\n\"auth\": {\"schemes\": {\"K\": {\"value\": \"x\", \"token\": \"y\"}}}",
            Origin::Global,
            &[
                "2: `specInline` is a list, expected an OpenAPI document or its text",
                "2: `specSha256` is no SHA-256, expected 64 hexadecimal digits",
                "2: 'a/b' in `allowedHosts` is no host, expected uploads.example.com",
                "2: `include` holds an empty pattern, remove it",
                "3: a security scheme's credentials are unclear, expected exactly one of `value`, `token`, `user` with `password`, `clientId`",
            ],
        ),
    ] {
        let parsed = parse_pack("f", &pack(parameters), origin);
        let said: Vec<String> = parsed.problems.iter().map(|p| format!("{}: {}", p.line, p.message)).collect();
        assert_eq!(said, want, "{parameters}");
    }
}

#[test]
fn an_unknown_field_is_named_with_the_nearest_known_one() {
    let parsed = parse_pack(
        "f",
        &pack("\"specInline\": {},\n\"time_out_seconds\": 3,\n\"idempotencyKeys\": [\"*\"]"),
        Origin::Global,
    );
    assert!(parsed.pack.is_some(), "{:?}", parsed.problems);
    let said: Vec<String> = parsed.warnings.iter().map(|p| format!("{}: {}", p.line, p.message)).collect();
    assert_eq!(
        said,
        [
            "3: unknown field `time_out_seconds` in `parameters`, did you mean `timeoutSeconds`?",
            "4: unknown field `idempotencyKeys` in `parameters`, did you mean `idempotencyKey`?"
        ]
    );
}
