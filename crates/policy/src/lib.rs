//! Placement policies, one paper a file.
