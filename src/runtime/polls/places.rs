//! Concurrency limits of polls. A poll needs a place of its host, of its tenant, and of the total; the others wait in a
//! queue.
//!
//! Works on tickets instead of keys: a ticket is one turn of one key. Lower tickets are older.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::fairness::{RoundRobin, TenantCounts};

/// One turn of a key, from its due time until its poll has ended.
pub type Ticket = u64;

/// Turns by tenant.
type Waiting = RoundRobin<Arc<str>, Ticket>;

/// Result of the last poll of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnClass {
    /// The last poll succeeded.
    Proven,
    /// No poll yet.
    New,
    /// The last poll failed.
    Failing,
}

/// Limits that apply to a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    pub host: Arc<str>,
    pub at_once: usize,
    pub tenant: Arc<str>,
    pub standing: TurnClass,
}

/// State of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Waits for a place of its host.
    Host,
    /// Occupies a place of its host and waits for a place of the total.
    Ready,
    /// Running.
    Under,
}

/// See the module.
#[derive(Debug)]
pub struct Places {
    all: usize,
    turns: HashMap<Ticket, (Turn, Stage)>,
    hosts: HashMap<Arc<str>, HostPlaces>,
    /// Turns that wait for a place of the total: by age within their tenant; the tenants take turns.
    proven: Waiting,
    new: Waiting,
    failing: Waiting,
    /// Number of running turns: in total, those not proven, and per tenant.
    under: usize,
    under_doubtful: usize,
    by_tenant: TenantCounts<Arc<str>>,
}

#[derive(Debug, Default)]
struct HostPlaces {
    /// Turns with a place of this host, whether running or not.
    taken: usize,
    waiting: BTreeSet<Ticket>,
}

impl Places {
    /// `all` is the total number of places.
    pub fn new(all: usize) -> Self {
        Self {
            all: all.max(1),
            turns: HashMap::new(),
            hosts: HashMap::new(),
            proven: Waiting::default(),
            new: Waiting::default(),
            failing: Waiting::default(),
            under: 0,
            under_doubtful: 0,
            by_tenant: TenantCounts::default(),
        }
    }

    /// Queues a turn that is due.
    pub fn line_up(&mut self, ticket: Ticket, turn: Turn) {
        let host = self.hosts.entry(Arc::clone(&turn.host)).or_default();
        if host.waiting.is_empty() && host.taken < turn.at_once.max(1) {
            host.taken += 1;
            self.ready(ticket, turn);
        } else {
            host.waiting.insert(ticket);
            self.turns.insert(ticket, (turn, Stage::Host));
        }
    }

    fn ready(&mut self, ticket: Ticket, turn: Turn) {
        self.waiting(turn.standing).push(Arc::clone(&turn.tenant), ticket);
        self.turns.insert(ticket, (turn, Stage::Ready));
    }

    fn waiting(&mut self, standing: TurnClass) -> &mut Waiting {
        match standing {
            TurnClass::Proven => &mut self.proven,
            TurnClass::New => &mut self.new,
            TurnClass::Failing => &mut self.failing,
        }
    }

    /// Starts the next turn that all limits allow. It occupies its places until [`Self::leave`].
    pub fn next(&mut self) -> Option<Ticket> {
        if self.under >= self.all {
            return None;
        }
        // At least one each, so that a limit of one does not block everything.
        let (doubtful, share) = ((self.all / 2).max(1), (self.all * 3 / 4).max(1));
        let by_tenant = &self.by_tenant;
        let may = |tenant: &Arc<str>| by_tenant.count(tenant) < share;
        let found = self.proven.pop(may);
        let found = found.or_else(|| {
            let has_room = self.under_doubtful < doubtful;
            has_room.then(|| self.new.pop(may).or_else(|| self.failing.pop(may))).flatten()
        });
        let ticket = found?;
        let (turn, stage) = self.turns.get_mut(&ticket)?;
        *stage = Stage::Under;
        self.under += 1;
        self.under_doubtful += usize::from(turn.standing != TurnClass::Proven);
        self.by_tenant.add(Arc::clone(&turn.tenant));
        Some(ticket)
    }

