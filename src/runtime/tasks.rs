//! Tasks that run as long as the process. One that panics must not leave the process half working.

use tokio::task::{JoinError, JoinSet};

/// Returns when every task has ended.
///
/// # Errors
/// At once if one of them panicked.
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
