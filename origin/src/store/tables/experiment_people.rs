//! Statements of the table `experiment_people`: the results of each person in each experiment.

/// Deletes the result of person `?1` in experiment `?2`.
pub(crate) const EXPERIMENT_PEOPLE_DELETE: &str = "DELETE FROM experiment_people WHERE person = ?1 AND experiment = ?2";

/// Inserts or replaces the result of a person in an experiment.
pub(crate) const EXPERIMENT_PEOPLE_REPLACE: &str = "INSERT OR REPLACE INTO experiment_people
    (person, experiment, tenant, arm, exposed, converted, hours) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";

/// Reads the results of person `?1` in all experiments.
pub(crate) const EXPERIMENT_PEOPLE_OF_PERSON: &str =
    "SELECT tenant, experiment, arm, exposed, converted, hours FROM experiment_people WHERE person = ?1";

/// Reads the results of all people.
pub(crate) const EXPERIMENT_PEOPLE_ALL: &str =
    "SELECT tenant, experiment, arm, exposed, converted, hours FROM experiment_people";

/// Reads at most `?3` results after person `?1` and experiment `?2`, in the order of the key.
pub(crate) const EXPERIMENT_PEOPLE_PAGE: &str =
    "SELECT person, experiment, hours FROM experiment_people WHERE (person, experiment) > (?1, ?2)
    ORDER BY person, experiment LIMIT ?3";

/// Inserts a result of an export for the person with master `?2`.
pub(crate) const EXPERIMENT_PEOPLE_INSERT_BY_MASTER: &str =
    "INSERT INTO experiment_people (person, experiment, tenant, arm, exposed, converted, hours)
    SELECT person, ?3, ?1, ?4, ?5, ?6, ?7 FROM people WHERE tenant = ?1 AND master = ?2";
