//! Embeds the shipped profiles anew when one is added or removed.

fn main() {
    println!("cargo:rerun-if-changed=../../profiles");
}
