"""What each library means by attention: the table, where they differ on an input, how to port."""
