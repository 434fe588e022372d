//! Waiting for somebody to agree, and what is said meanwhile. Ctrl-C ends the waiting, and not what is
//! waited for.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use hotcell_api::Called;
use hotcell_approver::ItemId;
use hotcell_engine::Attached;
use hotcell_types::Status;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use crate::kernel::Kernel;
use crate::print::{self, harmless};
use crate::problem::Problem;
use crate::{exit, tool};

/// What to do about a call that somebody has to agree to.
#[derive(Debug, clap::Args)]
pub(crate) struct AskArgs {
    /// If no rule speaks of it, put it before a person instead of refusing it
    #[arg(long)]
    pub(crate) ask: bool,
    /// If somebody has to agree first, do not wait for that: exit with 119
    #[arg(long)]
    pub(crate) no_wait: bool,
}

/// Says what is waited for, and how to answer.
pub(crate) fn announce(reply: &Called) {
    let Some(item) = &reply.review else { return };
    for problem in &reply.problems {
        let (what, why) = (harmless(&problem.what), harmless(&problem.why));
        print::to_people(&format!("hotcell: {what}: {why}\n"));
    }
    print::to_people(&format!(
        "hotcell: an approver looks at it with `hotcell approvals show {item}`, and answers with \
         `hotcell approve {item}` or `hotcell reject {item}`\n"
    ));
}

/// The item in which a call waits.
pub(crate) fn item_of(reply: &Called) -> Option<ItemId> {
    reply.review.as_ref().and_then(|item| item.parse().ok())
}

/// Waits, has it carried out when somebody has agreed, and prints what came of it.
pub(crate) fn to_the_end(kernel: &Kernel, item: ItemId, json: bool) -> Result<u8, Problem> {
    let signals = Signals::catch().map_err(|error| {
        Problem::error("catching signals failed").why(hotcell_sandbox::cause(&error))
    })?;
    let begun = Arc::clone(&signals.by_default);
    let started = Box::new(move |_| begun.store(true, Ordering::SeqCst));
    let attached = Attached { started: Some(started), ..Attached::default() };
    let reply = kernel.wait(item, &signals.interrupt, attached)?;
    Ok(match signals.first().filter(|_| reply.status == Status::Review) {
        Some(signal) => left(&reply, signal, json.then(|| tool::document(&reply))),
        None => tool::tell(&reply, json),
    })
}

/// Whoever stopped waiting is told how to come back; a program by a document.
pub(crate) fn left(reply: &Called, signal: u8, document: Option<String>) -> u8 {
    let code = exit::SIGNAL.saturating_add(signal);
    if let Some(item) = &reply.review {
        print::to_people(&format!(
            "hotcell: it still waits; come back with `hotcell approvals wait {item}`, or take it back with \
             `hotcell approvals cancel {item}`\n"
        ));
    }
    document.map_or(code, |document| print::data_and(&document, code))
}

/// While nothing runs, a signal ends the waiting; after that it does what it does by default.
struct Signals {
    interrupt: Arc<AtomicBool>,
    by_default: Arc<AtomicBool>,
    /// Zero until there is one.
    first: Arc<AtomicUsize>,
}

impl Signals {
    fn catch() -> io::Result<Signals> {
        let signals = Signals {
            interrupt: Arc::default(),
            by_default: Arc::default(),
            first: Arc::default(),
        };
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            let number = usize::try_from(signal).unwrap_or_default();
            flag::register_conditional_default(signal, Arc::clone(&signals.by_default))?;
            flag::register_usize(signal, Arc::clone(&signals.first), number)?;
            flag::register(signal, Arc::clone(&signals.interrupt))?;
        }
        Ok(signals)
    }

    fn first(&self) -> Option<u8> {
        u8::try_from(self.first.load(Ordering::SeqCst)).ok().filter(|&signal| signal != 0)
    }
}

/// Until a signal arrives.
pub(crate) fn until_interrupted(
    mut step: impl FnMut() -> Result<(), Problem>,
) -> Result<u8, Problem> {
    let signals = Signals::catch().map_err(|error| {
        Problem::error("catching signals failed").why(hotcell_sandbox::cause(&error))
    })?;
    while signals.first().is_none() {
        step()?;
    }
    Ok(exit::SIGNAL.saturating_add(signals.first().unwrap_or_default()))
}
