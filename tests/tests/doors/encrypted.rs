//! TLS of the Brain's own, with a certificate that only these machines believe.

use anyhow::Context as _;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use vance_tests::api::Api;
use vance_tests::home::Home;
use vance_tests::process::{Brain, Process, run};
use vance_tests::wait::until;

/// An authority of one's own.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn new() -> anyhow::Result<Self> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate()?;
        let pem = params.self_signed(&key)?.pem();
        Ok(Self { issuer: Issuer::new(params, key), pem })
    }

    /// Gives a home's Brain a certificate for `localhost`.
    fn certify(&self, home: &Home) -> anyhow::Result<()> {
        let key = KeyPair::generate()?;
        let certificate = CertificateParams::new(vec!["localhost".to_owned()])?.signed_by(&key, &self.issuer)?;
        home.write("brain/tls.key", &key.serialize_pem())?;
        home.write("brain/tls.pem", &certificate.pem())?;
        Ok(())
    }
}

async fn start(home: &Home) -> anyhow::Result<(Brain, String)> {
    home.write("brain/brain.yaml", "tls: {cert: tls.pem, key: tls.key}\n")?;
    let brain = Brain::start(home).await?;
    let port = brain.url.strip_prefix("https://127.0.0.1:").with_context(|| brain.url.clone())?.to_owned();
    Ok((brain, format!("https://localhost:{port}")))
}

#[tokio::test]
async fn a_foot_comes_over_an_encrypted_line_by_an_authority_of_ones_own() -> anyhow::Result<()> {
    let home = Home::new()?;
    let authority = Authority::new()?;
    authority.certify(&home)?;
    let (brain, url) = start(&home).await?;
    let ca = home.write("ca.pem", &authority.pem)?;
    let ca = ca.to_str().context("a path")?;
    let api = Api::new(&home, &url)?.believing(&authority.pem)?;
    home.write_project("a.txt", "hello")?;
    let words = ["--daemon", "--brain", url.as_str()];
    let mut foot = Process::start_with("vancetope", &home, &words, &[("SSL_CERT_FILE", ca)])?;
    foot.line("foot ready").await?;
    api.until_available("default.local", "read_local_file").await?;
    let (status, called) = api.call("read_local_file", &json!({"arguments": {"path": "a.txt"}})).await?;
    assert_eq!((status, &called["result"]["text"]), (200, &json!("hello")), "{called}");
    // Who does not believe it hears that, and what to do.
    let stranger = run("vancetope", &home, &["doctor", "--brain", &url]).await?;
    let said = format!("{}{}", stranger.stdout, stranger.stderr);
    assert!(said.contains("SSL_CERT_FILE"), "{said}");
    // Nothing is spoken in clear.
    let mut plain = tokio::net::TcpStream::connect(brain.url.trim_start_matches("https://")).await?;
    plain.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await?;
    let mut answer = String::new();
    plain.read_to_string(&mut answer).await?;
    assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("not_encrypted"), "{answer}");
    Ok(())
}

#[tokio::test]
async fn a_renewed_certificate_is_taken_without_a_restart() -> anyhow::Result<()> {
    let home = Home::new()?;
    let (old, new) = (Authority::new()?, Authority::new()?);
    old.certify(&home)?;
    let (_brain, url) = start(&home).await?;
    let api = Api::new(&home, &url)?;
    let (old_api, new_api) = (api.believing(&old.pem)?, api.believing(&new.pem)?);
    assert_eq!(old_api.get("/healthz").await?.0, 200);
    assert!(new_api.get("/healthz").await.is_err());
    new.certify(&home)?;
    until("the new certificate is shown", || async { Ok(new_api.get("/healthz").await.ok()) }).await?;
    assert!(api.believing(&old.pem)?.get("/healthz").await.is_err(), "the old one is gone");
    Ok(())
}

#[tokio::test]
async fn beyond_this_machine_nothing_travels_in_clear_unless_somebody_says_so() -> anyhow::Result<()> {
    let home = Home::new()?;
    let refused = run("vance-brain", &home, &["serve", "--listen", "0.0.0.0:0"]).await?;
    assert_eq!(refused.code, 2);
    for part in ["tls: {cert: FILE, key: FILE}", "allow_insecure: true"] {
        assert!(refused.stderr.contains(part), "{}", refused.stderr);
    }
    Authority::new()?.certify(&home)?;
    home.write("brain/brain.yaml", "tls: {cert: tls.pem, key: nothing.key}\n")?;
    let broken = run("vance-brain", &home, &["serve", "--listen", "0.0.0.0:0"]).await?;
    assert!(broken.code == 2 && broken.stderr.contains("nothing.key"), "{}", broken.stderr);
    home.write("brain/brain.yaml", "tls: {cert: tls.pem, key: tls.key}\n")?;
    let brain = Brain::start_on(&home, "0.0.0.0:0").await?;
    assert!(brain.url.starts_with("https://0.0.0.0:"), "{}", brain.url);
    Ok(())
}
