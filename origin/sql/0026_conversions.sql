-- What an experiment counts as its conversions, by the version that had it last: it goes on counting that when it is out.
ALTER TABLE catalogue_codes ADD COLUMN conversion TEXT;
CREATE INDEX catalogue_conversions ON catalogue_codes (tenant, code, conversion) WHERE conversion IS NOT NULL;
UPDATE catalogue_codes SET conversion = (
    SELECT ifnull(e.value ->> '$.conversion', 'purchase') FROM catalogues c, json_each(c.experiments) e
    WHERE c.tenant = catalogue_codes.tenant AND e.value ->> '$.code' = catalogue_codes.code
    ORDER BY EXISTS (SELECT 1 FROM catalogue_current WHERE tenant = c.tenant AND version = c.version) DESC,
        c.replaced DESC, c.version DESC LIMIT 1
) WHERE sort = 'experiment';
