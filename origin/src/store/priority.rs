//! The priority of a KV key in the outbox.

/// How urgent a row of the outbox is, as its column has it: the most urgent first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
#[repr(u8)]
pub enum Priority {
    /// What every request of a tenant goes by, as catalogues and steering.
    OfTenant = 0,
    /// What may name who left, or is erased.
    Leaving = 1,
    /// What was seen, and who logged in.
    #[default]
    News = 2,
    /// What jobs, imports and restores have written anew.
    Bulk = 3,
}

impl Priority {
    pub(crate) const ALL: [Self; 4] = [Self::OfTenant, Self::Leaving, Self::News, Self::Bulk];

    /// As its column says.
    pub(crate) fn of_column(rank: u8) -> Self {
        Self::ALL.get(usize::from(rank)).copied().unwrap_or_default()
    }

    /// That of a row of such a kind, put in with this one.
    pub(crate) fn of(self, kind: u16) -> Self {
        if kind > u8::MAX.into() { Self::OfTenant } else { self }
    }
}
