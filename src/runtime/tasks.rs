//! Tasks that run as long as the process. If one panics, the process must not continue without it.

use tokio::task::{JoinError, JoinSet};

/// Returns when every task has ended, or as soon as one panics.
pub async fn ended(tasks: &mut JoinSet<()>) -> Result<(), JoinError> {
    while let Some(done) = tasks.join_next().await {
        done?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_task_that_panics_is_not_waited_out() {
        let mut tasks = JoinSet::new();
        tasks.spawn(std::future::pending());
        tasks.spawn(async {});
        tasks.spawn(async { panic!("a fault of this program") });
        assert!(ended(&mut tasks).await.is_err_and(|failure| failure.is_panic()));
        tasks.shutdown().await;
        assert!(ended(&mut tasks).await.is_ok());
    }
}
