-- The newest change with which somebody was erased: a file of columns of before it is written anew.
ALTER TABLE meta ADD COLUMN columns_erased INTEGER NOT NULL DEFAULT 0;
