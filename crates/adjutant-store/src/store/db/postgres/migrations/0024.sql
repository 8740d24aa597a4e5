-- Schema version 24. The comments on tables of all engines are in the migration for SQLite.

CREATE TABLE eras (
  era      BIGINT PRIMARY KEY,
  began_at BIGINT NOT NULL,
  gaps     TEXT COLLATE "C" NOT NULL
);

-- The secret of the store, by which hubs and runners recognise it.
ALTER TABLE hub ADD COLUMN store TEXT COLLATE "C" NOT NULL DEFAULT random_id();

-- The newest epochs: a random id of each, and its last transaction once the next one has begun.
CREATE TABLE leads (
  epoch BIGINT PRIMARY KEY,
  id    TEXT COLLATE "C" NOT NULL,
  last  BIGINT
);

-- What a hub on standby knows to be confirmed, as JSON.
ALTER TABLE hubs ADD COLUMN confirmed TEXT COLLATE "C";

-- A text in lower case, as far as the locale of the database knows.
CREATE FUNCTION folded(text TEXT) RETURNS TEXT LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
  SELECT lower(normalize(text, NFC) COLLATE "default") COLLATE "C"
$$;
-- The words of a text, separated by spaces: punctuation separates them, and in scripts without spaces each character counts as a word (as in
-- search/unspaced.rs). The words that the server indexes of a text have at most one megabyte, with eight bytes for each beside its own, so the
-- length is limited. A function of an index finds only the server's own functions.
CREATE FUNCTION words_apart(text TEXT) RETURNS TEXT LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
  SELECT left(regexp_replace(regexp_replace(
    translate(lower(normalize(text, NFC) COLLATE "default") COLLATE "C", '!"#$%&''()*+,-./:;<=>?@[\]^_`{|}~', repeat(' ', 32)),
    '[\u00A0-\u00A9\u00AB-\u00B1\u00B4\u00B6-\u00B8\u00BB\u00BF\u00D7\u00F7\u2000-\u206F\u20A0-\u20CF\u2190-\u245F\u2500-\u2BFF\u3000-\u3004\u3008-\u3020\uFE10-\uFE4F\uFF01-\uFF0F\uFF1A-\uFF20\uFF3B-\uFF40\uFF5B-\uFF65\U0001F000-\U0001FAFF]',
    ' ', 'g'),
    '([\u0E01-\u0EFF\u1000-\u109F\u1100-\u11FF\u1780-\u17FF\u3005-\u3007\u3021-\u312F\u3130-\u318F\u31A0-\u31BF\u31F0-\u31FF\u3400-\u4DBF\u4E00-\u9FFF\uA960-\uA97F\uA9E0-\uA9FF\uAA60-\uAA7F\uAC00-\uD7FF\uF900-\uFAFF\uFF66-\uFFDC\U0001B000-\U0001B16F\U00020000-\U0003FFFD])',
    ' \1 ', 'g'), 250000)
$$;
CREATE INDEX chat_messages_words ON chat_messages USING gin (to_tsvector('simple', words_apart(text)));
CREATE INDEX search_fts_words ON search_fts USING gin (to_tsvector('simple', words_apart(text)));
