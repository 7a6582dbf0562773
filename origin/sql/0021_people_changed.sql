-- People who changed, came or went, in order: who keeps them in another form follows it. Numbers are never given again.
CREATE TABLE people_changed (
    seq    INTEGER PRIMARY KEY AUTOINCREMENT,
    person INTEGER NOT NULL
) STRICT;
