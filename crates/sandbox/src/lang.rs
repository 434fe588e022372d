//! Languages and interpreters.
