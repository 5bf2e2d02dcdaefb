//! A real nginx serves beside the Origin, on machines that have one.
#![allow(clippy::unwrap_used, reason = "a failure here is the failure of a test")]

mod common;

use std::io;
use std::net::TcpStream;
use std::path::Path;

use common::{get, get_range};
use tidegate_testkit::nginx::BINARY;
use tidegate_testkit::{Body, Nginx};

#[test]
fn nginx_serves_files_and_ranges_where_there_is_one() {
    let home = tempfile::tempdir().unwrap();
    let body = Body::random(1, 100_000);
    std::fs::write(home.path().join("file.bin"), body.to_vec()).unwrap();
    let nginx = match std::env::var_os("NGINX") {
        Some(binary) => Nginx::start_binary(Path::new(&binary), home.path()).unwrap(),
        None => match Nginx::start(home.path()) {
            Some(nginx) => nginx,
            None => {
                assert!(!Path::new(BINARY).exists(), "there is an nginx, but it does not start");
                return;
            }
        },
    };
    assert_eq!(get(nginx.address(), "/file.bin").body, body.to_vec());
    assert_eq!(get_range(nginx.address(), "/file.bin", "10-19").body, body.bytes_of(10..20));
    let address = nginx.address();
    drop(nginx);
    assert_eq!(TcpStream::connect(address).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
}

#[test]
fn a_binary_that_does_not_start_is_an_error() {
    let home = tempfile::tempdir().unwrap();
    assert!(Nginx::start_binary(Path::new("/bin/false"), home.path()).is_err());
    assert!(Nginx::start_binary(Path::new("/none"), home.path()).is_err());
}
