//! perch: the command.
fn main() {}
