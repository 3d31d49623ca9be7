//! L2 over a finite graph: whether somebody can wait for ever although every seat changes hands.
//!
//! A history that goes on for ever comes to stay in a strongly connected part of the graph, and may go through all of it again
//! and again. So somebody can starve if and only if there is such a part, of steps in which the oldest waiter that no limit of
//! 0 blocks stays, in which nothing that is held is held throughout. A session's number changes from state to state, so it is
//! followed along the steps: what its seats do is the union over all states and numbers it goes through.

/// What is held in a state.
#[derive(Clone, Debug)]
pub struct Seats {
    /// For each session, by its number there, the scopes in which it holds a seat.
    pub sessions: Vec<u16>,
    /// The routes of live calls without a session.
    pub nameless: u8,
    /// Whether there are credits.
    pub credits: bool,
}

/// A step in which the oldest waiter stays.
struct Step {
    from: usize,
    to: usize,
    /// The new number of each session.
    names: Box<[u8]>,
    /// Routes on which a call without a session ends.
    ends: u8,
    /// The oldest credit ends.
    credit: bool,
}

/// All states, and the steps between them in which the oldest waiter stays.
#[derive(Default)]
pub struct Graph {
    states: Vec<Seats>,
    steps: Vec<Step>,
}

impl Graph {
    /// Another state.
    pub fn add(&mut self, seats: Seats) {
        self.states.push(seats);
    }

    /// A step: each session is called something before and after.
    pub fn connect(
        &mut self,
        from: usize,
        to: usize,
        before: &[u8],
        after: &[u8],
        (ends, credit): (u8, bool),
    ) {
        let mut names = vec![0; before.len()];
        for (&before, &after) in before.iter().zip(after) {
            names[usize::from(before)] = after;
        }
        self.steps.push(Step { from, to, names: names.into(), ends, credit });
    }

    /// A state from which the oldest waiter can wait for ever.
    pub fn starving(&self) -> Option<usize> {
        let parts = self.parts();
        let mut inside: Vec<&Step> =
            self.steps.iter().filter(|step| parts[step.from] == parts[step.to]).collect();
        inside.sort_by_key(|step| parts[step.from]);
        inside
            .chunk_by(|a, b| parts[a.from] == parts[b.from])
            .find(|part| self.starves(part))
            .map(|part| part[0].from)
    }

    /// Whether in this part everything that is held is let go somewhere.
    fn starves(&self, part: &[&Step]) -> bool {
        let mut states: Vec<usize> = part.iter().map(|step| step.from).collect();
        states.sort_unstable();
        states.dedup();
        let seats = || states.iter().map(|&state| &self.states[state]);
        let throughout = seats().fold(u8::MAX, |all, seats| all & seats.nameless);
        let ends = part.iter().fold(0, |all, step| all | step.ends);
        if throughout & !ends != 0
            || seats().all(|seats| seats.credits) && !part.iter().any(|step| step.credit)
        {
            return false;
        }
        // Sessions, each in each state, joined where a step says that they are the same.
        let sessions = self.states[states[0]].sessions.len();
        let index = |state: usize, session: usize| {
            states.binary_search(&state).map_or(0, |at| at * sessions + session)
        };
        let mut same: Vec<usize> = (0..states.len() * sessions).collect();
        for step in part {
            for (before, &after) in step.names.iter().enumerate() {
                let a = root(&mut same, index(step.from, before));
                let b = root(&mut same, index(step.to, after.into()));
                same[a] = b;
            }
        }
        let mut throughout = vec![u16::MAX; same.len()];
        for (&state, seats) in states.iter().zip(seats()) {
            for (session, held) in seats.sessions.iter().enumerate() {
                throughout[root(&mut same, index(state, session))] &= held;
            }
        }
        (0..same.len()).all(|at| same[at] != at || throughout[at] == 0)
    }

    /// The strongly connected part each state belongs to (Kosaraju).
    fn parts(&self) -> Vec<usize> {
        let count = self.states.len();
        let ahead = Lists::new(count, self.steps.iter().map(|step| (step.from, step.to)));
        let back = Lists::new(count, self.steps.iter().map(|step| (step.to, step.from)));
        let mut seen = vec![false; count];
        let mut order = Vec::with_capacity(count);
        for start in 0..count {
            ahead.visit(start, &mut seen, &mut |state| order.push(state));
        }
        let mut part = vec![0; count];
        seen.fill(false);
        for &start in order.iter().rev() {
            back.visit(start, &mut seen, &mut |state| part[state] = start);
        }
        part
    }
}

fn root(same: &mut [usize], mut at: usize) -> usize {
    while same[at] != at {
        same[at] = same[same[at]];
        at = same[at];
    }
    at
}

/// Where one can go from each state.
struct Lists {
    begin: Vec<usize>,
    to: Vec<usize>,
}

impl Lists {
    fn new(count: usize, steps: impl Iterator<Item = (usize, usize)> + Clone) -> Self {
        let mut begin = vec![0; count + 1];
        for (from, _) in steps.clone() {
            begin[from + 1] += 1;
        }
        for at in 0..count {
            begin[at + 1] += begin[at];
        }
        let mut next = begin.clone();
        let mut to = vec![0; begin[count]];
        for (from, target) in steps {
            to[next[from]] = target;
            next[from] += 1;
        }
        Self { begin, to }
    }

    /// Depth first, from `start`, over what was not seen; each state when it is left.
    fn visit(&self, start: usize, seen: &mut [bool], left: &mut impl FnMut(usize)) {
        if std::mem::replace(&mut seen[start], true) {
            return;
        }
        let mut path = vec![(start, self.begin[start])];
        while let Some((state, next)) = path.last_mut() {
            if *next == self.begin[*state + 1] {
                left(*state);
                path.pop();
                continue;
            }
            let to = self.to[*next];
            *next += 1;
            if !std::mem::replace(&mut seen[to], true) {
                path.push((to, self.begin[to]));
            }
        }
    }
}
