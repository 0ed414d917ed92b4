//! End of a run: other clients stop, all parts finish their work, and the rules for a loop at rest are checked.

use jiff::Timestamp;
use serde_json::json;

use super::{By, NOW, Process, Run, Sort};
use crate::check::{Violation, violation};
use crate::loops::rest;

/// Age of the last sample by the sender's clock when it arrives, in milliseconds.
const SENDER_DELAY: i64 = 3_000;

impl Run<'_> {
    /// Takes steps of all parts in fair turns, including the garbage collector, without passing time, until no part has
    /// anything to do.
    pub async fn quiesce(&mut self) -> Result<(), Violation> {
        for _ in 0..400 {
            let mut did = false;
            for place in 0..Process::kinds() {
                while self.hear(place) {
                    did = true;
                }
            }
            for part in 0..Process::kinds() {
                did |= self.process.begin(part).await;
            }
            self.note()?;
            while let Some(index) = self.waiting(false) {
                self.serve(index)?;
                self.answer(index).await;
                self.note()?;
                self.steps += 1;
                did = true;
            }
            // A child of a deleted loop, created by a process that had not observed the deletion.
            while self.api.collect() {
                did = true;
            }
            if !did {
                return Ok(());
            }
        }
        violation("Livelock", "400 rounds of work without passing time")
    }

    /// Lets time pass until `end`; all parts do what is due.
    pub async fn until(&mut self, end: i64) -> Result<(), Violation> {
        self.quiesce().await?;
        let mut rounds = 0;
        while let Some(next) = self.process.next_time().filter(|next| *next <= end) {
            let time = (next - NOW.get()).max(1);
            NOW.set(NOW.get() + time);
            self.steady += time;
            self.quiesce().await?;
            rounds += 1;
            if rounds > 20_000 {
                return violation("NoRest", "it is reconciled again and again");
            }
        }
        let time = (end - NOW.get()).max(0);
        NOW.set(NOW.get() + time);
        self.steady += time;
        Ok(())
    }

    /// Settles the run after other clients have stopped.
    pub(super) async fn settle(&mut self) -> Result<(), Violation> {
        self.say(|| "others stop".into());
        self.ghosts.clear();
        while let Some(index) = self.waiting(true) {
            self.answer(index).await;
            self.note()?;
        }
        while self.api.collect() {}
        self.restore();
        self.api.change(By::Others, Sort::Loop, "web", |object| object["spec"]["mode"] = json!("Auto"));
        self.until(NOW.get() + 5_000).await?;
        let tags = Sort::CHILDREN.map(|sort| self.api.get(sort, "web").map(|one| one["status"]["tag"]["time"].clone()));
        let recorded = tags.iter().flatten().filter_map(|time| time.as_str()?.parse::<Timestamp>().ok());
        // The last sample may not be recorded yet, and is newer than those before it.
        let last = recorded.chain(self.invariants.samples.last_key_value().map(|(time, _)| *time)).max();
        let time = last.map_or(NOW.get(), |last| (last.as_millisecond() + 1).max(NOW.get()));
        // Its time may be ahead of the clock, which may also have been set back.
        self.until(time + SENDER_DELAY).await?;
        let arrived = NOW.get();
        self.sample(time, &[("a", "5"), ("b", "50")]);
        self.until(NOW.get() + 20_000).await?;
        rest::served(&self.api)?;
        rest::arrived(&self.api, arrived)?;
        if !self.setup.slow {
            self.await_report().await?;
            self.restarted().await?;
        }
        self.until(NOW.get() + 660_000).await?;
        let before = self.invariants.written();
        self.until(NOW.get() + 660_000).await?;
        rest::calm(&before, &self.invariants.written())?;
        rest::truth(&self.api)?;
        self.restarted().await
    }

    /// The loop's own status shows the last decision with a delay of up to half a minute, so there is something to do
    /// until then. Meanwhile, the dwell may end and the last sample may become too old, which are decisions as well.
    async fn await_report(&mut self) -> Result<(), Violation> {
        for _ in 0..120 {
            if rest::unreported(&self.api)?.is_none() {
                return Ok(());
            }
            self.until(NOW.get() + 1_000).await?;
        }
        violation("Untrue", rest::unreported(&self.api)?.unwrap_or_default())
    }

    /// A process that starts while nothing is due must write nothing except the status of each Monitoring, with its
    /// leader term.
    async fn restarted(&mut self) -> Result<(), Violation> {
        // Timers have a jitter of at most 50 ms, so timers that are about to fire are awaited first.
        while self.process.next_time().is_some_and(|next| next <= NOW.get() + 50) {
            self.until(NOW.get() + 50).await?;
        }
        let before = self.invariants.written();
        self.crash();
        self.quiesce().await?;
        let after = self.invariants.written();
        let most = |key: &(Sort, String)| before.get(key).copied().unwrap_or(0) + u64::from(key.0 == Sort::Monitoring);
        let more: Vec<_> = after.iter().filter(|(key, count)| **count > most(key)).collect();
        if !more.is_empty() {
            return violation("RestlessStart", format!("a new process wrote {more:?}"));
        }
        Ok(())
    }
}
