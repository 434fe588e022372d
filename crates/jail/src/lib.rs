#![no_std]
//! The launcher.
