//! Machines and workloads from files, with file, line and reason where they are wrong.
