//! perch: see `perch --help`.

fn main() -> std::process::ExitCode {
    perch::main()
}
