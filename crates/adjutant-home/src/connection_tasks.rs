//! The tasks of a connection with many calls, which end with it.

use hyper::rt::Executor;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use tokio::task::JoinSet;

/// The tasks of one connection. Dropping this aborts them.
#[derive(Debug, Default)]
pub struct ConnectionTasks(Arc<Mutex<JoinSet<()>>>);

/// Spawns tasks until the connection ends. Owns none of them, so that a task can hold it.
#[derive(Debug, Clone)]
pub struct TaskSpawner(Weak<Mutex<JoinSet<()>>>);

impl ConnectionTasks {
    #[must_use]
    pub fn spawner(&self) -> TaskSpawner {
        TaskSpawner(Arc::downgrade(&self.0))
    }

    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.spawner().execute(task);
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for TaskSpawner {
    fn execute(&self, task: F) {
        let Some(tasks) = self.0.upgrade() else {
            return;
        };
        let mut tasks = tasks.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(ended) = tasks.try_join_next() {
            if let Err(error) = ended {
                tracing::error!(%error, "a task of a connection failed");
            }
        }
        tasks.spawn(task);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::pending;

    /// Is dropped with the task that holds it.
    struct Held(Arc<()>, TaskSpawner);

    #[tokio::test]
    async fn tasks_end_with_their_connection() {
        let (tasks, alive) = (ConnectionTasks::default(), Arc::new(()));
        let held = Held(Arc::clone(&alive), tasks.spawner());
        tasks.spawn(async move {
            pending::<()>().await;
            drop((held.0, held.1));
        });
        tokio::task::yield_now().await;
        assert_eq!(Arc::strong_count(&alive), 2);
        let spawner = tasks.spawner();
        drop(tasks);
        tokio::task::yield_now().await;
        assert_eq!(Arc::strong_count(&alive), 1);
        spawner.execute(async { panic!("the connection has ended") });
    }
}
