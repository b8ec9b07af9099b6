"""The report's sections and tables, the same for every rendering."""
