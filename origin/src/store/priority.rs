//! Priorities of KV keys in the outbox.

/// Priority of a row of the outbox, as its column stores it; the most urgent one is first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
#[repr(u8)]
pub enum Priority {
    /// Keys that every request of a tenant reads, such as the catalogue and the traffic allocation.
    OfTenant = 0,
    /// Keys that may still name a visitor that left its person or was erased.
    Leaving = 1,
    /// Keys that change through new facts and logins.
    #[default]
    News = 2,
    /// Keys that jobs, imports and restores write again.
    Bulk = 3,
}

impl Priority {
    pub(crate) const ALL: [Self; 4] = [Self::OfTenant, Self::Leaving, Self::News, Self::Bulk];

    /// The priority from its column; an unknown value is the default.
    pub(crate) fn of_column(priority: u8) -> Self {
        Self::ALL.get(usize::from(priority)).copied().unwrap_or_default()
    }

    /// Priority of a row of kind `kind` that is put in with priority `self`: keys of a whole tenant always have the
    /// highest.
    pub(crate) fn of(self, kind: u16) -> Self {
        if kind > u8::MAX.into() { Self::OfTenant } else { self }
    }
}
