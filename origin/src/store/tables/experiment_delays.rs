//! Statements of the table `experiment_delays`: the number of people by the delay of their first conversion.

/// Reads the delay counts of all experiments.
pub(crate) const EXPERIMENT_DELAYS_ALL: &str = "SELECT tenant, experiment, hour, delay, people FROM experiment_delays";

/// Adds `?5` people, which may be negative, to a delay count.
pub(crate) const EXPERIMENT_DELAYS_ADD_PEOPLE: &str =
    "INSERT INTO experiment_delays (tenant, experiment, hour, delay, people) VALUES (?1, ?2, ?3, ?4, ?5)
    ON CONFLICT DO UPDATE SET people = people + excluded.people";

/// Deletes a delay count that is zero.
pub(crate) const EXPERIMENT_DELAYS_DELETE_IF_ZERO: &str = "DELETE FROM experiment_delays
    WHERE tenant = ?1 AND experiment = ?2 AND hour = ?3 AND delay = ?4 AND people = 0";

/// Reads the delay counts of an experiment for exposures after hour `?3`.
pub(crate) const EXPERIMENT_DELAYS_OF_EXPERIMENT: &str = "SELECT hour, delay, people FROM experiment_delays
    WHERE tenant = ?1 AND experiment = ?2 AND hour > ?3";
