//! `vancetope login PACK`: the real program, an authorization server on this machine, and a browser that goes where it is sent.

use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use axum::Json;
use axum::Router;
use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use serde_json::{Value, json};

use crate::packs::Place;

#[derive(serde::Deserialize)]
struct Asked {
    redirect_uri: String,
    state: String,
}

/// An MCP server that wants a login, and who gives it.
async fn server() -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let app = Router::new()
        .route("/mcp", post(refuse))
        .route("/.well-known/oauth-protected-resource/mcp", get(resource))
        .route("/.well-known/oauth-authorization-server", get(issuer))
        .route("/register", post(register))
        .route("/authorize", get(authorize))
        .route("/token", post(token))
        .with_state(base.clone());
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    base
}

async fn refuse(State(base): State<String>) -> Response {
    let challenge = format!("Bearer resource_metadata=\"{base}/.well-known/oauth-protected-resource/mcp\"");
    (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, challenge)]).into_response()
}

async fn resource(State(base): State<String>) -> Json<Value> {
    Json(json!({"resource": format!("{base}/mcp"), "authorization_servers": [base], "scopes_supported": ["mcp:use"]}))
}

async fn issuer(State(base): State<String>) -> Json<Value> {
    Json(json!({
        "issuer": base, "authorization_endpoint": format!("{base}/authorize"), "token_endpoint": format!("{base}/token"),
        "registration_endpoint": format!("{base}/register"), "response_types_supported": ["code"],
        "code_challenge_methods_supported": ["S256"], "grant_types_supported": ["authorization_code", "refresh_token"],
        "token_endpoint_auth_methods_supported": ["none"],
    }))
}

async fn register(Json(client): Json<Value>) -> Response {
    let body = json!({"client_id": "client", "redirect_uris": client["redirect_uris"]});
    (StatusCode::CREATED, Json(body)).into_response()
}

async fn authorize(Query(asked): Query<Asked>) -> Response {
    let back = format!("{}?code=code&state={}", asked.redirect_uri, asked.state);
    (StatusCode::FOUND, [(header::LOCATION, back)]).into_response()
}

async fn token() -> Json<Value> {
    Json(
        json!({"access_token": "access", "token_type": "Bearer", "expires_in": 3600, "scope": "mcp:use", "refresh_token": "refresh"}),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_in_the_browser_is_kept_for_every_process_of_the_home_and_can_be_forgotten() {
    // Another test of this process may have been first.
    drop(rustls::crypto::ring::default_provider().install_default());
    let place = Place::new();
    let pack = json!({"name": "h", "type": "mcp_server", "parameters": {"transport": "http", "url": format!("{}/mcp", server().await)}});
    place.put("vance/foot-tools/h.json", &pack.to_string());
    let mut command = place.program(&["login", "h"]);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let stderr = BufReader::new(child.stderr.take().unwrap());
    let read = move || {
        let mut lines = stderr.lines().map_while(Result::ok);
        let address =
            lines.find_map(|line| line.split_once("open in a browser on this machine: ").map(|(_, a)| a.to_owned()));
        (address, lines)
    };
    let (address, rest) = tokio::task::spawn_blocking(read).await.unwrap();
    let page = reqwest::get(address.expect("an address to open")).await.unwrap();
    assert!(page.status().is_success(), "{page:?}");
    let end = move || {
        let status = child.wait().unwrap();
        let mut out = String::new();
        child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
        (status.code(), out, rest.collect::<Vec<_>>())
    };
    let (exit, out, err) = tokio::task::spawn_blocking(end).await.unwrap();
    assert!(exit == Some(0) && out.starts_with("h: logged in by http://127.0.0.1:"), "{exit:?} {out} {err:?}");
    let folder = place.path("vance/state/oauth");
    let kept: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    let token = kept.iter().find(|path| path.extension().is_some_and(|e| e == "json")).expect("the login is kept");
    assert_eq!(token.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let forgotten = tokio::task::spawn_blocking(move || place.run(&["login", "h", "--forget"])).await.unwrap();
    assert_eq!((forgotten.exit, forgotten.out.as_str()), (0, "h: the login is forgotten\n"), "{forgotten:?}");
}
