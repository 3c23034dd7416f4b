//! The word `W` of the sliding window and its side list, and the operations on both.
//!
//! | part | contents | in the model |
//! |---|---|---|
//! | `base` | the lowest ticket that has not departed | left out: tickets are relative to `base`, and sink as `base` rises |
//! | bits | bit `i`: ticket `base + i` has departed; bit 0 is clear | `bits` |
//! | `O` | the list is not empty | `flagged` |
//! | list | tickets that were given up and did not fit the bits | `listed`: bit `i` for `base + i` |
//!
//! `next` is `T`, the next ticket. The models decide which tickets fit, and which thread may touch the list when.

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Window {
    pub next: u8,
    pub bits: u16,
    pub flagged: bool,
    pub listed: u16,
}

/// The reason for which a thread wants the list: to push a ticket, or to mark the tickets that fit by now.
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

    /// Marks a ticket, and returns by how much `base` rises, or `None` if the ticket has departed already.
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

    /// Returns whether a ticket in the list fits `r` bits.
    pub fn fits(&self, r: u8) -> bool {
        self.listed & ((1 << r) - 1) != 0
    }

    /// Marks all tickets of the list that fit `r` bits, as `base` rises. Returns the total rise, as [`Window::depart`]
    /// does.
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
