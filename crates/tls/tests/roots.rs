//! A host without root certificates. This is a separate program because it changes the environment variables that
//! point to them.

mod tls_pair;

use leadline_tls::{ClientTls, TlsOptions, TlsSetupError};
use tls_pair::client_options;

#[test]
fn host_roots_load_or_fail_in_one_line() {
    let options = TlsOptions { ca_pem: None, ..client_options("") };
    std::env::remove_var("SSL_CERT_DIR");
    std::env::set_var("SSL_CERT_FILE", "/nonexistent");
    let error = ClientTls::new(&options).unwrap_err();
    assert!(matches!(error, TlsSetupError::NoRoots(_)));
    let text = error.to_string();
    assert!(text.contains("no root certificates") && text.contains("CA file") && !text.contains('\n'), "{text}");
    assert!(ClientTls::new(&TlsOptions { verify: false, ..options.clone() }).is_ok());

    let file = std::env::temp_dir().join(format!("leadline-roots-{}.pem", std::process::id()));
    std::fs::write(&file, tls_pair::certificate().certificate_pem).unwrap();
    std::env::set_var("SSL_CERT_FILE", &file);
    let found = ClientTls::new(&options);
    std::fs::remove_file(&file).unwrap();
    assert!(found.is_ok());
}
