//! Seccomp profiles.
