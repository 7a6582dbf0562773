//! Statements of the table `erasure_sweeps`: the people that an erasure waits for, until a sweep has put their keys in
//! the outbox.

/// Copies the people of erasure `?3` to erasure `?2`, because a running sweep adds its remaining keys to both erasures.
pub(crate) const ERASURE_SWEEPS_COPY_OF_ERASURE: &str = "INSERT INTO erasure_sweeps (tenant, receipt, person, rounds)
    SELECT tenant, ?2, person, rounds FROM erasure_sweeps WHERE tenant = ?1 AND receipt = ?3
    ON CONFLICT DO UPDATE SET rounds = max(rounds, excluded.rounds)";

/// Lets an erasure wait for the sweep of person `?3`: for the current round, or for the next one if a sweep is running.
pub(crate) const ERASURE_SWEEPS_AWAIT_PERSON: &str = "INSERT INTO erasure_sweeps (tenant, receipt, person, rounds)
    VALUES (?1, ?2, ?3, 1 + EXISTS (SELECT 1 FROM sweeps WHERE person = ?3))
    ON CONFLICT DO UPDATE SET rounds = excluded.rounds WHERE excluded.rounds > rounds";

/// Lets the erasures that wait for person `?1` also wait for person `?2`.
pub(crate) const ERASURE_SWEEPS_COPY_TO_PERSON: &str = "INSERT INTO erasure_sweeps (tenant, receipt, person, rounds)
    SELECT tenant, receipt, ?2, 1 + EXISTS (SELECT 1 FROM sweeps WHERE person = ?2)
    FROM erasure_sweeps WHERE person = ?1
    ON CONFLICT DO UPDATE SET rounds = max(rounds, excluded.rounds)";

/// Reads the erasures that wait for the current round of person `?1`.
pub(crate) const ERASURE_SWEEPS_OF_CURRENT_ROUND: &str =
    "SELECT tenant, receipt FROM erasure_sweeps WHERE person = ?1 AND rounds = 1";

/// Deletes the erasures that waited for the completed round of person `?1`.
pub(crate) const ERASURE_SWEEPS_DELETE_CURRENT_ROUND: &str =
    "DELETE FROM erasure_sweeps WHERE person = ?1 AND rounds = 1";

/// Lets all remaining erasures of person `?1` wait for the round that begins.
pub(crate) const ERASURE_SWEEPS_ADVANCE_ROUND: &str = "UPDATE erasure_sweeps SET rounds = 1 WHERE person = ?1";

/// Reads whether any erasure waits for a sweep. The forced index is read up to its first entry.
pub(crate) const ERASURE_SWEEPS_ANY: &str = "SELECT 1 FROM erasure_sweeps INDEXED BY erasure_sweeps_by_person LIMIT 1";
