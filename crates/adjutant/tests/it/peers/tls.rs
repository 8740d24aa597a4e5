//! Connections to hubs with a certificate.

use super::Pair;
use crate::support::{TestHome, tls_fixture};
use adjutant_api::view::AddPeer;
use std::os::unix::fs::PermissionsExt;

/// Gives the office the certificate for `localhost` of the fixtures' authority.
fn secure(office: &TestHome) {
    office.ok(&["stop"]);
    for (fixture, mode) in [("server.pem", 0o644), ("server.key", 0o600)] {
        let path = office.home.dir.join(fixture);
        std::fs::copy(tls_fixture(fixture), &path).expect("copied");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("a mode");
    }
    let path = office.home.dir.join("config.toml");
    let config = std::fs::read_to_string(&path).expect("a configuration");
    std::fs::write(
        path,
        format!("{config}[tls]\ncert = \"server.pem\"\nkey = \"server.key\"\n"),
    )
    .expect("written");
    office.ok(&["ps"]);
}

/// Replaces the hub of a home by one for which the authority of the fixtures is installed, or is
/// not.
fn start_hub(home: &TestHome, is_installed: bool) {
    home.ok(&["stop"]);
    let mut first = home.command(&["ps"]);
    if is_installed {
        first.env("SSL_CERT_FILE", tls_fixture("authority.pem"));
    }
    assert!(first.output().expect("adj can be started").status.success());
}

#[test]
fn certificate_is_verified_by_authority_and_name_or_by_fingerprint() {
    let pair = Pair::strangers();
    secure(&pair.office);
    let invited = pair.office.json(&["peer", "invite", "lab"]);
    let (token, right) = (
        invited["token"].as_str().expect("a token"),
        invited["own_fingerprint"].as_str().expect("a fingerprint"),
    );
    let wrong = "ab".repeat(32);
    let colons = format!(
        "SHA256:{}",
        right
            .to_uppercase()
            .as_bytes()
            .chunks(2)
            .map(String::from_utf8_lossy)
            .collect::<Vec<_>>()
            .join(":")
    );
    let rows = [
        (false, "localhost", None, "UnknownIssuer"),
        (
            false,
            "localhost",
            Some(wrong.as_str()),
            "the certificate is another one",
        ),
        // With its fingerprint, neither authority nor name count.
        (false, "127.0.0.1", Some(right), ""),
        (false, "127.0.0.1", Some(&colons), ""),
        (true, "127.0.0.1", None, "not valid for name"),
        (
            true,
            "localhost",
            Some(&wrong),
            "the certificate is another one",
        ),
        (true, "localhost", None, ""),
    ];
    for (n, (is_installed, host, fingerprint, expected)) in rows.into_iter().enumerate() {
        start_hub(&pair.lab, is_installed);
        let url = format!("https://{host}:{}", pair.port);
        let fingerprint = fingerprint.map(str::to_owned);
        let call = AddPeer {
            name: "office".to_owned(),
            url,
            token: token.to_owned(),
            fingerprint: fingerprint.clone(),
            plain: false,
        };
        pair.lab.call(&call, &n.to_string()).expect("added");
        let shown = pair.lab.json(&["peer", "show", "office"]);
        let problem = shown["problem"].as_str().unwrap_or_default();
        let is_as_expected = if expected.is_empty() {
            problem.is_empty()
        } else {
            problem.contains(expected)
        };
        assert!(
            is_as_expected,
            "{is_installed} {host} {fingerprint:?}: {problem:?}, expected {expected:?}"
        );
    }
}
