//! The way out, from outside: decisions, the gate with a real airlock, and hotcell's own client. Servers and
//! names are the tests' own, on loopback.

mod client;
mod decide;
mod gate;
mod support;
