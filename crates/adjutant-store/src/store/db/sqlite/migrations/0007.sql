-- Version 7: token counts are estimated when they are needed.
DROP TABLE chat_tokens;
