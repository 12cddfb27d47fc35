//! The name under which programs find the shared library at run time, and that it stays loaded: it has work to do when
//! the program and its threads exit.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libperch.so.0");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
