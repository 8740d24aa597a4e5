//! Links the binary at a fixed address on Linux. A position-independent one is relocated in
//! each process, which costs half a megabyte of unshared memory; two small processes of it live
//! beside each agent. Stack, heap and libraries are still placed at random.

#![expect(
    clippy::disallowed_methods,
    reason = "this is how a build script and cargo speak to each other"
)]

fn main() {
    let is_linux_gnu = std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux")
        && std::env::var("CARGO_CFG_TARGET_ENV").is_ok_and(|env| env == "gnu");
    if is_linux_gnu {
        println!("cargo::rustc-link-arg-bins=-no-pie");
    }
    println!("cargo::rerun-if-changed=build.rs");
}
