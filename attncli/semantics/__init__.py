"""What each library means by attention: the table, where an input makes them part, how to port."""
