-- Sends: so many people drawn at random of those that a filter means, each told once.
CREATE TABLE sends (
    send       INTEGER PRIMARY KEY,
    tenant     INTEGER NOT NULL,
    name       TEXT    NOT NULL,
    filter     TEXT    NOT NULL,      -- JSON
    count      INTEGER NOT NULL,      -- how many were asked for
    experiment TEXT,                  -- whose arms they are dealt to
    webhook    INTEGER NOT NULL,      -- whether the tenant's webhook is told
    per_second INTEGER NOT NULL,      -- at most; 0: as fast as it goes
    random     INTEGER NOT NULL,      -- what they are drawn by
    asked      INTEGER NOT NULL,
    chosen     INTEGER,               -- how many were drawn; NULL until all of them are written
    next       INTEGER NOT NULL DEFAULT 0, -- the place of the first who was not looked at yet
    delivered  INTEGER NOT NULL DEFAULT 0, -- so many of those before it came to this
    control    INTEGER NOT NULL DEFAULT 0,
    gone       INTEGER NOT NULL DEFAULT 0,
    merged     INTEGER NOT NULL DEFAULT 0,
    "left"     INTEGER NOT NULL DEFAULT 0,
    due        INTEGER,               -- when it goes on; NULL once it is over
    tries      INTEGER NOT NULL DEFAULT 0, -- in vain, since it last got on
    error      TEXT,                  -- what was in the way last
    UNIQUE (tenant, name)
) STRICT;

-- Whom a send drew, in the order in which they are told.
CREATE TABLE send_people (
    send    INTEGER NOT NULL,
    place   INTEGER NOT NULL,         -- from 0 on; that of who was erased is free
    visitor BLOB    NOT NULL,         -- the person's oldest when it was drawn
    arm     INTEGER,                  -- its code
    outcome INTEGER,                  -- NULL: not looked at yet; 1 delivered, 2 control, 3 gone, 4 merged, 5 left
    at      INTEGER,                  -- when it was
    PRIMARY KEY (send, place)
) STRICT, WITHOUT ROWID;
CREATE INDEX send_people_visitor ON send_people (visitor, send);
