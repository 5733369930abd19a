"""What a Trace looks like: tables, Markdown, delimited text."""
