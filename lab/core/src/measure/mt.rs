//! The Mersenne Twister MT19937, whose step is the unit of work in MutexBench and semabench.
//!
//! The outputs are those of the crate `rand_mt`. There the computation of the next 624 words is inlined into each
//! caller: into each measured loop, where that computation was half of the code.

/// The number of words of the state.
const WORDS: usize = 624;
/// The distance between the two words that a new word is made from, besides its own.
const AHEAD: usize = 397;

/// A generator.
#[derive(Clone, Debug)]
pub struct Mt {
    state: [u32; WORDS],
    /// The index of the next word; `WORDS` if all words have been used.
    next: usize,
}

impl Mt {
    /// Creates a generator from a seed.
    #[inline(never)]
    pub fn new(seed: u32) -> Self {
        let mut state = [seed; WORDS];
        for n in 1..WORDS {
            let last = state[n - 1];
            state[n] = (last ^ (last >> 30)).wrapping_mul(1_812_433_253).wrapping_add(n as u32);
        }
        Self { state, next: WORDS }
    }

    /// Returns the next output.
    #[inline]
    pub fn next_u32(&mut self) -> u32 {
        if self.next >= WORDS {
            self.twist();
        }
        let mut word = self.state[self.next];
        self.next += 1;
        word ^= word >> 11;
        word ^= (word << 7) & 0x9d2c_5680;
        word ^= (word << 15) & 0xefc6_0000;
        word ^ (word >> 18)
    }

    /// Computes the next words of the state. Separate loops without a remainder are vectorised.
    #[cold]
    #[inline(never)]
    fn twist(&mut self) {
        let state = &mut self.state;
        for n in 0..WORDS - AHEAD {
            state[n] = twisted(state[n], state[n + 1], state[n + AHEAD]);
        }
        for n in WORDS - AHEAD..WORDS - 1 {
            state[n] = twisted(state[n], state[n + 1], state[n + AHEAD - WORDS]);
        }
        state[WORDS - 1] = twisted(state[WORDS - 1], state[0], state[AHEAD - 1]);
        self.next = 0;
    }
}

/// Returns the new word that follows from the old word, the word after it, and the word [`AHEAD`].
#[inline]
const fn twisted(old: u32, after: u32, ahead: u32) -> u32 {
    let joined = (old & 0x8000_0000) | (after & 0x7fff_ffff);
    ahead ^ (joined >> 1) ^ ((joined & 1) * 0x9908_b0df)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_outputs_are_those_of_rand_mt() {
        for seed in [0, 1, 5489, u32::MAX] {
            let (mut ours, mut theirs) = (Mt::new(seed), rand_mt::Mt::new(seed));
            assert!((0..5 * WORDS).all(|_| ours.next_u32() == theirs.next_u32()), "{seed}");
        }
    }
}
