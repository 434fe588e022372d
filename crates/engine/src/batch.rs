//! Calls that go side by side, except where one waits for others. What they write is kept apart by
//! [`Claims`](crate::guard::claims::Claims), as for all calls.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use hotcell_request::Request;
use hotcell_types::{Caller, Status};

use crate::attached::Attached;
use crate::engine::{Asker, Engine, new_id};
use crate::interrupt::Together;
use crate::reply::{Problem, ProblemKind, Reply};
use crate::stream::{Order, Pace, side_by_side};

/// Most calls of a batch.
pub const BATCH_MOST: usize = 10_000;
/// Most calls of a batch that go at one time; the scheduler has its own limits.
const SIDE_BY_SIDE: usize = 16;

/// One call of a batch.
#[derive(Debug)]
pub struct Step {
    pub request: Request,
    /// Steps of the same batch, counted from 0, that have to succeed before.
    pub after: Vec<usize>,
}

impl From<Request> for Step {
    fn from(request: Request) -> Step {
        Step { request, after: Vec::new() }
    }
}

impl Engine {
    /// Each has its own reply, in the order of the requests. A batch that does not fit together is not
    /// begun at all.
    pub(crate) fn batch(&self, caller: &Caller, steps: Vec<Step>, asker: Asker<'_>) -> Vec<Reply> {
        let count = steps.len();
        let (graph, requests): (Vec<_>, Vec<Request>) =
            steps.into_iter().map(|step| (step.after, step.request)).unzip();
        let work = match Work::new(&graph) {
            Ok(work) => work,
            Err(problem) => {
                let failed = || Reply::failed(new_id(), problem.clone());
                let told = |one: &Request| self.unjudged(caller, &one.tool, failed());
                return requests.iter().map(told).collect();
            }
        };
        let requests: Vec<_> = requests.into_iter().map(|one| Mutex::new(Some(one))).collect();
        let together = Together::new(self, caller, asker);
        let carry_out = |step: usize| {
            let request = requests.get(step).and_then(|one| lock(one).take());
            let Some(request) = request else { return };
            work.done(step, together.call(request, Attached::default()));
        };
        together.make(|| {
            thread::scope(|scope| {
                let pace = Pace { jobs: count.min(SIDE_BY_SIDE), order: Order::Finished };
                let steps = std::iter::from_fn(|| work.next());
                side_by_side(scope, pace, steps, carry_out).for_each(drop);
            });
        });
        let replies = work.replies();
        // Whose request nobody took was not begun.
        let left = replies
            .iter()
            .zip(&requests)
            .filter_map(|(reply, one)| Some((reply, lock(one).take()?)));
        left.for_each(|(reply, one)| drop(self.unjudged(caller, &one.tool, reply.clone())));
        replies
    }
}

/// What is left to do of a batch.
struct Work {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    steps: Vec<Waiting>,
    ready: VecDeque<usize>,
    /// Steps without a reply.
    left: usize,
}

#[derive(Default)]
struct Waiting {
    /// Steps that wait for this one.
    before: Vec<usize>,
    /// How many this one still waits for.
    needs: usize,
    reply: Option<Reply>,
}

impl Work {
    fn new(graph: &[Vec<usize>]) -> Result<Work, Problem> {
        if graph.len() > BATCH_MOST {
            let why = format!("it has {} calls, and the most is {BATCH_MOST}", graph.len());
            return Err(unfit("the batch is too large", why, "split it"));
        }
        let mut steps: Vec<Waiting> = graph.iter().map(|_| Waiting::default()).collect();
        for (step, after) in graph.iter().enumerate() {
            for &other in after {
                let Some(before) = steps.get_mut(other) else {
                    let why = format!("step {step} comes after step {other}, which is not there");
                    return Err(unfit("the batch does not fit together", why, COUNTED));
                };
                before.before.push(step);
            }
            if let Some(waiting) = steps.get_mut(step) {
                waiting.needs = after.len();
            }
        }
        if let Some(step) = in_a_circle(graph, &steps) {
            let why = format!("step {step} would wait for itself, through others or directly");
            return Err(unfit("the batch waits in a circle", why, "leave one `after` out"));
        }
        let ready = (0..).zip(&steps).filter(|(_, step)| step.needs == 0).map(|(i, _)| i);
        let state = State { ready: ready.collect(), left: steps.len(), steps };
        Ok(Work { state: Mutex::new(state), changed: Condvar::new() })
    }

