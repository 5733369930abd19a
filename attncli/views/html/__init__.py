"""The page of --format html: what the script of it is made of, and what it computes from."""
