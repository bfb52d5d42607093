"""The commands of `paceline`, a file for each group of them. What is slow to import is imported when a command runs."""
