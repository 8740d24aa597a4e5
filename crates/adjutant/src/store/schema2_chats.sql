-- Whom an imported file names is nobody here.
UPDATE chat_members SET who = 'file:' || who WHERE chat IN (SELECT id FROM chats WHERE imported = 1) AND who NOT LIKE 'file:%';
UPDATE chats SET started_by = 'file:' || started_by WHERE imported = 1 AND started_by NOT LIKE 'file:%';
