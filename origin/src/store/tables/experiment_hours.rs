//! Statements of the table `experiment_hours`: the sums of each experiment by arm and hour.

/// Reads the sums of one arm in one hour.
pub(crate) const EXPERIMENT_HOURS_BY_KEY: &str =
    "SELECT exposed, cohort_converted, cohort_conversions, cohort_revenue, converted, conversions,
    revenue FROM experiment_hours WHERE tenant = ?1 AND experiment = ?2 AND arm = ?3 AND hour = ?4";

/// Inserts or replaces the sums of one arm in one hour.
pub(crate) const EXPERIMENT_HOURS_REPLACE: &str =
    "INSERT OR REPLACE INTO experiment_hours (tenant, experiment, arm, hour, exposed, cohort_converted,
    cohort_conversions, cohort_revenue, converted, conversions, revenue)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)";

/// Deletes the sums of one arm in one hour.
pub(crate) const EXPERIMENT_HOURS_DELETE: &str =
    "DELETE FROM experiment_hours WHERE tenant = ?1 AND experiment = ?2 AND arm = ?3 AND hour = ?4";

/// Reads the sums of all arms and hours of an experiment.
pub(crate) const EXPERIMENT_HOURS_OF_EXPERIMENT: &str =
    "SELECT exposed, cohort_converted, cohort_conversions, cohort_revenue, converted, conversions,
    revenue, arm, hour FROM experiment_hours WHERE tenant = ?1 AND experiment = ?2";

/// Reads the sums of all experiments.
pub(crate) const EXPERIMENT_HOURS_ALL: &str =
    "SELECT exposed, cohort_converted, cohort_conversions, cohort_revenue, converted, conversions,
    revenue, tenant, experiment, arm, hour FROM experiment_hours";
