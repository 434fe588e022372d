//! What a process that makes one call can begin before it knows which, and goes on with as it finds out.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use hotcell_sandbox::lang::Host;
use hotcell_sandbox::{Job, Kind, Refusal, Sandbox, Settings, Site, View};
use hotcell_tools::Program;
use hotcell_tools::run::Run;

use crate::at_once::AtOnce;
use crate::engine::{Machine, Options, must_be_ours};
use crate::prepare::resolve;

/// Makes a sandbox on a thread of its own: finds out what the host gives and starts a launcher, has it build
/// its tree when it is known what will run, and a cell when it is known how. Nothing of a call is in any of
/// it, so that a call that is refused has begun nothing.
#[derive(Debug)]
pub struct Early {
    orders: Mutex<Option<Sender<Order>>>,
    making: Soon<Option<Made>>,
}

/// What came of it.
#[derive(Debug)]
pub(crate) struct Made {
    pub(crate) sandbox: Result<Sandbox, Refusal>,
    /// What else the first run needs.
    pub(crate) machine: Machine,
}

/// In this order. Who leaves one out gets it later.
#[derive(Debug)]
enum Order {
    Open(Settings, AtOnce),
    Tree(Program),
    Cell(View, Kind),
}

impl Early {
    pub fn begin() -> Early {
        let (orders, received) = channel();
        let making = Soon::begin("site", move || make(&received));
        Early { orders: Mutex::new(Some(orders)), making }
    }

    /// What a person at a terminal will probably run, in an engine with these options: its tree is built
    /// meanwhile. If something else is run, that takes longer.
    pub fn expect(&self, options: &Options, run: &Run) {
        if let (Ok(()), Ok(program)) = (must_be_ours(&options.home), run.program()) {
            self.open(options.settings(), options.at_once.clone());
            self.order(Order::Tree(program));
        }
    }

    /// Where it is to stand.
    pub(crate) fn open(&self, settings: Settings, at_once: AtOnce) {
        self.order(Order::Open(settings, at_once));
    }

    /// A cell for such a job.
    pub(crate) fn warm(&self, job: &Job) {
        self.order(Order::Cell(job.command.view(), Kind::of(job)));
    }

    fn order(&self, order: Order) {
        let orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(orders) = &*orders {
            // A thread that gave up has said why, to whoever takes what it made.
            orders.send(order).ok();
        }
    }

    /// What was made, when all that was ordered is done. `None` if nobody said where, or if it was taken.
    pub(crate) fn take(&self) -> Option<Made> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.making.take().flatten()
    }
}

impl Drop for Early {
    fn drop(&mut self) {
        self.take();
    }
}

fn make(orders: &Receiver<Order>) -> Option<Made> {
    let site = Site::explore();
    let Ok(Order::Open(settings, at_once)) = orders.recv() else { return None };
    let sandbox = site.and_then(|site| site.open(&settings));
    let sandbox = match sandbox {
        Ok(sandbox) => sandbox,
        refused => return Some(Made { sandbox: refused, machine: Machine::new(&at_once) }),
    };
    let mut machine = None;
    for order in orders {
        // Whatever goes wrong goes wrong again when the call is carried out, and is told then.
        match order {
            Order::Open(..) => {}
            Order::Tree(program) => {
                let host = Host::of_this_process();
                if let Ok(command) = resolve(program, &host, true, &mut Vec::new()) {
                    sandbox.expect(&command.view()).ok();
                }
                machine.get_or_insert_with(|| Machine::new(&at_once));
            }
            Order::Cell(view, kind) => {
                sandbox.warm(&view, kind).ok();
            }
        }
    }
    Some(Made { sandbox: Ok(sandbox), machine: machine.unwrap_or_else(|| Machine::new(&at_once)) })
}

/// Something that is being made on a thread of its own. Dropping it waits for that.
#[derive(Debug)]
pub(crate) struct Soon<T> {
    making: Mutex<Option<JoinHandle<T>>>,
}

impl<T: Send + 'static> Soon<T> {
    pub(crate) fn begin(name: &str, make: impl FnOnce() -> T + Send + 'static) -> Soon<T> {
        // Without a thread whoever needs it makes it.
        let thread = thread::Builder::new().name(name.to_owned()).spawn(make).ok();
        Soon { making: Mutex::new(thread) }
    }
}

impl<T> Soon<T> {
    /// Waits until it is there. `None` if somebody took it already, or if nothing came of it.
    pub(crate) fn take(&self) -> Option<T> {
        let making = self.making.lock().unwrap_or_else(PoisonError::into_inner).take();
        making.and_then(|making| making.join().ok())
    }
}

impl<T> Drop for Soon<T> {
    fn drop(&mut self) {
        self.take();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_soon_is_taken_once() {
        let soon = Soon::begin("seven", || 7);
        assert_eq!((soon.take(), soon.take()), (Some(7), None));
        assert_eq!(Soon::<u8>::begin("none", || panic!("as it is meant to")).take(), None);
    }
}
