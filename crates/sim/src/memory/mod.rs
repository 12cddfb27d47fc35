//! Caches, address translation and memory.
