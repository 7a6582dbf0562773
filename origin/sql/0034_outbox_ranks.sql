-- Tenants take turns in the outbox, and who leaves waits behind nobody's news. Ranks: 0 what every request of a tenant goes by,
-- 1 who left or is erased, 2 news, 3 what is written anew in bulk.
DROP INDEX outbox_by_due;
DROP INDEX outbox_first;
ALTER TABLE outbox ADD COLUMN rank INTEGER NOT NULL DEFAULT 2;
UPDATE outbox SET rank = CASE
    WHEN kind > 255 THEN 0
    WHEN (tenant, kind, subject) IN (SELECT tenant, kind, subject FROM erasure_keys WHERE written IS NULL) THEN 1
    WHEN bulk = 1 THEN 3
    ELSE 2 END;
ALTER TABLE outbox DROP COLUMN bulk;
-- Nobody reads since when something waits.
ALTER TABLE outbox DROP COLUMN since;
CREATE INDEX outbox_by_turn ON outbox (rank, tenant, due, kind) WHERE due IS NOT NULL;
