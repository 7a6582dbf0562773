-- Audiences that are kept as segments.
CREATE TABLE audiences (
    tenant      INTEGER NOT NULL,
    segment     INTEGER NOT NULL,
    filter      TEXT,             -- JSON; NULL: nobody is meant any more, and the row goes once all members left
    hours       INTEGER NOT NULL, -- for how long a member is in the segment, from each write of it
    every_hours INTEGER NOT NULL, -- how often it is refreshed; 0: when somebody asks
    due         INTEGER,          -- from when on it is to be refreshed; NULL: when somebody asks
    refreshed   INTEGER,
    members     INTEGER NOT NULL,
    PRIMARY KEY (tenant, segment)
) STRICT, WITHOUT ROWID;

-- Visitors that were written into the segment of an audience, and up to which hour.
CREATE TABLE audience_members (
    tenant  INTEGER NOT NULL,
    segment INTEGER NOT NULL,
    visitor BLOB    NOT NULL,
    until   INTEGER NOT NULL,
    PRIMARY KEY (tenant, segment, visitor)
) STRICT, WITHOUT ROWID;
