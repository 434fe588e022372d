//! A failed step, with what the kernel said.

use rustix::io::Errno;

use crate::wire::{Failed, Malformed, Step};

/// The result of a step of building or serving.
pub(crate) type Done<T = ()> = Result<T, Failed>;

/// Names the step that a system call belongs to.
pub(crate) trait At<T> {
    fn at(self, step: Step) -> Done<T>;
    fn at_index(self, step: Step, index: usize) -> Done<T>;
}

impl<T> At<T> for rustix::io::Result<T> {
    fn at(self, step: Step) -> Done<T> {
        self.at_index(step, 0)
    }

    fn at_index(self, step: Step, index: usize) -> Done<T> {
        self.map_err(|errno| failed(step, errno, index))
    }
}

impl<T> At<T> for Result<T, Malformed> {
    fn at(self, step: Step) -> Done<T> {
        self.at_index(step, 0)
    }

    fn at_index(self, step: Step, index: usize) -> Done<T> {
        self.map_err(|Malformed| failed(step, Errno::PROTO, index))
    }
}

pub(crate) fn failed(step: Step, errno: Errno, index: usize) -> Failed {
    Failed { step, errno: errno.raw_os_error(), index: u32::try_from(index).unwrap_or(u32::MAX) }
}

/// A step whose outcome was read back and is not what it has to be.
pub(crate) fn require(holds: bool, step: Step) -> Done {
    if holds { Ok(()) } else { Err(failed(step, Errno::ILSEQ, 0)) }
}
