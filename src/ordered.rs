//! Work over threads whose results come in order: whoever takes them cannot tell how many threads there were.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard};

/// Whether more is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// On.
    Continue,
    /// Stop here: later results, even finished ones, are dropped.
    Stop,
}

/// Finished results that may wait for an earlier one, for each thread: bounds the memory of the reorder buffer.
const WINDOW_PER_JOB: u64 = 64;

struct Queue<T> {
    next: u64,
    taken: u64,
    stopped: bool,
    finished: BTreeMap<u64, T>,
    running: usize,
}

/// Makes results 0, 1, 2, ... on `jobs` threads until `over` says that no more are to be begun, or `each` that no more are wanted; what has
/// begun is finished, so results have no gap. `each` sees them in order, on the calling thread. `scratch` makes what one thread reuses from
/// one result to the next.
///
/// # Panics
/// Where a thread panics, or none can be started.
pub fn ordered<T: Send, S>(
    jobs: usize,
    over: impl Fn(u64) -> bool + Sync,
    scratch: impl Fn() -> S + Sync,
    make: impl Fn(u64, &mut S) -> T + Sync,
    mut each: impl FnMut(u64, T) -> Flow,
) {
    let jobs = jobs.max(1);
    let window = WINDOW_PER_JOB * jobs as u64;
    let queue = Mutex::new(Queue { next: 0, taken: 0, stopped: false, finished: BTreeMap::new(), running: jobs });
    let (work, results) = (Condvar::new(), Condvar::new());
    // A worker that panics has poisoned nothing that is half-changed: the queue is only held between statements that finish.
    let lock = || -> MutexGuard<'_, Queue<T>> { queue.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) };
    let worker = || {
        let _leave = Leave(|| {
            let mut queue = lock();
            queue.running -= 1;
            // A panicking worker never finishes its result: let the others go, so that the panic surfaces.
            queue.stopped |= std::thread::panicking();
            work.notify_all();
            results.notify_all();
        });
        let mut scratch = scratch();
        loop {
            let n = {
                let mut queue = lock();
                while !queue.stopped && queue.next >= queue.taken + window {
                    queue = work.wait(queue).unwrap_or_else(|poisoned| poisoned.into_inner());
                }
                if queue.stopped || over(queue.next) {
                    return;
                }
                queue.next += 1;
                queue.next - 1
            };
            let result = make(n, &mut scratch);
            lock().finished.insert(n, result);
            results.notify_all();
        }
    };
    std::thread::scope(|scope| {
        // However this thread leaves (`each` may panic), the workers must not wait for it.
        let _stop = Leave(|| {
            lock().stopped = true;
            work.notify_all();
        });
        for n in 0..jobs {
            // Fewer threads than asked for give the same results, later; none at all is a fault.
            if let Err(error) = std::thread::Builder::new().spawn_scoped(scope, worker) {
                assert!(n > 0, "no thread can be started: {error}");
                lock().running -= jobs - n;
                break;
            }
        }
        loop {
            let (n, result) = {
                let mut queue = lock();
                loop {
                    let next = queue.taken;
                    if let Some(result) = queue.finished.remove(&next) {
                        queue.taken += 1;
                        break (next, result);
                    }
                    if queue.running == 0 {
                        return;
                    }
                    queue = results.wait(queue).unwrap_or_else(|poisoned| poisoned.into_inner());
                }
            };
            work.notify_all();
            if each(n, result) == Flow::Stop {
                return;
            }
        }
    });
}

/// Runs a closure when dropped, so that a thread counts as gone however it leaves.
struct Leave<F: FnMut()>(F);

impl<F: FnMut()> Drop for Leave<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_order_and_end_where_they_are_stopped() {
        for jobs in [0, 1, 3, 16] {
            let mut seen = Vec::new();
            ordered(
                jobs,
                |n| n >= 500,
                || 0u64,
                |n, count| {
                    *count += 1;
                    n * n
                },
                |n, it| {
                    assert_eq!(it, n * n);
                    seen.push(n);
                    if n == 300 { Flow::Stop } else { Flow::Continue }
                },
            );
            assert_eq!(seen, (0..=300).collect::<Vec<_>>());
            let mut count = 0;
            ordered(
                jobs,
                |n| n >= 7,
                || (),
                |n, ()| n,
                |_, _| {
                    count += 1;
                    Flow::Continue
                },
            );
            assert_eq!(count, 7);
        }
    }
}
