//! The word `W` of the sliding window and its side list, and what is done to them.
//!
//! | part | contents | here |
//! |---|---|---|
//! | `base` | the lowest ticket that has not departed | left out: tickets are relative to it, and sink as it rises |
//! | bits | bit `i`: ticket `base + i` has departed; bit 0 is clear | `bits` |
//! | `O` | the list is not empty | `flagged` |
//! | list | tickets that were given up and did not fit the bits | `listed`: bit `i` for `base + i` |
//!
//! `next` is `T`, the next ticket. Which tickets fit, and which thread may touch the list when, is up to the models.

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Window {
    pub next: u8,
    pub bits: u16,
    pub flagged: bool,
    pub listed: u16,
}

/// Why a thread wants the list: to push a ticket, or to mark those that fit by now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Job {
    Push(u8),
    Absorb,
}

impl Window {
    pub const EMPTY: Self = Self { next: 0, bits: 0, flagged: false, listed: 0 };

    /// Takes the next ticket.
    pub fn draw(&mut self) -> u8 {
        self.next += 1;
        self.next - 1
    }

    /// Marks a ticket, and says by how much `base` rises; `None` if it has departed already.
    pub fn depart(&mut self, ticket: u8) -> Option<u8> {
        if self.bits & 1 << ticket != 0 {
            return None;
        }
        self.bits |= 1 << ticket;
        let risen = self.bits.trailing_ones();
        self.bits = self.bits.unbounded_shr(risen);
        self.listed = self.listed.unbounded_shr(risen);
        self.next -= risen as u8;
        Some(risen as u8)
    }

    /// Whether something in the list fits `r` bits.
    pub fn fits(&self, r: u8) -> bool {
        self.listed & ((1 << r) - 1) != 0
    }

    /// Marks all of the list that fits `r` bits, as `base` rises; by how much in all, as in [`Window::depart`].
    pub fn absorb(&mut self, r: u8) -> Option<u8> {
        let mut risen = 0;
        while self.fits(r) {
            let ticket = self.listed.trailing_zeros() as u8;
            self.listed &= !(1 << ticket);
            risen += self.depart(ticket)?;
        }
        self.flagged = self.listed != 0;
        Some(risen)
    }

    /// Adds a ticket to the list.
    pub fn push(&mut self, ticket: u8) {
        self.flagged = true;
        self.listed |= 1 << ticket;
    }
}
