-- Search. The tags of an index say what an entry belongs to, so that a search within one chat, of one author or of
-- one owner touches nothing else.
DROP TABLE chat_fts;
DROP VIEW chat_search;
CREATE VIEW chat_search AS
  SELECT m.id, 'c' || m.chat || ' o' || hex(c.owner) || ' r' || coalesce(hex(c.root), '') || ' a' || hex(m.author)
    || CASE WHEN instr(m.text, '?') > 0 THEN ' q' ELSE '' END AS tags, m.text
  FROM chat_messages m JOIN chats c ON c.id = m.chat;
CREATE VIRTUAL TABLE chat_fts USING fts5 (tags, text, content = 'chat_search', content_rowid = 'id', tokenize = 'unicode61 remove_diacritics 2');
INSERT INTO chat_fts (chat_fts, rank) VALUES ('rank', 'bm25(0.0, 1.0)');
INSERT INTO chat_fts (chat_fts) VALUES ('rebuild');

-- Which entries each hour may hold: an imported entry keeps its time, so ids alone do not tell it.
CREATE TABLE chat_hours (
  hour  INTEGER PRIMARY KEY,
  first INTEGER NOT NULL,
  last  INTEGER NOT NULL
) STRICT;
INSERT INTO chat_hours SELECT at / 3600000, min(id), max(id) FROM chat_messages GROUP BY 1;
CREATE TRIGGER chat_messages_hour AFTER INSERT ON chat_messages BEGIN
  INSERT INTO chat_hours VALUES (NEW.at / 3600000, NEW.id, NEW.id) ON CONFLICT (hour) DO UPDATE SET last = excluded.last;
END;

-- Requests with their answers, and what runs reported. They are indexed behind the history, by whoever searches
-- or when there is time, so that asking and answering cost no more for it.
CREATE TABLE search_docs (
  id   INTEGER PRIMARY KEY AUTOINCREMENT,
  kind TEXT NOT NULL CHECK (kind IN ('request', 'report')),
  -- The request's id, or the run's.
  ref  TEXT NOT NULL UNIQUE,
  run  TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  at   INTEGER NOT NULL
) STRICT;
CREATE INDEX search_docs_run ON search_docs (run);
CREATE VIRTUAL TABLE search_fts USING fts5 (tags, text, tokenize = 'unicode61 remove_diacritics 2');
INSERT INTO search_fts (search_fts, rank) VALUES ('rank', 'bm25(0.0, 1.0)');
CREATE TRIGGER search_docs_gone AFTER DELETE ON search_docs BEGIN DELETE FROM search_fts WHERE rowid = OLD.id; END;

-- How much of the history is in the index.
CREATE TABLE search_seen (
  id  INTEGER PRIMARY KEY CHECK (id = 1),
  seq INTEGER NOT NULL
) STRICT;
INSERT INTO search_seen VALUES (1, 0);
