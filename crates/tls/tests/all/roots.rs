//! A host without root certificates, and one with a single one: the environment names the file.

use std::process::Command;

use crate::tls_pair::{certificate, client_options};
use leadline_tls::{ClientSettings, ClientTls, TlsOptions, TlsSetupError};

/// Runs a test in a separate process whose environment names this file of root certificates.
fn passes_with_roots(name: &str, file: &str) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", &format!("roots::{name}")]);
    let child = command.env_remove("SSL_CERT_DIR").env("SSL_CERT_FILE", file).output().unwrap();
    let stdout = String::from_utf8_lossy(&child.stdout);
    assert!(
        child.status.success() && stdout.contains("1 passed"),
        "{stdout}{}",
        String::from_utf8_lossy(&child.stderr)
    );
}

#[test]
fn host_roots_load_or_fail_in_one_line() {
    passes_with_roots("missing_roots_fail_in_one_line", "/nonexistent");

    let file = std::env::temp_dir().join(format!("leadline-roots-{}.pem", std::process::id()));
    std::fs::write(&file, certificate().certificate_pem).unwrap();
    passes_with_roots("roots_of_the_environment_load", file.to_str().unwrap());
    // It removes the file.
    passes_with_roots("further_servers_read_no_roots", file.to_str().unwrap());
    assert!(!file.exists());
}

#[test]
#[ignore = "runs in a separate process, started by the test above"]
fn missing_roots_fail_in_one_line() {
    let options = TlsOptions { ca_pem: None, ..client_options("") };
    let error = ClientTls::new(&options).unwrap_err();
    assert!(matches!(error, TlsSetupError::NoRoots(_)));
    let text = error.to_string();
    assert!(text.contains("no root certificates") && text.contains("CA file") && !text.contains('\n'), "{text}");
    assert!(ClientTls::new(&TlsOptions { verify: false, ..options.clone() }).is_ok());
}

#[test]
#[ignore = "runs in a separate process, started by the test above"]
fn further_servers_read_no_roots() {
    let options = TlsOptions { ca_pem: None, ..client_options("") };
    let settings = ClientSettings::new(&options).unwrap();
    std::fs::remove_file(std::env::var_os("SSL_CERT_FILE").unwrap()).unwrap();
    // A second verifier could not be made any more.
    assert!(matches!(ClientSettings::new(&options), Err(TlsSetupError::NoRoots(_))));
    assert!(settings.server("a.test").is_ok() && settings.server("b.test").is_ok());
    assert!(matches!(settings.server("no name"), Err(TlsSetupError::ServerName(_))));
}

#[test]
#[ignore = "runs in a separate process, started by the test above"]
fn roots_of_the_environment_load() {
    assert!(ClientTls::new(&TlsOptions { ca_pem: None, ..client_options("") }).is_ok());
}
