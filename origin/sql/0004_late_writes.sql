-- A consumer that was given up may still write what it was handed: until then its key is written once more.
ALTER TABLE outbox ADD COLUMN late INTEGER NOT NULL DEFAULT 0;      -- until when such a write may land
