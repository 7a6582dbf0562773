-- Visitors whose rows cannot be read, and facts of theirs that wait until they can: nobody else waits for them.
CREATE TABLE unreadable (
    row   INTEGER PRIMARY KEY,          -- of `visitors`
    since INTEGER NOT NULL
) STRICT;
CREATE TABLE set_aside (
    row   INTEGER NOT NULL,             -- of `visitors`
    id    BLOB    NOT NULL,
    fact  BLOB    NOT NULL,
    admin INTEGER NOT NULL,             -- whether the admin side says it
    said  TEXT,                         -- who there, and why
    UNIQUE (row, id)
) STRICT;
