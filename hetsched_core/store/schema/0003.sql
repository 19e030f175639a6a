-- How long each decision's document is, so that what is kept can be bounded without reading it.
ALTER TABLE decision ADD COLUMN bytes BIGINT DEFAULT 0;
UPDATE decision SET bytes = strlen(document);
