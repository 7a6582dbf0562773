-- What is written anew in bulk, by jobs, imports and restores, waits behind news: who left, who logged in, what was seen.
ALTER TABLE outbox ADD COLUMN bulk INTEGER NOT NULL DEFAULT 0;
DROP INDEX outbox_by_due;
CREATE INDEX outbox_by_due ON outbox (bulk, due, kind) WHERE due IS NOT NULL;
