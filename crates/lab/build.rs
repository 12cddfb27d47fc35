//! The shipped experiments are embedded: what is new in their directory is to be seen.

fn main() {
    println!("cargo::rerun-if-changed=../../experiments");
}