    /// The next step that can be begun; `None` when all have replies.
    fn next(&self) -> Option<usize> {
        let mut state = lock(&self.state);
        loop {
            if let Some(step) = state.ready.pop_front() {
                return Some(step);
            }
            if state.left == 0 {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn done(&self, step: usize, reply: Reply) {
        let mut state = lock(&self.state);
        state.settle(step, reply);
        drop(state);
        self.changed.notify_all();
    }

    fn replies(self) -> Vec<Reply> {
        let state = self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        state.steps.into_iter().filter_map(|step| step.reply).collect()
    }
}

impl State {
    /// Takes a reply, and what follows for those that wait for it.
    fn settle(&mut self, step: usize, reply: Reply) {
        let mut settled = vec![(step, reply)];
        while let Some((step, reply)) = settled.pop() {
            let status = reply.status;
            let Some(waiting) = self.steps.get_mut(step).filter(|one| one.reply.is_none()) else {
                continue;
            };
            waiting.reply = Some(reply);
            self.left -= 1;
            for next in std::mem::take(&mut waiting.before) {
                if status != Status::Success {
                    settled.push((next, not_begun(step, status)));
                } else if let Some(waiting) = self.steps.get_mut(next) {
                    waiting.needs -= 1;
                    if waiting.needs == 0 && waiting.reply.is_none() {
                        self.ready.push_back(next);
                    }
                }
            }
        }
    }
}

/// A step that is never ready, if there is one.
fn in_a_circle(graph: &[Vec<usize>], steps: &[Waiting]) -> Option<usize> {
    let mut needs: Vec<usize> = graph.iter().map(Vec::len).collect();
    let mut free: Vec<usize> =
        (0..).zip(&needs).filter(|(_, n)| **n == 0).map(|(i, _)| i).collect();
    while let Some(step) = free.pop() {
        for &next in steps.get(step).map(|step| step.before.as_slice()).unwrap_or_default() {
            let Some(needed) = needs.get_mut(next) else { continue };
            *needed -= 1;
            if *needed == 0 {
                free.push(next);
            }
        }
    }
    needs.iter().position(|needed| *needed > 0)
}

const COUNTED: &str = "name steps by their places, counted from 0";

fn unfit(what: &str, why: String, fix: &str) -> Problem {
    Problem::new(what, why, fix).of(ProblemKind::Invalid)
}

fn not_begun(step: usize, status: Status) -> Reply {
    let why =
        format!("step {step} of the batch, which it comes after, ended with `{}`", status.name());
    let problem = Problem::new("it was not begun", why, "see why that step did not succeed");
    Reply { status: Status::Cancelled, ..Reply::failed(new_id(), problem) }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn circle(graph: &[&[usize]]) -> Option<String> {
        let graph: Vec<Vec<usize>> = graph.iter().map(|after| after.to_vec()).collect();
        Work::new(&graph).err().map(|problem| problem.why)
    }

    #[test]
    fn a_batch_that_does_not_fit_together_is_refused() {
        assert_eq!(circle(&[&[], &[0], &[0, 1]]), None);
        assert_eq!(circle(&[&[2], &[0], &[]]), None);
        let itself =
            |step| Some(format!("step {step} would wait for itself, through others or directly"));
        assert_eq!(circle(&[&[0]]), itself(0));
        assert_eq!(circle(&[&[], &[3, 0], &[1], &[2]]), itself(1));
        let missing = "step 1 comes after step 7, which is not there";
        assert_eq!(circle(&[&[], &[7]]).as_deref(), Some(missing));
        assert!(circle(&vec![&[][..]; BATCH_MOST + 1]).is_some());
    }

    #[test]
    fn what_follows_a_failure_is_not_begun_and_the_rest_is() {
        let graph = [vec![], vec![0], vec![1, 3], vec![], vec![3, 3]];
        let work = Work::new(&graph).ok().unwrap();
        let mut begun = Vec::new();
        while let Some(step) = work.next() {
            begun.push(step);
            let status = if step == 0 { Status::Failure } else { Status::Success };
            work.done(step, Reply::new(new_id(), status));
        }
        assert_eq!(begun, [0, 3, 4]);
        let replies = work.replies();
        let statuses: Vec<_> = replies.iter().map(|reply| reply.status.name()).collect();
        assert_eq!(statuses, ["failure", "cancelled", "cancelled", "success", "success"]);
        assert!(replies[1].problems[0].why.contains("step 0 "), "{:?}", replies[1]);
    }
}
