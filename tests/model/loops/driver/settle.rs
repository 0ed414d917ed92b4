//! How a run ends: others stop, everybody does what is left, and then what must hold of a loop at rest is looked at.

use jiff::Timestamp;
use serde_json::json;

use super::{By, NOW, Process, Run, Sort};
use crate::check::{Violation, violation};
use crate::loops::rest;

impl Run<'_> {
    /// Everybody gets a fair share, the garbage collector too, without time passing, until nobody has anything to do.
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
            // A child of a loop that has just gone, asked for by who had not heard of that.
            while self.api.collect() {
                did = true;
            }
            if !did {
                return Ok(());
            }
        }
        violation("Livelock", "400 rounds of work while no time passes")
    }

    /// Time passes until then, and everybody does what is due.
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
                return violation("NoRest", "it is looked at again and again");
            }
        }
        let time = (end - NOW.get()).max(0);
        NOW.set(NOW.get() + time);
        self.steady += time;
        Ok(())
    }

    /// Others have stopped.
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
        // One that was sent last may not be recorded yet, and is newer than those before it.
        let last = recorded.chain(self.invariants.samples.last_key_value().map(|(time, _)| *time)).max();
        let time = last.map_or(NOW.get(), |last| (last.as_millisecond() + 1).max(NOW.get()));
        // Its time may be ahead of the clock, which may have stepped back, too.
        self.until(time).await?;
        self.sample(time, &[("a", "5"), ("b", "50")]);
        self.until(NOW.get() + 20_000).await?;
        rest::served(&self.api)?;
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

    /// The loop's own status shows the last decision up to half a minute late: until then, there is something to do. Meanwhile
    /// the dwell may end, and the last sample get too old, which are decisions, too.
    async fn await_report(&mut self) -> Result<(), Violation> {
        for _ in 0..120 {
            if rest::unreported(&self.api)?.is_none() {
                return Ok(());
            }
            self.until(NOW.get() + 1_000).await?;
        }
        violation("Untrue", rest::unreported(&self.api)?.unwrap_or_default())
    }

    /// A process that starts where there is nothing to do writes nothing but what each Monitoring shows, in its term.
    async fn restarted(&mut self) -> Result<(), Violation> {
        // What is due is put off a little (50 ms at most): just before, there is something to do.
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
            return violation("RestlessStart", format!("a process that starts writes {more:?}"));
        }
        Ok(())
    }
}
