-- Runs of jobs: what waits, what is under way and how far it is, and the newest that ended.
CREATE TABLE runs (
    run     INTEGER PRIMARY KEY,
    job     TEXT    NOT NULL,
    tenant  INTEGER,                    -- of a job for one tenant; none: for all
    woken   TEXT    NOT NULL,           -- timer, signal or command
    dry_run INTEGER NOT NULL,           -- 1: it says what it would do
    asked   INTEGER NOT NULL,
    started INTEGER,                    -- none: it waits
    starts  INTEGER NOT NULL DEFAULT 0, -- how often it was begun since it last ended in order
    ended   INTEGER,
    done    INTEGER NOT NULL DEFAULT 0,
    total   INTEGER NOT NULL DEFAULT 0,
    cursor  INTEGER NOT NULL DEFAULT 0, -- from where it goes on
    outcome TEXT,                       -- done, failed or interrupted
    report  TEXT    NOT NULL DEFAULT '{}'
) STRICT;
CREATE INDEX runs_by_job ON runs (job, run);