    /// Ends a turn, or removes one that is not needed any more.
    pub fn leave(&mut self, ticket: Ticket) {
        let Some((turn, stage)) = self.turns.remove(&ticket) else { return };
        match stage {
            Stage::Host => {
                if let Some(host) = self.hosts.get_mut(&turn.host) {
                    host.waiting.remove(&ticket);
                }
                self.let_in(&turn.host);
                return;
            }
            Stage::Ready => self.waiting(turn.standing).remove(&turn.tenant, &ticket),
            Stage::Under => {
                self.under -= 1;
                self.under_doubtful -= usize::from(turn.standing != TurnClass::Proven);
                self.by_tenant.remove(&turn.tenant);
            }
        }
        if let Some(host) = self.hosts.get_mut(&turn.host) {
            host.taken -= 1;
        }
        self.let_in(&turn.host);
    }

    /// Assigns the free places of a host to the turns that wait for them, and forgets a host without turns.
    fn let_in(&mut self, name: &Arc<str>) {
        while let Some(host) = self.hosts.get_mut(name) {
            let first = host.waiting.first().copied();
            let Some((ticket, turn)) = first.and_then(|ticket| Some((ticket, self.turns.get(&ticket)?.0.clone())))
            else {
                if host.taken == 0 {
                    self.hosts.remove(name);
                }
                return;
            };
            if host.taken >= turn.at_once.max(1) {
                return;
            }
            host.waiting.remove(&ticket);
            host.taken += 1;
            self.ready(ticket, turn);
        }
    }

    /// Whether no turn and no host is left.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        let none_waits = [&self.proven, &self.new, &self.failing].into_iter().all(Waiting::is_empty);
        none_waits && self.turns.is_empty() && self.hosts.is_empty() && self.under == 0 && self.by_tenant.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(host: &str, tenant: &str, standing: TurnClass) -> Turn {
        Turn { host: host.into(), at_once: 1, tenant: tenant.into(), standing }
    }

    fn all(places: &mut Places) -> Vec<Ticket> {
        std::iter::from_fn(|| places.next()).collect()
    }

    #[test]
    fn a_host_has_one_turn_at_a_time_in_the_order_of_arrival() {
        let mut places = Places::new(10);
        for ticket in 0..3 {
            places.line_up(ticket, turn("bmc", "a", TurnClass::Proven));
        }
        places.line_up(3, turn("other", "a", TurnClass::Proven));
        assert_eq!(all(&mut places), [0, 3]);
        places.leave(1);
        places.leave(0);
        assert_eq!(all(&mut places), [2], "1 was removed while it waited");
        places.leave(2);
        places.leave(3);
        assert!(places.is_empty());
    }

    #[test]
    fn doubtful_turns_have_half_of_the_places_and_one_tenant_three_quarters() {
        let mut places = Places::new(8);
        for ticket in 0..20 {
            places.line_up(ticket, turn(&ticket.to_string(), "a", TurnClass::Failing));
        }
        assert_eq!(all(&mut places).len(), 4);
        for ticket in 20..40 {
            places.line_up(ticket, turn(&ticket.to_string(), "a", TurnClass::Proven));
        }
        assert_eq!(all(&mut places), [20, 21], "three quarters for one tenant");
        places.line_up(40, turn("b", "b", TurnClass::Proven));
        places.line_up(41, turn("c", "b", TurnClass::Failing));
        assert_eq!(all(&mut places), [40]);
        places.leave(0);
        assert_eq!(all(&mut places), [22, 41], "proven turns first, then a failing one of the tenant below its limit");
        places.leave(1);
        places.leave(20);
        assert_eq!(all(&mut places), [23, 24], "until all places are taken");
    }

    #[test]
    fn a_new_turn_goes_before_one_that_fails_again() {
        let mut places = Places::new(2);
        places.line_up(0, turn("a", "a", TurnClass::Failing));
        places.line_up(1, turn("b", "a", TurnClass::New));
        assert_eq!(all(&mut places), [1]);
        places.leave(1);
        assert_eq!(all(&mut places), [0]);
    }

    #[test]
    fn a_single_place_serves_everybody() {
        let mut places = Places::new(1);
        places.line_up(0, turn("a", "a", TurnClass::Failing));
        places.line_up(1, turn("b", "a", TurnClass::Proven));
        assert_eq!(all(&mut places), [1]);
        places.leave(1);
        assert_eq!(all(&mut places), [0]);
    }

    #[test]
    fn a_shared_server_has_as_many_turns_as_it_takes() {
        let mut places = Places::new(10);
        for ticket in 0..5 {
            places.line_up(ticket, Turn { at_once: 3, ..turn("shared", "a", TurnClass::Proven) });
        }
        assert_eq!(all(&mut places), [0, 1, 2]);
        places.leave(1);
        assert_eq!(all(&mut places), [3]);
    }
}
