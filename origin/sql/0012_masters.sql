-- All people of a tenant, by their masters.
CREATE INDEX people_by_master ON people (tenant, master);

-- Whose each visitor is, without its row: a visitor has hundreds of bytes there, and forty here.
CREATE INDEX visitors_by_id ON visitors (tenant, visitor, person);
