"""The ops, each in one place with all its rules; files are cut by kind of index behaviour."""
