-- The newest change with which somebody was erased: a file of columns of before it is written anew.
ALTER TABLE meta ADD COLUMN columns_erased INTEGER NOT NULL DEFAULT 0;
UPDATE meta SET columns_erased = ifnull((SELECT seq FROM sqlite_sequence WHERE name = 'people_changed'), 0);
