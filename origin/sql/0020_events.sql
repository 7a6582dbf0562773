-- Events by name, packed; no bytes where a row is older than this column and nothing of the visitor was folded since: events
-- of before cannot be said then.
ALTER TABLE visitors ADD COLUMN events BLOB NOT NULL DEFAULT x'';
