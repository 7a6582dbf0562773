-- What an experiment counts as its conversions, by the newest version that had it: it goes on counting that when it is out.
ALTER TABLE catalogue_codes ADD COLUMN conversion TEXT;
CREATE INDEX catalogue_conversions ON catalogue_codes (tenant, code, conversion) WHERE conversion IS NOT NULL;
UPDATE catalogue_codes SET conversion = (
    SELECT ifnull(e.value ->> '$.conversion', 'purchase') FROM catalogues c, json_each(c.experiments) e
    WHERE c.tenant = catalogue_codes.tenant AND e.value ->> '$.code' = catalogue_codes.code
    ORDER BY c.version DESC LIMIT 1
) WHERE sort = 'experiment';
