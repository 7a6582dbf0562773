//! Planted bugs: known defects that a run of the simulator switches on, to show that its checkers find them.
//!
//! A planted bug is a condition where the defect would be: `planted::is_active(PlantedBug::LoseTheLedger)`. Without the
//! feature `planted-bugs`, which only the simulator's build enables, the condition is the constant `false`.

/// Declares [`PlantedBug`] with the name that the command line uses for each bug.
macro_rules! planted_bugs {
    ($($(#[doc = $doc:literal])+ $bug:ident = $name:literal,)+) => {
        /// One defect that the simulator must find. The last words of a description name the checker.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum PlantedBug {
            $($(#[doc = $doc])+ $bug,)+
        }

        impl PlantedBug {
            /// All planted bugs, in the order in which the simulator plays them.
            pub const ALL: &[Self] = &[$(Self::$bug,)+];

            /// The name on the command line: words joined by hyphens.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$bug => $name,)+
                }
            }
        }
    };
}

planted_bugs! {
    /// The totals of two versions of one profile are added, although the newer version replaces the older: views.
    SumInsteadOfUnion = "sum-instead-of-union",
    /// Facts that were counted before are folded again when they arrive again: facts.
    DropTheDedup = "drop-the-dedup",
    /// Publishes leave the origin although the commit failed, and their versions are issued again: versions, facts.
    PublishBeforeCommit = "publish-before-commit",
    /// A sync is acknowledged before its record is on the disk, so that a power failure loses it: facts.
    AckBeforeFsync = "ack-before-fsync",
    /// The key of a visitor that withdrew is published as a snapshot: consent.
    SkipTheTombstone = "skip-the-tombstone",
    /// An isolate ignores the versions it has read, and the highest version that the browser has seen: versions.
    AcceptAnOlderVersion = "accept-an-older-version",
    /// A second member on one browser continues as the visitor of the first member: people.
    LinkOnSharedDevice = "link-on-shared-device",
    /// The ads placed on a page are not reserved in the ledger: caps.
    LoseTheLedger = "lose-the-ledger",
    /// Ledger entries are dropped at the first snapshot, whether it contains them or not: caps.
    DropALedgerEntryTooEarly = "drop-a-ledger-entry-too-early",
    /// A visitor that was cut from a person still counts in the person's view: views.
    JoinWithoutTheCuts = "join-without-the-cuts",
    /// Records leave the log when the next record arrives, folded or not, so that a crash loses them: facts.
    TruncateTheLogTooEarly = "truncate-the-log-too-early",
    /// The folded position of the log is held in memory only, and a start folds the log again: facts.
    FoldTwiceAfterACrash = "fold-twice-after-a-crash",
    /// An acknowledged write settles its key although the row changed after the value was handed out: facts, people.
    LoseAcknowledgedOutboxChange = "lose-acknowledged-outbox-change",
    /// A key is not written once more after an older write may still land: versions.
    ForgetLateWrites = "forget-late-writes",
    /// A restored store issues versions and epochs from its backup, as if none had been issued since: versions.
    RestoreWithoutEpoch = "restore-without-epoch",
    /// A restore leaves the KV values of visitors that the backup does not contain: people, facts.
    RestoreKeepsOrphans = "restore-keeps-orphans",
    /// A visitor with two members belongs to the member seen last, not to the first: people.
    SecondMemberWins = "second-member-wins",
    /// A call with `Sec-GPC: 1` counts as one with permission: consent.
    ConsentIgnored = "consent-ignored",
    /// Snapshots that the second read did not return are read a third time: pages.
    ThirdRead = "third-read",
    /// The names of an id under the other key of a rotation are ignored: people.
    NamesOfRotationLost = "names-of-rotation-lost",
    /// A cancellation of a link ends no evidence: people.
    CancellationForgotten = "cancellation-forgotten",
    /// Late facts of an erased visitor are folded: erasures.
    ErasedComesBack = "erased-comes-back",
    /// Keys that the platform reports as unsuccessful in a bulk call are settled like the others: versions.
    SettleUnsuccessfulKeys = "settle-unsuccessful-keys",
    /// A key leased to one publish consumer is handed out to a second one: versions.
    HandOutWhatIsLeased = "hand-out-what-is-leased",
    /// The siblings of a person are not published when the person's pause is over: people, facts.
    ForgetTheSiblings = "forget-the-siblings",
    /// A visitor that withdraws stays linked to its person: people.
    WithdrawalKeepsItsLinks = "withdrawal-keeps-its-links",
    /// The arm of a person that has seen an arm is drawn again with the shares of the day: experiments.
    DrawAnArmAnew = "draw-an-arm-anew",
    /// The experiment sums of two people are not merged when a link makes them one person: experiments.
    AMergeKeepsTwoRecipients = "a-merge-keeps-two-recipients",
    /// An impression of an anonymous request is charged each time it is reported: budgets.
    AnonymousImpressionsCountAgain = "anonymous-impressions-count-again",
    /// An object gives an offer code again to a person whose first browser was cut: offer_codes.
    CutVisitorKeepsOfferCode = "cut-visitor-keeps-offer-code",
    /// In a chain of matches between two members the strongest match stays out, not the weakest: people.
    WeakestMatchFirst = "weakest-match-first",
    /// An id is known by its hash under a new key, but no lookup is written under that hash: verified.
    LeaveTheNewHashUnwritten = "leave-the-new-hash-unwritten",
    /// Data that did not fit into a snapshot counts as absent, so that an exclusion fails open: suppressed.
    UnknownIsAbsent = "unknown-is-absent",
    /// An event counts for the visitor of the request's cookie, whatever its visitor token names: owners.
    EventsOfWhoeverIsHere = "events-of-whoever-is-here",
    /// Of two writes in one call the greater value wins, not the later one: facts.
    OrderOfACallForgotten = "order-of-a-call-forgotten",
}

impl std::str::FromStr for PlantedBug {
    type Err = UnknownBug;

    fn from_str(name: &str) -> Result<Self, UnknownBug> {
        Self::ALL.iter().find(|bug| bug.name() == name).copied().ok_or_else(|| UnknownBug(name.to_owned()))
    }
}

/// The error for an unknown name of a planted bug.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("no planted bug is called {0:?}; shared/src/base/planted.rs lists the names")]
pub struct UnknownBug(String);

/// The active bug: its index in [`PlantedBug::ALL`] plus one, or 0 for none.
#[cfg(feature = "planted-bugs")]
static ACTIVE: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);

/// Activates one bug, or none, in the whole process. Worlds that are running see the change too.
#[cfg(feature = "planted-bugs")]
pub fn activate(bug: Option<PlantedBug>) {
    ACTIVE.store(bug.map_or(0, |bug| bug as usize + 1), std::sync::atomic::Ordering::SeqCst);
}

/// Whether the bug is active.
#[cfg(feature = "planted-bugs")]
#[must_use]
pub fn is_active(bug: PlantedBug) -> bool {
    ACTIVE.load(std::sync::atomic::Ordering::Relaxed) == bug as usize + 1
}

/// Whether the bug is active: never in this build.
#[cfg(not(feature = "planted-bugs"))]
#[must_use]
pub const fn is_active(_: PlantedBug) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::{PlantedBug, UnknownBug};

    #[test]
    fn every_bug_is_found_by_its_name_and_no_other_name_is() {
        for bug in PlantedBug::ALL {
            assert_eq!(bug.name().parse(), Ok(*bug));
        }
        assert_eq!("".parse::<PlantedBug>(), Err(UnknownBug(String::new())));
    }
}
