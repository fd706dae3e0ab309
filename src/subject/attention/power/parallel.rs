//! Independent pieces of work over threads.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

/// Makes `count` results on at most `jobs` threads. `done` sees each as it comes, on the calling thread; the result is in order.
pub(crate) fn map<T: Send>(jobs: usize, count: usize, make: impl Fn(usize) -> T + Sync, mut done: impl FnMut(&T)) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let (sender, results) = mpsc::channel();
    let mut made: Vec<Option<T>> = (0..count).map(|_| None).collect();
    std::thread::scope(|scope| {
        for _ in 0..jobs.clamp(1, count.max(1)) {
            let (sender, next, make) = (sender.clone(), &next, &make);
            scope.spawn(move || {
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    // A receiver that is gone has panicked: nobody wants the rest.
                    if n >= count || sender.send((n, make(n))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        for (n, result) in results {
            done(&result);
            made[n] = Some(result);
        }
    });
    made.into_iter().map(|it| it.expect("a thread that panics ends the scope in a panic")).collect()
}

#[cfg(test)]
mod tests {
    use super::map;

    #[test]
    fn results_are_in_order_whatever_the_threads() {
        for jobs in [0, 1, 3, 100] {
            let mut seen = 0;
            assert_eq!(map(jobs, 20, |n| n * n, |_| seen += 1), (0..20).map(|n| n * n).collect::<Vec<_>>());
            assert_eq!(seen, 20);
        }
        assert!(map(4, 0, |n| n, |_| {}).is_empty());
    }
}
