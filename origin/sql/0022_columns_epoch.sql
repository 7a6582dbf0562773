-- Columns of people, and their file, that were built under another number are built anew.
ALTER TABLE meta ADD COLUMN columns_epoch INTEGER NOT NULL DEFAULT 0;
