-- What an experiment counts as its conversions, by the version that had it last, and until when one did: it goes on counting
-- that for as long as conversions are kept.
ALTER TABLE catalogue_codes ADD COLUMN conversion TEXT;
ALTER TABLE catalogue_codes ADD COLUMN conversion_until INTEGER; -- none: it is in the current version
CREATE INDEX catalogue_conversions ON catalogue_codes (tenant, code, conversion, conversion_until)
    WHERE conversion IS NOT NULL;
UPDATE catalogue_codes SET (conversion, conversion_until) = (
    SELECT ifnull(e.value ->> '$.conversion', 'purchase'), iif(u.tenant IS NULL, c.replaced, NULL)
    FROM catalogues c JOIN json_each(c.experiments) e LEFT JOIN catalogue_current u USING (tenant, version)
    WHERE c.tenant = catalogue_codes.tenant AND e.value ->> '$.code' = catalogue_codes.code
    ORDER BY u.tenant IS NULL, c.replaced DESC, c.version DESC LIMIT 1
) WHERE sort = 'experiment';
