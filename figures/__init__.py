"""The course's figures: plain tables and numbers in, pictures out. Nothing here measures or reads files."""
